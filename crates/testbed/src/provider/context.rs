//! Shared state of the reconcilers: client, behaviour rules, delays and log.

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

use super::behaviour::BehaviourRules;
use super::node::WorkloadClusters;

const RETRY_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("Node {name} has providerID {actual:?}, expected {expected:?}")]
    ProviderIdMismatch { name: String, actual: Option<String>, expected: String },
}

pub(super) struct Context {
    pub(super) rules: Arc<BehaviourRules>,
    pub(super) workload_clusters: Arc<WorkloadClusters>,
    client: Option<Client>,
    started: Mutex<HashMap<(String, &'static str), Instant>>,
    log: Mutex<File>,
}

impl Context {
    pub(super) fn new(
        rules: Arc<BehaviourRules>,
        workload_clusters: Arc<WorkloadClusters>,
        log: &Path,
    ) -> io::Result<Self> {
        let log = Mutex::new(File::options().create(true).append(true).open(log)?);
        Ok(Self { rules, workload_clusters, client: None, started: Mutex::default(), log })
    }

    /// Sets the client, which must be created in the provider's own runtime.
    pub(super) fn with_client(self, client: Client) -> Self {
        Self { client: Some(client), ..self }
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone().expect("the provider's thread sets the client before it starts the controllers")
    }

    /// The `Api` for the kind and namespace of an object.
    pub(super) fn api_of(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.as_ref().expect("a watch sets the type of its objects");
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

    /// The rest of `delay` since the first call for this step of this object; `None` once it has passed.
    pub(super) fn remaining(&self, delay: Duration, object: &DynamicObject, step: &'static str) -> Option<Duration> {
        let key = (object.uid().unwrap_or_default(), step);
        let started = *self
            .started
            .lock()
            .expect("no thread panics while holding the lock")
            .entry(key)
            .or_insert_with(Instant::now);
        delay.checked_sub(started.elapsed()).filter(|left| !left.is_zero())
    }

    /// Appends a line to the log. Ignores errors, such as a full disk.
    pub(super) fn log(&self, object: &DynamicObject, message: &str) {
        let kind = object.types.as_ref().map_or("?", |types| types.kind.as_str());
        let namespace = object.namespace().unwrap_or_default();
        let now = k8s_openapi::jiff::Timestamp::now();
        let mut log = self.log.lock().expect("no thread panics while holding the lock");
        let _ = writeln!(log, "{now} {kind} {namespace}/{}: {message}", object.name_any());
    }
}

/// The name of the owner of a kind of Cluster API.
pub(super) fn owner_name<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a str> {
    object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == kind && owner.api_version.starts_with("cluster.x-k8s.io/"))
        .map(|owner| owner.name.as_str())
}

/// The status of a failed object under the v1beta1 contract.
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

#[expect(clippy::needless_pass_by_value, reason = "the signature is given by kube::runtime::Controller")]
pub(super) fn retry(object: Arc<DynamicObject>, error: &ProviderError, context: Arc<Context>) -> Action {
    context.log(&object, &format!("reconcile failed, retrying: {error}"));
    Action::requeue(RETRY_AFTER)
}
