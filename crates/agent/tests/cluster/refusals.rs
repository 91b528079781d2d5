//! An API server that says no: the request is stored when it says yes, and meanwhile it is not asked without a pause.

use std::time::{Duration, Instant};

use fivespot_testbed::FaultProxy;
use fivespot_testbed::wait::eventually;
use http::StatusCode;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::gate::Gate;
use crate::stage::{Agent, SOON, Stage, shared};

const NOT_YET: &str = "the request is not stored yet";
/// More than it takes a moment, and less than a storm: the pauses double from a tenth of a second.
const FEW: usize = 12;

/// How often it was refused within the first six seconds of it, by the API server's own clock, once those are over.
async fn refused_at_first(stage: &Stage<'_>, code: u16) -> usize {
    eventually("it is refused for a while", SOON, async || {
        let refused = stage.asked().await.filter(|it| it.verb == "patch" && it.code == code).0;
        let first = refused.iter().map(|it| it.received).min().ok_or(0_usize)?;
        let at_first = refused.iter().filter(|it| it.received.duration_since(first).as_secs() < 6).count();
        if at_first < refused.len() { Ok(at_first) } else { Err(at_first) }
    })
    .await
}

fn statuses(proxy: &FaultProxy) -> Vec<u16> {
    proxy.writes().iter().map(|it| it.status.as_u16()).collect()
}

#[tokio::test]
async fn a_server_that_cannot_now_is_asked_again_after_a_pause() {
    for (status, says) in [(429, "429 Too Many Requests"), (500, "500 Internal"), (503, "503 Service Unavailable")] {
        let node = format!("not-now-{status}");
        let stage = Stage::new(shared().await, &node).await;
        let proxy = FaultProxy::start(stage.plane).unwrap();
        stage.reach_at(&proxy.server());
        let agent = stage.armed(&format!("match_commands = ['{node}']\n"), &[]).await;
        proxy.reject_next(3, StatusCode::from_u16(status).unwrap(), None);
        let _idea = stage.start(&node);
        stage.requested().await;
        agent.says("the request is stored").await;
        assert_eq!(statuses(&proxy)[..4], [status, status, status, 200]);
        let log = agent.log();
        assert_eq!(log.matches(NOT_YET).count(), 1, "{log}");
        assert!(log.contains(&format!("the API server answers {says}")) && log.contains("not now"), "{log}");
    }
}

/// A lower bound only: how long it takes beyond that is nobody's promise.
#[tokio::test]
async fn a_pause_that_the_server_asks_for_is_made() {
    let stage = Stage::new(shared().await, "retry-after").await;
    let proxy = FaultProxy::start(stage.plane).unwrap();
    stage.reach_at(&proxy.server());
    let agent = stage.armed("match_commands = ['retry-after-idea']\n", &[]).await;
    proxy.reject_next(2, StatusCode::TOO_MANY_REQUESTS, Some(3));
    let started = Instant::now();
    let _idea = stage.start("retry-after-idea");
    agent.says("the request is stored").await;
    assert!(started.elapsed() >= Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(statuses(&proxy)[..3], [429, 429, 200]);

    // Who asks for an hour is not given it: somebody waits for their machine.
    proxy.reject_next(1, StatusCode::TOO_MANY_REQUESTS, Some(3600));
    stage.clear().await;
    agent.says_times("the request is stored", 2).await;
}

#[tokio::test]
async fn a_node_that_is_gone_gets_the_request_when_it_is_back() {
    let stage = Stage::new(shared().await, "gone").await;
    stage.act_as(&stage.pod("gone").await);
    let agent = stage.armed("match_commands = ['gone-idea']\n", &[]).await;
    stage.remove_node().await;
    let _idea = stage.start("gone-idea");
    agent.says("there is no Node 'gone': is --node-name (NODE_NAME) right?").await;
    let refused = refused_at_first(&stage, 404).await;
    assert!((2..=FEW).contains(&refused), "{refused}");
    stage.make_node_again("machine-of-gone").await;
    stage.requested().await;
    assert_eq!(agent.log().matches(NOT_YET).count(), 1, "{}", agent.log());
}

/// Somebody else's policy, which nobody had thought of the agent for.
#[tokio::test]
async fn what_is_forbidden_is_told_once_and_stored_when_it_is_allowed() {
    let stage = Stage::new(shared().await, "forbidden").await;
    let agent = stage.armed("match_commands = ['forbidden-idea']\n", &[]).await;
    forbid(&stage).await;
    let _idea = stage.start("forbidden-idea");
    agent.says("the API server refuses it (403 Forbidden)").await;
    let refused = refused_at_first(&stage, 403).await;
    assert!((2..=FEW).contains(&refused), "{refused}");
    assert!(stage.is_not_requested().await);
    let log = agent.log();
    assert!(log.contains("frozen by order of the house") && log.contains("see deploy/node-agent"), "{log}");

    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(stage.plane.client());
    bindings.delete("frozen", &DeleteParams::default()).await.unwrap();
    stage.requested().await;
    assert_eq!(agent.log().matches(NOT_YET).count(), 1, "{}", agent.log());
}

async fn forbid(stage: &Stage<'_>) {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"] });
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": { "name": "frozen" },
        "spec": {
            "matchConstraints": { "resourceRules": [rule], "matchPolicy": "Exact" },
            "matchConditions": [{ "name": "it", "expression": format!("request.name == '{}'", stage.node) }],
            "validations": [{ "expression": "false", "message": "frozen by order of the house", "reason": "Forbidden" }],
        },
    }))
    .unwrap();
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": { "name": "frozen" },
        "spec": { "policyName": "frozen", "validationActions": ["Deny"] },
    }))
    .unwrap();
    let client = stage.plane.client();
    Api::all(client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    let nodes: Api<Node> = Api::all(client);
    let touch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": "yes" } } }));
    eventually("the policy is in force", SOON, async || {
        nodes.patch(&stage.node, &PatchParams::default(), &touch).await.is_err()
    })
    .await;
}

