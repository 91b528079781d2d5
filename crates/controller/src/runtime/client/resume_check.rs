//! Makes a watch start over with a list where it cannot be resumed.
//!
//! After etcd was restored from a backup, the versions of the API server go back. It accepts a watch from a version that it
//! has not reached, and sends nothing until it has: what changed before is never delivered. So before a watch is resumed,
//! the API server is asked whether it knows the version; a list that requires it says so. If it does not, the watch is
//! answered with 410 Gone, as the API server answers one whose version is too old, and the watcher lists all objects.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{ACCEPT, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::Body;
use kube::core::Status;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::timeout;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::runtime::request::MANAGEMENT_TIMEOUT;

/// The response has at most one object, without spec and status.
const ACCEPT_METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
/// How much of the response is read. An error is much shorter.
const MAX_RESPONSE_LEN: usize = 64 * 1024;
/// Cause in the API server's response if it has not reached the version.
const VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";

#[derive(Clone, Default)]
pub(super) struct ResumeCheckLayer {
    /// Paths that were watched before. The first watch of a path follows a list.
    watched: Arc<Mutex<HashSet<String>>>,
}

impl<S> Layer<S> for ResumeCheckLayer {
    type Service = ResumeCheck<S>;

    fn layer(&self, inner: S) -> ResumeCheck<S> {
        ResumeCheck { inner, watched: Arc::clone(&self.watched) }
    }
}

pub(super) struct ResumeCheck<S> {
    inner: S,
    watched: Arc<Mutex<HashSet<String>>>,
}

impl<S> ResumeCheck<S> {
    /// The request that checks the version of a watch that is resumed.
    fn check(&self, watch: &Request<Body>) -> Option<Request<Body>> {
        let uri = version_check(watch.uri())?;
        if self.watched.lock().insert(watch.uri().path().to_owned()) {
            return None;
        }
        let mut check = Request::get(uri).body(Body::empty()).ok()?;
        check.headers_mut().insert(ACCEPT, ACCEPT_METADATA);
        Some(check)
    }
}

impl<S, B> Service<Request<Body>> for ResumeCheck<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<B, Full<Bytes>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(check) = self.check(&request) else {
            let response = self.inner.call(request);
            return Box::pin(async move { Ok(response.await?.map(Either::Left)) });
        };
        let mut inner = self.inner.clone();
        let checked = self.inner.call(check);
        Box::pin(async move {
            let (parts, body) = timeout(MANAGEMENT_TIMEOUT, async {
                let (parts, body) = checked.await?.into_parts();
                Ok::<_, BoxError>((parts, Limited::new(body, MAX_RESPONSE_LEN).collect().await))
            })
            .await
            .map_err(|_| format!("no response within {} s", MANAGEMENT_TIMEOUT.as_secs()))??;
            if parts.status.is_success() {
                return Ok(inner.ready().await?.call(request).await?.map(Either::Left));
            }
            let body = body?.to_bytes();
            if parts.status == StatusCode::GATEWAY_TIMEOUT && is_version_too_large(&body) {
                return Ok(Response::new(Either::Right(gone())));
            }
            Ok(Response::from_parts(parts, Either::Right(Full::new(body))))
        })
    }
}

/// The list that fails if the API server does not know the version of a watch; `None` if the request is not a watch from
/// a version.
fn version_check(watch: &Uri) -> Option<Uri> {
    let parameters: Vec<(&str, &str)> = watch.query()?.split('&').filter_map(|it| it.split_once('=')).collect();
    let value = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let version = value("resourceVersion").filter(|version| !["", "0"].contains(version))?;
    value("watch").filter(|watch| *watch == "true")?;
    let list = format!("{}?limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan", watch.path());
    list.parse().ok()
}

fn is_version_too_large(body: &[u8]) -> bool {
    let status: Option<Status> = serde_json::from_slice(body).ok();
    let details = status.and_then(|status| status.details);
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == VERSION_TOO_LARGE))
}

/// The only event of a watch whose version is not available.
fn gone() -> Full<Bytes> {
    let event = json!({ "type": "ERROR", "object": {
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "the API server has not reached the version of the watch: was etcd restored?",
    } });
    Full::new(Bytes::from(format!("{event}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watch_from_a_version_is_checked() {
        let check = |uri: &str| version_check(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(
            check("/api/v1/nodes?&watch=true&timeoutSeconds=290&allowWatchBookmarks=true&resourceVersion=17")
                .as_deref(),
            Some("/api/v1/nodes?limit=1&resourceVersion=17&resourceVersionMatch=NotOlderThan")
        );
        for uri in [
            "/api/v1/nodes",
            "/api/v1/nodes?limit=500",
            "/api/v1/nodes?resourceVersion=17",
            "/api/v1/nodes?watch=true&resourceVersion=0",
            "/api/v1/nodes?watch=true",
        ] {
            assert_eq!(check(uri), None, "{uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn check_without_response_fails() {
        // The first watch of a path is not checked, and the check of the next one gets no response.
        let service = tower::service_fn(async |request: Request<Body>| {
            if request.uri().query().is_some_and(|query| query.contains("limit=1")) {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::new())))
        });
        let mut service = ResumeCheckLayer::default().layer(service);
        let watch = || Request::get("/api/v1/nodes?watch=true&resourceVersion=17").body(Body::empty()).unwrap();
        assert!(service.call(watch()).await.is_ok());
        let response = timeout(MANAGEMENT_TIMEOUT * 2, service.call(watch())).await;
        let error = response.expect("the check has a timeout").map(drop).unwrap_err();
        assert_eq!(error.to_string(), "no response within 30 s");
    }

    #[test]
    fn other_timeout_is_no_restore() {
        let status = |cause: &str| json!({ "kind": "Status", "code": 504, "reason": "Timeout", "details": { "causes": [{ "reason": cause }] } });
        assert!(is_version_too_large(status(VERSION_TOO_LARGE).to_string().as_bytes()));
        assert!(!is_version_too_large(status("Other").to_string().as_bytes()));
        assert!(!is_version_too_large(b"<html>504 Gateway Time-out</html>"));
    }
}
