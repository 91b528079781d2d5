//! Rollout of the reclaim agent on the Node: a label on the Node and a ConfigMap with the agent's configuration.
//!
//! The label is added first and removed last, so that after a crash it shows that the rest may exist. Together with the label
//! the Node is annotated with the uid of the Machine, and a reclaim request that an earlier Machine left is cleared: from then
//! on a request counts.

use std::collections::BTreeMap;

use fivespot_api::keys;
use fivespot_planner::observed::ManagedNode;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::Request;
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tracing::{debug, info};

use crate::clusters::{AgentConfigState, ConfigMaps, WorkloadClient, has_agent_label};
use crate::reconciler::Scope;
use crate::reconciler::error::ReconcileError;
use crate::reconciler::execute::node::no_reclaim_request;
use crate::reconciler::write::{delete_uid, patch_params, post_params};
use crate::runtime::request::{Operation, RequestError};

impl Scope<'_> {
    pub(super) async fn roll_out_agent(&self, config: &str) -> Result<(), ReconcileError> {
        let Some(machine) = self.observed.machine.managed() else { return Ok(()) };
        self.patch_node("label", |node| {
            let annotated = node.annotations().get(keys::RECLAIM_AGENT_MACHINE_ANNOTATION) == Some(&machine.uid);
            let mut patch =
                json!({ "metadata": { "labels": { keys::RECLAIM_AGENT_LABEL: keys::RECLAIM_AGENT_ENABLED } } });
            if !annotated {
                patch["metadata"]["annotations"] = no_reclaim_request();
                patch["metadata"]["annotations"][keys::RECLAIM_AGENT_MACHINE_ANNOTATION] = json!(machine.uid);
            }
            (!annotated || !has_agent_label(node)).then_some(patch)
        })
        .await?;
        let Some((client, node)) = self.node()? else { return Ok(()) };
        let agent = NodeAgent { scope: self, client: &client, node };
        match client.agent_config(&node.name) {
            // The object is queued when the configurations have been listed.
            AgentConfigState::Connecting => return Ok(()),
            AgentConfigState::Unreadable(cause) => {
                let namespace = self.context.workload_clusters.agent_namespace().to_owned();
                return Err(ReconcileError::AgentConfigUnreadable { namespace, cause });
            }
            AgentConfigState::Absent => agent.create(config).await?,
            AgentConfigState::Found(found) => agent.replace(config, &found).await?,
        }
        if self.allows_log("roll out") {
            info!(node = node.name, "Rolled out reclaim agent");
        }
        Ok(())
    }

    pub(super) async fn withdraw_agent(&self) -> Result<(), ReconcileError> {
        if let Some((client, node)) = self.node()? {
            NodeAgent { scope: self, client: &client, node }.delete().await?;
        }
        // An agent that is still running may request a machine that is shut down gracefully: that makes it faster.
        let may_be_requested = self.requested.agent_config.is_some() && !self.object.is_reclaim_in_progress();
        let patched = self
            .patch_node("unlabel", |node| {
                let mut patch = json!({ "metadata": { "labels": { keys::RECLAIM_AGENT_LABEL: null } } });
                if !may_be_requested {
                    patch["metadata"]["annotations"] = json!({ keys::RECLAIM_AGENT_MACHINE_ANNOTATION: null });
                }
                node.labels().contains_key(keys::RECLAIM_AGENT_LABEL).then_some(patch)
            })
            .await?;
        if let Some(node) = patched
            && self.allows_log("withdraw")
        {
            info!(node, "Withdrew reclaim agent");
        }
        Ok(())
    }
}

/// The agent's ConfigMap for one Node.
struct NodeAgent<'a> {
    scope: &'a Scope<'a>,
    client: &'a WorkloadClient,
    node: &'a ManagedNode,
}

