//! From a started program to the request on the Node, and what the agent costs meanwhile.
//!
//! The clock runs from when the program has been started until a watch of the Node shows the request. A bare client that sends the
//! same patch on a warm connection is measured in the same run, until the same watch shows it.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on shall panic")]
#![allow(dead_code, reason = "the tests use more of the stage")]

#[path = "../tests/cluster/gate.rs"]
mod gate;
#[path = "../tests/cluster/stage.rs"]
mod stage;

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::json;

use gate::Gate;
use stage::{Agent, REQUESTED, Stage, shared};

const ROUNDS: usize = 31;
const EXECS: u32 = 2000;
/// API servers let go of a connection without requests after 90 seconds.
const QUIET: Duration = Duration::from_secs(100);
const ORDERS: &str = "match_commands = ['bench-idea']\nmatch_argv_substrings = ['bench-idea']\n";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let stage = Stage::new(shared().await, "bench").await;
    let nodes: Api<Node> = Api::all(stage.plane.client());
    let only = WatchParams::default().fields("metadata.name=bench");
    let mut events = Box::pin(nodes.watch(&only, "0").await.unwrap());
    let agent = stage.armed(ORDERS, &["--detector", "netlink"]).await;

    let client = stage.access.client();
    let (mut starting, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS + 1 {
        let (start, seen) = exec_until_seen(&stage, &mut events).await;
        rearm(&stage, &agent, round).await;
        let patched = patch_until_seen(&stage, &client, &mut events).await;
        stage.clear().await;
        // The first round warms the measurement up.
        if round > 1 {
            starting.push(start);
            ours.push(seen);
            bare.push(patched);
        }
    }
    tokio::time::sleep(QUIET).await;
    let (_, after_quiet) = exec_until_seen(&stage, &mut events).await;
    rearm(&stage, &agent, ROUNDS + 2).await;

    let polled = sorted(by_poll().await);
    let mut out = std::io::stdout();
    let (starting, ours, bare) = (sorted(starting), sorted(ours), sorted(bare));
    writeln!(out, "from a started program until the request is seen on the Node").unwrap();
    writeln!(out, "  median                  {:>7.2} ms, worst {:.2} ms", ours[ROUNDS / 2], ours[ROUNDS - 1]).unwrap();
    let last = polled.len() - 1;
    writeln!(out, "  the same with poll      {:>7.2} ms, worst {:.2} ms", polled[last / 2], polled[last]).unwrap();
    writeln!(out, "  starting it, before     {:>7.2} ms", starting[ROUNDS / 2]).unwrap();
    writeln!(out, "  a bare client's patch   {:>7.2} ms, worst {:.2} ms", bare[ROUNDS / 2], bare[ROUNDS - 1]).unwrap();
    writeln!(out, "  ratio of the medians    {:>7.2}", ours[ROUNDS / 2] / bare[ROUNDS / 2]).unwrap();
    writeln!(out, "  after {} s of quiet    {:>7.2} ms", QUIET.as_secs(), milliseconds(after_quiet)).unwrap();
    for seconds in [3, 8, 20] {
        let after = milliseconds(after_an_outage(seconds).await);
        writeln!(out, "  after a silence of {seconds} s   {after:>7.0} ms").unwrap();
    }
    let pid = agent.process.0.id();
    writeln!(out, "memory, armed             {:>7.2} MiB", memory(pid)).unwrap();
    let (idle, busy) =
        (processor_time(pid, || std::thread::sleep(Duration::from_secs(10))), processor_time(pid, execs));
    writeln!(out, "processor time in 10 s of quiet, {idle:?}").unwrap();
    writeln!(out, "processor time of a started program, {:?}", busy / EXECS).unwrap();
}

/// The same with an agent that is not told, and looks every so often.
async fn by_poll() -> Vec<Duration> {
    let stage = Stage::new(shared().await, "bench-poll").await;
    let nodes: Api<Node> = Api::all(stage.plane.client());
    let only = WatchParams::default().fields("metadata.name=bench-poll");
    let mut events = Box::pin(nodes.watch(&only, "0").await.unwrap());
    let agent = stage.armed(ORDERS, &["--detector", "poll"]).await;
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        times.push(exec_until_seen(&stage, &mut events).await.1);
        rearm(&stage, &agent, round).await;
    }
    times
}

/// A way that leads nowhere for a while: from its end until the request is seen.
async fn after_an_outage(seconds: u64) -> Duration {
    let stage = Stage::new(shared().await, &format!("outage-{seconds}")).await;
    let gate = Gate::before(stage.access.server()).await;
    stage.reach_at(&gate.server());
    let program = format!("{}-idea", stage.node);
    let agent = stage.armed(&format!("match_commands = ['{program}']\n"), &[]).await;
    gate.shut();
    let _idea = stage.start(&program);
    agent.says("\"match\"").await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    gate.open();
    let opened = Instant::now();
    stage.requested().await;
    opened.elapsed()
}

async fn rearm(stage: &Stage<'_>, agent: &Agent, round: usize) {
    stage.withdraw().await;
    agent.says_times("nothing to look for", round).await;
    stage.clear().await;
    stage.order(ORDERS).await;
    agent.says_times("\"armed\"", round + 1).await;
    // The look at all that runs, and the comparison, are over by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// How long it takes to start the program, and from there until the request is seen.
async fn exec_until_seen(
    stage: &Stage<'_>,
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<Node>>> + Unpin),
) -> (Duration, Duration) {
    let starting = Instant::now();
    // It is back when the program runs.
    let _idea = stage.start("bench-idea");
    let started = Instant::now();
    seen(events).await;
    (started - starting, started.elapsed())
}

async fn patch_until_seen(
    stage: &Stage<'_>,
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
    // Warm.
    Api::<Node>::all(client.clone()).get(&stage.node).await.unwrap();
    let request = http::Request::patch(format!("/api/v1/nodes/{}", stage.node))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    let started = Instant::now();
    let sent = client.request_text(request);
    let (sent, ()) = futures::future::join(sent, seen(events)).await;
    sent.unwrap();
    started.elapsed()
}

async fn seen(events: &mut (impl Stream<Item = kube::Result<WatchEvent<Node>>> + Unpin)) {
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

fn execs() {
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

/// Resident memory.
fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// What a process uses of the processors while this is done.
fn processor_time(pid: u32, act: impl FnOnce()) -> Duration {
    let spent = || -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks
            .map(|it| std::fs::read_to_string(it.unwrap().path().join("schedstat")).unwrap())
            .map(|it| Duration::from_nanos(it.split(' ').next().unwrap().parse().unwrap()))
            .sum()
    };
    let before = spent();
    act();
    spent().saturating_sub(before)
}
