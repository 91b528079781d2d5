//! What the caches show, and what each closer look, which goes to the API server itself, adds to it.

use fivespot_api::{Phase, ReclaimStatus};
use fivespot_planner::drain::Verdict;
use fivespot_planner::observed::{
    Agent, Health, HeldOff, Machine, Node, NodePod, Observed, Orders, OurNode, Pods, ProviderChild, ReclaimRequest,
    Ref, Refs, Slot, Stored, Wanted,
};
use fivespot_planner::plan::ProbeResult;
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
    pub(super) fn observed(&self, object: &Object, looks: &[ProbeResult]) -> Observed {
        let looked = |look: ProbeResult| looks.contains(&look);
        let confirmed = looked(ProbeResult::Children) || looked(ProbeResult::Machine);
        let machine = if confirmed { self.there.machine } else { self.caches.machine };
        let provider = |child: Option<ProviderState>| {
            if looked(ProbeResult::Children) && object.refs { provider_slot(child) } else { Slot::NotRead }
        };
        let wanted = Wanted { machine: "a-machine".to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() };
        let now = instant(self.instant);
        Observed {
            finalizer: object.finalizer,
            stored: stored(object),
            wanted: object.asked.readable.then_some(wanted),
            cluster: self.there.cluster,
            machine: match machine {
                Some(it) => machine_slot(it, confirmed),
                None if object.refs && !confirmed => Slot::NotRead,
                None => Slot::Absent,
            },
            bootstrap: provider(self.there.bootstrap),
            infrastructure: provider(self.there.infrastructure),
            node: self.node(machine, looked(ProbeResult::Node)),
            pods: if looked(ProbeResult::Pods) { pods(self.there.pod) } else { Pods::NotRead },
            held_off: self.waits.then(|| held_off(now)),
        }
    }

    fn node(&self, machine: Option<MachineState>, looked: bool) -> Node {
        let Some(machine) = machine.filter(|it| it.is_ours() && it.joined) else { return Node::None };
        let node = if looked { self.there.node } else { self.caches.node };
        match (self.there.reach, node) {
            (Reach::Sought, _) => Node::Sought,
            (Reach::Unreachable, _) => Node::Unreachable("nobody answers".to_owned()),
            (Reach::Connected, Some(node)) if node.of == machine.uid => Node::Ours(our_node(node)),
            // That the cache still has the Node of an earlier machine is no news of this one's.
            (Reach::Connected, None | Some(_)) if !looked => Node::NotSeen,
            (Reach::Connected, None | Some(_)) => Node::None,
        }
    }
}

fn stored(object: &Object) -> Stored {
    Stored {
        refs: object.refs.then(refs),
        shutdown_started_at: object.shutdown.map(instant),
        reclaim: object.reclaim.map(|(uid, schedule_disabled)| ReclaimStatus {
            machine_uid: uid.to_string(),
            reason: None,
            requested_at: None,
            schedule_disabled,
            in_progress: false,
            count: 0,
        }),
        reclaiming: object.phase == Some(Phase::EmergencyRemove),
        uids_known: true,
        ..Stored::default()
    }
}

fn machine_slot(machine: MachineState, confirmed: bool) -> Slot<Machine> {
    if !machine.is_ours() {
        return Slot::Foreign(machine.uid.to_string());
    }
    Slot::Ours(Machine {
        uid: machine.uid.to_string(),
        deleting: machine.deleting,
        marks: machine.marks,
        health: match (machine.failed, machine.joined) {
            (true, _) => Health::Failed("it broke".to_owned()),
            (false, true) => Health::Running,
            (false, false) => Health::Provisioning,
        },
        node: machine.joined.then(|| NODE.to_owned()),
        provider_id: None,
        fingerprint: Some(FINGERPRINT.to_owned()),
        created_at: None,
        confirmed,
    })
}

fn provider_slot(child: Option<ProviderState>) -> Slot<ProviderChild> {
    match child {
        None => Slot::Absent,
        Some(child) if child.whose != Whose::Ours => Slot::Foreign(child.uid().to_owned()),
        Some(child) => Slot::Ours(ProviderChild {
            uid: child.uid().to_owned(),
            deleting: child.deleting,
            adopted_by: child.adopted_by.map(|it| it.to_string()),
            fingerprint: Some(FINGERPRINT.to_owned()),
        }),
    }
}

fn our_node(node: NodeState) -> OurNode {
    OurNode {
        name: NODE.to_owned(),
        uid: node.of.to_string(),
        ready: true,
        cordon: node.cordon,
        reclaim: node.request.then_some(ReclaimRequest { reason: None, at: None }),
        agent: Agent {
            labelled: node.agent,
            orders: if node.agent { Orders::Told(ORDERS.to_owned()) } else { Orders::None },
        },
        taints: Vec::new(),
        recorded_taints: None,
    }
}

fn pods(pod: Option<Verdict>) -> Pods {
    let named = |verdict| NodePod {
        namespace: "team".to_owned(),
        name: "p".to_owned(),
        uid: "p".to_owned(),
        verdict,
        to_end: true,
    };
    Pods::Read { now: pod.into_iter().map(named).collect(), at_first: 1 }
}

fn held_off(now: Timestamp) -> HeldOff {
    HeldOff { until: now + SignedDuration::from_secs(30), why: "it broke".to_owned() }
}
