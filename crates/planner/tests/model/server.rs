//! The API servers: what they do with a request, and what they answer.

mod children;
mod node;
mod object;

use fivespot_planner::plan::{Action, Role, Step};

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
            Request::Annotate { uid, exclusions } => self.annotate_machine(pass, uid, *exclusions),
            Request::Take(step) => self.take(pass, step),
        }
    }

    fn take(&mut self, pass: &Pass, step: &Step) -> Answer {
        self.judge(pass, step);
        match step {
            Step::AddFinalizer => self.add_finalizer(pass),
            Step::RemoveFinalizer => self.remove_finalizer(pass),
            Step::StoreStatus(standing) => self.store(pass, standing),
            Step::DisableSchedule => self.disable_schedule(pass),
            Step::Run(Action::DeleteMachine { uid }) => self.delete_machine(pass, uid),
            Step::Run(Action::DeleteProviderObject { role: Role::Bootstrap, uid }) => {
                self.delete_provider(pass, |there| &mut there.bootstrap, uid)
            }
            Step::Run(Action::DeleteProviderObject { role: Role::Infrastructure, uid }) => {
                self.delete_provider(pass, |there| &mut there.infrastructure, uid)
            }
            Step::ApplyTaints { .. } | Step::EvictPods(_) | Step::RollOutAgent { .. } | Step::Run(_) => {
                self.act_on_node(pass, step)
            }
            Step::CreateChildren | Step::ForceRemove(_) => panic!("taken apart before"),
        }
    }
}
