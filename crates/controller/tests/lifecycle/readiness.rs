//! `/ready` reports whether the watches work at present.

use std::net::Ipv4Addr;

use fivespot_testbed::allow;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::fixtures::{Controller, Endpoint, TcpRelay, namespace_with_cluster, testbed, wait_for};

#[tokio::test]
async fn ready_reports_failing_watch_and_recovers() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("readiness").await;
    let read = &["get", "list", "watch"][..];
    let rules = vec![
        allow("5spot.finos.org", &["scheduledmachines"], read),
        allow("cluster.x-k8s.io", &["clusters"], read),
        allow("cluster.x-k8s.io", &["machines"], read),
    ];
    let access = ns.account("controller", rules.clone()).await.unwrap();
    let relay = TcpRelay::start(testbed.control_plane().admin(), Ipv4Addr::LOCALHOST).await;
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = relay.write_kubeconfig(directory.path(), &access);
    let controller = Controller::start_with_kubeconfig(testbed, &kubeconfig, &["--namespace", &ns.name]);
    controller.wait_until_ready().await;

    let set_rules = async |rules: &[_]| {
        let patch = Patch::Merge(json!({ "rules": rules }));
        ns.api::<Role>().patch("controller", &PatchParams::default(), &patch).await.unwrap();
    };
    set_rules(&rules[..2]).await;
    // The API server checks the permission when a watch starts, not while it is open.
    relay.close_connections();
    wait_for("/ready names the watch that fails", async || {
        let ready = controller.get(Endpoint::Health, "/ready").await;
        let is_expected = ready.code == 503 && ready.body.contains("Machine") && ready.body.contains("forbidden");
        if is_expected { Ok(()) } else { Err(format!("{ready:?}")) }
    })
    .await;
    let health = controller.get(Endpoint::Health, "/health").await;
    assert_eq!(health.code, 200, "a restart does not fix a permission: {health:?}");

    set_rules(&rules).await;
    controller.wait_until_ready().await;
    ns.close().await;
}
