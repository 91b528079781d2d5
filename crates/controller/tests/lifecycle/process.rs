//! The process: how it starts, how it says that it is well, and how it ends.

use std::process::Command;

use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixtures::{CONTROLLER, Controller, Desk, a_cluster, always, testbed};

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
    let (test, _controller) = a_cluster("allowed").await;
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    desk.pod("web", &json!({})).await;
    desk.delete().await;
    desk.is_gone().await;
    testbed.audit().caught_up(&test.client).await;
    // Whatever has no namespace counts too; in one that is on its way out everybody is refused everything.
    let here = |it: &AuditEntry| it.namespace.is_empty() || it.namespace == test.name;
    let refused = testbed.audit().entries().by(CONTROLLER).filter(|it| it.code == 403 && here(it));
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
