//! The requests that a plan comes to.

use fivespot_planner::observed::{Exclusions, Observed};
use fivespot_planner::plan::{Action, DesiredStatus, Step};

/// One request of a plan.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// A step that is one request.
    Take(Step),
    /// Puts exclusions on the Machine of this uid, or takes all of them off.
    Annotate {
        uid: String,
        exclusions: Option<Exclusions>,
    },
    CreateBootstrap,
    CreateInfrastructure,
    CreateMachine,
    Report(Box<DesiredStatus>),
    /// Tells that the pass has failed.
    ReportFailure,
}

/// What a request writes, and so what its answer shows.
pub(crate) enum Subject {
    Object,
    Machine,
    Node,
}

impl Request {
    /// The requests of one step.
    pub(crate) fn of(step: &Step, seen: &Observed) -> Vec<Request> {
        let annotate = |exclusions: Option<Exclusions>| {
            seen.machine.managed().map(|it| Request::Annotate { uid: it.uid.clone(), exclusions }).into_iter().collect()
        };
        match step {
            Step::CreateChildren => {
                vec![Request::CreateBootstrap, Request::CreateInfrastructure, Request::CreateMachine]
            }
            Step::ForceRemove(removal) => {
                removal.concurrent_lists().flatten().flat_map(|it| Request::of(&Step::Run(it.clone()), seen)).collect()
            }
            Step::Run(Action::SetExclusions(exclusions)) => annotate(Some(*exclusions)),
            Step::Run(Action::ClearExclusions) => annotate(None),
            other => vec![Request::Take(other.clone())],
        }
    }

    pub(crate) fn subject(&self) -> Option<Subject> {
        match self {
            Request::Report(_) | Request::ReportFailure => Some(Subject::Object),
            Request::CreateMachine | Request::Annotate { .. } => Some(Subject::Machine),
            Request::CreateBootstrap | Request::CreateInfrastructure => None,
            Request::Take(step) => match step {
                Step::AddFinalizer | Step::RemoveFinalizer | Step::StoreStatus(_) | Step::DisableSchedule => {
                    Some(Subject::Object)
                }
                Step::RollOutAgent { .. } => Some(Subject::Node),
                Step::CreateChildren | Step::ApplyTaints { .. } | Step::EvictPods(_) | Step::ForceRemove(_) => None,
                Step::Run(action) => match action {
                    Action::SetExclusions(_) | Action::ClearExclusions | Action::DeleteMachine { .. } => {
                        Some(Subject::Machine)
                    }
                    Action::Cordon | Action::Uncordon | Action::WithdrawAgent | Action::ClearReclaimRequest => {
                        Some(Subject::Node)
                    }
                    Action::DeleteProviderObject { .. } | Action::DeletePods(_) | Action::DeleteAllPods => None,
                },
            },
        }
    }
}
