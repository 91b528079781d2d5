//! The API servers: what they do with a request, and what they answer.

mod children;
mod node;
mod object;

use fivespot_planner::plan::{Action, Role};

use super::pass::Pass;
use super::request::Request;
use super::state::World;

/// What comes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done, or was done already.
    Done,
    /// It was made from what is not there any more: looking again helps.
    Outdated,
    /// Something that is somebody else's is in the way: it is told, and looked at again when something changes.
    Taken,
    /// Nobody answers.
    Silence,
}

impl World {
    pub(super) fn receive(&mut self, pass: &Pass, request: &Request) -> Answer {
        match request {
            Request::Report(standing) => self.store(pass, standing),
            Request::ReportFailure => self.store_failure(pass),
            Request::CreateBootstrap => self.create_provider(|there| &mut there.bootstrap),
            Request::CreateInfrastructure => self.create_provider(|there| &mut there.infrastructure),
            Request::CreateMachine => self.create_machine(pass),
            Request::Annotate { uid, marks } => self.annotate_machine(pass, uid, *marks),
            Request::Act(action) => self.act(pass, action),
        }
    }

    fn act(&mut self, pass: &Pass, action: &Action) -> Answer {
        self.judge(pass, action);
        match action {
            Action::AddFinalizer => self.add_finalizer(pass),
            Action::RemoveFinalizer => self.remove_finalizer(pass),
            Action::Store(standing) => self.store(pass, standing),
            Action::DisableSchedule => self.disable_schedule(pass),
            Action::DeleteMachine { uid } => self.delete_machine(pass, uid),
            Action::DeleteProvider { role: Role::Bootstrap, uid } => {
                self.delete_provider(pass, |there| &mut there.bootstrap, uid)
            }
            Action::DeleteProvider { role: Role::Infrastructure, uid } => {
                self.delete_provider(pass, |there| &mut there.infrastructure, uid)
            }
            Action::Cordon
            | Action::Uncordon
            | Action::Taint { .. }
            | Action::Evict(_)
            | Action::EndPods(_)
            | Action::EndAllPods
            | Action::Project { .. }
            | Action::Unproject
            | Action::ClearRequest => self.act_on_node(pass, action),
            Action::CreateChildren | Action::Together(_) | Action::Mark(_) | Action::Unmark => {
                panic!("taken apart before")
            }
        }
    }
}
