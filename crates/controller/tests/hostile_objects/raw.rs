//! Requests as JSON text: the typed client cannot decode the objects of these tests.

use fivespot_api::ScheduledMachineStatus;
use fivespot_testbed::TestNamespace;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fixtures::{condition, wait_for};

/// The fields of an object that the tests read. All others are skipped, however deep they are.
#[derive(Debug, Deserialize)]
pub(crate) struct Stored {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) status: Option<ScheduledMachineStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) generation: i64,
    pub(crate) resource_version: String,
}

fn path(ns: &TestNamespace, rest: &str) -> String {
    format!("/apis/5spot.finos.org/v1alpha1/namespaces/{}/scheduledmachines{rest}", ns.name)
}

pub(crate) async fn create(ns: &TestNamespace, manifest: &Value) {
    try_create(ns, manifest).await.unwrap();
}

pub(crate) async fn try_create(ns: &TestNamespace, manifest: &Value) -> Result<(), String> {
    let request = http::Request::post(path(ns, "")).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(manifest).unwrap()).unwrap();
    ns.client.request_text(request).await.map(drop).map_err(|error| error.to_string())
}

/// Applies a JSON merge patch. `name` may end in `/status`.
pub(crate) async fn patch(ns: &TestNamespace, name: &str, patch: &Value) {
    let request = http::Request::patch(path(ns, &format!("/{name}")));
    let request = request.header("content-type", "application/merge-patch+json");
    let request = request.body(serde_json::to_vec(patch).unwrap()).unwrap();
    ns.client.request_text(request).await.unwrap();
}

pub(crate) async fn get(ns: &TestNamespace, name: &str) -> Option<Stored> {
    let request = http::Request::get(path(ns, &format!("/{name}"))).body(Vec::new()).unwrap();
    match ns.client.request_text(request).await {
        Ok(text) => Some(serde_json::from_str(&text).unwrap()),
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the controller reports an invalid spec for the latest generation.
pub(crate) async fn wait_until_invalid(ns: &TestNamespace, name: &str) -> ScheduledMachineStatus {
    wait_for(&format!("{name} is reported as invalid"), async || {
        let stored = get(ns, name).await.unwrap();
        let status = stored.status.unwrap_or_default();
        let is_current = status.observed_generation == Some(stored.metadata.generation);
        let is_invalid = condition(&status, "Ready") == ("False", "InvalidSpec");
        if is_current && is_invalid { Ok(status) } else { Err(json!(status)) }
    })
    .await
}

/// A value that is nested this many levels deep.
pub(crate) fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }))
}
