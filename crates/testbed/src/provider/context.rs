//! What every pass of the provider needs: a client, the script, a clock for delays and a log.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::behaviour::Script;
use super::node::Homes;

const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Why a pass did not end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("Node {name} belongs to {other:?}, not to {ours}")]
    ForeignNode { name: String, other: Option<String>, ours: String },
}

pub(super) struct Context {
    pub(super) script: Arc<Script>,
    pub(super) homes: Arc<Homes>,
    client: Option<Client>,
    started: Mutex<HashMap<(String, &'static str), Instant>>,
    log: Mutex<File>,
}

impl Context {
    pub(super) fn new(script: Arc<Script>, homes: Arc<Homes>, log: &Path) -> io::Result<Self> {
        let log = Mutex::new(File::options().create(true).append(true).open(log)?);
        Ok(Self { script, homes, client: None, started: Mutex::default(), log })
    }

    /// The client is made in the provider's own runtime, after the context.
    pub(super) fn with_client(self, client: Client) -> Self {
        Self { client: Some(client), ..self }
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone().expect("the provider's thread sets the client before it runs anything")
    }

    /// The API of an object's own kind and namespace.
    pub(super) fn api_of(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.as_ref().expect("what a watch delivers has its types");
        let kind = super::kinds::ALL
            .iter()
            .find(|kind| kind.kind == types.kind && types.api_version == kind.api_version())
            .expect("only the provider's own kinds are watched");
        Api::namespaced_with(self.client(), &object.namespace().unwrap_or_default(), &kind.api_resource())
    }

    pub(super) async fn patch_status(&self, object: &DynamicObject, status: Value) -> Result<(), kube::Error> {
        self.log(object, &format!("status {status}"));
        let patch = Patch::Merge(json!({ "status": status }));
        self.api_of(object).patch_status(&object.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    /// How much of `delay` is left since this step of this object was first asked about; `None` when it is over.
    pub(super) fn left_of(&self, delay: Duration, object: &DynamicObject, step: &'static str) -> Option<Duration> {
        let key = (object.uid().unwrap_or_default(), step);
        let started = *self.started.lock().expect("no holder panics").entry(key).or_insert_with(Instant::now);
        delay.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
    }

    /// A line for whoever wonders later. A full disk is no reason to stop.
    pub(super) fn log(&self, object: &DynamicObject, message: &str) {
        let kind = object.types.as_ref().map_or("?", |types| types.kind.as_str());
        let namespace = object.namespace().unwrap_or_default();
        let now = k8s_openapi::jiff::Timestamp::now();
        let mut log = self.log.lock().expect("no holder panics");
        let _ = writeln!(log, "{now} {kind} {namespace}/{}: {message}", object.name_any());
    }
}

/// The owner that Cluster API has set, by kind.
pub(super) fn owner_name<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a str> {
    object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == kind && owner.api_version.starts_with("cluster.x-k8s.io/"))
        .map(|owner| owner.name.as_str())
}

/// What a failure looks like under the v1beta1 contract.
pub(super) fn failure_status(reason: &str, message: &str) -> Value {
    json!({
        "ready": false,
        "failureReason": reason,
        "failureMessage": message,
        "conditions": [{
            "type": "Ready",
            "status": "False",
            "severity": "Error",
            "reason": reason,
            "message": message,
            "lastTransitionTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::now()),
        }],
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the controller runtime hands out owned values")]
pub(super) fn retry(object: Arc<DynamicObject>, error: &ProviderError, context: Arc<Context>) -> Action {
    context.log(&object, &format!("will be tried again: {error}"));
    Action::requeue(RETRY_AFTER)
}
