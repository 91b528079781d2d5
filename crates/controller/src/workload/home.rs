//! One Cluster that machines have joined: connecting to it, staying connected, and knowing when that is over.

mod source;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{ClusterKey, Means, Nodes, Watched, kubeconfig};
use crate::lock::lock;
use crate::queue::Key;
use crate::trouble::{gist, told};

use source::{Source, Unknown};

/// How long a cluster may take to tell of its Nodes, and then of the next.
const FIRST_ANSWER: Duration = Duration::from_secs(15);
/// The first wait after a failure, doubled each time up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// How often a Secret is looked for again because a Node is not where it was expected.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// One Cluster that machines have joined.
pub(crate) struct Home {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    cluster: ClusterKey,
    means: Means,
    state: Mutex<State>,
    /// Who is to be called about which Node.
    watched: Watched,
    /// A request was not answered: whether the cluster still does is to be found out.
    suspected: Notify,
    /// A Node is not where it was expected: whether the Secret is still the same is to be found out.
    missed: Notify,
    looked: Mutex<Instant>,
    /// Whether there was a Secret before.
    had_kubeconfig: AtomicBool,
    local: Arc<Mutex<Weak<Nodes>>>,
}

/// How a Cluster is reached.
#[derive(Clone)]
pub(crate) enum State {
    /// It is being connected.
    Sought,
    /// It cannot be used.
    Unreachable(String),
    /// It answers.
    Connected(Arc<Nodes>),
}

impl Home {
    pub(super) fn start(means: Means, cluster: ClusterKey, local: Arc<Mutex<Weak<Nodes>>>) -> Arc<Self> {
        let shared = Arc::new(Shared::new(means, cluster, local));
        let task = tokio::spawn(Arc::clone(&shared).stay_connected()).abort_handle();
        Arc::new(Home { shared, task })
    }

    pub(super) fn state(&self) -> State {
        lock(&self.shared.state).clone()
    }

    /// An object has its Machine's Node here.
    pub(super) fn expect(&self, node: &str, key: &Key) {
        lock(&self.shared.watched).add(key, node);
    }

    /// An object has nothing here any more; whether it was the last.
    pub(super) fn forget(&self, key: &Key) -> bool {
        let mut watched = lock(&self.shared.watched);
        watched.remove(key);
        watched.is_empty()
    }

    /// A Node is not where it was expected: the Secret is looked for again, unless that has been done just now. Whether
    /// it is.
    pub(super) fn look_again(&self) -> bool {
        let mut looked = lock(&self.shared.looked);
        if looked.elapsed() < LOOK_AGAIN {
            return false;
        }
        *looked = Instant::now();
        self.shared.missed.notify_one();
        true
    }

    /// A request was not answered. What was sent over a connection that has been lost says nothing about the next one.
    pub(super) fn suspect(&self, nodes: &Arc<Nodes>) {
        if matches!(&*lock(&self.shared.state), State::Connected(now) if Arc::ptr_eq(now, nodes)) {
            self.shared.suspected.notify_one();
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.task.abort();
        if let State::Connected(nodes) = &*lock(&self.shared.state) {
            nodes.call_no_more(&self.shared.watched);
        }
    }
}

impl Shared {
    fn new(means: Means, cluster: ClusterKey, local: Arc<Mutex<Weak<Nodes>>>) -> Self {
        Shared {
            cluster,
            means,
            state: Mutex::new(State::Sought),
            watched: Watched::default(),
            suspected: Notify::new(),
            missed: Notify::new(),
            looked: Mutex::new(Instant::now()),
            had_kubeconfig: AtomicBool::new(false),
            local,
        }
    }

    /// Connects, and connects again, until nobody needs this Cluster any more.
    async fn stay_connected(self: Arc<Self>) {
        let mut wait = FIRST_WAIT;
        loop {
            let begun = Instant::now();
            let connected = match self.source().await {
                Ok(Source::Management) => {
                    let nodes = self.management();
                    self.enter(State::Connected(nodes));
                    self.missed.notified().await;
                    true
                }
                Ok(Source::Kubeconfig(text)) => match self.connect(&text).await {
                    Ok(connection) => {
                        self.follow(connection, &text).await;
                        true
                    }
                    Err(why) => {
                        self.enter(State::Unreachable(why));
                        false
                    }
                },
                Err(unknown) => {
                    self.enter(State::Unreachable(unknown.into()));
                    false
                }
            };
            // A cluster that is connected and lost at once, again and again, is no better than one that is away.
            let lived = connected && begun.elapsed() >= LONGEST_WAIT;
            wait = if lived { FIRST_WAIT } else { (wait * 2).min(LONGEST_WAIT) };
            tokio::time::sleep(wait).await;
        }
    }

