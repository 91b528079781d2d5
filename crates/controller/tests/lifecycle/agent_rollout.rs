//! The rollout of the reclaim agent to a Node: its label and its ConfigMap.

use fivespot_api::{Phase, ScheduledMachineStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::fixtures::{
    AGENT_LABEL, CONTROLLER_USER, Controller, TestMachine, agent_config_name, agent_configs, agent_rollout,
    assert_events_once, condition, message_contains, messages, never, repo_path, request_reclaim, scheduled_machine,
    setup, testbed, wait_for_agent_rollout, wait_until_request_is_cleared,
};
use crate::workload_clusters::start_workload_cluster;

/// The configuration for `killIfCommands: [java]`.
const JAVA: &str = "match_commands = [\"java\"]\nmatch_argv_substrings = [\"java\"]\n";
const FOREIGN: &str = "match_commands = [\"steam\"]";

/// Waits until the agent that looks for `java` is rolled out to the Node.
pub(crate) async fn wait_until_rolled_out(sm: &TestMachine<'_>) {
    wait_for_agent_rollout(sm, &sm.ns.client, (true, Some(JAVA))).await;
}

/// Waits until neither label nor ConfigMap exists.
pub(crate) async fn wait_until_removed(sm: &TestMachine<'_>) {
    wait_for_agent_rollout(sm, &sm.ns.client, (false, None)).await;
}

async fn delete_config(sm: &TestMachine<'_>) {
    agent_configs(&sm.ns.client).delete(&agent_config_name(sm), &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn rollout_follows_spec_and_is_restored() {
    let (ns, _controller) = setup("agent-rollout").await;
    let sm = scheduled_machine(&ns, "desk-01").kill_if_command("java").create_running().await;
    wait_until_rolled_out(&sm).await;
    let (configs, name) = (agent_configs(&ns.client), agent_config_name(&sm));
    let config = configs.get(&name).await.unwrap();
    assert_eq!(config.owner_references()[0].uid, sm.node().await.uid().unwrap(), "the Node does not own the ConfigMap");

    delete_config(&sm).await;
    wait_until_rolled_out(&sm).await;
    sm.patch_node(&json!({ "metadata": { "labels": { AGENT_LABEL: null } } })).await;
    wait_until_rolled_out(&sm).await;
    let tampered = json!({ "data": { "reclaim.toml": "match_commands = []", "extra": "key" } });
    configs.patch(&name, &PatchParams::default(), &Patch::Merge(&tampered)).await.unwrap();
    wait_until_rolled_out(&sm).await;
    assert_eq!(configs.get(&name).await.unwrap().data.unwrap().len(), 1);

    sm.patch(&json!({ "spec": { "killIfCommands": ["/opt/\"idea\"/bin"] } })).await;
    let quoted = "match_commands = ['/opt/\"idea\"/bin']\nmatch_argv_substrings = ['/opt/\"idea\"/bin']\n";
    wait_for_agent_rollout(&sm, &ns.client, (true, Some(quoted))).await;
    sm.patch(&json!({ "spec": { "killIfCommands": null } })).await;
    wait_until_removed(&sm).await;
    request_reclaim(&sm).await;
    wait_until_request_is_cleared(&sm).await;
    assert_eq!(sm.status().await.phase, Some(Phase::Active), "a machine without killIfCommands was reclaimed");
    ns.close().await;
}

#[tokio::test]
async fn agent_is_rolled_out_to_workload_cluster() {
    let (workload, _kwok) = start_workload_cluster("agent-workload").await;
    let testbed = testbed().await;
    let ns = testbed.namespace("agent-workload").await;
    testbed.cluster_on(&workload, &ns, "edge").await.unwrap();
    let _controller = Controller::start(testbed, &ns).await;
    let sm = scheduled_machine(&ns, "desk-01").kill_if_command("java").create().await;
    // The agent is not installed in the workload cluster yet.
    let status = wait_until_rollout_fails(&sm).await;
    assert!(message_contains(&status, messages::AGENT_NAMESPACE_MISSING), "{status:#?}");
    assert_eq!(status.phase, Some(Phase::Active), "the machine itself is running");

    workload.apply(&repo_path("deploy/overlays/workload-cluster")).await.unwrap();
    wait_for_agent_rollout(&sm, &workload.client(), (true, Some(JAVA))).await;
    sm.wait_until_running().await;
    assert_eq!(agent_rollout(&sm, &ns.client).await, (false, None), "rolled out to the management cluster");
    let forbidden = testbed.audit().entries().by(CONTROLLER_USER).in_namespace(&ns.name).filter(|it| it.code == 403);
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    ns.close().await;
}

/// Creates a ConfigMap that the controller does not manage.
async fn create_foreign_config(sm: &TestMachine<'_>) {
    let config: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": agent_config_name(sm) }, "data": { "reclaim.toml": FOREIGN },
    }))
    .unwrap();
    agent_configs(&sm.ns.client).create(&PostParams::default(), &config).await.unwrap();
}

async fn wait_until_rollout_fails(sm: &TestMachine<'_>) -> ScheduledMachineStatus {
    sm.wait_until("the rollout fails", |status| condition(status, "Ready").1 == "Error").await
}

#[tokio::test]
async fn failed_rollout_does_not_block_shutdown() {
    let (ns, _controller) = setup("failed-rollout").await;
    create_foreign_config(&TestMachine::new(&ns, "desk-01")).await;
    let sm = scheduled_machine(&ns, "desk-01").kill_if_command("java").long_timeouts().create().await;
    wait_until_rollout_fails(&sm).await;
    sm.create_blocked_pod("web").await;
    sm.set_schedule(&never()).await;
    let draining = sm
        .wait_until("both are reported", |status| {
            message_contains(status, &messages::draining_one_pod(&sm.node_name()))
                && message_contains(status, messages::NOT_RECLAIMABLE)
        })
        .await;
    assert_eq!(condition(&draining, "Ready").1, "ShuttingDown");
    sm.patch(&json!({ "spec": { "nodeDrainTimeout": "1s" } })).await;
    sm.wait_for_phase(Phase::Inactive).await;
    assert_events_once(&sm, &["DrainTimedOut"]).await;
    delete_config(&sm).await;
    ns.close().await;
}

#[tokio::test]
async fn foreign_config_is_neither_overwritten_nor_deleted() {
    let (ns, _controller) = setup("foreign-config").await;
    create_foreign_config(&TestMachine::new(&ns, "desk-01")).await;
    let sm = scheduled_machine(&ns, "desk-01").kill_if_command("java").create().await;
    let status = wait_until_rollout_fails(&sm).await;
    assert!(message_contains(&status, messages::AGENT_CONFIG_NOT_MANAGED), "{status:#?}");
    assert_eq!(agent_rollout(&sm, &ns.client).await.1.as_deref(), Some(FOREIGN));
    sm.patch(&json!({ "spec": { "killIfCommands": null } })).await;
    wait_for_agent_rollout(&sm, &ns.client, (false, Some(FOREIGN))).await;
    sm.patch(&json!({ "spec": { "killIfCommands": ["java"] } })).await;
    delete_config(&sm).await;
    // Any change to the object triggers a retry.
    sm.patch(&json!({ "metadata": { "annotations": { "example.com/retry": "now" } } })).await;
    wait_until_rolled_out(&sm).await;
    sm.wait_until_running().await;
    ns.close().await;
}
