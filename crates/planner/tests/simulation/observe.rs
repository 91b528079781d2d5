//! What a reconcile observes, and what the shipped `decide` makes of it.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use fivespot_api::{MachineFailure, ReclaimStatus};
use fivespot_planner::decide::decide;
use fivespot_planner::drain::DrainAction;
use fivespot_planner::input::{DecisionInput, RequestedState};
use fivespot_planner::observed::{
    Absence, AgentConfig, AgentRollout, Child, Machine, MachineHealth, ManagedNode, Node, NodePod, Observed, Pods,
    ProviderChild, ReclaimRequest, Stored,
};
use fivespot_planner::plan::{Decision, NeedsRead, Plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fixtures::{
    AGENT_CONFIG, FAILURE, FINGERPRINT, MACHINE_NAME, NODE_NAME, Schedule, desired_children, refs, requested_state,
    spec,
};
use super::mutations::Mutation;
use super::request::Request;
use super::state::{
    Caches, ConfigState, Connection, IntentState, MachineState, NodeState, Object, Owner, PodState, ProviderState,
    Requested, Servers, World,
};
use super::time::Seconds;

/// What a reconcile can observe. Its decision follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) caches: Caches,
    /// For live reads.
    pub(crate) servers: Servers,
    pub(crate) window_open: bool,
    pub(crate) now: Seconds,
    pub(crate) mutation: Option<Mutation>,
}

/// A decision, and what it is based on.
pub(crate) struct Decided {
    pub(crate) object: Object,
    pub(crate) requested: RequestedState,
    pub(crate) observed: Observed,
    pub(crate) plan: Plan,
    schedule: Schedule,
    now: Seconds,
    requests: OnceCell<Vec<Request>>,
}

thread_local! {
    /// The last decision. Every request of a reconcile in progress needs the same one.
    static LAST_DECISION: RefCell<Option<(View, Rc<Decided>)>> = const { RefCell::new(None) };
}

impl Decided {
    /// All requests of the reconcile.
    pub(crate) fn requests(&self) -> &[Request] {
        self.requests.get_or_init(|| self.collect_requests())
    }

    pub(crate) fn input(&self) -> DecisionInput<'_> {
        DecisionInput {
            requested: &self.requested,
            spec: spec(self.schedule).as_ref(),
            observed: &self.observed,
            now: self.now.timestamp(),
        }
    }
}

impl View {
    pub(crate) fn of(world: &World) -> Self {
        View {
            caches: world.caches,
            servers: world.servers,
            window_open: world.window_open,
            now: world.now,
            mutation: world.mutation,
        }
    }

    /// Decides, with all reads that the decision requests; `None` if the object does not exist.
    pub(crate) fn decide(&self) -> Option<Rc<Decided>> {
        let schedule = match self.caches.object?.requested.valid {
            false => Schedule::Invalid,
            true if self.window_open => Schedule::Open,
            true => Schedule::Closed,
        };
        LAST_DECISION.with_borrow_mut(|last| match last {
            Some((view, decided)) if view == self => Some(Rc::clone(decided)),
            _ => {
                let decided = Rc::new(self.decide_with(schedule)?);
                *last = Some((*self, Rc::clone(&decided)));
                Some(decided)
            }
        })
    }

    /// The same with another schedule.
    pub(crate) fn decide_with(&self, schedule: Schedule) -> Option<Decided> {
        let object = self.caches.object?;
        let requested = requested_state(object.requested);
        let mut reads = Vec::new();
        loop {
            let mut observed = self.observed(&object, schedule, &reads);
            if let Some(mutation) = self.mutation {
                mutation.distort(&mut observed);
            }
            let spec = spec(schedule).as_ref();
            let input = DecisionInput { requested: &requested, spec, observed: &observed, now: self.now.timestamp() };
            match decide(&input) {
                Decision::Execute(mut plan) => {
                    if let Some(mutation) = self.mutation {
                        mutation.mutate(self, &mut plan);
                    }
                    let (plan, now, requests) = (*plan, self.now, OnceCell::new());
                    return Some(Decided { object, requested, observed, plan, schedule, now, requests });
                }
                Decision::NeedsRead(read) => {
                    assert!(!reads.contains(&read), "{read:?} is requested twice: {self:#?}");
                    reads.push(read);
                }
            }
        }
    }

