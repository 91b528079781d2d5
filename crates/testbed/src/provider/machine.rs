//! `RemoteMachine`: registers a Node once its Machine has bootstrap data, and removes it on deletion.

use std::sync::Arc;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::behaviour::{Removal, Step};
use super::context::{Context, ProviderError, failure_status, owner_name};
use super::node;
use crate::capi::core_kind;

/// The label with the name of an object's Cluster.
pub(super) const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
const FINALIZER: &str = "testbed.5spot.finos.org/remote-machine";

pub(super) async fn reconcile(machine: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, ProviderError> {
    if machine.metadata.deletion_timestamp.is_some() {
        return remove(&machine, &context).await;
    }
    let Some(owner) = owner_name(&machine, "Machine") else { return Ok(Action::await_change()) };
    if !machine.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        let finalizers = [machine.finalizers(), &[FINALIZER.to_owned()]].concat();
        set_finalizers(&machine, &context, &finalizers).await?;
        return Ok(Action::await_change());
    }
    match context.rules.behaviour_of(&machine).infrastructure {
        Step::Never => Ok(Action::await_change()),
        Step::Fail { reason, message } => {
            if machine.data.pointer("/status/failureReason").is_none() {
                context.patch_status(&machine, failure_status(&reason, &message)).await?;
            }
            Ok(Action::await_change())
        }
        Step::After(delay) => {
            let is_ready = machine.data.pointer("/status/ready") == Some(&json!(true));
            if is_ready || !has_bootstrap_data(owner, &machine, &context).await? {
                return Ok(Action::await_change());
            }
            if let Some(left) = context.remaining(delay, &machine, "provision") {
                return Ok(Action::requeue(left));
            }
            provision(&machine, &context).await
        }
    }
}

async fn has_bootstrap_data(owner: &str, machine: &DynamicObject, context: &Context) -> Result<bool, ProviderError> {
    let namespace = machine.namespace().unwrap_or_default();
    let machines: Api<DynamicObject> = Api::namespaced_with(context.client(), &namespace, &core_kind("Machine"));
    let owner = machines.get_opt(owner).await?;
    Ok(owner.is_some_and(|owner| owner.data.pointer("/spec/bootstrap/dataSecretName").is_some()))
}

async fn provision(machine: &DynamicObject, context: &Context) -> Result<Action, ProviderError> {
    let node = node::join(machine, context).await?;
    let patch = Patch::Merge(json!({ "spec": { "providerID": node::provider_id_of(machine) } }));
    context.api_of(machine).patch(&machine.name_any(), &PatchParams::default(), &patch).await?;
    let ready = json!({
        "ready": true,
        "initialization": { "provisioned": true },
        "addresses": [{ "type": "Hostname", "address": node }],
        "failureReason": null,
        "failureMessage": null,
        "conditions": null,
    });
    context.patch_status(machine, ready).await?;
    Ok(Action::await_change())
}

async fn remove(machine: &DynamicObject, context: &Context) -> Result<Action, ProviderError> {
    if !machine.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(Action::await_change());
    }
    let (delay, removes_node) = match context.rules.behaviour_of(machine).removal {
        Removal::Never => return Ok(Action::await_change()),
        Removal::LeavingNodeAfter(delay) => (delay, false),
        Removal::After(delay) => (delay, true),
    };
    if let Some(left) = context.remaining(delay, machine, "removal") {
        return Ok(Action::requeue(left));
    }
    if removes_node {
        node::leave(machine, context).await?;
    }
    let others: Vec<String> =
        machine.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    set_finalizers(machine, context, &others).await?;
    Ok(Action::await_change())
}

/// Replaces the whole list, guarded by the resourceVersion.
async fn set_finalizers(
    machine: &DynamicObject,
    context: &Context,
    finalizers: &[String],
) -> Result<(), ProviderError> {
    context.log(machine, &format!("finalizers {finalizers:?}"));
    let patch = Patch::Merge(json!({
        "metadata": { "finalizers": finalizers, "resourceVersion": machine.resource_version() },
    }));
    context.api_of(machine).patch(&machine.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}
