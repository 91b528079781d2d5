//! What is seen of the world, and what is decided from it.

use jiff::{SignedDuration, Timestamp};

use super::parts::{FINGERPRINT, changing_spec, pod, refs, spec};
use super::{Asked, Reach, World};
use crate::decide::decide;
use crate::input::{DecisionInput, RequestedState};
use crate::observed::{
    Absence, Child, DesiredChildren, Machine, ManagedNode, Node, Observed, Pods, ProviderChild, ReclaimRequest,
    RecreateBackoff,
};
use crate::plan::{Decision, NeedsRead, Plan};

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
            match decide(&self.situation(&intent, &seen)) {
                Decision::Execute(plan) => return (seen, *plan),
                Decision::NeedsRead(look) => {
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
            match decide(&DecisionInput { requested: &intent, spec: Ok(spec), observed: &seen, now: self.now }) {
                Decision::Execute(plan) => return (boundary, *plan),
                Decision::NeedsRead(look) => looks.push(look),
            }
        }
    }

    pub(super) fn situation<'a>(&self, intent: &'a RequestedState, seen: &'a Observed) -> DecisionInput<'a> {
        DecisionInput { requested: intent, spec: spec(self.asked.schedule).as_ref(), observed: seen, now: self.now }
    }

    pub(super) fn intent(&self) -> RequestedState {
        let Asked { deleted, killed, enabled, .. } = self.asked;
        RequestedState {
            deleted,
            kill_switch: killed,
            enabled,
            agent_config: self.asked.orders.then(|| ORDERS.to_owned()),
            graceful_shutdown_timeout: GRACEFUL_SHUTDOWN_TIMEOUT,
            node_drain_timeout: DRAIN_TIMEOUT,
            schedule: "any".to_owned(),
        }
    }

    /// What a first look sees, and what each closer look adds to it.
    fn observe(&self, looks: &[NeedsRead]) -> Observed {
        let looked = |look: NeedsRead| looks.contains(&look);
        let provider = |child: &Option<ProviderChild>| match child {
            // What they are called is in the status.
            _ if !looked(NeedsRead::Children) || self.stored.refs.is_none() => Child::NotRead,
            Some(child) => Child::Managed(child.clone()),
            None => Child::Absent,
        };
        let wanted =
            || DesiredChildren { machine: "a-machine".to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() };
        Observed {
            has_finalizer: self.finalizer,
            stored: self.stored.clone(),
            desired: spec(self.asked.schedule).is_ok().then(wanted),
            cluster: self.cluster,
            machine: match &self.machine {
                Child::Absent if self.stored.refs.is_some() && !looked(NeedsRead::Children) => Child::NotRead,
                Child::Managed(machine) => {
                    let live = looked(NeedsRead::Children) || looked(NeedsRead::Machine);
                    Child::Managed(Machine { live, ..machine.clone() })
                }
                machine => machine.clone(),
            },
            bootstrap: provider(&self.bootstrap),
            infrastructure: provider(&self.infrastructure),
            node: self.observe_node(looked(NeedsRead::Node)),
            pods: if looked(NeedsRead::Pods) {
                Pods::Read { pods: self.pod.iter().map(|it| pod(it.verdict())).collect(), initial: 1 }
            } else {
                Pods::NotRead
            },
            recreate_backoff: self
                .recreate_backoff
                .map(|until| RecreateBackoff { until, reason: "it broke".to_owned() }),
        }
    }

    fn observe_node(&self, looked: bool) -> Node {
        let request = ReclaimRequest { reason: Some("process-match: java".to_owned()), at: None };
        if self.machine.managed().is_none_or(|it| it.node.is_none()) {
            return Node::Absent(Absence::NotJoined);
        }
        match (self.reach, self.node) {
            (Reach::Sought(_), _) => Node::Connecting,
            (Reach::Silent(_) | Reach::Never, _) => Node::Unreachable("no route".to_owned()),
            (Reach::Answers, Some(cordon)) => Node::Managed(ManagedNode {
                name: "n".to_owned(),
                uid: "n".to_owned(),
                ready: true,
                cordon,
                reclaim_request: self.asked.reclaim.then_some(request),
                agent: self.agent.clone(),
                taints: Vec::new(),
                recorded_taints: None,
            }),
            (Reach::Answers, None) if looked => Node::Absent(Absence::NotJoined),
            (Reach::Answers, None) => Node::NotCached(Absence::NotFound { name: "n".to_owned() }),
        }
    }
}
