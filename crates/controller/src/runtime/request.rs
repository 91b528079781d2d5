//! Requests to API servers: time limits, and errors that say what failed and why.

use std::fmt;
use std::time::Duration;

use fivespot_cli_support::chain;
use fivespot_planner::retry::FailureClass;
use kube::core::Status;

use crate::runtime::client::Paused;
use crate::runtime::error_class::{ErrorClass, find};
use crate::runtime::response_limits::LimitExceeded;

/// How long the management cluster may take to respond.
pub(crate) const MANAGEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a workload cluster may take to respond.
pub(crate) const WORKLOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that a server can request to wait: a webhook may send any.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// How many bytes of a server's message are kept.
const MAX_MESSAGE_LEN: usize = 400;

/// What a request does, for messages: "delete Machine desk-01-machine".
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) verb: &'static str,
    pub(crate) object: String,
}

impl Operation {
    pub(crate) fn new(verb: &'static str, object: impl Into<String>) -> Self {
        Operation { verb, object: object.into() }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

/// Whose server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The management cluster: the texts of its server are in the status, because operators need them.
    Management,
    /// A workload cluster, whose server belongs to a tenant: the status has only the class of an error.
    Workload,
}

/// Why a request failed. As a text it is suitable for the status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("cannot {operation}: no response within {} s", limit.as_secs())]
    Timeout { operation: Operation, limit: Duration },
    #[error("cannot {operation}: the requests of one reconcile took longer than {} s", limit.as_secs())]
    NoTimeLeft { operation: Operation, limit: Duration },
    #[error("cannot {operation}: interrupted, because the object has become urgent")]
    Superseded { operation: Operation },
    #[error("cannot {operation}: {}", describe_for_status(source, *origin))]
    Failed {
        operation: Operation,
        #[source]
        source: kube::Error,
        origin: Origin,
    },
}

impl RequestError {
    /// With what the server sent, for the log.
    pub(crate) fn text(&self) -> String {
        match self {
            RequestError::Timeout { .. } | RequestError::NoTimeLeft { .. } | RequestError::Superseded { .. } => {
                self.to_string()
            }
            RequestError::Failed { operation, source, .. } => format!("cannot {operation}: {}", describe(source)),
        }
    }

