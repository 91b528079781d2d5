//! An API server that rejects the request: it is retried with backoff, and the cause is logged once.

use std::time::{Duration, Instant};

use fivespot_testbed::FaultProxy;
use fivespot_testbed::wait::eventually;
use http::StatusCode;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::env::{Agent, NO_PATTERNS, NodeEnv, shared};
use crate::fixtures::TIMEOUT;
use crate::tcp_proxy::TcpProxy;

const RETRYING: &str = "Cannot store reclaim request; retrying";
/// More than the attempts of exponential backoff within six seconds, and far fewer than without.
const MAX_ATTEMPTS: usize = 12;

/// How many requests were rejected within six seconds after the first one, by the clock of the API server.
async fn rejections_in_six_seconds(env: &NodeEnv<'_>, code: u16) -> usize {
    eventually("requests are rejected for six seconds", TIMEOUT, async || {
        let rejected = env.agent_requests().await.filter(|entry| entry.verb == "patch" && entry.code == code).0;
        let first = rejected.iter().map(|entry| entry.received).min().ok_or(0_usize)?;
        let early = rejected.iter().filter(|entry| entry.received.duration_since(first).as_secs() < 6).count();
        if early < rejected.len() { Ok(early) } else { Err(early) }
    })
    .await
}

/// The status codes of the first writes, once there are as many.
async fn first_statuses(proxy: &FaultProxy, count: usize) -> Vec<u16> {
    eventually(&format!("{count} writes"), TIMEOUT, async || {
        let writes = proxy.writes();
        (writes.len() >= count).then(|| writes[..count].iter().map(|write| write.status.as_u16()).collect())
    })
    .await
}

/// The error of the only log line about retries.
#[track_caller]
fn logged_error(agent: &Agent) -> String {
    let lines = agent.logged(RETRYING);
    assert_eq!(lines.len(), 1, "{}", agent.log());
    lines[0]["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn overloaded_server_is_retried_with_backoff() {
    for (status, text) in [(429, "429 Too Many Requests"), (500, "500 Internal"), (503, "503 Service Unavailable")] {
        let node = format!("not-now-{status}");
        let env = NodeEnv::new(shared().await, &node).await;
        let proxy = FaultProxy::start(env.plane).unwrap();
        env.connect_via(&proxy.server());
        let agent = env.start_armed_agent(&format!("match_commands = ['{node}']\n"), &[]).await;
        proxy.reject_next(3, StatusCode::from_u16(status).unwrap(), None);
        let _idea = env.start_program(&node);
        env.wait_for_request().await;
        assert_eq!(first_statuses(&proxy, 4).await, [status, status, status, 200]);
        let error = logged_error(&agent);
        assert!(error.contains(&format!("the API server returned {text}")) && error.contains("not now"), "{error}");
    }
}

/// Only a lower bound is asserted.
#[tokio::test]
async fn retry_after_is_honoured_up_to_a_limit() {
    let env = NodeEnv::new(shared().await, "retry-after").await;
    let proxy = FaultProxy::start(env.plane).unwrap();
    env.connect_via(&proxy.server());
    let _agent = env.start_armed_agent("match_commands = ['retry-after-idea']\n", &[]).await;
    proxy.reject_next(2, StatusCode::TOO_MANY_REQUESTS, Some(3));
    let started = Instant::now();
    let _idea = env.start_program("retry-after-idea");
    env.wait_for_request().await;
    assert!(started.elapsed() >= Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(first_statuses(&proxy, 3).await, [429, 429, 200]);

    // An hour is not waited for: the owner needs the machine.
    proxy.reject_next(1, StatusCode::TOO_MANY_REQUESTS, Some(3600));
    env.clear_request().await;
    env.wait_for_request().await;
    assert_eq!(first_statuses(&proxy, 5).await[3..], [429, 200]);
}

#[tokio::test]
async fn recreated_node_gets_the_request() {
    let env = NodeEnv::new(shared().await, "gone").await;
    env.use_access(&env.pod_access("gone").await);
    let agent = env.start_armed_agent("match_commands = ['gone-idea']\n", &[]).await;
    env.delete_node().await;
    let _idea = env.start_program("gone-idea");
    let rejections = rejections_in_six_seconds(&env, 404).await;
    assert!((2..=MAX_ATTEMPTS).contains(&rejections), "{rejections}");
    env.recreate_node("machine-of-gone").await;
    env.wait_for_request().await;
    assert_eq!(logged_error(&agent), "Node gone does not exist; check --node-name (NODE_NAME)");
}

/// A policy of another party that does not consider the agent.
#[tokio::test]
async fn forbidden_request_is_stored_once_it_is_allowed() {
    let env = NodeEnv::new(shared().await, "forbidden").await;
    let agent = env.start_armed_agent("match_commands = ['forbidden-idea']\n", &[]).await;
    forbid_updates(&env).await;
    let _idea = env.start_program("forbidden-idea");
    let rejections = rejections_in_six_seconds(&env, 403).await;
    assert!((2..=MAX_ATTEMPTS).contains(&rejections), "{rejections}");
    assert!(env.has_no_request().await);

    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(env.plane.client());
    bindings.delete("frozen", &DeleteParams::default()).await.unwrap();
    env.wait_for_request().await;
    let error = logged_error(&agent);
    for expected in ["the API server returned 403 Forbidden", "Nodes are frozen", "deploy/node-agent"] {
        assert!(error.contains(expected), "{error}");
    }
}

async fn forbid_updates(env: &NodeEnv<'_>) {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"] });
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": { "name": "frozen" },
        "spec": {
            "matchConstraints": { "resourceRules": [rule], "matchPolicy": "Exact" },
            "matchConditions": [{ "name": "node", "expression": format!("request.name == '{}'", env.node) }],
            "validations": [{ "expression": "false", "message": "Nodes are frozen", "reason": "Forbidden" }],
        },
    }))
    .unwrap();
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": { "name": "frozen" },
        "spec": { "policyName": "frozen", "validationActions": ["Deny"] },
    }))
    .unwrap();
    let client = env.plane.client();
    Api::all(client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    let touch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": "yes" } } }));
    eventually("the policy is in effect", TIMEOUT, async || {
        nodes.patch(&env.node, &PatchParams::default(), &touch).await.is_err()
    })
    .await;
}

