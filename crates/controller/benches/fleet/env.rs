//! A control plane for one measurement, and what is read from it.

use std::collections::BTreeMap;
use std::time::Duration;

use fivespot_testbed::audit::{AuditEntry, AuditMark};
use fivespot_testbed::provider::{Behaviour, Step};
use fivespot_testbed::{ControlPlaneOptions, TestNamespace, Testbed};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::fixtures::{Controller, sent_by_controller};

/// How many writes the controller has in flight by default: of 32 permits an eighth is reserved for urgent ones. A client with
/// more gets a larger share of an API server that is busy with Cluster API as well.
pub(crate) const CONCURRENT_WRITES: usize = 28;
/// How often the metrics of the controller are read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// The control plane counts as idle after this long with hardly any request.
const QUIET_PERIOD: Duration = Duration::from_secs(6);

/// A control plane of its own, so that no measurement slows down the next one, and a namespace with the Cluster `edge`.
pub(crate) struct Env {
    pub(crate) testbed: Testbed,
    pub(crate) ns: TestNamespace,
}

impl Env {
    /// The provider does nothing, so that the work of Cluster API is small.
    pub(crate) async fn start(name: &str) -> Self {
        let testbed = Testbed::start_with_fleet(ControlPlaneOptions::named(name).rare_heartbeats()).await.unwrap();
        testbed.control_plane().install_without_controller().await.unwrap();
        let ns = testbed.namespace(name).await;
        testbed.cluster(&ns, "edge").await.unwrap();
        let env = Env { testbed, ns };
        let idle = Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..Behaviour::default() };
        env.set_provider(idle).await;
        env.wait_until_idle().await;
        env
    }

    pub(crate) async fn set_provider(&self, behaviour: Behaviour) {
        self.testbed.fleet().await.provider.behave_in(&self.ns.name, behaviour);
    }

    pub(crate) async fn start_controller(&self) -> Controller {
        let controller = Controller::start(&self.testbed, &self.ns).await;
        controller.wait_until_ready().await;
        controller
    }

    /// Waits until the control plane has processed the new kinds: its garbage collector syncs for half a minute.
    async fn wait_until_idle(&self) {
        loop {
            let mark = self.mark();
            tokio::time::sleep(QUIET_PERIOD).await;
            let is_load =
                |it: &AuditEntry| !matches!(it.resource.as_str(), "leases" | "events" | "") && it.verb != "watch";
            if self.testbed.audit().since(mark).filter(is_load).len() < 5 {
                return;
            }
        }
    }

    pub(crate) fn mark(&self) -> AuditMark {
        self.testbed.audit().mark()
    }

    /// The requests of the controller, without watches.
    pub(crate) async fn controller_requests(&self, since: AuditMark) -> Vec<AuditEntry> {
        self.testbed.audit().caught_up(&self.ns.client).await;
        let is_request = |it: &AuditEntry| it.verb != "watch" && !is_version_check(it) && it.resource != "leases";
        self.testbed.audit().since(since).filter(sent_by_controller).filter(is_request).0
    }

    /// Waits until the controller sends nothing for five seconds, and returns the time of its last request.
    pub(crate) async fn wait_until_controller_is_quiet(&self) -> Timestamp {
        let mut last = Timestamp::now();
        loop {
            let mark = self.mark();
            tokio::time::sleep(Duration::from_secs(5)).await;
            match self.controller_requests(mark).await.iter().map(|it| it.at).max() {
                Some(at) => last = at,
                None => return last,
            }
        }
    }

    /// CPU seconds of each process since it started.
    pub(crate) async fn cpu(&self, controller: Option<&Controller>) -> Cpu {
        let fleet = self.testbed.fleet().await;
        let mut pids = self.testbed.control_plane().processes();
        pids.push(("cluster-api".to_owned(), fleet.cluster_api.process().pid()));
        pids.push(("kwok".to_owned(), fleet.kwok.process().pid()));
        pids.push(("benchmark".to_owned(), std::process::id()));
        pids.extend(controller.map(|it| ("5spot".to_owned(), it.pid())));
        Cpu(pids.into_iter().map(|(name, pid)| (name, cpu_seconds(pid))).collect())
    }
}

/// Whether a request only checks the version from which a watch is continued.
fn is_version_check(entry: &AuditEntry) -> bool {
    entry.uri.ends_with("&resourceVersionMatch=NotOlderThan")
}

/// CPU seconds by process.
pub(crate) struct Cpu(BTreeMap<String, f64>);

impl Cpu {
    pub(crate) fn since(&self, before: &Cpu) -> Value {
        let used = |(name, seconds): (&String, &f64)| {
            let used = seconds - before.0.get(name).copied().unwrap_or_default();
            (name.clone(), json!((used * 10.0).round() / 10.0))
        };
        Value::Object(self.0.iter().map(used).collect())
    }
}

fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name may contain spaces; it is followed by state and 10 other fields.
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    ticks / per_second
}

pub(crate) fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|it| format!("desk-{it:05}"))
}

/// Calls `step` for each name, as many at a time as the controller has writes.
pub(crate) async fn for_each(count: usize, step: impl AsyncFn(String)) {
    stream::iter(names(count)).for_each_concurrent(CONCURRENT_WRITES, async |name| step(name).await).await;
}

/// Seconds since `start`, and how many objects are in the phase, until all are.
pub(crate) async fn phase_series(
    controller: &Controller,
    phase: &str,
    start: Timestamp,
    objects: usize,
) -> Vec<(f64, usize)> {
    let metric = format!("fivespot_machines_by_phase{{phase=\"{phase}\"}}");
    let mut series = Vec::new();
    loop {
        let count = controller.metric(&metric).await;
        series.push((seconds(Timestamp::now().duration_since(start)), count));
        if count >= objects {
            return series;
        }
        tokio::time::sleep(SAMPLE_INTERVAL).await;
    }
}

/// How often the controller sent each kind of request, per object.
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
pub(crate) fn requests_per_object(requests: &[AuditEntry], objects: usize) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.target())).or_default() += 1.0 / objects as f64;
    }
    counts
}

pub(crate) fn seconds(duration: SignedDuration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let count = values.len() as f64;
    values.iter().sum::<f64>() / count
}

pub(crate) fn print(line: &str) {
    println!("{line}");
}
