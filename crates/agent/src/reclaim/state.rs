//! The state of the reclaim: the request that is being written or is stored, and whether the Node is this machine's.
//!
//! Expected flow: a match starts writing, the stored request is polled until the controller clears it, and then the next
//! match may request again. While a request exists, further matches are ignored.

use std::future::pending;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::request::ReclaimRequest;
use super::writer::RequestWriter;
use super::{NodeProblem, WrongNode};
use crate::signals::OwnerMatch;

/// After the API server rejected a request for the wrong Node, matches are ignored for this long.
const WRONG_NODE_COOLDOWN: Duration = Duration::from_secs(30);

type Work<T> = LocalBoxFuture<'static, T>;

pub(crate) struct ReclaimState {
    writer: RequestWriter,
    phase: Phase,
    /// A check of the Node's machine ID and of the agent's permissions that is in progress.
    verification: Option<Work<Result<(), NodeProblem>>>,
    problem: Option<NodeProblem>,
    /// Whether a verification has succeeded since the agent started.
    was_verified: bool,
}

enum Phase {
    Idle,
    /// The request is stored even if the process that matched has exited.
    Writing {
        request: ReclaimRequest,
        written: Work<Result<(), WrongNode>>,
        /// The error while the request keeps being rejected or lost.
        failing: watch::Receiver<Option<String>>,
    },
    /// Waits until the request is cleared.
    Stored(Work<()>),
    /// The request was rejected for the wrong Node.
    Cooldown(Work<()>),
}

/// A change of the state. Each may change what the probe reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    Stored,
    /// The controller cleared the request, or the Node was deleted.
    Cleared,
    NodeVerified,
    NodeMismatch,
    /// The Node belonged to another machine, and is this machine's now.
    NodeMismatchResolved,
    /// No admission policy restricts the agent.
    Unrestricted,
    /// The API server would reject a request.
    Rejected,
    /// A request keeps being rejected or lost.
    Failing,
    CooldownOver,
}

/// The result of the current phase.
enum Completed {
    Writing(Result<(), WrongNode>),
    /// The request keeps being rejected or lost.
    Failing,
    Stored,
    Cooldown,
}

impl Phase {
    async fn completed(&mut self) -> Completed {
        match self {
            Phase::Idle => pending().await,
            Phase::Writing { request: _, written, failing } => tokio::select! {
                biased;
                written = written => Completed::Writing(written),
                Ok(()) = failing.changed() => Completed::Failing,
            },
            Phase::Stored(cleared) => {
                cleared.await;
                Completed::Stored
            }
            Phase::Cooldown(over) => {
                over.await;
                Completed::Cooldown
            }
        }
    }
}

