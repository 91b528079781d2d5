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

/// Why the agent must not be considered ready, although it writes reclaim requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NodeProblem {
    #[error(transparent)]
    WrongNode(#[from] WrongNode),
    #[error(
        "the API server lets this agent change more of Node {node} than its three annotations: the ValidatingAdmissionPolicy \
         5spot-reclaim-agent-scope does not exist or does not apply to the agent's ServiceAccount. Apply deploy/node-agent, \
         and keep 5spot-reclaim-agent in the name of the ServiceAccount"
    )]
    Unrestricted { node: String },
    #[error("the API server would reject a reclaim request for Node {node}: {error}")]
    Rejected { node: String, error: String },
}
