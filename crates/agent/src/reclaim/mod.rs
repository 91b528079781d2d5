//! The emergency reclaim: [`request`] builds the patch of the Node, [`writer`] writes it until it is stored, and [`state`]
//! tracks it until the controller has cleared it.

mod api;
mod request;
mod state;
mod writer;

pub(crate) use request::NodeIdentity;
pub(crate) use state::{ReclaimState, Transition};
pub(crate) use writer::RequestWriter;

/// The Node has the machine ID of another machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Node {node} has machine ID {actual:?}, expected {expected:?}; nothing was written. Check --node-name (NODE_NAME) and \
     --machine-id-path, or disable the check with --skip-host-id-check"
)]
pub(crate) struct WrongNode {
    node: String,
    actual: String,
    expected: String,
}