/// An agent whose connections have nobody behind them any more. New ones lead to the proxy.
struct Cut {
    stage: Stage<'static>,
    _gate: Gate,
    proxy: FaultProxy,
    agent: Agent,
}

async fn a_dead_way_and_another(name: &str) -> Cut {
    let stage = Stage::new(shared().await, name).await;
    let proxy = FaultProxy::start(stage.plane).unwrap();
    let gate = Gate::before(&proxy.server()).await;
    stage.reach_at(&gate.server());
    let agent = stage.armed(&format!("match_commands = ['{name}-idea']\n"), &[]).await;
    eventually("it has compared machines", SOON, async || stage.asked().await.filter(|it| it.verb == "get").len() == 1)
        .await;
    gate.shut();
    gate.open();
    Cut { stage, _gate: gate, proxy, agent }
}

#[tokio::test]
async fn a_busy_server_is_not_stormed_on_other_connections_while_one_is_silent() {
    let Cut { stage, _gate, proxy, agent } = a_dead_way_and_another("busy").await;
    proxy.reject_next(usize::MAX, StatusCode::TOO_MANY_REQUESTS, None);
    let _idea = stage.start("busy-idea");
    // When the first attempt is given up.
    agent.says(NOT_YET).await;
    let refused = proxy.writes().len();
    assert!((2..=24).contains(&refused), "{refused}");
    proxy.clear_faults();
    stage.requested().await;
}

#[tokio::test]
async fn what_is_said_on_another_connection_is_an_answer() {
    let Cut { stage, _gate, proxy, agent } = a_dead_way_and_another("answer").await;
    proxy.reject_next(usize::MAX, StatusCode::FORBIDDEN, None);
    let _idea = stage.start("answer-idea");
    agent.says(NOT_YET).await;
    let log = agent.log();
    let first = log.lines().find(|it| it.contains(NOT_YET)).unwrap();
    assert!(first.contains("403 Forbidden"), "{first}");
    proxy.clear_faults();
    stage.requested().await;
}

/// Slower, as the request needs a connection of its own, but no less sure.
#[tokio::test]
async fn a_server_that_speaks_an_older_http_is_heard_and_asked() {
    let stage = Stage::new(shared().await, "older").await;
    let proxy = FaultProxy::start(stage.plane).unwrap();
    stage.reach_at(&proxy.server());
    let agent = stage.armed("match_commands = ['older-idea']\n", &[]).await;
    stage.order("match_commands = ['older-idea', 'older-idea-2']\n").await;
    agent.says_times("\"armed\"", 2).await;
    let _idea = stage.start("older-idea-2");
    stage.requested().await;
    agent.says("the request is stored").await;
    assert!(statuses(&proxy).contains(&200), "it went through the proxy");
    assert!(!agent.log().contains(NOT_YET), "{}", agent.log());
    stage.withdraw().await;
    agent.says("nothing to look for").await;
}
