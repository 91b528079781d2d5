//! What the caches show, and what each closer look, which goes to the API server itself, adds to it.

use fivespot_api::ReclaimStatus;
use fivespot_planner::drain::DrainAction;
use fivespot_planner::observed::{
    Absence, AgentConfig, AgentRollout, Child, DesiredChildren, Machine, MachineHealth, ManagedNode, Node, NodePod,
    Observed, Pods, ProviderChild, ReclaimRequest, RecreateBackoff, Ref, Refs, Stored,
};
use fivespot_planner::plan::NeedsRead;
use jiff::{SignedDuration, Timestamp};

use super::state::{MachineState, NodeState, Object, ProviderState, Reach, Whose};
use super::view::{View, instant};

/// What all children are made from.
const FINGERPRINT: &str = "f";
/// What the agent is told to look for.
pub(super) const ORDERS: &str = "match_commands = [\"java\"]";
/// The Node of every machine: a machine that comes back has the name that it had.
const NODE: &str = "n";

fn refs() -> Refs {
    let child =
        |kind: &str, name: &str| Ref { api_version: "x/v1".to_owned(), kind: kind.to_owned(), name: name.to_owned() };
    Refs { bootstrap: child("Boot", "a-bootstrap"), infrastructure: child("Infra", "a-infra") }
}

impl View {
    pub(super) fn observed(&self, object: &Object, looks: &[NeedsRead]) -> Observed {
        let looked = |look: NeedsRead| looks.contains(&look);
        let live = looked(NeedsRead::Children) || looked(NeedsRead::Machine);
        let machine = if live { self.there.machine } else { self.caches.machine };
        let provider = |child: Option<ProviderState>| {
            if looked(NeedsRead::Children) && object.refs { provider_slot(child) } else { Child::NotRead }
        };
        let wanted =
            DesiredChildren { machine: "a-machine".to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() };
        let now = instant(self.instant);
        Observed {
            has_finalizer: object.finalizer,
            stored: stored(object),
            desired: object.asked.readable.then_some(wanted),
            cluster: self.there.cluster,
            machine: match machine {
                Some(it) => machine_slot(it, live),
                None if object.refs && !live => Child::NotRead,
                None => Child::Absent,
            },
            bootstrap: provider(self.there.bootstrap),
            infrastructure: provider(self.there.infrastructure),
            node: self.node(machine, looked(NeedsRead::Node)),
            pods: if looked(NeedsRead::Pods) { pods(self.there.pod) } else { Pods::NotRead },
            recreate_backoff: self.waits.then(|| recreate_backoff(now)),
        }
    }

    fn node(&self, machine: Option<MachineState>, looked: bool) -> Node {
        let Some(machine) = machine.filter(|it| it.is_ours() && it.joined) else {
            return Node::Absent(Absence::NotJoined);
        };
        let node = if looked { self.there.node } else { self.caches.node };
        match (self.there.reach, node) {
            (Reach::Sought, _) => Node::Connecting,
            (Reach::Unreachable, _) => Node::Unreachable("nobody answers".to_owned()),
            (Reach::Connected, Some(node)) if node.of == machine.uid => Node::Managed(our_node(node)),
            // That the cache still has the Node of an earlier machine is no news of this one's.
            (Reach::Connected, None | Some(_)) if !looked => {
                Node::NotCached(Absence::NotFound { name: "n".to_owned() })
            }
            (Reach::Connected, None | Some(_)) => Node::Absent(Absence::NotJoined),
        }
    }
}

fn stored(object: &Object) -> Stored {
    Stored {
        refs: object.refs.then(refs),
        shutdown_started_at: object.shutdown.map(instant),
        reclaim: object.reclaim.map(|reclaim| ReclaimStatus {
            machine_uid: reclaim.machine.to_string(),
            reason: None,
            requested_at: None,
            schedule_disabled: reclaim.schedule_disabled,
            in_progress: reclaim.in_progress,
            count: 0,
        }),
        has_child_uids: true,
        ..Stored::default()
    }
}

fn machine_slot(machine: MachineState, live: bool) -> Child<Machine> {
    if !machine.is_ours() {
        return Child::Unmanaged(machine.uid.to_string());
    }
    Child::Managed(Machine {
        name: "a-machine".to_owned(),
        uid: machine.uid.to_string(),
        deleting: machine.deleting,
        exclusions: machine.exclusions,
        health: match (machine.failed, machine.joined) {
            (true, _) => MachineHealth::Failed("it broke".to_owned()),
            (false, true) => MachineHealth::Running,
            (false, false) => MachineHealth::Provisioning,
        },
        node: machine.joined.then(|| NODE.to_owned()),
        provider_id: None,
        fingerprint: Some(FINGERPRINT.to_owned()),
        created_at: None,
        live,
    })
}

fn provider_slot(child: Option<ProviderState>) -> Child<ProviderChild> {
    match child {
        None => Child::Absent,
        Some(child) if child.whose != Whose::Ours => Child::Unmanaged(child.uid().to_owned()),
        Some(child) => Child::Managed(ProviderChild {
            uid: child.uid().to_owned(),
            deleting: child.deleting,
            adopted_by: child.adopted_by.map(|it| it.to_string()),
            fingerprint: Some(FINGERPRINT.to_owned()),
        }),
    }
}

fn our_node(node: NodeState) -> ManagedNode {
    ManagedNode {
        name: NODE.to_owned(),
        uid: node.of.to_string(),
        ready: true,
        cordon: node.cordon,
        reclaim_request: node.request.then_some(ReclaimRequest { reason: None, at: None }),
        agent: AgentRollout {
            labelled: node.agent,
            config: if node.agent { AgentConfig::Present(ORDERS.to_owned()) } else { AgentConfig::Absent },
        },
        taints: Vec::new(),
        recorded_taints: None,
    }
}

fn pods(pod: Option<DrainAction>) -> Pods {
    let named = |drain| NodePod {
        namespace: "team".to_owned(),
        name: "p".to_owned(),
        uid: "p".to_owned(),
        drain,
        force_delete: true,
    };
    Pods::Read { pods: pod.into_iter().map(named).collect(), initial: 1 }
}

fn recreate_backoff(now: Timestamp) -> RecreateBackoff {
    RecreateBackoff { until: now + SignedDuration::from_secs(30), reason: "it broke".to_owned() }
}