/// An armed agent whose connections are dead. New connections lead to the fault proxy.
struct DeadConnection {
    env: NodeEnv<'static>,
    _tcp_proxy: TcpProxy,
    fault_proxy: FaultProxy,
    agent: Agent,
}

async fn agent_with_dead_connection(name: &str) -> DeadConnection {
    let env = NodeEnv::new(shared().await, name).await;
    let fault_proxy = FaultProxy::start(env.plane).unwrap();
    let tcp_proxy = TcpProxy::in_front_of(&fault_proxy.server()).await;
    env.connect_via(&tcp_proxy.server());
    let agent = env.start_armed_agent(&format!("match_commands = ['{name}-idea']\n"), &[]).await;
    env.wait_until_armed(1).await;
    tcp_proxy.black_hole();
    tcp_proxy.restore();
    DeadConnection { env, _tcp_proxy: tcp_proxy, fault_proxy, agent }
}

#[tokio::test]
async fn hedges_back_off_from_an_overloaded_server() {
    let DeadConnection { env, _tcp_proxy, fault_proxy, agent } = agent_with_dead_connection("busy").await;
    fault_proxy.reject_next(usize::MAX, StatusCode::TOO_MANY_REQUESTS, None);
    let _idea = env.start_program("busy-idea");
    // Logged when the first attempt times out.
    agent.wait_for_log(RETRYING, |_| true).await;
    let rejections = fault_proxy.writes().len();
    assert!((2..=24).contains(&rejections), "{rejections}");
    fault_proxy.clear_faults();
    env.wait_for_request().await;
}

#[tokio::test]
async fn rejection_of_a_hedge_ends_the_attempt() {
    let DeadConnection { env, _tcp_proxy, fault_proxy, agent } = agent_with_dead_connection("answer").await;
    fault_proxy.reject_next(usize::MAX, StatusCode::FORBIDDEN, None);
    let _idea = env.start_program("answer-idea");
    agent.wait_for_log(RETRYING, |_| true).await;
    let first = &agent.logged(RETRYING)[0];
    assert!(first["error"].as_str().unwrap().contains("403 Forbidden"), "{first}");
    fault_proxy.clear_faults();
    env.wait_for_request().await;
}

/// The fault proxy speaks HTTP/1.1, so the request needs a connection of its own.
#[tokio::test]
async fn http1_server_is_supported() {
    let env = NodeEnv::new(shared().await, "http1").await;
    let proxy = FaultProxy::start(env.plane).unwrap();
    env.connect_via(&proxy.server());
    let agent = env.start_armed_agent("match_commands = ['http1-idea']\n", &[]).await;
    env.wait_until_armed(1).await;
    env.apply_config("match_commands = ['http1-idea', 'http1-idea-2']\n").await;
    env.wait_until_armed(2).await;
    let _idea = env.start_program("http1-idea-2");
    env.wait_for_request().await;
    assert_eq!(first_statuses(&proxy, 1).await, [200], "the request was sent through the proxy");
    assert_eq!(agent.logged(RETRYING), [] as [Value; 0]);
    env.delete_config().await;
    env.wait_until_not_ready(NO_PATTERNS).await;
}
