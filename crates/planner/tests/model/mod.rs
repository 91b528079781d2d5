//! What the model checker explores: every order in which the controller, users, faults and other actors can act.

mod faults;
mod memo;
mod transitions;
mod users;

pub(crate) use faults::FaultClass;
pub(crate) use memo::ends_as_expected;
pub(crate) use transitions::Transition;
