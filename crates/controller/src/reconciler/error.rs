//! Why a reconcile fails, by cause.

use std::sync::Arc;
use std::time::Duration;

use fivespot_api::conditions::ReferencesValid;
use fivespot_api::keys;
use fivespot_planner::plan::NeedsRead;
use fivespot_planner::retry::FailureClass;

use crate::capi::DiscoveryError;
use crate::runtime::request::{Operation, RequestError};
use crate::runtime::shards::ShardLost;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error(transparent)]
    Request(Arc<RequestError>),

    #[error(
        "{object} already exists and is not managed by this ScheduledMachine; delete it, or recreate this \
         ScheduledMachine under another name"
    )]
    NameConflict { object: String },

    #[error(
        "the API server serves no namespaced kind {kind} in {api_version}; install the provider or correct the spec"
    )]
    KindNotFound { kind: String, api_version: String },

    #[error("cannot create {object}: an earlier one is still being deleted")]
    StillDeleting { object: String },

    #[error("{object} no longer exists")]
    Deleted { object: String },

    #[error("{object} was changed since the decision")]
    ObjectChanged { object: String },

    #[error("cannot {operation}: conflict with other clients after {attempts} attempts")]
    RepeatedConflict { operation: Operation, attempts: u32 },

    #[error("Node {node} has more than {limit} pods")]
    TooManyPods { node: String, limit: usize },

    #[error("the connection to the workload cluster was lost")]
    Disconnected,

    #[error("agent configuration of Node {node} has not been read yet")]
    AgentConfigNotCached { node: String },

    #[error("cannot read ConfigMaps in namespace {namespace} of the workload cluster: {cause}")]
    AgentConfigUnreadable { namespace: String, cause: String },

    #[error(
        "ConfigMap {config_map} already exists and was not created by this controller; delete it or label it {}={}",
        keys::RECLAIM_AGENT_LABEL,
        keys::RECLAIM_AGENT_ENABLED
    )]
    AgentConfigConflict { config_map: String },

    #[error(
        "cannot create ConfigMap {config_map}: namespace {namespace} does not exist in the workload cluster; install \
         the reclaim agent there (deploy/overlays/workload-cluster)"
    )]
    AgentNamespaceMissing { config_map: String, namespace: String },

    /// The decision requires a read that was already made.
    #[error("internal error: the decision requires {read:?} a second time")]
    Undecided { read: NeedsRead },

    #[error("the spec no longer names the objects to create")]
    NothingToCreate,

    #[error("the controller is shutting down")]
    ShuttingDown,

    #[error("another instance may hold the shard of this object")]
    ShardLost,
}

impl From<RequestError> for ReconcileError {
    fn from(error: RequestError) -> Self {
        ReconcileError::Request(Arc::new(error))
    }
}

impl From<ShardLost> for ReconcileError {
    fn from(ShardLost: ShardLost) -> Self {
        ReconcileError::ShardLost
    }
}

impl From<DiscoveryError> for ReconcileError {
    fn from(error: DiscoveryError) -> Self {
        match error {
            DiscoveryError::KindNotFound { kind, api_version } => ReconcileError::KindNotFound { kind, api_version },
            DiscoveryError::Request(error) => error.into(),
        }
    }
}

impl ReconcileError {
    /// How to retry; `None` if another process does.
    pub(crate) fn class(&self) -> Option<FailureClass> {
        use ReconcileError as E;
        match self {
            E::Request(error) => Some(error.class()),
            E::StillDeleting { .. }
            | E::Deleted { .. }
            | E::ObjectChanged { .. }
            | E::RepeatedConflict { .. }
            | E::AgentConfigNotCached { .. }
            | E::NothingToCreate => Some(FailureClass::Conflict),
            E::Disconnected | E::AgentConfigUnreadable { .. } | E::Undecided { .. } => Some(FailureClass::Transient),
            E::NameConflict { .. }
            | E::KindNotFound { .. }
            | E::TooManyPods { .. }
            | E::AgentConfigConflict { .. }
            | E::AgentNamespaceMissing { .. } => Some(FailureClass::Rejected),
            E::ShuttingDown | E::ShardLost => None,
        }
    }

    /// Reason of condition `ReferencesValid`, if the error is about a reference.
    pub(crate) fn references(&self) -> Option<ReferencesValid> {
        match self {
            ReconcileError::NameConflict { .. } => Some(ReferencesValid::NameConflict),
            ReconcileError::KindNotFound { .. } => Some(ReferencesValid::KindNotFound),
            _ => None,
        }
    }

    /// Label `error_type` of the metric `errors_total`; one of [`ERROR_TYPES`](crate::runtime::metrics::ERROR_TYPES).
    pub(crate) fn metric_label(&self) -> &'static str {
        match self.class() {
            Some(FailureClass::Conflict) => "conflict",
            Some(FailureClass::Transient) => "transient",
            Some(FailureClass::Throttled) => "throttled",
            Some(FailureClass::Rejected) if self.references().is_some() => "reference",
            Some(FailureClass::Rejected) => "rejected",
            None => "shutdown",
        }
    }

    pub(crate) fn request(&self) -> Option<&RequestError> {
        match self {
            ReconcileError::Request(error) => Some(error),
            _ => None,
        }
    }

    /// How long the API server requests to wait before this object is written again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.request()?.retry_after()
    }

    /// Whether the reconcile ends because the object has become urgent.
    pub(crate) fn is_superseded(&self) -> bool {
        self.request().is_some_and(RequestError::is_superseded)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.request().is_some_and(RequestError::is_not_found)
    }
}
