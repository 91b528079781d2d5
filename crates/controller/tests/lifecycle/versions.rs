//! Cluster API in the version that the cluster serves.

use fivespot_api::Phase;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlaneOptions, Testbed};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, GroupVersionKind, PostParams};
use serde_json::json;

use crate::fixtures::{Controller, Desk, SOON, always};

/// Whether a version of Cluster API's Machines and Clusters is served.
async fn serve(testbed: &Testbed, version: &str, served: bool) {
    let kinds: Api<CustomResourceDefinition> = Api::all(testbed.client());
    for kind in ["machines.cluster.x-k8s.io", "clusters.cluster.x-k8s.io"] {
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
    testbed.control_plane().install_all_but_the_controller().await.unwrap();
    let test = testbed.namespace("older").await;
    testbed.cluster(&test, "edge").await.unwrap();
    serve(&testbed, "v1beta2", false).await;
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
    serve(&testbed, "v1beta2", true).await;
    let running = desk.runs().await;
    assert!(running.node_ref.is_some());
}