    /// Whether the spec asks for a machine now, and no reclaim is in progress.
    pub(crate) fn wants_machine(&self) -> bool {
        let wants = |it: Object| it.requested == Requested::MACHINE && !it.reclaim_in_progress();
        self.window_open && self.caches.object.is_some_and(wants)
    }

    /// Whether the Machine of this uid was observed as managed.
    pub(crate) fn observed_as_managed(&self, uid: u8) -> bool {
        let is_same = |it: &Machine| it.uid == uid.to_string();
        self.decide().is_some_and(|it| it.observed.machine.managed().is_some_and(is_same))
    }

    /// Whether a reclaim in progress, or a request for a new one, was observed.
    pub(crate) fn observed_reclaim(&self) -> bool {
        let Some(decided) = self.decide() else { return false };
        let Decided { object, observed, .. } = &*decided;
        let machine = observed.machine.managed().map(|it| &it.uid);
        let requested =
            observed.node.managed().is_some_and(|it| it.reclaim_request.is_some()) && self.agent_was_rolled_out();
        let reclaimed_before = observed.stored.reclaim.as_ref().is_some_and(|it| Some(&it.machine_uid) == machine);
        object.reclaim_in_progress() || (requested && object.requested.reclaimable && !reclaimed_before)
    }

    /// Whether a reclaim request on the observed Node counts.
    pub(crate) fn agent_was_rolled_out(&self) -> bool {
        let node = self.decide().and_then(|it| it.observed.node.managed().map(|node| node.uid.clone()));
        let is_observed = |it: &NodeState| Some(it.machine.to_string()) == node;
        let observed = self.caches.node.filter(is_observed).or(self.servers.node.filter(is_observed));
        observed.is_some_and(|it| it.agent.for_machine)
    }

    fn observed(&self, object: &Object, schedule: Schedule, reads: &[NeedsRead]) -> Observed {
        let is_read = |read: NeedsRead| reads.contains(&read);
        let live = is_read(NeedsRead::Children) || is_read(NeedsRead::Machine);
        let machine = if live { self.servers.machine } else { self.caches.machine };
        let stored = self.stored(object);
        let provider = |child: Option<ProviderState>| {
            // Status or intent have the kinds to read.
            if is_read(NeedsRead::Children) && stored.refs.is_some() { provider_child(child) } else { Child::NotRead }
        };
        Observed {
            has_finalizer: object.finalizer,
            desired: spec(schedule).is_ok().then(desired_children),
            cluster: self.servers.cluster,
            machine: match machine {
                Some(machine) => machine_child(machine, live),
                None if stored.refs.is_some() && !live => Child::NotRead,
                None => Child::Absent,
            },
            bootstrap: provider(self.servers.bootstrap),
            infrastructure: provider(self.servers.infrastructure),
            node: self.observed_node(machine, is_read(NeedsRead::Node)),
            pods: if is_read(NeedsRead::Pods) { pods(self.servers.pod) } else { Pods::NotRead },
            stored,
        }
    }

    fn stored(&self, object: &Object) -> Stored {
        let honoured = self.mutation == Some(Mutation::HonourObservedIntent)
            && object.intent == IntentState::Observed
            && self.wants_machine();
        Stored { refs: (object.has_refs() || honoured).then(refs), ..stored_in_status(object) }
    }

    fn observed_node(&self, machine: Option<MachineState>, live: bool) -> Node {
        let Some(machine) = machine.filter(|it| it.is_managed() && it.joined) else {
            return Node::Absent(Absence::NotJoined);
        };
        let absence = || Absence::NotFound { name: NODE_NAME.to_owned() };
        let claimed_twice = || Absence::ClaimedTwice { name: NODE_NAME.to_owned(), provider_id: "a".to_owned() };
        let node = if live { self.servers.node } else { self.caches.node };
        match (self.servers.connection, node) {
            (Connection::Connecting, _) => Node::Connecting,
            (Connection::Unreachable, _) => Node::Unreachable("connection refused".to_owned()),
            (Connection::Unidentified, _) if live => Node::Unidentified(claimed_twice()),
            (Connection::Unidentified, _) => Node::NotCached(claimed_twice()),
            (Connection::Connected, Some(node)) if node.machine == machine.uid => Node::Managed(managed_node(node)),
            (Connection::Connected, None | Some(_)) if live => Node::Absent(absence()),
            // A cached Node of an earlier Machine says nothing about the Node of this one.
            (Connection::Connected, None | Some(_)) => Node::NotCached(absence()),
        }
    }
}

