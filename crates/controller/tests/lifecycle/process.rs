//! The process: how it starts, how it says that it is well, and how it ends.

use std::process::Command;

use fivespot_api::{Phase, keys};
use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::process::Signal;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixtures::{CONTROLLER, Controller, Desk, SOON, always, budget, never, testbed};

/// What an HTTP server on this host answers: the status line, and all of it.
pub(crate) async fn get(port: u16, path: &str) -> (String, String) {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.lines().next().unwrap_or_default().to_owned(), answer)
}

#[tokio::test]
async fn without_an_api_server_it_is_alive_and_not_ready() {
    let testbed = testbed().await;
    let nowhere = testbed.control_plane().admin().with_token("none");
    let controller = Controller::start_as(testbed, &nowhere, &[]);
    let health = controller.port("health").await;
    assert!(get(health, "/health").await.0.contains("200"));
    assert!(get(health, "/ready").await.0.contains("503"));
}

#[tokio::test]
async fn while_the_api_server_hangs_at_the_start_it_is_alive_and_asks_again() {
    let options = ControlPlaneOptions::named("hangs").without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    plane.signal_api_server(Signal::STOP).unwrap();
    let controller = Controller::start_as(testbed().await, plane.admin(), &[]);
    let health = controller.port("health").await;
    eventually("it has asked twice", SOON, async || {
        let alive = get(health, "/health").await;
        assert!(alive.0.contains("200"), "{}: {}", alive.1, controller.log());
        assert!(get(health, "/ready").await.0.contains("503"));
        controller.log().matches("the API server does not answer: waiting for it").count() >= 2
    })
    .await;
    // One that is told to stop does not wait for an answer.
    let mut another = Controller::start_as(testbed().await, plane.admin(), &[]);
    another.port("health").await;
    another.signal(Signal::TERM);
    assert_eq!(another.ended().await.code(), Some(0));
    assert!(!another.log().contains("does not answer"), "{}", another.log());
    plane.signal_api_server(Signal::CONT).unwrap();
    eventually("it has got an answer", SOON, async || controller.log().contains("Cluster API is not installed")).await;
}

#[tokio::test]
async fn told_to_stop_it_ends_in_order() {
    let testbed = testbed().await;
    let test = testbed.namespace("stop").await;
    testbed.cluster(&test, "edge").await.unwrap();
    let mut controller = Controller::start_in(testbed, &test).await;
    controller.ready().await;
    let names: Vec<String> = (0..20).map(|it| format!("desk-{it}")).collect();
    for name in &names {
        Desk::new(&test, name).create(&always(), &json!({})).await;
    }
    controller.signal(Signal::TERM);
    assert_eq!(controller.ended().await.code(), Some(0));
    // Whatever it had begun, the next one finishes.
    let _next = Controller::start_in(testbed, &test).await;
    for name in &names {
        Desk::new(&test, name).runs().await;
    }
    test.close().await;
}

#[tokio::test]
async fn it_is_never_refused_what_it_asks_for() {
    let testbed = testbed().await;
    let test = testbed.namespace("allowed").await;
    testbed.cluster(&test, "edge").await.unwrap();
    // Without a kubeconfig all that it does to Nodes and pods it does as itself.
    test.api::<Secret>().delete("edge-kubeconfig", &DeleteParams::default()).await.unwrap();
    let _controller = Controller::start_in(testbed, &test).await;
    let mark = testbed.audit().mark();
    let desks = ["closed", "killed", "reclaimed", "deleted", "taken-back"].map(|name| Desk::new(&test, name));
    for desk in &desks {
        let taint = json!([{ "key": "example.com/lent", "effect": "NoSchedule" }]);
        desk.create(&always(), &json!({ "killIfCommands": ["idea"], "nodeTaints": taint })).await;
    }
    for desk in &desks {
        desk.runs().await;
        desk.pod(desk.name, &json!({ "held-in": desk.name })).await;
    }
    let [closed, killed, reclaimed, deleted, taken_back] = &desks;
    budget(&test.client, &test.name, taken_back.name, &json!({ "held-in": taken_back.name })).await;
    taken_back.reschedule(&never()).await;
    taken_back.until("held", |it| it.message.as_ref().is_some_and(|it| it.contains("blocked by PDB"))).await;
    taken_back.reschedule(&always()).await;
    closed.reschedule(&never()).await;
    killed.edit(&json!({ "spec": { "killSwitch": true } })).await;
    let request = json!({ "metadata": { "annotations": { keys::RECLAIM_REQUESTED_ANNOTATION: "true" } } });
    reclaimed.nodes().patch(&reclaimed.node_name(), &PatchParams::default(), &Patch::Merge(&request)).await.unwrap();
    deleted.delete().await;
    closed.reaches(Phase::Inactive).await;
    killed.reaches(Phase::Terminated).await;
    reclaimed.reaches(Phase::Disabled).await;
    deleted.is_gone().await;
    taken_back.runs().await;
    testbed.audit().caught_up(&test.client).await;
    let sent = testbed.audit().since(mark).by(CONTROLLER).filter(|it| it.uri.contains(&test.name));
    for (verb, target) in [("patch", "nodes"), ("create", "pods/eviction"), ("delete", "pods"), ("get", "secrets")] {
        let done = sent.0.iter().any(|it| it.verb == verb && it.target() == target);
        assert!(done, "{verb} {target} was not even tried");
    }
    // Whatever has no namespace counts too; in one that is on its way out everybody is refused everything.
    let here = |it: &AuditEntry| it.namespace.is_empty() || it.namespace == test.name;
    let refused = testbed.audit().since(mark).by(CONTROLLER).filter(|it| it.code == 403 && here(it));
    assert!(refused.is_empty(), "{refused:#?}");
    test.close().await;
}

#[test]
fn bad_input_is_one_clear_line() {
    for (arguments, told) in [
        (&["--metrics-port", "many"][..], "--metrics-port"),
        (&["--log-format", "xml"], "--log-format"),
        (&["--max-concurrent-writes", "0"], "--max-concurrent-writes"),
        (&["--frobnicate"], "--frobnicate"),
        (&["--health-port", "0", "--metrics-port", "0", "--log-format", "text"], "set KUBECONFIG"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_5spot"))
            .args(arguments)
            .env("KUBECONFIG", "/nonexistent")
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        let last = errors.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains(told), "{arguments:?}: {errors}");
    }
}
