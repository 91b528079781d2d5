//! The requests that a plan comes to.

use fivespot_planner::observed::{Marks, Observed};
use fivespot_planner::plan::{Action, Standing};

/// One request of a plan.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Act(Action),
    /// Puts marks on the Machine of this uid, or takes all of them off.
    Annotate {
        uid: String,
        marks: Option<Marks>,
    },
    CreateBootstrap,
    CreateInfrastructure,
    CreateMachine,
    Report(Box<Standing>),
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
    /// The requests of one act.
    pub(crate) fn of(action: &Action, seen: &Observed) -> Vec<Request> {
        let annotate = |marks: Option<Marks>| {
            seen.machine.ours().map(|it| Request::Annotate { uid: it.uid.clone(), marks }).into_iter().collect()
        };
        match action {
            Action::CreateChildren => {
                vec![Request::CreateBootstrap, Request::CreateInfrastructure, Request::CreateMachine]
            }
            Action::Together(lists) => lists.iter().flatten().flat_map(|it| Request::of(it, seen)).collect(),
            Action::Mark(marks) => annotate(Some(*marks)),
            Action::Unmark => annotate(None),
            other => vec![Request::Act(other.clone())],
        }
    }

    pub(crate) fn subject(&self) -> Option<Subject> {
        match self {
            Request::Report(_) | Request::ReportFailure => Some(Subject::Object),
            Request::CreateMachine | Request::Annotate { .. } => Some(Subject::Machine),
            Request::CreateBootstrap | Request::CreateInfrastructure => None,
            Request::Act(action) => match action {
                Action::AddFinalizer | Action::RemoveFinalizer | Action::Store(_) | Action::DisableSchedule => {
                    Some(Subject::Object)
                }
                Action::Mark(_) | Action::Unmark | Action::DeleteMachine { .. } => Some(Subject::Machine),
                Action::Cordon
                | Action::Uncordon
                | Action::Project { .. }
                | Action::Unproject
                | Action::ClearRequest => Some(Subject::Node),
                Action::CreateChildren
                | Action::DeleteProvider { .. }
                | Action::Taint { .. }
                | Action::Evict(_)
                | Action::EndPods(_)
                | Action::EndAllPods
                | Action::Together(_) => None,
            },
        }
    }
}
