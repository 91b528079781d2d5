//! Cluster API and providers, in the versions that the cluster serves.

use fivespot_api::Phase;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlaneOptions, Testbed};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, a_cluster, always, never, testbed};

/// Cluster API's Machines and Clusters.
const CORE: [&str; 2] = ["machines.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"];

/// Whether a version of these kinds is served.
async fn serve(testbed: &Testbed, kinds_of: &[&str], version: &str, served: bool) {
    let kinds: Api<CustomResourceDefinition> = Api::all(testbed.client());
    for kind in kinds_of {
        // Cluster API writes these too, so somebody may be faster.
        eventually("the versions that are served are changed", SOON, async || {
            let mut definition = kinds.get(kind).await.map_err(|error| error.to_string())?;
            for it in &mut definition.spec.versions {
                if it.name == version {
                    it.served = served;
                }
            }
            let written = kinds.replace(kind, &PostParams::default(), &definition).await;
            written.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

#[tokio::test]
async fn an_older_cluster_api_is_spoken_to_in_its_own_version() {
    let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named("v1beta1")).await.unwrap();
    testbed.control_plane().install_without_controller().await.unwrap();
    let test = testbed.namespace("older").await;
    testbed.cluster(&test, "edge").await.unwrap();
    serve(&testbed, &CORE, "v1beta2", false).await;
    let controller = Controller::start_in(&testbed, &test).await;
    controller.ready().await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "nodeDrainTimeout": "7m" })).await;
    let made = desk.reaches(Phase::Active).await;
    assert_eq!(made.machine_ref.unwrap().api_version, "cluster.x-k8s.io/v1beta1");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Machine"));
    let machine = test.dynamic_api(&resource).get("desk-01-machine").await.unwrap();
    assert_eq!(machine.data["spec"]["nodeDrainTimeout"], "7m0s", "{:#}", machine.data);
    assert_eq!(machine.data["spec"]["infrastructureRef"]["name"], "desk-01-infra");

    // Cluster API itself, which is newer here, goes on: the machine that was ordered in the older version runs.
    serve(&testbed, &CORE, "v1beta2", true).await;
    let running = desk.runs().await;
    assert!(running.node_ref.is_some());
}

const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// A kind of a provider that is served in one version, and can be in another.
fn moving_kind() -> CustomResourceDefinition {
    let version = |name: &str, now: bool| {
        json!({
            "name": name,
            "served": now,
            "storage": now,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    };
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("movingservers.{GROUP}"),
            "labels": { "cluster.x-k8s.io/v1beta1": "v1beta1" },
        },
        "spec": {
            "group": GROUP,
            "names": { "kind": "MovingServer", "plural": "movingservers" },
            "scope": "Namespaced",
            "versions": [version("v1beta1", true), version("v1beta2", false)],
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn what_a_machine_left_behind_is_found_in_the_version_that_its_provider_serves_since() {
    let (test, _controller) = a_cluster("moving provider").await;
    let kinds: Api<CustomResourceDefinition> = Api::all(test.client.clone());
    let kind = kinds.create(&PostParams::default(), &moving_kind()).await.unwrap().metadata.name.unwrap();
    let servers = |version: &str| {
        let kind = GroupVersionKind::gvk(GROUP, version, "MovingServer");
        test.dynamic_api(&ApiResource::from_gvk_with_plural(&kind, "movingservers"))
    };
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "infrastructureSpec": { "kind": "MovingServer" } })).await;
    desk.reaches(Phase::Active).await;
    servers("v1beta1").get("desk-01-infra").await.unwrap();

    // Cluster API looks away, so that it leaves the removal to us; then the provider moves on.
    let annotate = |patch: serde_json::Value| {
        let machines = desk.machines();
        async move { machines.patch("desk-01-machine", &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    annotate(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } })).await.unwrap();
    serve(testbed().await, &[&kind], "v1beta2", true).await;
    serve(testbed().await, &[&kind], "v1beta1", false).await;
    eventually("the newer version alone is served", SOON, async || {
        servers("v1beta2").get("desk-01-infra").await.is_ok() && servers("v1beta1").get("desk-01-infra").await.is_err()
    })
    .await;
    desk.reschedule(&never()).await;
    eventually("the Machine goes", SOON, async || {
        let Some(machine) = desk.machine().await else { return true };
        if machine.metadata.deletion_timestamp.is_some() {
            // It may have gone meanwhile.
            let _ = annotate(json!({ "metadata": { "finalizers": null } })).await;
        }
        false
    })
    .await;
    desk.reaches(Phase::Inactive).await;
    let left = servers("v1beta2").get_opt("desk-01-infra").await.unwrap();
    assert!(left.is_none(), "it was left behind: {left:#?}");
    assert_eq!(desk.children().await, (false, false, false));
    test.close().await;
}
