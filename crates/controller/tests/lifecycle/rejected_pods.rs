//! Pods whose eviction or deletion the API server rejects. Each pod is handled by itself.

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration as Webhook;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::net::TcpListener;

use crate::fixtures::{
    Rejected, RejectingPolicy, TestMachine, agent_rollout, create_pod, messages, never, request_reclaim,
    scheduled_machine, setup, testbed, wait_for, wait_until_request_is_cleared,
};

/// With 30 s after the first rejection, doubled for each further one up to 5 min, these take longer than a test waits.
const ATTEMPTS: usize = 8;

/// Deletes a namespace whose pod a policy protects, so that it stays terminating with the pod in it.
async fn start_termination(ns: &TestNamespace, pod: &str) {
    let namespaces: Api<Namespace> = Api::all(ns.client.clone());
    namespaces.delete(&ns.name, &DeleteParams::default()).await.unwrap();
    wait_for("the namespace is terminating", async || {
        let phase = namespaces.get(&ns.name).await.unwrap().status.unwrap_or_default().phase;
        phase.as_deref() == Some("Terminating")
    })
    .await;
    let pod = ns.api::<Pod>().get(pod).await.unwrap();
    assert!(pod.metadata.deletion_timestamp.is_none(), "{pod:#?}");
}

/// Waits until the eviction of a pod that a budget protects has been tried this often. With the backoff of a rejected request
/// that would take much longer than a test waits.
async fn wait_for_eviction_attempts(sm: &TestMachine<'_>, pod: &str, attempts: usize) {
    wait_for(&format!("the eviction of pod {pod} is tried {attempts} times"), async || {
        let requests = testbed().await.audit().entries().in_namespace(&sm.ns.name);
        let evictions = requests.filter(|it| it.stage == "ResponseComplete" && it.target() == "pods/eviction");
        let count = evictions.filter(|it| it.name == pod).len();
        if count >= attempts { Ok(()) } else { Err(count) }
    })
    .await;
}

async fn wait_until_evicted(sm: &TestMachine<'_>, pod: &str) {
    wait_for(&format!("pod {pod} is evicted"), async || sm.ns.api::<Pod>().get_opt(pod).await.unwrap().is_none()).await;
    assert!(!sm.machine_is_terminating().await, "the Machine was deleted before the pod was evicted");
}

#[tokio::test]
async fn pod_in_terminating_namespace_delays_no_other_eviction() {
    let (ns, _controller) = setup("terminating").await;
    let old = testbed().await.namespace("old").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    create_pod(&old.api(), "stuck", &sm.node_name(), &json!({ "app": "stuck" })).await;
    let policy = RejectingPolicy::create(&old, Rejected::Deletion, "stuck").await;
    start_termination(&old, "stuck").await;
    sm.create_blocked_pod("web").await;

    sm.set_schedule(&never()).await;
    let message = messages::draining_two_pods_one_in_terminating_namespace(&sm, "web", &old.name);
    let draining = sm.wait_for_drain_message(&message).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown), "{draining:#?}");
    wait_for_eviction_attempts(&sm, "web", ATTEMPTS).await;
    // The PodDisruptionBudget allows the eviction long before the drain times out.
    sm.unblock_pod("web").await;
    wait_until_evicted(&sm, "web").await;
    let draining = sm.wait_for_drain_message(&messages::one_pod_in_terminating_namespace(&sm, &old.name)).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown), "{draining:#?}");
    policy.remove().await;
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn rejected_eviction_delays_no_other_eviction() {
    let (ns, _controller) = setup("rejected-eviction").await;
    let protected = testbed().await.namespace("protected").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    create_pod(&protected.api(), "db", &sm.node_name(), &json!({ "app": "db" })).await;
    let policy = RejectingPolicy::create(&protected, Rejected::Eviction, "db").await;
    sm.create_blocked_pod("web").await;

    sm.set_schedule(&never()).await;
    let pod = format!("{}/db", protected.name);
    let draining = sm.wait_for_message(&messages::eviction_rejected(&pod, 422)).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown), "{draining:#?}");
    wait_for_eviction_attempts(&sm, "web", ATTEMPTS).await;
    sm.unblock_pod("web").await;
    wait_until_evicted(&sm, "web").await;
    policy.remove().await;
    sm.wait_for_phase(Phase::Inactive).await;
    protected.close().await;
    ns.close().await;
}

