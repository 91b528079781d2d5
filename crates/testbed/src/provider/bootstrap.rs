//! `K0sWorkerConfig`: creates the bootstrap data Secret once a Machine owns the object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::behaviour::Step;
use super::context::{Context, ProviderError, failure_status, owner_name};

pub(super) async fn reconcile(config: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, ProviderError> {
    if config.metadata.deletion_timestamp.is_some() || owner_name(&config, "Machine").is_none() {
        return Ok(Action::await_change());
    }
    match context.rules.behaviour_of(&config).bootstrap {
        Step::Never => {}
        Step::Fail { reason, message } => {
            if config.data.pointer("/status/failureReason").is_none() {
                context.patch_status(&config, failure_status(&reason, &message)).await?;
            }
        }
        Step::After(delay) => {
            if config.data.pointer("/status/ready") == Some(&json!(true)) {
                return Ok(Action::await_change());
            }
            if let Some(left) = context.remaining(delay, &config, "bootstrap") {
                return Ok(Action::requeue(left));
            }
            let name = config.name_any();
            create_data_secret(&config, &context).await?;
            let ready = json!({ "ready": true, "dataSecretName": name, "initialization": { "dataSecretCreated": true },
                "failureReason": null, "failureMessage": null });
            context.patch_status(&config, ready).await?;
        }
    }
    Ok(Action::await_change())
}

async fn create_data_secret(config: &DynamicObject, context: &Context) -> Result<(), ProviderError> {
    let namespace = config.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client(), &namespace);
    let types = config.types.as_ref().expect("a watch sets the type of its objects");
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": config.name_any(),
            "labels": { super::machine::CLUSTER_NAME: config.labels().get(super::machine::CLUSTER_NAME) },
            "ownerReferences": [{ "apiVersion": types.api_version, "kind": types.kind, "name": config.name_any(),
                "uid": config.uid().unwrap_or_default(), "controller": true }],
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": { "value": "#!/bin/sh\n# a simulated machine needs no bootstrap data\n" },
    }))
    .map_err(kube::Error::SerdeError)?;
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
    }
}
