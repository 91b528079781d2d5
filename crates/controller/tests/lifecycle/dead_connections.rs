//! Connections that die without an error: packets are dropped, and no end ever arrives.

use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::NetworkNamespace;
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::fixtures::{
    Controller, TcpRelay, agent_rollout, namespace_with_cluster, request_reclaim, scheduled_machine, testbed, wait_for,
};

/// The controller notices a dead connection within 30 s; the rest is for two busy cores. A silent watch is renewed by
/// itself after about five minutes.
const DEADLINE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn dead_connections_delay_neither_kill_switch_nor_reclaim_for_long() {
    if !NetworkNamespace::is_possible() {
        return;
    }
    let testbed = testbed().await;
    let plane = testbed.control_plane();
    let network = NetworkNamespace::create(&plane.logs()).unwrap();
    let relay = TcpRelay::start(plane.admin(), network.host_address()).await;
    let ns = namespace_with_cluster("dead-connections").await;
    // The Nodes are watched over another connection, as if they were in another cluster.
    let workload = relay.kubeconfig(&plane.access(WORKLOAD_ADMIN).unwrap());
    let secret = json!({ "stringData": { "value": workload } });
    ns.api::<Secret>().patch("edge-kubeconfig", &PatchParams::default(), &Patch::Merge(secret)).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let access = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let kubeconfig = relay.write_kubeconfig(directory.path(), &access);
    let _controller = Controller::start_in(&network, testbed, &kubeconfig, &["--namespace", &ns.name]);
    let killed = scheduled_machine(&ns, "killed").create_running().await;
    let reclaimed = scheduled_machine(&ns, "reclaimed").kill_if_command("java").create_running().await;
    wait_for("the agent is rolled out", async || {
        matches!(agent_rollout(&reclaimed, &ns.client).await, (true, Some(_)))
    })
    .await;

    network.cut_established_connections().unwrap();
    killed.set_kill_switch(true).await;
    request_reclaim(&reclaimed).await;
    for (sm, phase) in [(&killed, Phase::Terminated), (&reclaimed, Phase::Disabled)] {
        eventually(&format!("{} is {phase:?}", sm.name), DEADLINE, async || {
            let status = sm.status().await;
            if status.phase == Some(phase) { Ok(()) } else { Err(json!(status)) }
        })
        .await;
    }
    ns.close().await;
}
