//! Objects that a tenant may store and that are hard to decode or large: none of them may affect another object.
//!
//! In a binary of its own, because the controllers watch all namespaces.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod decoding;
mod memory;
mod raw;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::Api;
use kube::api::DeleteParams;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The tests run one after the other: each runs a controller of all namespaces. The admission policy rejects most of their
/// objects, so it is not in force: objects can be older than it.
async fn serial() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::const_new(());
    static POLICY_REMOVED: OnceCell<()> = OnceCell::const_new();
    let guard = SERIAL.lock().await;
    POLICY_REMOVED.get_or_init(remove_policy).await;
    guard
}

async fn remove_policy() {
    let testbed = fixtures::testbed().await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(testbed.client());
    bindings.delete("scheduledmachine-validation-binding", &DeleteParams::default()).await.unwrap();
    let ns = testbed.namespace("policy").await;
    let mut manifest = serde_json::json!(fixtures::scheduled_machine(&ns, "deep").manifest());
    manifest["spec"]["bootstrapSpec"]["spec"] = raw::nested(100);
    fixtures::wait_for("the policy is no longer in force", async || raw::try_create(&ns, &manifest).await).await;
    ns.close().await;
}