/// Makes evictions in a namespace wait for a webhook that accepts connections and never responds.
async fn create_hanging_webhook(ns: &TestNamespace, server: &TcpListener) -> Webhook {
    let webhook: Webhook = serde_json::from_value(json!({
        "metadata": { "name": ns.name },
        "webhooks": [{
            "name": "hanging.example.com",
            "clientConfig": { "url": format!("https://{}/", server.local_addr().unwrap()) },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"],
            }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": ns.name } },
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
        }],
    }))
    .unwrap();
    Api::all(ns.client.clone()).create(&PostParams::default(), &webhook).await.unwrap()
}

#[tokio::test]
async fn hanging_webhook_delays_no_other_eviction() {
    let (ns, _controller) = setup("hanging-webhook").await;
    let slow = testbed().await.namespace("slow").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().create_running().await;
    create_pod(&slow.api(), "db", &sm.node_name(), &json!({ "app": "db" })).await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = create_hanging_webhook(&slow, &server).await;
    sm.create_blocked_pod("web").await;

    sm.set_schedule(&never()).await;
    let draining = sm.wait_for_message(&messages::no_response_to_eviction(&format!("{}/db", slow.name))).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown), "{draining:#?}");
    sm.unblock_pod("web").await;
    wait_until_evicted(&sm, "web").await;
    // Without any other pod to evict, the cluster is still reachable.
    let draining = sm.wait_for_message(messages::ONE_OF_TWO_PODS).await;
    assert_eq!(draining.phase, Some(Phase::ShuttingDown), "{draining:#?}");
    let webhooks: Api<Webhook> = Api::all(slow.client.clone());
    webhooks.delete(&webhook.name_any(), &DeleteParams::default()).await.unwrap();
    sm.wait_for_phase(Phase::Inactive).await;
    slow.close().await;
    ns.close().await;
}

#[tokio::test]
async fn rejected_pod_deletion_does_not_stop_force_removal() {
    let (ns, _controller) = setup("rejected-deletion").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().kill_if_command("idea").create_running().await;
    wait_for("the agent is rolled out", async || agent_rollout(&sm, &ns.client).await.0).await;
    // The Machine and the Node stay while they are deleted, and with them the pod.
    sm.block_removal().await;
    sm.create_pod("db").await;
    let policy = RejectingPolicy::create(&ns, Rejected::Deletion, "db").await;
    request_reclaim(&sm).await;
    let removing = sm.wait_for_message(&messages::deletion_rejected(&format!("{}/db", ns.name), 422)).await;
    assert_eq!(removing.phase, Some(Phase::EmergencyRemove), "{removing:#?}");
    wait_for("the schedule is disabled", async || !sm.get().await.spec.schedule.enabled).await;
    wait_until_request_is_cleared(&sm).await;
    assert!(sm.machine_is_terminating().await);
    policy.remove().await;
    wait_for("the pod is deleted", async || ns.api::<Pod>().get_opt("db").await.unwrap().is_none()).await;
    sm.unblock_removal().await;
    sm.wait_for_phase(Phase::Disabled).await;
    ns.close().await;
}

#[tokio::test]
async fn rejected_cordon_holds_back_no_step_of_a_reclaim() {
    let (ns, _controller) = setup("rejected-cordon").await;
    let sm = scheduled_machine(&ns, "desk-01").long_timeouts().kill_if_command("idea").create_running().await;
    wait_for("the agent is rolled out", async || agent_rollout(&sm, &ns.client).await.0).await;
    // The Machine and the Node stay while they are deleted.
    sm.block_removal().await;
    let policy = RejectingPolicy::create(&ns, Rejected::Cordon, &sm.node_name()).await;
    request_reclaim(&sm).await;
    let removing = sm.wait_for_message("HTTP status 422").await;
    assert_eq!(removing.phase, Some(Phase::EmergencyRemove), "{removing:#?}");
    wait_for("the schedule is disabled", async || !sm.get().await.spec.schedule.enabled).await;
    wait_until_request_is_cleared(&sm).await;
    assert!(sm.machine_is_terminating().await && !sm.node_is_cordoned().await);
    policy.remove().await;
    wait_for("the Node is cordoned", async || sm.node_is_cordoned().await).await;
    sm.unblock_removal().await;
    sm.wait_for_phase(Phase::Disabled).await;
    ns.close().await;
}