    /// The Nodes of the management cluster, which are watched once for all who need them.
    fn management(&self) -> Arc<Nodes> {
        let mut local = lock(&self.local);
        local.upgrade().unwrap_or_else(|| {
            let nodes = Arc::new(Nodes::new(self.means.management.clone()));
            nodes.keep_watching(Arc::clone(&self.means.queue));
            *local = Arc::downgrade(&nodes);
            nodes
        })
    }

    async fn connect(&self, text: &str) -> Result<Connection, String> {
        let ClusterKey { namespace, name } = &self.cluster;
        let config = kubeconfig::config(text)
            .await
            .map_err(|why| format!("the kubeconfig in Secret {namespace}/{name}-kubeconfig cannot be used: {why}"))?;
        let server = config.cluster_url.to_string();
        let client = crate::client::client(config, &self.means.metrics).map_err(|error| told(&error))?;
        let nodes = Arc::new(Nodes::new(client));
        let mut connection = Connection { stream: nodes.stream().boxed(), nodes };
        self.hear_of_all(&mut connection).await.map_err(|why| format!("{server} {why}"))?;
        Ok(connection)
    }

    /// Hears of all Nodes that there are. However many they are: it is the next of them that may not take long.
    async fn hear_of_all(&self, connection: &mut Connection) -> Result<(), String> {
        let Connection { nodes, stream } = connection;
        while !nodes.is_synced() {
            let answer = tokio::time::timeout(FIRST_ANSWER, stream.next()).await;
            match answer.map_err(|_| format!("did not answer within {} s", FIRST_ANSWER.as_secs()))? {
                Some(Ok(event)) => nodes.hear(event, &self.means.queue),
                Some(Err(error)) => {
                    return Err(format!("cannot be used: {}", gist(&fivespot_cli_support::chain(&error))));
                }
                None => return Err("ended the watch of its Nodes".to_owned()),
            }
        }
        Ok(())
    }

    /// Hears what the cluster tells for as long as it does.
    async fn follow(&self, connection: Connection, text: &str) {
        let Connection { nodes, mut stream } = connection;
        // Whatever was suspected of the connection before has been found out.
        let _ = self.suspected.notified().now_or_never();
        self.enter(State::Connected(Arc::clone(&nodes)));
        loop {
            tokio::select! {
                event = stream.next() => match event {
                    Some(Ok(event)) => nodes.hear(event, &self.means.queue),
                    Some(Err(_)) | None => break,
                },
                () = self.suspected.notified() => break,
                () = self.missed.notified() => match self.source().await {
                    Ok(Source::Kubeconfig(now)) if now == text => self.enter(State::Connected(Arc::clone(&nodes))),
                    // A connection that works is not given up because somebody else does not answer.
                    Err(Unknown::NotTold(_)) => self.enter(State::Connected(Arc::clone(&nodes))),
                    Ok(_) | Err(Unknown::Told(_)) => break,
                },
            }
        }
        // Nothing is heard of its Nodes from here on, until it is connected again.
        self.enter(State::Sought);
    }

    /// Takes on a state, and calls everybody whom it concerns.
    fn enter(&self, next: State) {
        let mut state = lock(&self.state);
        if let State::Connected(nodes) = &*state {
            nodes.call_no_more(&self.watched);
        }
        if let State::Connected(nodes) = &next {
            nodes.call(&self.watched);
        }
        let cluster = format!("{}/{}", self.cluster.namespace, self.cluster.name);
        match &next {
            State::Unreachable(why) => tracing::warn!(cluster, why, "the workload cluster cannot be used"),
            State::Connected(_) if !matches!(&*state, State::Connected(_)) => {
                tracing::info!(cluster, "the workload cluster is connected");
            }
            State::Connected(_) | State::Sought => {}
        }
        *state = next;
        drop(state);
        lock(&self.watched).call(None, &self.means.queue);
    }
}

/// A cluster that answered, and what it goes on to tell.
struct Connection {
    nodes: Arc<Nodes>,
    stream: BoxStream<'static, Result<watcher::Event<Node>, watcher::Error>>,
}
