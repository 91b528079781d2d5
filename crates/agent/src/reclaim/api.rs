//! One request to the API server, with the details of a rejection that decide when to retry.

use std::time::Duration;

use fivespot_api::keys;
use fivespot_cli_support::chain;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::core::{ObjectMeta, Status};
use serde::Deserialize;
use tokio::time;

/// A longer `Retry-After` is cut: the owner is waiting for the machine.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);
/// A response may be an HTML page of a proxy.
const MAX_MESSAGE_CHARACTERS: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("cannot build the request: {0}")]
    Build(#[from] http::Error),
    #[error("cannot reach the API server: {}", chain(.0))]
    Unreachable(#[from] kube::Error),
    #[error("cannot reach the API server: no response within {}s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("cannot decode the Node: {0}")]
    Decode(#[from] serde_json::Error),
}

/// A response other than 2xx.
#[derive(Debug, thiserror::Error)]
#[error("the API server returned {code}: {message}")]
pub(super) struct Rejection {
    pub(super) code: StatusCode,
    message: String,
    /// The shortest delay before a retry that the API server asks for.
    pub(super) retry_after: Duration,
}

impl Rejection {
    pub(super) fn is_overload(&self) -> bool {
        self.code.is_server_error() || self.code == StatusCode::TOO_MANY_REQUESTS
    }

    /// Whether a retry may succeed without any action. 409 and 422: another client changed the Node concurrently.
    pub(super) fn is_transient(&self) -> bool {
        self.is_overload() || matches!(self.code, StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY)
    }
}

/// The fields of a Node that the agent reads.
#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    node_info: NodeInfo,
}

#[derive(Debug, Default, Deserialize)]
struct NodeInfo {
    #[serde(default, rename = "machineID")]
    machine_id: String,
}

impl Node {
    /// Empty until the kubelet has reported it.
    pub(super) fn machine_id(&self) -> &str {
        &self.status.node_info.machine_id
    }

    pub(super) fn is_reclaim_requested(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let requested = annotations.and_then(|annotations| annotations.get(keys::RECLAIM_REQUESTED_ANNOTATION));
        requested.is_some_and(|value| value == keys::RECLAIM_REQUESTED)
    }
}

/// The body of a successful response.
pub(super) async fn send(client: &Client, request: Request<Vec<u8>>, timeout: Duration) -> Result<Vec<u8>, ApiError> {
    let response = async {
        let response = client.send(request.map(Body::from)).await?;
        let (code, retry_after) = (response.status(), retry_after(response.headers()));
        // The client limits the body.
        let body = response.into_body().collect_bytes().await?.to_vec();
        if code.is_success() {
            return Ok(body);
        }
        let status = serde_json::from_slice::<Status>(&body).map(|status| status.message);
        let message = status.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
        let message = message.trim().chars().take(MAX_MESSAGE_CHARACTERS).collect();
        Err(Rejection { code, message, retry_after }.into())
    };
    time::timeout(timeout, response).await.unwrap_or(Err(ApiError::Timeout(timeout)))
}

/// Only seconds are supported; API servers do not send the date form.
fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map(Duration::from_secs).unwrap_or_default().min(MAX_RETRY_AFTER)
}
