//! API versions of Cluster API and of providers.

use fivespot_api::Phase;
use fivespot_testbed::{ControlPlaneOptions, Testbed};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{Children, Controller, never, scheduled_machine, setup, testbed, wait_for};

const CORE_CRDS: [&str; 2] = ["machines.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"];
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Sets whether a version of these CRDs is served.
async fn set_served(testbed: &Testbed, names: &[&str], version: &str, served: bool) {
    let crds: Api<CustomResourceDefinition> = Api::all(testbed.client());
    for name in names {
        // Cluster API writes these CRDs, too: retry on conflict.
        wait_for("the CRD is updated", async || {
            let mut crd = crds.get(name).await.map_err(|error| error.to_string())?;
            for it in crd.spec.versions.iter_mut().filter(|it| it.name == version) {
                it.served = served;
            }
            let replaced = crds.replace(name, &PostParams::default(), &crd).await;
            replaced.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

#[tokio::test]
async fn v1beta1_is_used_where_v1beta2_is_not_served() {
    let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("v1beta1")).await.unwrap();
    testbed.control_plane().install_without_controller().await.unwrap();
    let ns = testbed.namespace("v1beta1").await;
    testbed.cluster(&ns, "edge").await.unwrap();
    set_served(&testbed, &CORE_CRDS, "v1beta2", false).await;
    let controller = Controller::start(&testbed, &ns).await;
    controller.wait_until_ready().await;
    let sm = scheduled_machine(&ns, "desk-01").node_drain_timeout("7m").create().await;
    let active = sm.wait_for_phase(Phase::Active).await;
    assert_eq!(active.machine_ref.unwrap().api_version, "cluster.x-k8s.io/v1beta1");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine"));
    let machine = ns.dynamic_api(&resource).get("desk-01-machine").await.unwrap();
    assert_eq!(machine.data["spec"]["nodeDrainTimeout"], "7m0s", "{:#}", machine.data);
    assert_eq!(machine.data["spec"]["infrastructureRef"]["name"], "desk-01-infra");

    // The Cluster API of the testbed needs v1beta2 to bring up the Machine that was created as v1beta1.
    set_served(&testbed, &CORE_CRDS, "v1beta2", true).await;
    let running = sm.wait_until_running().await;
    assert!(running.node_ref.is_some());
}

/// A provider CRD that serves v1beta1 and can be switched to v1beta2.
fn migrating_crd() -> CustomResourceDefinition {
    let version = |name: &str, current: bool| {
        json!({
            "name": name,
            "served": current,
            "storage": current,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    };
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("migratingservers.{GROUP}"),
            "labels": { "cluster.x-k8s.io/v1beta1": "v1beta1" },
        },
        "spec": {
            "group": GROUP,
            "names": { "kind": "MigratingServer", "plural": "migratingservers" },
            "scope": "Namespaced",
            "versions": [version("v1beta1", true), version("v1beta2", false)],
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn leftover_infrastructure_is_deleted_in_newly_served_version() {
    let (ns, _controller) = setup("migrating-provider").await;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let crd = crds.create(&PostParams::default(), &migrating_crd()).await.unwrap().metadata.name.unwrap();
    let servers = |version: &str| {
        let gvk = GroupVersionKind::gvk(GROUP, version, "MigratingServer");
        ns.dynamic_api(&ApiResource::from_gvk_with_plural(&gvk, "migratingservers"))
    };
    let sm = scheduled_machine(&ns, "desk-01").infrastructure_kind("MigratingServer").create().await;
    sm.wait_for_phase(Phase::Active).await;
    servers("v1beta1").get("desk-01-infra").await.unwrap();

    // Cluster API ignores the paused Machine, so the controller has to delete the infrastructure object.
    sm.patch_machine(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } })).await;
    set_served(testbed().await, &[&crd], "v1beta2", true).await;
    set_served(testbed().await, &[&crd], "v1beta1", false).await;
    wait_for("only v1beta2 is served", async || {
        servers("v1beta2").get("desk-01-infra").await.is_ok() && servers("v1beta1").get("desk-01-infra").await.is_err()
    })
    .await;
    sm.set_schedule(&never()).await;
    wait_for("the Machine is deleted", async || {
        let Some(machine) = sm.machine().await else { return true };
        if machine.metadata.deletion_timestamp.is_some() {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            // Fails if the Machine has been deleted meanwhile.
            let _ = sm.machines().patch(&sm.machine_name(), &PatchParams::default(), &patch).await;
        }
        false
    })
    .await;
    sm.wait_for_phase(Phase::Inactive).await;
    let leftover = servers("v1beta2").get_opt("desk-01-infra").await.unwrap();
    assert!(leftover.is_none(), "{leftover:#?}");
    assert_eq!(sm.children().await, Children::NONE);
    ns.close().await;
}