    /// The response of the API server; `None` if there was none.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            RequestError::Failed { source: kube::Error::Api(status), .. } => Some(status),
            RequestError::Failed { .. }
            | RequestError::Timeout { .. }
            | RequestError::NoTimeLeft { .. }
            | RequestError::Superseded { .. } => None,
        }
    }

    /// How long the API server of the management cluster requests to wait before this object is written again. A server
    /// that belongs to a tenant cannot request that: it could delay a reclaim.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let RequestError::Failed { source, origin: Origin::Management, .. } = self else { return None };
        let requested = match source {
            kube::Error::Api(status) if status.code == 429 => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Duration::from_secs(seconds.into())
            }
            _ => find::<Paused>(source)?.retry_after,
        };
        Some(requested.min(MAX_RETRY_AFTER)).filter(|after| !after.is_zero())
    }

    /// Whether the server sent what no API server sends, or more than is accepted.
    pub(crate) fn is_violation(&self) -> bool {
        match self.error_class() {
            Some(ErrorClass::InvalidResponse | ErrorClass::LimitExceeded(_)) => true,
            Some(
                ErrorClass::Refused
                | ErrorClass::Timeout
                | ErrorClass::Tls
                | ErrorClass::Connection
                | ErrorClass::HttpStatus(_),
            )
            | None => false,
        }
    }

    /// Whether the connection may be lost: it failed, or there was no response.
    pub(crate) fn is_connection_error(&self) -> bool {
        match self {
            // A shorter limit is that of a reconcile, which earlier requests have used up.
            RequestError::Timeout { limit, .. } => *limit >= WORKLOAD_TIMEOUT,
            RequestError::Failed { .. } => match self.error_class() {
                Some(ErrorClass::Refused | ErrorClass::Timeout | ErrorClass::Tls | ErrorClass::Connection) => true,
                Some(ErrorClass::InvalidResponse | ErrorClass::LimitExceeded(_) | ErrorClass::HttpStatus(_)) | None => {
                    false
                }
            },
            RequestError::NoTimeLeft { .. } | RequestError::Superseded { .. } => false,
        }
    }

    /// Whether the response is larger than is accepted.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self.error_class(), Some(ErrorClass::LimitExceeded(LimitExceeded::Response { .. })))
    }

    /// Whether the reconcile ends because the object has become urgent.
    pub(crate) fn is_superseded(&self) -> bool {
        matches!(self, RequestError::Superseded { .. })
    }

    fn error_class(&self) -> Option<ErrorClass> {
        match self {
            RequestError::Failed { source, .. } => Some(ErrorClass::of(source)),
            RequestError::Timeout { .. } | RequestError::NoTimeLeft { .. } | RequestError::Superseded { .. } => None,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.has_code(404)
    }

    /// Whether the server names this object in its response. A server that does not serve the kind names none.
    pub(crate) fn is_about(&self, name: &str) -> bool {
        self.status().and_then(|status| status.details.as_ref()).is_some_and(|details| details.name == name)
    }

    pub(crate) fn is_too_many_requests(&self) -> bool {
        self.has_code(429)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.has_code(403)
    }

    /// Whether the object has another version or uid than the request expected.
    pub(crate) fn is_conflict(&self) -> bool {
        self.has_code(409) && !self.is_already_exists()
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    pub(crate) fn class(&self) -> FailureClass {
        if self.is_superseded() {
            return FailureClass::Conflict;
        }
        if self.is_throttled() {
            return FailureClass::Throttled;
        }
        match self.status().map(|status| status.code) {
            Some(404 | 409) => FailureClass::Conflict,
            Some(408 | 429 | 500..=599) | None => FailureClass::Transient,
            Some(_) => FailureClass::Rejected,
        }
    }

    /// Whether the API server of the management cluster requests the client to wait. A server that belongs to a tenant cannot:
    /// its failures are reported sooner.
    fn is_throttled(&self) -> bool {
        match self {
            RequestError::Failed { source, origin: Origin::Management, .. } => {
                self.is_too_many_requests() || find::<Paused>(source).is_some()
            }
            RequestError::Failed { origin: Origin::Workload, .. }
            | RequestError::Timeout { .. }
            | RequestError::NoTimeLeft { .. }
            | RequestError::Superseded { .. } => false,
        }
    }

    fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }
}

/// Sends a request to the management cluster and waits at most `limit` for the response.
pub(crate) fn send<T>(
    limit: Duration,
    operation: Operation,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> impl Future<Output = Result<T, RequestError>> {
    send_to(Origin::Management, limit, operation, request)
}

/// Sends a request and waits at most `limit` for the response.
pub(crate) fn send_to<T>(
    origin: Origin,
    limit: Duration,
    operation: Operation,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> impl Future<Output = Result<T, RequestError>> {
    // Boxed: request futures are large, and the future of a reconcile contains one for each of its requests.
    let request = Box::pin(request);
    async move {
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(source)) => Err(RequestError::Failed { operation, source, origin }),
            Err(_) => Err(RequestError::Timeout { operation, limit }),
        }
    }
}

fn describe_for_status(error: &kube::Error, origin: Origin) -> String {
    match origin {
        Origin::Management => describe(error),
        Origin::Workload => ErrorClass::of(error).to_string(),
    }
}

/// The error in one line of bounded length, without the names of Rust types.
pub(crate) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => format!("HTTP status {}", status.code),
        kube::Error::Api(status) => truncate(&status.message),
        kube::Error::SerdeError(error) => truncate(&format!("cannot parse the response: {error}")),
        _ => truncate(&chain(error).replace("ServiceError: ", "").replace("HyperError: ", "")),
    }
}