impl NodeAgent<'_> {
    async fn create(&self, config: &str) -> Result<(), ReconcileError> {
        let (config_maps, params) = (self.config_maps(), post_params());
        match self.write("create", config_maps.create(&params, self.config_map(config))).await {
            Ok(created) => {
                self.client.apply_agent_config_write(created);
                debug!(config_map = self.full_name(), "Created agent configuration");
                Ok(())
            }
            Err(error) if error.request().is_some_and(RequestError::is_already_exists) => self.explain_existing().await,
            Err(error) if error.is_not_found() => Err(ReconcileError::AgentNamespaceMissing {
                config_map: self.full_name(),
                namespace: self.scope.context.workload_clusters.agent_namespace().to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    /// A ConfigMap exists that is not cached: either the cache lags behind, or the controller did not create it.
    async fn explain_existing(&self) -> Result<(), ReconcileError> {
        match self.write("read", self.config_maps().get(&self.name())).await? {
            Some(found) if !has_agent_label(&found) => {
                Err(ReconcileError::AgentConfigConflict { config_map: self.full_name() })
            }
            Some(_) | None => Err(ReconcileError::AgentConfigNotCached { node: self.node.name.clone() }),
        }
    }

    async fn replace(&self, config: &str, found: &ConfigMap) -> Result<(), ReconcileError> {
        let mut desired = json!(self.config_map(config));
        // Other keys are removed. A concurrent change wins: the ConfigMap may belong to another client by then.
        desired["metadata"]["resourceVersion"] = json!(found.resource_version());
        for key in found.data.iter().flatten().map(|(key, _)| key).filter(|it| *it != keys::RECLAIM_CONFIG_KEY) {
            desired["data"][key] = serde_json::Value::Null;
        }
        let (config_maps, name, params) = (self.config_maps(), self.name(), patch_params());
        let written = self.write("patch", config_maps.patch(&name, &params, &desired)).await?;
        self.client.apply_agent_config_write(written);
        debug!(config_map = self.full_name(), "Updated agent configuration");
        Ok(())
    }

    async fn delete(&self) -> Result<(), ReconcileError> {
        let uid = match self.client.agent_config(&self.node.name) {
            AgentConfigState::Found(found) => found.uid().unwrap_or_default(),
            AgentConfigState::Connecting => {
                return Err(ReconcileError::AgentConfigNotCached { node: self.node.name.clone() });
            }
            // Without the Node's label no agent reads it, and garbage collection removes it with the Node.
            AgentConfigState::Absent | AgentConfigState::Unreadable(_) => return Ok(()),
        };
        match self.write("delete", self.client.request(self.request().delete(&self.name(), &delete_uid(&uid)))).await {
            Ok(()) => debug!(config_map = self.full_name(), "Deleted agent configuration"),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.client.mark_agent_config_deleted(&self.node.name);
        Ok(())
    }

    async fn write<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReconcileError> {
        let operation = Operation::new(verb, format!("ConfigMap {}", self.full_name()));
        self.scope.write_to_workload(self.client, operation, request).await
    }

    fn config_map(&self, config: &str) -> ConfigMap {
        let label = (keys::RECLAIM_AGENT_LABEL.to_owned(), keys::RECLAIM_AGENT_ENABLED.to_owned());
        let annotation = (keys::SCHEDULED_MACHINE_LABEL.to_owned(), self.scope.key.to_string());
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name()),
                labels: Some(BTreeMap::from([label])),
                annotations: Some(BTreeMap::from([annotation])),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: self.node.name.clone(),
                    uid: self.node.uid.clone(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(keys::RECLAIM_CONFIG_KEY.to_owned(), config.to_owned())])),
            ..ConfigMap::default()
        }
    }

    fn name(&self) -> String {
        keys::reclaim_config_map(&self.node.name)
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.scope.context.workload_clusters.agent_namespace(), self.name())
    }

    fn request(&self) -> Request {
        Request::new(ConfigMap::url_path(&(), Some(self.scope.context.workload_clusters.agent_namespace())))
    }

    fn config_maps(&self) -> ConfigMaps {
        self.client.config_maps(self.scope.context.workload_clusters.agent_namespace())
    }
}
