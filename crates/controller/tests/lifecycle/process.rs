//! The controller process: start, health endpoints, SIGTERM, RBAC and arguments.

use std::net::Ipv4Addr;
use std::process::Command;

use fivespot_api::{Phase, keys};
use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::process::Signal;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::json;

use crate::fixtures::{
    CONTROLLER_USER, Controller, Endpoint, LogLine, TcpRelay, TestMachine, always, create_pdb, messages,
    namespace_with_cluster, never, scheduled_machine, testbed, wait_for,
};

#[tokio::test]
async fn alive_but_not_ready_without_valid_token() {
    let testbed = testbed().await;
    let access = testbed.control_plane().admin().with_token("invalid");
    let controller = Controller::start_as(testbed, &access, &[]);
    assert_eq!(controller.get(Endpoint::Health, "/health").await.code, 200);
    assert_eq!(controller.get(Endpoint::Health, "/ready").await.code, 503);
}

#[tokio::test]
async fn alive_and_retrying_while_api_server_hangs() {
    let options = ControlPlaneOptions::named("hangs").without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    let relay = TcpRelay::start(plane.admin(), Ipv4Addr::LOCALHOST).await;
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = relay.write_kubeconfig(directory.path(), plane.admin());
    plane.signal_api_server(Signal::STOP).unwrap();
    let controller = Controller::start_with_kubeconfig(testbed().await, &kubeconfig, &[]);
    wait_for("the controller has retried", async || {
        let health = controller.get(Endpoint::Health, "/health").await;
        assert_eq!(health.code, 200, "{}: {}", health.body, controller.log());
        assert_eq!(controller.get(Endpoint::Health, "/ready").await.code, 503);
        relay.connections() >= 2
    })
    .await;

    // SIGTERM does not wait for the request: one that times out is logged as a warning.
    let mut stopped = Controller::start_as(testbed().await, plane.admin(), &[]);
    stopped.port(Endpoint::Health).await;
    assert_eq!(stopped.stop().await.code(), Some(0));
    assert!(!stopped.log_lines().iter().any(LogLine::is_warning_or_error), "{}", stopped.log());

    plane.signal_api_server(Signal::CONT).unwrap();
    wait_for("the API server answers the discovery request", async || {
        let metrics = controller.metrics().await;
        let answered = |code: u16| {
            metrics.contains(&format!(
                "fivespot_api_requests_total{{verb=\"get\",resource=\"discovery\",code=\"{code}\"}}"
            ))
        };
        if answered(200) || answered(404) { Ok(()) } else { Err(metrics) }
    })
    .await;
}

#[tokio::test]
async fn sigterm_exits_zero_and_next_process_continues() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("sigterm").await;
    let mut controller = Controller::start(testbed, &ns).await;
    controller.wait_until_ready().await;
    let names: Vec<String> = (0..20).map(|it| format!("desk-{it}")).collect();
    for name in &names {
        scheduled_machine(&ns, name).create().await;
    }
    assert_eq!(controller.stop().await.code(), Some(0));
    let _next = Controller::start(testbed, &ns).await;
    for name in &names {
        TestMachine::new(&ns, name).wait_until_running().await;
    }
    ns.close().await;
}

#[tokio::test]
async fn shipped_rbac_allows_every_request() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("rbac").await;
    // Without a kubeconfig the controller uses its own ServiceAccount for Nodes and pods.
    ns.api::<Secret>().delete("edge-kubeconfig", &DeleteParams::default()).await.unwrap();
    let _controller = Controller::start(testbed, &ns).await;
    let mark = testbed.audit().mark();
    let machines = ["closed", "killed", "reclaimed", "deleted", "cancelled"].map(|name| TestMachine::new(&ns, name));
    for sm in &machines {
        let taint = json!({ "key": "example.com/lent", "effect": "NoSchedule" });
        scheduled_machine(&ns, &sm.name).kill_if_command("idea").node_taints(&[taint]).create().await;
    }
    for sm in &machines {
        sm.wait_until_running().await;
        sm.create_pod(&sm.name).await;
    }
    let [closed, killed, reclaimed, deleted, cancelled] = &machines;
    create_pdb(&ns.api(), &cancelled.name, &json!({ "app": cancelled.name })).await;
    cancelled.set_schedule(&never()).await;
    cancelled.wait_for_message(messages::BLOCKED_BY_PDB).await;
    cancelled.set_schedule(&always()).await;
    closed.set_schedule(&never()).await;
    killed.set_kill_switch(true).await;
    // A request needs neither a reason nor a time.
    let request = json!({ "metadata": { "annotations": { keys::RECLAIM_REQUESTED_ANNOTATION: "true" } } });
    reclaimed.patch_node(&request).await;
    deleted.delete().await;
    closed.wait_for_phase(Phase::Inactive).await;
    killed.wait_for_phase(Phase::Terminated).await;
    reclaimed.wait_for_phase(Phase::Disabled).await;
    deleted.wait_until_deleted().await;
    cancelled.wait_until_running().await;
    testbed.audit().caught_up(&ns.client).await;
    let requests = testbed.audit().since(mark).by(CONTROLLER_USER);
    let in_test = requests.clone().filter(|it| it.uri.contains(&ns.name));
    for (verb, target) in [("patch", "nodes"), ("create", "pods/eviction"), ("delete", "pods"), ("get", "secrets")] {
        let sent = in_test.0.iter().any(|it| it.verb == verb && it.target() == target);
        assert!(sent, "the controller did not {verb} {target}");
    }
    // Includes cluster-scoped requests. Other namespaces do not count: in a terminating one, creates are forbidden.
    let counts = |it: &AuditEntry| it.namespace.is_empty() || it.namespace == ns.name;
    let forbidden = requests.filter(|it| it.code == 403 && counts(it));
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    ns.close().await;
}

#[test]
fn invalid_arguments_print_one_error_line() {
    for (args, expected) in [
        (&["--metrics-port", "many"][..], "--metrics-port"),
        (&["--log-format", "xml"], "--log-format"),
        (&["--max-concurrent-writes", "0"], "--max-concurrent-writes"),
        (&["--frobnicate"], "--frobnicate"),
        (&["--health-port", "0", "--metrics-port", "0", "--log-format", "text"], messages::SET_KUBECONFIG),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_5spot")).args(args).env("KUBECONFIG", "/nonexistent").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains(expected), "{args:?}: {stderr}");
    }
}

#[cfg(not(feature = "otlp"))]
#[test]
fn traces_are_an_error_in_a_build_without_them() {
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_5spot"));
        command.args(["--health-port", "0", "--metrics-port", "0"]).env("KUBECONFIG", "/nonexistent");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
    };
    for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
        let error = run(&[(name, "http://127.0.0.1:4318")]);
        assert!(error.starts_with(&format!("error: {name} is http://127.0.0.1:4318")), "{error}");
        assert!(error.contains("--features otlp"), "{error}");
    }
    // Turned off by another variable: the process fails only because there is no cluster.
    let error = run(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"), ("OTEL_SDK_DISABLED", "true")]);
    assert!(error.contains(messages::SET_KUBECONFIG), "{error}");
}
