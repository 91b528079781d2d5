//! The requests that a plan consists of.

use fivespot_planner::observed::Exclusions;
use fivespot_planner::plan::{Action, DesiredStatus, Role, Step};

use super::fixtures::{AGENT_CONFIG, refs};
use super::observe::Decided;

/// One request to an API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    AddFinalizer,
    RemoveFinalizer,
    /// Writes the intent and the finalizer.
    RecordIntent,
    DisableSchedule,
    WriteStatus {
        status: Box<DesiredStatus>,
        /// Whether the uids of the provider objects are known.
        child_uids: bool,
    },
    /// Reports that the reconcile failed.
    WriteFailure,
    CreateProviderObject(Role),
    CreateMachine,
    /// Adds exclusions, or removes all of them.
    AnnotateMachine {
        uid: u8,
        exclusions: Option<Exclusions>,
    },
    DeleteMachine {
        uid: u8,
    },
    DeleteProviderObject {
        role: Role,
        uid: String,
    },
    Node(NodeRequest),
}

/// A request to the workload cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRequest {
    Cordon,
    Uncordon,
    EvictPods,
    DeletePods,
    RollOutAgent,
    WithdrawAgent,
    ClearReclaimRequest,
}

/// The cached object that a response updates.
pub(crate) enum Target {
    Object,
    Machine,
    Node,
    Uncached,
}

impl Request {
    pub(crate) fn target(&self) -> Target {
        match self {
            Request::AddFinalizer
            | Request::RemoveFinalizer
            | Request::RecordIntent
            | Request::DisableSchedule
            | Request::WriteStatus { .. }
            | Request::WriteFailure => Target::Object,
            Request::CreateMachine | Request::AnnotateMachine { .. } | Request::DeleteMachine { .. } => Target::Machine,
            Request::CreateProviderObject(_)
            | Request::DeleteProviderObject { .. }
            | Request::Node(NodeRequest::EvictPods | NodeRequest::DeletePods) => Target::Uncached,
            Request::Node(
                NodeRequest::Cordon
                | NodeRequest::Uncordon
                | NodeRequest::RollOutAgent
                | NodeRequest::WithdrawAgent
                | NodeRequest::ClearReclaimRequest,
            ) => Target::Node,
        }
    }
}

impl Decided {
    /// Those of the plan in their order, and the status at the end.
    pub(super) fn collect_requests(&self) -> Vec<Request> {
        self.plan_requests().into_iter().chain(self.status_report()).collect()
    }

    /// The requests of all steps.
    pub(crate) fn plan_requests(&self) -> Vec<Request> {
        self.plan.steps.iter().flat_map(|step| self.step_requests(step)).collect()
    }

    /// The requests of one step.
    pub(crate) fn step_requests(&self, step: &Step) -> Vec<Request> {
        match step {
            Step::AddFinalizer => vec![Request::AddFinalizer],
            Step::RemoveFinalizer => vec![Request::RemoveFinalizer],
            Step::RecordIntent(recorded) => {
                assert_eq!(*recorded, refs());
                vec![Request::RecordIntent]
            }
            Step::StoreStatus(status) => {
                vec![Request::WriteStatus { status: status.clone(), child_uids: self.knows_child_uids() }]
            }
            Step::DisableSchedule => vec![Request::DisableSchedule],
            Step::CreateChildren => vec![
                Request::CreateProviderObject(Role::Bootstrap),
                Request::CreateProviderObject(Role::Infrastructure),
                Request::CreateMachine,
            ],
            Step::EvictPods(_) => vec![Request::Node(NodeRequest::EvictPods)],
            Step::ApplyTaints { .. } => unreachable!("the simulated spec has no taints"),
            Step::RollOutAgent { config } => {
                assert_eq!(config, AGENT_CONFIG);
                vec![Request::Node(NodeRequest::RollOutAgent)]
            }
            Step::ForceRemove(removal) => {
                removal.concurrent_lists().flatten().flat_map(|action| self.action_requests(action)).collect()
            }
            Step::Run(action) => self.action_requests(action),
        }
    }

    /// The requests of one action.
    pub(crate) fn action_requests(&self, action: &Action) -> Vec<Request> {
        let annotate = |exclusions: Option<Exclusions>| {
            let machine = self.observed.machine.managed();
            machine.map(|it| Request::AnnotateMachine { uid: parse(&it.uid), exclusions }).into_iter().collect()
        };
        match action {
            Action::SetExclusions(exclusions) => annotate(Some(*exclusions)),
            Action::ClearExclusions => annotate(None),
            Action::DeleteMachine { uid } => vec![Request::DeleteMachine { uid: parse(uid) }],
            Action::DeleteProviderObject { role, uid } => {
                vec![Request::DeleteProviderObject { role: *role, uid: uid.clone() }]
            }
            Action::Cordon => vec![Request::Node(NodeRequest::Cordon)],
            Action::Uncordon => vec![Request::Node(NodeRequest::Uncordon)],
            Action::DeletePods(_) | Action::DeleteAllPods => vec![Request::Node(NodeRequest::DeletePods)],
            Action::WithdrawAgent => vec![Request::Node(NodeRequest::WithdrawAgent)],
            Action::ClearReclaimRequest => vec![Request::Node(NodeRequest::ClearReclaimRequest)],
        }
    }

    /// The last request of a reconcile; none if the status would not change.
    fn status_report(&self) -> Option<Request> {
        let status = &self.plan.status;
        let created = self.plan.steps.contains(&Step::CreateChildren);
        let child_uids = status.refs.is_some() && (created || self.knows_child_uids());
        let stored = |step: &Step| matches!(step, Step::StoreStatus(stored) if **stored == *status);
        let removed = self.plan.steps.contains(&Step::RemoveFinalizer);
        // The status also has to include an intent that this reconcile records.
        let recorded = self.plan.steps.iter().any(|step| matches!(step, Step::RecordIntent(_)));
        let changed = recorded || self.object.with(status, child_uids) != self.object;
        (changed && !removed && !self.plan.steps.iter().any(stored))
            .then(|| Request::WriteStatus { status: Box::new(status.clone()), child_uids })
    }

    fn knows_child_uids(&self) -> bool {
        let observed = self.observed.bootstrap.managed().is_some() && self.observed.infrastructure.managed().is_some();
        self.object.child_uids || observed
    }
}

fn parse(uid: &str) -> u8 {
    uid.parse().unwrap()
}
