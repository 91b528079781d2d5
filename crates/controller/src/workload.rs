//! The clusters that machines join: who they are, how they are reached, and what is known of their Nodes.
//!
//! A Cluster is connected when the first of its machines has become a Node, and let go with the last. It is reached with
//! the kubeconfig that Cluster API keeps for it; where there is none, the management cluster is taken for it, unless that
//! is forbidden. What does not work is told, and tried again with a fresh look at the Secret. Nobody waits for any of it:
//! a pass is told what is known now, and is called again when that changes.

mod home;
mod kubeconfig;
mod nodes;
pub(crate) mod orders;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};

use crate::lock::lock;
use crate::metrics::Metrics;
use crate::queue::{Key, Queue};
use crate::trouble::{Trouble, WORKLOAD, api_status, within};

use home::Home;
pub(crate) use home::State;
use nodes::{Nodes, Watched};
pub(crate) use orders::Posted;

/// A Cluster, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What it takes to reach clusters.
#[derive(Clone)]
pub(crate) struct Means {
    /// The management cluster, where the Secrets are.
    pub(crate) management: Client,
    /// Whether a Cluster without a Secret is an error.
    pub(crate) require_kubeconfig: bool,
    /// Where the reclaim agent lives, in whatever cluster.
    pub(crate) agent_namespace: Arc<str>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
}

/// All clusters that machines have joined.
pub(crate) struct Workloads {
    means: Means,
    /// The Nodes of the management cluster, for all Clusters that are it.
    local: Arc<Mutex<std::sync::Weak<Nodes>>>,
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    homes: HashMap<ClusterKey, Arc<Home>>,
    /// Where each object's Node lives.
    of: HashMap<Key, ClusterKey>,
}

/// What is known of a Node.
pub(crate) enum Lookup {
    /// Its cluster is being connected.
    Sought,
    /// Its cluster cannot be used.
    Unreachable(String),
    /// Its cluster has none of that name.
    Absent,
    /// It is there.
    Found(Arc<Node>),
}

impl Workloads {
    pub(crate) fn new(means: Means) -> Self {
        Workloads { means, local: Arc::default(), state: Mutex::default() }
    }

    /// What is known of the Node of an object's Machine. The object is called when that changes.
    pub(crate) fn node(&self, key: &Key, cluster: &ClusterKey, name: &str) -> Lookup {
        let home = self.home(key, cluster, name);
        match home.state() {
            State::Sought => Lookup::Sought,
            State::Unreachable(why) => Lookup::Unreachable(why),
            // Of a management cluster that once told of its Nodes and then does not, the last that it told counts.
            State::Connected(nodes) if !nodes.is_synced() => nodes.trouble().map_or(Lookup::Sought, |why| {
                Lookup::Unreachable(format!("the Nodes of the management cluster cannot be read: {why}"))
            }),
            State::Connected(nodes) => match nodes.get(name) {
                Some(node) => Lookup::Found(node),
                // It may be that a Secret has come since, and that this is not where the Node lives.
                None if home.look_again() => Lookup::Sought,
                None => Lookup::Absent,
            },
        }
    }

    /// Where the reclaim agent lives, in whatever cluster.
    pub(crate) fn agent_namespace(&self) -> &str {
        &self.means.agent_namespace
    }

    /// The way to the Nodes of an object's cluster.
    pub(crate) fn reach(&self, key: &Key) -> Option<Reach> {
        let state = self.lock();
        let home = state.homes.get(state.of.get(key)?)?;
        match home.state() {
            State::Connected(nodes) => Some(Reach { nodes, home: Arc::clone(home) }),
            State::Sought | State::Unreachable(_) => None,
        }
    }

    /// What the agent on the Node of an object's Machine is told. The object is called when that changes.
    pub(crate) fn orders(&self, key: &Key, node: &str) -> Posted {
        let reach = self.reach(key);
        reach.map_or(Posted::Sought, |it| it.nodes.board(&self.means).of(node))
    }

    /// Whether nothing has been heard of the kubelet of a Node for a while, as its cluster says.
    pub(crate) fn kubelet_is_silent(&self, key: &Key, name: &str) -> bool {
        let node = self.reach(key).and_then(|it| it.nodes.get(name));
        let conditions = node.as_ref().and_then(|it| it.status.as_ref()).and_then(|it| it.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "Unknown")
    }

    /// An object has no Node any more. With the last of them its cluster is let go.
    pub(crate) fn release(&self, key: &Key) {
        let mut state = self.lock();
        let Some(cluster) = state.of.remove(key) else { return };
        if state.homes.get(&cluster).is_some_and(|home| home.forget(key)) {
            state.homes.remove(&cluster);
        }
    }

    /// The home of an object's Node. Who expects something there is entered under the same lock under which the last who
    /// does is taken out, so that nobody is left with a home that has been let go.
    fn home(&self, key: &Key, cluster: &ClusterKey, node: &str) -> Arc<Home> {
        let mut state = self.lock();
        let before = state.of.insert(key.clone(), cluster.clone());
        if let Some(before) = before.filter(|it| it != cluster)
            && state.homes.get(&before).is_some_and(|home| home.forget(key))
        {
            state.homes.remove(&before);
        }
        let start = || Home::start(self.means.clone(), cluster.clone(), Arc::clone(&self.local));
        let home = Arc::clone(state.homes.entry(cluster.clone()).or_insert_with(start));
        home.expect(node, key);
        home
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.state)
    }
}

/// The way to the Nodes and pods of a cluster that answered when it was last heard of.
pub(crate) struct Reach {
    nodes: Arc<Nodes>,
    home: Arc<Home>,
}

impl Reach {
    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.nodes.client.clone())
    }

    pub(crate) fn client(&self) -> Client {
        self.nodes.client.clone()
    }

    /// What is known of a Node.
    pub(crate) fn known(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name)
    }

    /// What the agent on a Node is told.
    pub(crate) fn orders(&self, node: &str) -> Posted {
        self.nodes.posted(node)
    }

    /// Takes what we told the agent on a Node.
    pub(crate) fn wrote_orders(&self, orders: ConfigMap) {
        self.nodes.wrote_orders(orders);
    }

    /// We took away what the agent on a Node was told.
    pub(crate) fn deleted_orders(&self, node: &str) {
        self.nodes.deleted_orders(node);
    }

    /// Takes a Node that we asked for.
    pub(crate) fn saw(&self, node: Node) {
        self.nodes.saw(node);
    }

    /// Takes the answer to a write of ours.
    pub(crate) fn wrote(&self, node: Node) {
        self.nodes.wrote(node);
    }

    /// Sends a request. A cluster that does not answer it is suspected of being away; one that says no is not.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, Trouble> {
        let answer = within(WORKLOAD, what, request).await;
        let answered =
            answer.as_ref().is_ok_and(|it| it.as_ref().err().is_none_or(|error| api_status(error).is_some()));
        if !answered {
            self.home.suspect(&self.nodes);
        }
        answer
    }
}
