//! Looking closer: what a decision depends on and no cache can tell.

use fivespot_api::conditions::ReferencesValid;
use fivespot_planner::children::ChildNames;
use fivespot_planner::drain::{self, Kubelet};
use fivespot_planner::observed::{self, Node, NodePod, Observed, Pods, ProviderChild, Ref, Slot};
use fivespot_planner::plan::Look;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};

use super::{Eye, machine_slot, node};
use crate::cluster_api::{Machine, adopted_by, is_owned_by};
use crate::trouble::{MANAGEMENT, Trouble, is_not_found, within};
use crate::workload::Reach;

/// How many pods are asked for at a time, and how many times at most: no Node has more, and a server that never comes to
/// an end must not be listened to for ever.
const PAGE: u32 = 500;
const PAGES: u32 = 20;

impl Eye<'_> {
    /// Adds to what was seen what a decision asks for.
    pub(crate) async fn look(&self, look: Look, seen: &mut Observed) -> Result<(), Trouble> {
        match look {
            Look::Children => {
                self.look_at_machine(seen).await?;
                self.look_at_providers(seen).await?;
            }
            Look::Machine => self.look_at_machine(seen).await?,
            Look::Node => self.look_at_node(seen).await,
            Look::Pods => self.look_at_pods(seen).await,
        }
        Ok(())
    }

    async fn look_at_machine(&self, seen: &mut Observed) -> Result<(), Trouble> {
        let Eye { context, key, object } = *self;
        let name = ChildNames::of(&key.name).machine;
        let machines: Api<Machine> =
            Api::namespaced_with(context.client.clone(), &key.namespace, &context.served.machines);
        let what = format!("cannot read Machine {name}");
        match within(MANAGEMENT, &what, machines.get_opt(&name)).await? {
            Ok(Some(machine)) => {
                seen.machine = match machine_slot(&machine, &object.uid().unwrap_or_default()) {
                    Slot::Ours(ours) => Slot::Ours(observed::Machine { confirmed: true, ..ours }),
                    other => other,
                };
                seen.node = node::observe(self, Some(&machine).filter(|_| seen.machine.ours().is_some()));
                context.machines.saw(machine);
            }
            Ok(None) => (seen.machine, seen.node) = (Slot::Absent, Node::None),
            Err(error) => return Err(Trouble::of(&what, &error)),
        }
        Ok(())
    }

    async fn look_at_providers(&self, seen: &mut Observed) -> Result<(), Trouble> {
        let Some(refs) = seen.stored.refs.clone() else { return Ok(()) };
        seen.bootstrap = self.provider(&refs.bootstrap).await?;
        seen.infrastructure = self.provider(&refs.infrastructure).await?;
        Ok(())
    }

    async fn provider(&self, of: &Ref) -> Result<Slot<ProviderChild>, Trouble> {
        let Eye { context, key, object } = *self;
        let Some(kind) = self.kind(of).await? else { return Ok(Slot::Absent) };
        let what = format!("cannot read {} {}", of.kind, of.name);
        let read = async |kind: &ApiResource| {
            let objects: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &key.namespace, kind);
            within(MANAGEMENT, &what, objects.get_metadata_opt(&of.name)).await
        };
        let mut found = read(&kind).await?;
        // It may be that this version is not served any more, and another one is. Of such a version the API server does not
        // even say that the object is not there.
        if matches!(&found, Ok(None)) || found.as_ref().is_err_and(is_not_found) {
            context.kinds.forget(&Ref { api_version: kind.api_version.clone(), ..of.clone() });
            match self.kind(of).await? {
                Some(now) if now.version != kind.version => found = read(&now).await?,
                Some(_) => {}
                None => return Ok(Slot::Absent),
            }
        }
        match found {
            Ok(None) => Ok(Slot::Absent),
            Ok(Some(found)) if !is_owned_by(&found.metadata, &object.uid().unwrap_or_default()) => {
                Ok(Slot::Foreign(found.metadata.uid.unwrap_or_default()))
            }
            Ok(Some(found)) => {
                let found = DynamicObject { metadata: found.metadata, types: None, data: serde_json::Value::Null };
                Ok(Slot::Ours(ProviderChild {
                    uid: found.uid().unwrap_or_default(),
                    deleting: found.metadata.deletion_timestamp.is_some(),
                    adopted_by: adopted_by(&found),
                    fingerprint: found.annotations().get(fivespot_api::keys::MADE_FROM_ANNOTATION).cloned(),
                }))
            }
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }

    /// What a kind is called; of one that is not served there is no object.
    async fn kind(&self, of: &Ref) -> Result<Option<ApiResource>, Trouble> {
        match self.context.kinds.find_in_any_version(of).await {
            Ok(kind) => Ok(Some(kind)),
            Err(Trouble::Refused { references: Some(ReferencesValid::KindNotFound), .. }) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Whether the Node is really not there. A cluster that does not answer is seen as one that cannot be reached.
    async fn look_at_node(&self, seen: &mut Observed) {
        let Eye { context, key, .. } = *self;
        let machine = context.machines.of(key);
        let name = seen.machine.ours().and_then(|it| it.node.clone());
        let (Some(machine), Some(name), Some(reach)) = (machine, name, context.workloads.reach(key)) else {
            seen.node = Node::Sought;
            return;
        };
        let nodes = reach.nodes();
        seen.node = match reach.ask("cannot read the Node", nodes.get_opt(&name)).await {
            Ok(Ok(Some(found))) => {
                let node = node::ours(self, &machine, &found);
                reach.saw(found);
                node
            }
            Ok(Ok(None)) => Node::None,
            Ok(Err(error)) => Node::Unreachable(Trouble::of("cannot read the Node", &error).to_string()),
            Err(trouble) => Node::Unreachable(trouble.to_string()),
        }
    }

    async fn look_at_pods(&self, seen: &mut Observed) {
        let Eye { context, key, .. } = *self;
        let (Node::Ours(ours), Some(reach)) = (&seen.node, context.workloads.reach(key)) else {
            seen.node = Node::Sought;
            return;
        };
        match pods_of(&reach, &ours.name).await {
            Ok(pods) => {
                let silent = context.workloads.kubelet_is_silent(key, &ours.name);
                let kubelet = if silent { Kubelet::Silent } else { Kubelet::Answers };
                let now = pods.iter().map(|pod| node_pod(pod, kubelet)).collect();
                seen.pods = Pods::Read { now, at_first: 0 };
            }
            Err(trouble) => seen.node = Node::Unreachable(trouble.to_string()),
        }
    }
}

/// All pods of a Node, a page at a time.
pub(crate) async fn pods_of(reach: &Reach, node: &str) -> Result<Vec<Pod>, Trouble> {
    let what = format!("cannot list the pods of Node {node}");
    let pods: Api<Pod> = Api::all(reach.client());
    let mut params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE);
    let mut found = Vec::new();
    for _ in 0..PAGES {
        let page = reach.ask(&what, pods.list(&params)).await?.map_err(|error| Trouble::of(&what, &error))?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(more) => params = params.continue_token(&more),
            None => return Ok(found),
        }
    }
    Err(Trouble::Refused { why: format!("{what}: there is no end to them"), references: None })
}

fn node_pod(pod: &Pod, kubelet: Kubelet) -> NodePod {
    let ended = pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    NodePod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        verdict: drain::classify(pod, kubelet),
        to_end: drain::is_ejected(pod) && !ended,
    }
}
