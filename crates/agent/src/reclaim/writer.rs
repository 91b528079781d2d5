//! Writes the reclaim request to the Node, with retries.
//!
//! Guarantee: [`RequestWriter::write`] returns when the request is stored or when the Node turns out to belong to another
//! machine. Everything else is retried: the API server may return, a missing permission may be granted.
//!
//! A connection without a response must not delay the request once the API server is reachable again. So after a second
//! without a response the request is hedged: it is sent again on new connections while the first attempt continues.

use std::mem::discriminant;
use std::time::{Duration, Instant};

use http::StatusCode;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::api::{self, ApiError, Node, Rejection};
use super::request::{NodeIdentity, PatchForm, ReclaimRequest, WriteMode};
use super::{NodeProblem, WrongNode};
use crate::backoff::Backoff;
use crate::client::ClientFactory;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Time without a response after which requests on new connections are sent.
const HEDGE_AFTER: Duration = Duration::from_secs(1);
const HEDGE_TIMEOUT: Duration = Duration::from_millis(600);
const HEDGE_PAUSE: Duration = Duration::from_millis(200);
/// Longest delay after an error that may disappear by itself, and after one that someone has to fix.
const MAX_TRANSIENT_BACKOFF: Duration = Duration::from_secs(1);
const MAX_PERSISTENT_BACKOFF: Duration = Duration::from_secs(30);
/// Errors whose text changes with every attempt (a load balancer may number its responses) are logged this often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long errors that may disappear by themselves do not count as failing.
const FAILING_AFTER: Duration = Duration::from_mins(1);
/// The agent may not watch Nodes, so it polls until the request is cleared.
const CLEARED_POLL_INTERVAL: Duration = Duration::from_secs(5);
const NODE_MISMATCH_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Why one attempt did not store the request.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    WrongNode(#[from] WrongNode),
    #[error(transparent)]
    Transient(ApiError),
    #[error("Node {node} does not exist; check --node-name (NODE_NAME)")]
    NodeNotFound { node: String },
    #[error("Node {node} has no status.nodeInfo.machineID; its kubelet has not reported it yet")]
    NoMachineId { node: String },
    #[error("{0}; required permissions: deploy/node-agent")]
    Forbidden(#[source] Rejection),
    #[error(transparent)]
    Rejected(Rejection),
}

impl AttemptError {
    fn from_api(error: ApiError, node: &str) -> Self {
        match error {
            ApiError::Rejected(rejection) => match rejection.code {
                StatusCode::NOT_FOUND => AttemptError::NodeNotFound { node: node.to_owned() },
                StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => AttemptError::Forbidden(rejection),
                _ if rejection.is_transient() => AttemptError::Transient(rejection.into()),
                _ => AttemptError::Rejected(rejection),
            },
            error @ (ApiError::Build(_) | ApiError::Unreachable(_) | ApiError::Timeout(_) | ApiError::Decode(_)) => {
                AttemptError::Transient(error)
            }
        }
    }

    fn retry_after(&self) -> Duration {
        match self {
            AttemptError::Transient(ApiError::Rejected(rejection)) => rejection.retry_after,
            _ => Duration::ZERO,
        }
    }
}

#[derive(Clone)]
pub(crate) struct RequestWriter {
    pub(crate) clients: ClientFactory,
    /// Shares the connection of the watch.
    pub(crate) client: Client,
    pub(crate) node: NodeIdentity,
}

impl RequestWriter {
    /// Returns when the request is stored. `failing` is the error while the request keeps being rejected or lost.
    pub(super) async fn write(
        self,
        request: ReclaimRequest,
        failing: watch::Sender<Option<String>>,
    ) -> Result<(), WrongNode> {
        let started = Instant::now();
        let mut transient = Backoff::up_to(MAX_TRANSIENT_BACKOFF);
        let mut persistent = Backoff::up_to(MAX_PERSISTENT_BACKOFF);
        let mut last_logged = None;
        loop {
            let error = match self.attempt(&request, WriteMode::Store).await {
                Ok(()) => return Ok(()),
                Err(AttemptError::WrongNode(error)) => return Err(error),
                Err(error) => error,
            };
            let is_transient = matches!(error, AttemptError::Transient(_));
            if !is_transient || started.elapsed() >= FAILING_AFTER {
                let error = Some(error.to_string());
                failing.send_if_modified(|last| {
                    *last != error && {
                        *last = error;
                        true
                    }
                });
            }
            let delay = if is_transient {
                // An API server that has just returned rejects every request for a moment, which looks persistent.
                persistent.reset();
                transient.next_delay().max(error.retry_after())
            } else {
                persistent.next_delay()
            };
            self.log_retry(error.to_string(), &mut last_logged);
            sleep(delay).await;
        }
    }

    /// Logs the first error, and another one only after a while: there may be thousands of attempts.
    fn log_retry(&self, error: String, last_logged: &mut Option<(String, Instant)>) {
        let node = &self.node.name;
        if last_logged.as_ref().is_none_or(|(last, at)| *last != error && at.elapsed() >= LOG_INTERVAL) {
            warn!(node, error, "Cannot store reclaim request; retrying");
            *last_logged = Some((error, Instant::now()));
        } else {
            debug!(node, error, "Cannot store reclaim request; retrying");
        }
    }

    /// Returns when the request was cleared.
    pub(super) async fn wait_until_cleared(self) {
        loop {
            sleep(CLEARED_POLL_INTERVAL).await;
            match self.read_node().await {
                Ok(node) if !node.is_reclaim_requested() => return,
                // The request was deleted with its Node.
                Err(ApiError::Rejected(Rejection { code: StatusCode::NOT_FOUND, .. })) => return,
                // A request can be cleared only while the API server is reachable.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Checks when the agent is armed what would otherwise fail when it matters: that the Node is this machine's, and that the
    /// API server accepts a reclaim request. Also checks that the admission policy restricts the agent. A Node that cannot be
    /// read is not compared: the patch compares it again.
    pub(super) async fn verify_node(self) -> Result<(), NodeProblem> {
        if let Some(expected) = &self.node.machine_id {
            match self.read_node().await {
                Ok(node) => self.compare(&node, expected)?,
                Err(error) => debug!(node = self.node.name, %error, "Cannot verify Node"),
            }
        }
        self.verify_access().await
    }

    /// Once the API server accepts a request, a 403 of the other check is not that of missing permissions.
    async fn verify_access(&self) -> Result<(), NodeProblem> {
        self.verify_write().await?;
        self.verify_scope().await
    }

    /// Returns when this problem is solved; the error is the next one.
    pub(super) async fn wait_until_solved(self, problem: NodeProblem) -> Result<(), NodeProblem> {
        match problem {
            NodeProblem::WrongNode(_) => loop {
                sleep(NODE_MISMATCH_POLL_INTERVAL).await;
                if let Ok(node) = self.read_node().await
                    && self.node.machine_id.as_ref().is_none_or(|expected| node.machine_id() == expected)
                {
                    return self.verify_access().await;
                }
            },
            // A policy takes effect some time after it was created, and permissions some time after they were granted.
            NodeProblem::Unrestricted { .. } | NodeProblem::Rejected { .. } => {
                let mut backoff = Backoff::up_to(MAX_PERSISTENT_BACKOFF);
                loop {
                    sleep(backoff.next_delay()).await;
                    match self.verify_access().await {
                        // The text of a rejection may differ each time.
                        Err(next) if discriminant(&next) == discriminant(&problem) => {}
                        result => return result,
                    }
                }
            }
        }
    }

    /// Sends a reclaim request as a dry run. Retried until the API server has decided.
    async fn verify_write(&self) -> Result<(), NodeProblem> {
        let mut backoff = Backoff::up_to(MAX_PERSISTENT_BACKOFF);
        loop {
            match self.attempt(&ReclaimRequest::trial(Timestamp::now()), WriteMode::DryRun).await {
                Ok(()) => return Ok(()),
                Err(AttemptError::WrongNode(error)) => return Err(error.into()),
                Err(AttemptError::Transient(error)) => {
                    debug!(node = self.node.name, %error, "Cannot verify that requests are accepted");
                }
                Err(error) => {
                    let (node, error) = (self.node.name.clone(), error.to_string());
                    return Err(NodeProblem::Rejected { node, error });
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Sends a dry run of a change that the admission policy has to reject. Retried until the API server has decided.
    async fn verify_scope(&self) -> Result<(), NodeProblem> {
        let mut backoff = Backoff::up_to(MAX_PERSISTENT_BACKOFF);
        loop {
            let response = async { api::send(&self.client, self.node.scope_check()?, REQUEST_TIMEOUT).await };
            match response.await {
                Ok(_) => return Err(NodeProblem::Unrestricted { node: self.node.name.clone() }),
                Err(ApiError::Rejected(rejection)) if rejection.code == StatusCode::FORBIDDEN => return Ok(()),
                Err(error) => debug!(node = self.node.name, %error, "Cannot verify that the agent is restricted"),
            }
            sleep(backoff.next_delay()).await;
        }
    }

    fn compare(&self, node: &Node, expected: &str) -> Result<(), WrongNode> {
        let actual = node.machine_id();
        if actual == expected || actual.is_empty() {
            return Ok(());
        }
        Err(WrongNode { node: self.node.name.clone(), actual: actual.to_owned(), expected: expected.to_owned() })
    }

    async fn attempt(&self, request: &ReclaimRequest, mode: WriteMode) -> Result<(), AttemptError> {
        let response = match self.send(request, &PatchForm::AddToAnnotations, mode).await {
            Err(ApiError::Rejected(rejection)) if rejection.code == StatusCode::UNPROCESSABLE_ENTITY => {
                let form = self.diagnose(rejection).await?;
                self.send(request, &form, mode).await
            }
            response => response,
        };
        response.map(drop).map_err(|error| AttemptError::from_api(error, &self.node.name))
    }

    /// A 422 does not say which operation of the patch failed. Reads the Node to find the cause, and returns the form that
    /// succeeds if the Node merely has no annotations.
    async fn diagnose(&self, rejection: Rejection) -> Result<PatchForm, AttemptError> {
        let name = &self.node.name;
        let Some(expected) = &self.node.machine_id else { return Err(AttemptError::Rejected(rejection)) };
        let node = self.read_node().await.map_err(|error| AttemptError::from_api(error, name))?;
        self.compare(&node, expected)?;
        if node.machine_id().is_empty() {
            return Err(AttemptError::NoMachineId { node: name.clone() });
        }
        match (node.metadata.annotations, node.metadata.resource_version) {
            (None, Some(resource_version)) => Ok(PatchForm::CreateAnnotations { resource_version }),
            _ => Err(AttemptError::Transient(rejection.into())),
        }
    }

    /// Only a request that is stored is urgent.
    async fn send(&self, request: &ReclaimRequest, form: &PatchForm, mode: WriteMode) -> Result<Vec<u8>, ApiError> {
        match mode {
            WriteMode::Store => self.send_hedged(request, form).await,
            WriteMode::DryRun => api::send(&self.client, self.node.patch(request, form, mode)?, REQUEST_TIMEOUT).await,
        }
    }

    /// Returns the first response, of the first attempt or of a hedge.
    async fn send_hedged(&self, request: &ReclaimRequest, form: &PatchForm) -> Result<Vec<u8>, ApiError> {
        debug!(node = self.node.name, "Sending reclaim request");
        let first =
            async { api::send(&self.client, self.node.patch(request, form, WriteMode::Store)?, REQUEST_TIMEOUT).await };
        let hedges = async {
            sleep(HEDGE_AFTER).await;
            let mut backoff = Backoff::up_to(MAX_TRANSIENT_BACKOFF);
            loop {
                debug!(node = self.node.name, "No response; sending reclaim request on a new connection");
                let pause = match self.send_on_new_connection(request, form).await {
                    // The API server is overloaded, and the first attempt keeps its place in the queue.
                    Err(ApiError::Rejected(rejection)) if rejection.is_overload() => {
                        backoff.next_delay().max(rejection.retry_after)
                    }
                    response @ (Ok(_) | Err(ApiError::Rejected(_))) => {
                        info!(node = self.node.name, "API server responded on a new connection");
                        return response;
                    }
                    Err(_) => HEDGE_PAUSE,
                };
                sleep(pause).await;
            }
        };
        tokio::select! {
            response = first => response,
            response = hedges => response,
        }
    }

    async fn send_on_new_connection(&self, request: &ReclaimRequest, form: &PatchForm) -> Result<Vec<u8>, ApiError> {
        let client = self.clients.new_client()?;
        api::send(&client, self.node.patch(request, form, WriteMode::Store)?, HEDGE_TIMEOUT).await
    }

    async fn read_node(&self) -> Result<Node, ApiError> {
        let body = api::send(&self.client, self.node.get()?, REQUEST_TIMEOUT).await?;
        Ok(serde_json::from_slice(&body)?)
    }
}
