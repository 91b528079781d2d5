//! Having the reclaim agent on the Node of our Machine, and taking it off again.
//!
//! The label comes first and goes last, so that whoever takes over after a crash sees by it that there may be more.

use std::collections::BTreeMap;

use fivespot_api::keys;
use fivespot_planner::observed::OurNode;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Pass;
use super::children::only;
use crate::trouble::{Trouble, api_status, is_not_found};
use crate::workload::orders::is_enabled;
use crate::workload::{Posted, Reach};

impl Pass<'_> {
    pub(super) async fn project(&self, orders: &str) -> Result<(), Trouble> {
        self.patch_node("let the reclaim agent onto", |node| {
            let patch = json!({ "metadata": { "labels": { keys::RECLAIM_AGENT_LABEL: keys::RECLAIM_AGENT_ENABLED } } });
            (!is_enabled(node)).then_some(patch)
        })
        .await?;
        let Some((reach, node)) = self.reach()? else { return Ok(()) };
        let post = Post { pass: self, reach: &reach, node };
        match reach.orders(&node.name) {
            Posted::Sought => Err(Trouble::Stale("nothing is known of what the reclaim agent is told".to_owned())),
            Posted::Unreadable(why) => Err(Trouble::Hiccup(format!(
                "cannot read what the reclaim agent on Node {} is told (ConfigMaps of namespace {}): {why}",
                node.name,
                self.context.workloads.agent_namespace()
            ))),
            Posted::Nothing => post.create(orders).await,
            Posted::Found(_) => post.replace(orders).await,
        }
    }

    pub(super) async fn unproject(&self) -> Result<(), Trouble> {
        if let Some((reach, node)) = self.reach()? {
            Post { pass: self, reach: &reach, node }.delete().await?;
        }
        self.patch_node("take the reclaim agent off", |node| {
            let patch = json!({ "metadata": { "labels": { keys::RECLAIM_AGENT_LABEL: null } } });
            node.labels().contains_key(keys::RECLAIM_AGENT_LABEL).then_some(patch)
        })
        .await
    }
}

/// The orders for the agent on one Node.
struct Post<'a> {
    pass: &'a Pass<'a>,
    reach: &'a Reach,
    node: &'a OurNode,
}

impl Post<'_> {
    async fn create(&self, orders: &str) -> Result<(), Trouble> {
        let what = format!("cannot create {}", self.told());
        let params = PostParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.pass.ask(self.reach, &what, self.api().create(&params, &self.config_map(orders))).await? {
            Ok(created) => {
                self.reach.wrote_orders(created);
                Ok(())
            }
            Err(error) if api_status(&error).is_some_and(|it| it.reason == "AlreadyExists") => {
                self.is_it_ours(&what).await
            }
            Err(error) if is_not_found(&error) => Err(Trouble::Refused {
                why: format!(
                    "{what}: there is no namespace {} in the cluster of the Node; install the reclaim agent there \
                     (deploy/overlays/workload-cluster)",
                    self.pass.context.workloads.agent_namespace()
                ),
                references: None,
            }),
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }

    /// One of this name is there that the watch has not told of: it is yet to, or it is none of ours.
    async fn is_it_ours(&self, what: &str) -> Result<(), Trouble> {
        let found = match self.pass.ask(self.reach, what, self.api().get_opt(&self.name())).await? {
            Ok(found) => found,
            Err(error) => return Err(Trouble::of(what, &error)),
        };
        match found {
            Some(found) if !is_enabled(&found) => Err(Trouble::Refused {
                why: format!(
                    "{what}: one of that name is there which this controller did not write; delete it, or give it the \
                     label {}={}",
                    keys::RECLAIM_AGENT_LABEL,
                    keys::RECLAIM_AGENT_ENABLED
                ),
                references: None,
            }),
            Some(_) | None => Err(Trouble::Stale(format!("{what}: it is there already"))),
        }
    }

    async fn replace(&self, orders: &str) -> Result<(), Trouble> {
        let what = format!("cannot write {}", self.told());
        let mut wanted = json!(self.config_map(orders));
        // Whatever else somebody has written into it goes, but not what they make of it from now on: it may be theirs then.
        if let Posted::Found(found) = self.reach.orders(&self.node.name) {
            wanted["metadata"]["resourceVersion"] = json!(found.resource_version());
            for key in found.data.iter().flatten().map(|(key, _)| key).filter(|it| *it != keys::RECLAIM_CONFIG_KEY) {
                wanted["data"][key] = serde_json::Value::Null;
            }
        }
        let params = PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api();
        match self.pass.ask(self.reach, &what, api.patch(&self.name(), &params, &Patch::Merge(&wanted))).await? {
            Ok(written) => {
                self.reach.wrote_orders(written);
                Ok(())
            }
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }

    async fn delete(&self) -> Result<(), Trouble> {
        let what = format!("cannot delete {}", self.told());
        let uid = match self.reach.orders(&self.node.name) {
            Posted::Found(found) => found.uid().unwrap_or_default(),
            Posted::Sought => return Err(Trouble::Stale(format!("{what}: nothing is known of it yet"))),
            // One that is not there, or that nobody can say is ours, is left alone: without the label nobody reads it, and
            // it goes with the Node.
            Posted::Nothing | Posted::Unreadable(_) => return Ok(()),
        };
        match self.pass.ask(self.reach, &what, self.api().delete(&self.name(), &only(&uid))).await? {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(Trouble::of(&what, &error)),
        }
        self.reach.deleted_orders(&self.node.name);
        Ok(())
    }

    fn config_map(&self, orders: &str) -> ConfigMap {
        let label = (keys::RECLAIM_AGENT_LABEL.to_owned(), keys::RECLAIM_AGENT_ENABLED.to_owned());
        let whose = (keys::SCHEDULED_MACHINE_LABEL.to_owned(), self.pass.key.to_string());
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name()),
                labels: Some(BTreeMap::from([label])),
                annotations: Some(BTreeMap::from([whose])),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: self.node.name.clone(),
                    uid: self.node.uid.clone(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(keys::RECLAIM_CONFIG_KEY.to_owned(), orders.to_owned())])),
            ..ConfigMap::default()
        }
    }

    fn name(&self) -> String {
        keys::reclaim_config_map(&self.node.name)
    }

    fn told(&self) -> String {
        format!("ConfigMap {}/{}", self.pass.context.workloads.agent_namespace(), self.name())
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.reach.client(), self.pass.context.workloads.agent_namespace())
    }
}