impl ReclaimState {
    pub(crate) fn new(writer: RequestWriter) -> Self {
        ReclaimState { writer, phase: Phase::Idle, verification: None, problem: None, was_verified: false }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Why the agent is not ready, although it detects programs and writes requests.
    pub(crate) fn not_ready(&self) -> Option<String> {
        let unverified = || format!("Node {} has not been verified yet", self.writer.node.name);
        let problem = || self.problem.as_ref().map(ToString::to_string);
        self.write_error().or_else(problem).or_else(|| (!self.was_verified).then(unverified))
    }

    fn write_error(&self) -> Option<String> {
        match &self.phase {
            Phase::Writing { failing, .. } => {
                let node = &self.writer.node.name;
                let error = failing.borrow().clone();
                error.map(|error| format!("the reclaim request for Node {node} cannot be stored: {error}"))
            }
            Phase::Idle | Phase::Stored(_) | Phase::Cooldown(_) => None,
        }
    }

    /// Requests a reclaim unless a request exists already.
    pub(crate) fn request(&mut self, found: &OwnerMatch) {
        if self.is_idle() {
            let request = ReclaimRequest::new(found, Timestamp::now());
            let (sender, failing) = watch::channel(None);
            let written = self.writer.clone().write(request.clone(), sender).boxed_local();
            self.phase = Phase::Writing { request, written, failing };
        }
    }

    /// Verifies the Node for a new configuration. A request in progress continues.
    pub(crate) fn rearm(&mut self) {
        if let Phase::Cooldown(_) = self.phase {
            self.phase = Phase::Idle;
        }
        self.problem = None;
        self.verification = Some(self.writer.clone().verify_node().boxed_local());
    }

    /// Drops everything, also a request that is not stored yet.
    pub(crate) fn disarm(&mut self) {
        if let Phase::Writing { request, .. } = &self.phase {
            let node = &self.writer.node.name;
            warn!(node, reason = request.reason(), "Dropped reclaim request: nothing to match any more");
        }
        *self = ReclaimState { was_verified: self.was_verified, ..ReclaimState::new(self.writer.clone()) };
    }

    /// Waits for the next transition. Cancel safe.
    pub(crate) async fn next(&mut self) -> Transition {
        tokio::select! {
            biased;
            completed = self.phase.completed() => self.advance(completed),
            verified = verified(&mut self.verification) => self.set_verified(verified),
        }
    }

    fn advance(&mut self, completed: Completed) -> Transition {
        let node = &self.writer.node.name;
        match completed {
            Completed::Writing(Ok(())) => {
                if let Phase::Writing { request, .. } = &self.phase {
                    info!(node, reason = request.reason(), "Reclaim requested");
                }
                self.phase = Phase::Stored(self.writer.clone().wait_until_cleared().boxed_local());
                // The API server compared the machine IDs.
                if let Some(NodeProblem::WrongNode(_)) = self.problem {
                    self.rearm();
                }
                Transition::Stored
            }
            Completed::Writing(Err(wrong_node)) => {
                self.phase = Phase::Cooldown(tokio::time::sleep(WRONG_NODE_COOLDOWN).boxed_local());
                self.set_verified(Err(wrong_node.into()))
            }
            Completed::Failing => Transition::Failing,
            Completed::Stored => {
                info!(node, "Reclaim request cleared");
                self.phase = Phase::Idle;
                Transition::Cleared
            }
            Completed::Cooldown => {
                self.phase = Phase::Idle;
                Transition::CooldownOver
            }
        }
    }

    fn set_verified(&mut self, verified: Result<(), NodeProblem>) -> Transition {
        match verified {
            Ok(()) => {
                self.verification = None;
                self.was_verified = true;
                self.problem.take().map_or(Transition::NodeVerified, |solved| self.log_solved(&solved))
            }
            Err(problem) => {
                let mut transition = self.log_problem(&problem);
                // The checks follow each other in this order, so a later problem means that an earlier one is solved.
                match (self.problem.take(), &problem) {
                    (
                        Some(solved @ NodeProblem::WrongNode(_)),
                        NodeProblem::Rejected { .. } | NodeProblem::Unrestricted { .. },
                    )
                    | (Some(solved @ NodeProblem::Rejected { .. }), NodeProblem::Unrestricted { .. }) => {
                        transition = self.log_solved(&solved);
                    }
                    _ => {}
                }
                self.verification = Some(self.writer.clone().wait_until_solved(problem.clone()).boxed_local());
                self.problem = Some(problem);
                transition
            }
        }
    }

    fn log_problem(&self, problem: &NodeProblem) -> Transition {
        let node = &self.writer.node.name;
        match problem {
            NodeProblem::WrongNode(error) => {
                error!(node, %error, "Node belongs to another machine");
                Transition::NodeMismatch
            }
            NodeProblem::Unrestricted { .. } => {
                error!(node, error = %problem, "Agent is not restricted to its Node");
                Transition::Unrestricted
            }
            NodeProblem::Rejected { error, .. } => {
                error!(node, error, "API server would reject a reclaim request");
                Transition::Rejected
            }
        }
    }

    /// A reinstalled machine may find the Node of its predecessor for a while, and a policy takes effect with a delay.
    fn log_solved(&mut self, problem: &NodeProblem) -> Transition {
        let node = &self.writer.node.name;
        match problem {
            NodeProblem::WrongNode(_) => {
                info!(node, "Node belongs to this machine now");
                if let Phase::Cooldown(_) = self.phase {
                    self.phase = Phase::Idle;
                }
                Transition::NodeMismatchResolved
            }
            NodeProblem::Unrestricted { .. } => {
                info!(node, "Agent is restricted to its Node now");
                Transition::NodeVerified
            }
            NodeProblem::Rejected { .. } => {
                info!(node, "API server accepts reclaim requests now");
                Transition::NodeVerified
            }
        }
    }
}

async fn verified(verification: &mut Option<Work<Result<(), NodeProblem>>>) -> Result<(), NodeProblem> {
    match verification {
        Some(verification) => verification.await,
        None => pending().await,
    }
}
