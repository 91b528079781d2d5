//! What is seen of the world, and what is decided from it.

use jiff::{SignedDuration, Timestamp};

use super::parts::{FINGERPRINT, changing_spec, pod, refs, spec};
use super::{Asked, Reach, World};
use crate::decide::{Situation, decide};
use crate::intent::Intent;
use crate::observed::{HeldOff, Machine, Node, Observed, OurNode, Pods, ProviderChild, ReclaimRequest, Slot, Wanted};
use crate::plan::{Decision, Plan, ProbeResult};

/// How long pods may take to leave.
pub(in super::super) const DRAIN_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// What the agent is told to look for.
pub(super) const ORDERS: &str = "match_commands = [\"java\"]";
/// How long a shutdown may take in all.
pub(in super::super) const GRACEFUL_SHUTDOWN_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

impl World {
    /// What is decided, and from what.
    pub(super) fn look(&self) -> (Observed, Plan) {
        let intent = self.intent();
        let mut looks = Vec::new();
        loop {
            let seen = self.observe(&looks);
            match decide(self.situation(&intent, &seen)) {
                Decision::Do(plan) => return (seen, *plan),
                Decision::ProbeResult(look) => {
                    assert!(!looks.contains(&look), "{look:?} is asked for twice: {self:#?}");
                    looks.push(look);
                }
            }
        }
    }

    pub(in super::super) fn decide(&self) -> Plan {
        self.look().1
    }

    /// What is decided under a schedule that changes soon, and when that is.
    pub(in super::super) fn decide_before_a_boundary(&self) -> (Timestamp, Plan) {
        let spec = changing_spec();
        let boundary = spec.schedule.next_change(self.now).expect("it opens and closes every day");
        let intent = self.intent();
        let mut looks = Vec::new();
        loop {
            let seen = self.observe(&looks);
            match decide(Situation { intent: &intent, spec: Ok(spec), seen: &seen, now: self.now }) {
                Decision::Do(plan) => return (boundary, *plan),
                Decision::ProbeResult(look) => looks.push(look),
            }
        }
    }

    pub(super) fn situation<'a>(&self, intent: &'a Intent, seen: &'a Observed) -> Situation<'a> {
        Situation { intent, spec: spec(self.asked.schedule).as_ref(), seen, now: self.now }
    }

    pub(super) fn intent(&self) -> Intent {
        let Asked { deleted, killed, enabled, .. } = self.asked;
        Intent {
            deleted,
            killed,
            enabled,
            orders: self.asked.orders.then(|| ORDERS.to_owned()),
            graceful_shutdown_timeout: GRACEFUL_SHUTDOWN_TIMEOUT,
            node_drain_timeout: DRAIN_TIMEOUT,
        }
    }

    /// What a first look sees, and what each closer look adds to it.
    fn observe(&self, looks: &[ProbeResult]) -> Observed {
        let looked = |look: ProbeResult| looks.contains(&look);
        let provider = |child: &Option<ProviderChild>| match child {
            // What they are called is in the status.
            _ if !looked(ProbeResult::Children) || self.stored.refs.is_none() => Slot::NotRead,
            Some(child) => Slot::Ours(child.clone()),
            None => Slot::Absent,
        };
        let wanted = || Wanted { machine: "a-machine".to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() };
        Observed {
            finalizer: self.finalizer,
            stored: self.stored.clone(),
            wanted: spec(self.asked.schedule).is_ok().then(wanted),
            cluster: self.cluster,
            machine: match &self.machine {
                Slot::Absent if self.stored.refs.is_some() && !looked(ProbeResult::Children) => Slot::NotRead,
                Slot::Ours(machine) => {
                    let confirmed = looked(ProbeResult::Children) || looked(ProbeResult::Machine);
                    Slot::Ours(Machine { confirmed, ..machine.clone() })
                }
                machine => machine.clone(),
            },
            bootstrap: provider(&self.bootstrap),
            infrastructure: provider(&self.infrastructure),
            node: self.observe_node(looked(ProbeResult::Node)),
            pods: if looked(ProbeResult::Pods) {
                Pods::Read { now: self.pod.iter().map(|it| pod(it.verdict())).collect(), at_first: 1 }
            } else {
                Pods::NotRead
            },
            held_off: self.held_off.map(|until| HeldOff { until, why: "it broke".to_owned() }),
        }
    }

    fn observe_node(&self, looked: bool) -> Node {
        let request = ReclaimRequest { reason: Some("process-match: java".to_owned()), at: None };
        if self.machine.ours().is_none_or(|it| it.node.is_none()) {
            return Node::None;
        }
        match (self.reach, self.node) {
            (Reach::Sought(_), _) => Node::Sought,
            (Reach::Silent(_) | Reach::Never, _) => Node::Unreachable("no route".to_owned()),
            (Reach::Answers, Some(cordon)) => Node::Ours(OurNode {
                name: "n".to_owned(),
                uid: "n".to_owned(),
                ready: true,
                cordon,
                reclaim: self.asked.reclaim.then_some(request),
                agent: self.agent.clone(),
                taints: Vec::new(),
                recorded_taints: None,
            }),
            (Reach::Answers, None) if looked => Node::None,
            (Reach::Answers, None) => Node::NotSeen,
        }
    }
}
