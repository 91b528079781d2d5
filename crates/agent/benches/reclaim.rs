//! From a started program to the request on the Node, and what the agent costs meanwhile.
//!
//! The clock runs from the start of the program until a watch of the Node shows the request. A bare client that sends the
//! same patch on a warm connection is measured in the same run, until the same watch shows it.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]
#![allow(dead_code, reason = "the tests use more of the environment")]

#[path = "../tests/cluster/env.rs"]
mod env;
#[path = "../tests/fixtures/mod.rs"]
mod fixtures;
#[path = "../tests/cluster/tcp_proxy.rs"]
mod tcp_proxy;

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::json;

use env::{NO_PATTERNS, NodeEnv, REQUESTED, shared};
use tcp_proxy::TcpProxy;

const ROUNDS: usize = 31;
const EXECS: u32 = 2000;
/// API servers close a connection without requests after 90 seconds.
const IDLE: Duration = Duration::from_secs(100);
const CONFIG: &str = "match_commands = ['bench-idea']\nmatch_argv_substrings = ['bench-idea']\n";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let env = NodeEnv::new(shared().await, "bench").await;
    let nodes: Api<Node> = Api::all(env.plane.client());
    let only_this = WatchParams::default().fields("metadata.name=bench");
    let mut events = Box::pin(nodes.watch(&only_this, "0").await.unwrap());
    let agent = env.start_armed_agent(CONFIG, &["--detector", "netlink"]).await;

    let client = env.access.client();
    let (mut starts, mut requests, mut patches) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (start, request) = time_exec_to_request(&env, &mut events).await;
        rearm(&env).await;
        let patch = time_bare_patch(&env, &client, &mut events).await;
        env.clear_request().await;
        // The first round is a warm-up.
        if round > 0 {
            starts.push(start);
            requests.push(request);
            patches.push(patch);
        }
    }
    tokio::time::sleep(IDLE).await;
    let (_, after_idle) = time_exec_to_request(&env, &mut events).await;
    rearm(&env).await;

    let polled = sorted(time_with_poll().await);
    let mut out = std::io::stdout();
    let (starts, requests, patches) = (sorted(starts), sorted(requests), sorted(patches));
    let (median, worst) = (ROUNDS / 2, ROUNDS - 1);
    writeln!(out, "from a started program until a watch shows the request").unwrap();
    writeln!(out, "  netlink: median       {:>7.2} ms, worst {:.2} ms", requests[median], requests[worst]).unwrap();
    writeln!(out, "  poll: median          {:>7.2} ms, worst {:.2} ms", polled[median], polled[worst]).unwrap();
    writeln!(out, "  start of the program  {:>7.2} ms, not included", starts[median]).unwrap();
    writeln!(out, "  bare patch: median    {:>7.2} ms, worst {:.2} ms", patches[median], patches[worst]).unwrap();
    writeln!(out, "  netlink / bare patch  {:>7.2}", requests[median] / patches[median]).unwrap();
    writeln!(out, "  after {} s idle      {:>7.2} ms", IDLE.as_secs(), milliseconds(after_idle)).unwrap();
    for seconds in [3, 8, 20] {
        let recovery = milliseconds(time_recovery(seconds).await);
        writeln!(out, "  after a black hole of {seconds} s {recovery:>7.0} ms").unwrap();
    }
    let pid = agent.process.pid();
    writeln!(out, "resident memory, armed  {:>7.2} MiB", resident_memory(pid)).unwrap();
    let idle = cpu_time(pid, || std::thread::sleep(Duration::from_secs(10)));
    let busy = cpu_time(pid, execute_programs);
    writeln!(out, "CPU time in 10 s idle   {idle:?}").unwrap();
    writeln!(out, "CPU time per exec       {:?}", busy / EXECS).unwrap();
}

async fn time_with_poll() -> Vec<Duration> {
    let env = NodeEnv::new(shared().await, "bench-poll").await;
    let nodes: Api<Node> = Api::all(env.plane.client());
    let only_this = WatchParams::default().fields("metadata.name=bench-poll");
    let mut events = Box::pin(nodes.watch(&only_this, "0").await.unwrap());
    let _agent = env.start_armed_agent(CONFIG, &["--detector", "poll"]).await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(time_exec_to_request(&env, &mut events).await.1);
        rearm(&env).await;
    }
    times
}

/// From the end of a network outage until the request is stored.
async fn time_recovery(seconds: u64) -> Duration {
    let env = NodeEnv::new(shared().await, &format!("outage-{seconds}")).await;
    let proxy = TcpProxy::in_front_of(env.access.server()).await;
    env.connect_via(&proxy.server());
    let program = format!("{}-idea", env.node);
    let _agent = env.start_armed_agent(&format!("match_commands = ['{program}']\n"), &[]).await;
    proxy.black_hole();
    let _idea = env.start_program(&program);
    env.wait_until_handled().await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    proxy.restore();
    let restored = Instant::now();
    env.wait_for_request().await;
    restored.elapsed()
}

async fn rearm(env: &NodeEnv<'_>) {
    env.delete_config().await;
    env.wait_until_not_ready(NO_PATTERNS).await;
    env.clear_request().await;
    env.apply_config(CONFIG).await;
    env.wait_until_ready().await;
    // The verification of the Node has finished by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// How long the program takes to start, and from there until the request is observed.
async fn time_exec_to_request(
    env: &NodeEnv<'_>,
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<Node>>> + Unpin),
) -> (Duration, Duration) {
    let before = Instant::now();
    // Returns when the program runs.
    let _idea = env.start_program("bench-idea");
    let started = Instant::now();
    observe_request(events).await;
    (started - before, started.elapsed())
}

async fn time_bare_patch(
    env: &NodeEnv<'_>,
    client: &kube::Client,
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<Node>>> + Unpin),
) -> Duration {
    let add = |key: &str, value: &str| {
        let path = format!("/metadata/annotations/5spot.finos.org~1{key}");
        json!({ "op": "add", "path": path, "value": value })
    };
    let patch = json!([
        { "op": "test", "path": "/status/nodeInfo/machineID", "value": "machine-of-bench" },
        add("reclaim-requested", "true"),
        add("reclaim-reason", "process-match: bench-idea"),
        add("reclaim-requested-at", "2026-04-20T21:45:00Z"),
    ]);
    // Warms up the connection.
    Api::<Node>::all(client.clone()).get(&env.node).await.unwrap();
    let request = http::Request::patch(format!("/api/v1/nodes/{}", env.node))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    let started = Instant::now();
    let (response, ()) = futures::future::join(client.request_text(request), observe_request(events)).await;
    response.unwrap();
    started.elapsed()
}

async fn observe_request(events: &mut (impl Stream<Item = kube::Result<WatchEvent<Node>>> + Unpin)) {
    loop {
        let node = match events.next().await.unwrap().unwrap() {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => node,
            WatchEvent::Bookmark(_) => continue,
            other => panic!("{other:?}"),
        };
        if node.metadata.annotations.unwrap_or_default().contains_key(REQUESTED) {
            return;
        }
    }
}

fn execute_programs() {
    for _ in 0..EXECS {
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn sorted(mut durations: Vec<Duration>) -> Vec<f64> {
    durations.sort();
    durations.into_iter().map(milliseconds).collect()
}

/// In MiB.
fn resident_memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// CPU time that all threads of a process use while `work` runs.
fn cpu_time(pid: u32, work: impl FnOnce()) -> Duration {
    let used = || -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap())
            .map(|stat| Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap()))
            .sum()
    };
    let before = used();
    work();
    used().saturating_sub(before)
}
