//! The API servers: what they do with a request, and how they respond.

mod children;
mod node;
mod object;

use super::reconcile::Reconcile;
use super::request::Request;
use super::state::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Done,
    /// The object does not exist, or has the requested state already. The controller treats this as success.
    Unchanged,
    /// The request is based on an outdated state; the controller observes again.
    Conflict,
    /// An unmanaged object has the name; the controller reports it.
    NameTaken,
    Unreachable,
}

impl Response {
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Response::Done | Response::Unchanged)
    }

    fn of_change(changed: bool) -> Self {
        if changed { Response::Done } else { Response::Unchanged }
    }
}

impl World {
    pub(super) fn receive(&mut self, reconcile: &Reconcile, request: &Request) -> Response {
        self.check_removal(reconcile, request);
        match request {
            Request::AddFinalizer => self.add_finalizer(reconcile),
            Request::RemoveFinalizer => self.remove_finalizer(reconcile),
            Request::RecordIntent => self.record_intent(reconcile),
            Request::DisableSchedule => self.disable_schedule(reconcile),
            Request::WriteStatus { status, child_uids } => self.write_status(reconcile, status, *child_uids),
            Request::WriteFailure => self.write_failure(reconcile),
            Request::CreateProviderObject(role) => self.create_provider_object(*role),
            Request::CreateMachine => self.create_machine(reconcile),
            Request::AnnotateMachine { uid, exclusions } => self.annotate_machine(reconcile, *uid, *exclusions),
            Request::DeleteMachine { uid } => self.delete_machine(reconcile, *uid),
            Request::DeleteProviderObject { role, uid } => self.delete_provider_object(reconcile, *role, uid),
            Request::Node(request) => self.change_node(reconcile, *request),
        }
    }
}