/// The first line of a text, shortened. The server of a kubeconfig decides how much it sends, and the text ends up in the
/// status and in the log.
pub(crate) fn truncate(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let end = line.floor_char_boundary(MAX_MESSAGE_LEN);
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: u16, reason: &str) -> RequestError {
        let status = Status::failure("no", reason).with_code(code);
        RequestError::Failed {
            operation: Operation::new("delete", "Machine a"),
            source: kube::Error::Api(status.boxed()),
            origin: Origin::Management,
        }
    }

    #[test]
    fn text_of_a_workload_cluster_is_only_in_the_log() {
        let mut error = failed(403, "Forbidden");
        assert_eq!(error.to_string(), "cannot delete Machine a: no");
        let RequestError::Failed { origin, .. } = &mut error else { panic!("a failure") };
        *origin = Origin::Workload;
        assert_eq!(error.to_string(), "cannot delete Machine a: HTTP status 403 Forbidden");
        assert_eq!(error.text(), "cannot delete Machine a: no");
    }

    #[test]
    fn server_message_is_truncated() {
        assert_eq!(truncate(" nodes is forbidden\n<html>"), "nodes is forbidden");
        assert_eq!(truncate(""), "");
        let long = "é".repeat(MAX_MESSAGE_LEN);
        let short = truncate(&long);
        assert!(short.len() <= MAX_MESSAGE_LEN + '…'.len_utf8() && short.ends_with("é…"), "{short}");
        assert_eq!(truncate(&"a".repeat(MAX_MESSAGE_LEN)).len(), MAX_MESSAGE_LEN);
    }

    #[test]
    fn failure_class_follows_status_code() {
        for (code, class) in [
            (404, FailureClass::Conflict),
            (409, FailureClass::Conflict),
            (408, FailureClass::Transient),
            (429, FailureClass::Throttled),
            (500, FailureClass::Transient),
            (504, FailureClass::Transient),
            (400, FailureClass::Rejected),
            (403, FailureClass::Rejected),
            (422, FailureClass::Rejected),
        ] {
            assert_eq!(failed(code, "").class(), class, "{code}");
        }
    }

    #[test]
    fn management_cluster_can_request_to_wait() {
        let rejected = |code: u16, seconds: u32, origin: Origin| {
            let mut status = Status::failure("no", "TooManyRequests").with_code(code);
            status.details = serde_json::from_value(serde_json::json!({ "retryAfterSeconds": seconds })).unwrap();
            let source = kube::Error::Api(status.boxed());
            RequestError::Failed { operation: Operation::new("create", "Machine a"), source, origin }
        };
        let seconds = |error: RequestError| error.retry_after().map(|after| after.as_secs());
        assert_eq!(seconds(rejected(429, 7, Origin::Management)), Some(7));
        assert_eq!(seconds(rejected(429, u32::MAX, Origin::Management)), Some(60));
        assert_eq!(seconds(rejected(429, 0, Origin::Management)), None);
        assert_eq!(seconds(rejected(403, 7, Origin::Management)), None);
        assert_eq!(seconds(rejected(429, 7, Origin::Workload)), None, "a tenant could delay a reclaim");
        let source = kube::Error::Service(Box::new(Paused { retry_after: Duration::from_secs(9) }));
        let (operation, origin) = (Operation::new("create", "Machine a"), Origin::Management);
        let paused = RequestError::Failed { operation, source, origin };
        assert_eq!((paused.class(), seconds(paused)), (FailureClass::Throttled, Some(9)));
        assert_eq!(rejected(429, 7, Origin::Workload).class(), FailureClass::Transient);
    }

    #[test]
    fn already_exists_is_no_conflict() {
        let (exists, conflict) = (failed(409, "AlreadyExists"), failed(409, "Conflict"));
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(conflict.is_conflict() && !conflict.is_already_exists());
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_response_times_out() {
        let operation = Operation::new("read", "Secret team/edge-kubeconfig");
        let error = send::<()>(WORKLOAD_TIMEOUT, operation, std::future::pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot read Secret team/edge-kubeconfig: no response within 10 s");
        assert_eq!((error.class(), error.status().is_none()), (FailureClass::Transient, true));
        assert_eq!(failed(403, "Forbidden").to_string(), "cannot delete Machine a: no");
    }
}