fn stored_in_status(object: &Object) -> Stored {
    Stored {
        has_child_uids: object.child_uids,
        shutdown_started_at: object.shutdown_started_at.map(Seconds::timestamp),
        machine_failure: object.failure.map(|failure| MachineFailure {
            machine_uid: failure.machine.to_string(),
            reason: FAILURE.to_owned(),
            count: failure.count.into(),
            retry_at: Time(failure.retry_at.timestamp()),
        }),
        reclaim: object.reclaim.map(|reclaim| ReclaimStatus {
            machine_uid: reclaim.machine.to_string(),
            reason: None,
            requested_at: None,
            schedule_disabled: reclaim.schedule_disabled,
            in_progress: reclaim.in_progress,
            count: reclaim.count.into(),
        }),
        ..Stored::default()
    }
}

fn machine_child(machine: MachineState, live: bool) -> Child<Machine> {
    if !machine.is_managed() {
        return Child::Unmanaged(machine.uid.to_string());
    }
    Child::Managed(Machine {
        name: MACHINE_NAME.to_owned(),
        uid: machine.uid.to_string(),
        deleting: machine.deleting,
        exclusions: machine.exclusions,
        health: match (machine.failed, machine.joined) {
            (true, _) => MachineHealth::Failed(FAILURE.to_owned()),
            (false, true) => MachineHealth::Running,
            (false, false) => MachineHealth::Provisioning,
        },
        node: machine.joined.then(|| NODE_NAME.to_owned()),
        provider_id: None,
        fingerprint: Some(FINGERPRINT.to_owned()),
        created_at: None,
        live,
    })
}

fn provider_child(child: Option<ProviderState>) -> Child<ProviderChild> {
    match child {
        None => Child::Absent,
        Some(child) if child.owner != Owner::ScheduledMachine => Child::Unmanaged(child.uid().to_owned()),
        Some(child) => Child::Managed(ProviderChild {
            uid: child.uid().to_owned(),
            deleting: child.deleting,
            adopted_by: child.adopted_by.map(|it| it.to_string()),
            fingerprint: Some(FINGERPRINT.to_owned()),
        }),
    }
}

fn managed_node(node: NodeState) -> ManagedNode {
    ManagedNode {
        name: NODE_NAME.to_owned(),
        uid: node.machine.to_string(),
        ready: true,
        cordon: node.cordon,
        reclaim_request: node.reclaim_requested.then_some(ReclaimRequest { reason: None, at: None }),
        agent: agent_rollout(node),
        taints: Vec::new(),
        recorded_taints: None,
    }
}

fn agent_rollout(node: NodeState) -> AgentRollout {
    AgentRollout {
        labelled: node.agent.labelled,
        machine_uid: node.agent.for_machine.then(|| node.machine.to_string()),
        config: match node.agent.config {
            ConfigState::Absent => AgentConfig::Absent,
            ConfigState::Current => AgentConfig::Present(AGENT_CONFIG.to_owned()),
            ConfigState::Unusable => AgentConfig::Unusable,
        },
    }
}

fn pods(pod: Option<PodState>) -> Pods {
    let node_pod = |state: PodState| NodePod {
        namespace: "team".to_owned(),
        name: "web".to_owned(),
        uid: "web".to_owned(),
        drain: match state {
            PodState::Evictable | PodState::Blocked => DrainAction::Evict,
            PodState::Terminating => DrainAction::Wait,
        },
        force_delete: true,
    };
    Pods::Read(pod.into_iter().map(node_pod).collect())
}
