//! Traces over OTLP, against a collector on loopback. Needs the feature `otlp`.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

mod fixtures;

use std::process::Command;
use std::sync::{Arc, Mutex};

use fivespot_api::{Phase, keys};
use fixtures::{
    Controller, LogLine, events, namespace_with_cluster, scheduled_machine, testbed, wait_for, wait_for_events,
};
use kube::ResourceExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PATH: &str = "POST /v1/traces HTTP/1.1\r\n";

/// What a collector received.
#[derive(Clone, Default)]
struct Collector {
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Collector {
    /// Starts a collector that stores what it receives, and returns its URL.
    async fn start() -> (Self, String) {
        let collector = Collector::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::clone(&collector.bodies);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, Arc::clone(&bodies)));
            }
        });
        (collector, url)
    }

    /// Whether one request contains all of these.
    fn has(&self, parts: &[&[u8]]) -> bool {
        let contains = |body: &[u8], part: &[u8]| body.windows(part.len()).any(|window| window == part);
        self.bodies.lock().unwrap().iter().any(|body| parts.iter().all(|part| contains(body, part)))
    }
}

/// Answers requests on a connection that the client keeps.
async fn receive(mut stream: TcpStream, bodies: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut received = Vec::new();
    loop {
        let mut chunk = [0; 16 * 1024];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => received.extend_from_slice(&chunk[..length]),
        }
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(received[..end + 4].to_vec()).unwrap();
        assert!(head.starts_with(PATH) && head.to_lowercase().contains("application/x-protobuf"), "{head}");
        let length =
            head.to_lowercase().split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        let length: usize = length.parse().unwrap();
        if received.len() >= end + 4 + length {
            bodies.lock().unwrap().push(received.drain(..end + 4 + length).skip(end + 4).collect());
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[tokio::test]
async fn trace_has_reconcile_and_requests_and_is_named_in_log_and_event() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("traces").await;
    let (collector, url) = Collector::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_SERVICE_NAME", "spot-of-test"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    let mut controller = Controller::start_with_env(testbed, &ns, &variables).await;
    let sm = scheduled_machine(&ns, "desk-01").disabled().create().await;
    sm.wait_for_phase(Phase::Disabled).await;
    wait_for_events(&sm, &["ScheduleDisabled"]).await;
    let event = events(&sm).await.remove(0);
    let id = event.annotations()[keys::RECONCILE_ID_ANNOTATION].clone();
    let object = format!("{}/{}", ns.name, sm.name);
    let line = controller.log_lines().into_iter().find(|line: &LogLine| line.is_of_reconcile(&object, &id));
    let trace_id = line.and_then(|line| line.trace_id()).unwrap_or_else(|| panic!("{}", controller.log()));
    let trace = from_hex(&trace_id);
    assert_eq!(trace.len(), 16, "{trace_id}");
    wait_for("the reconcile is exported", async || {
        collector.has(&[
            b"spot-of-test",
            b"reconcile",
            object.as_bytes(),
            id.as_bytes(),
            &trace,
            b"generation",
            b"done",
        ])
    })
    .await;
    wait_for("its request is exported", async || {
        collector.has(&[b"request", b"verb", b"patch", b"scheduledmachines/status", b"code", b"200", &trace])
    })
    .await;
    // The last spans are exported on shutdown.
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    assert_eq!(controller.stop().await.code(), Some(0));
    assert!(!controller.log_lines().iter().any(LogLine::is_warning_or_error), "{}", controller.log());
    ns.close().await;
}

#[tokio::test]
async fn trace_collector_that_hangs_delays_no_reconcile() {
    let testbed = testbed().await;
    let ns = namespace_with_cluster("hanging-collector").await;
    // Connections are accepted by the kernel, and nothing is read.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "3600000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
    ];
    let mut controller = Controller::start_with_env(testbed, &ns, &variables).await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    let metrics = controller.metrics().await;
    let dropped = metrics.lines().find_map(|line| line.strip_prefix("fivespot_trace_spans_dropped_total "));
    assert!(dropped.unwrap().parse::<u64>().unwrap() > 0, "{metrics}");
    assert_eq!(controller.stop().await.code(), Some(0));
    ns.close().await;
}

#[test]
fn trace_setting_that_is_not_supported_is_an_error() {
    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let local = (ENDPOINT, "http://127.0.0.1:4318");
    for (variables, expected) in [
        (&[(ENDPOINT, "https://collector.example.com")][..], "only http:// is supported"),
        (&[local, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "only http/protobuf is supported"),
        (&[local, ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.crt")], "OTEL_EXPORTER_OTLP_CERTIFICATE is not supported"),
        (&[local, ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")], "OTEL_EXPORTER_OTLP_COMPRESSION is not supported"),
        (&[local, ("OTEL_BSP_MAX_QUEUE_SIZE", "many")], "OTEL_BSP_MAX_QUEUE_SIZE"),
        (&[local, ("OTEL_TRACES_SAMPLER", "some")], "OTEL_TRACES_SAMPLER"),
        (&[local, ("OTEL_TRACES_SAMPLER_ARG", "10%")], "OTEL_TRACES_SAMPLER_ARG"),
        (&[local, ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")], "OTEL_EXPORTER_OTLP_TIMEOUT"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_5spot"));
        command.args(["--health-port", "0", "--metrics-port", "0"]).env("KUBECONFIG", "/nonexistent");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{variables:?}: {stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains(expected), "{variables:?}: {stderr}");
    }
}
