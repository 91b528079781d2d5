//! What is counted.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use fivespot_api::Phase;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::lock::lock;
use crate::queue::Key;
use crate::trouble::Trouble;

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    reconciliations: Family<Reconciliation, Counter>,
    durations: Family<OfPhase, Histogram, fn() -> Histogram>,
    machines: Family<OfPhase, Gauge>,
    evaluations: Family<Resulting, Counter>,
    lateness: Histogram,
    kill_switches: Counter,
    reclaims: Family<Resulting, Counter>,
    drains: Family<Resulting, Counter>,
    evictions: Family<Resulting, Counter>,
    requests: Family<Request, Counter>,
    errors: Family<OfError, Counter>,
    overdue: Gauge,
    /// Whose shutdown should have been over.
    late: Mutex<HashSet<Key>>,
    shards: Family<OfShard, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reconciliation {
    phase: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPhase {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Resulting {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfError {
    error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfShard {
    shard: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    resource: String,
    code: String,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("fivespot");
        let durations: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        let metrics = Metrics {
            reconciliations: Family::default(),
            durations: Family::new_with_constructor(durations),
            machines: Family::default(),
            evaluations: Family::default(),
            lateness: Histogram::new(exponential_buckets(0.01, 4.0, 8)),
            kill_switches: Counter::default(),
            reclaims: Family::default(),
            drains: Family::default(),
            evictions: Family::default(),
            requests: Family::default(),
            errors: Family::default(),
            overdue: Gauge::default(),
            late: Mutex::default(),
            shards: Family::default(),
            registry: Registry::default(),
        };
        registry.register("reconciliations", "Passes over one object", metrics.reconciliations.clone());
        registry.register("reconciliation_duration_seconds", "How long a pass took", metrics.durations.clone());
        registry.register("machines_by_phase", "ScheduledMachines in each phase", metrics.machines.clone());
        registry.register("schedule_evaluations", "Evaluations of a schedule", metrics.evaluations.clone());
        registry.register(
            "boundary_lateness_seconds",
            "From the boundary of a window to the pass that acted on it",
            metrics.lateness.clone(),
        );
        registry.register("kill_switch_activations", "Kill switches turned on", metrics.kill_switches.clone());
        registry.register("emergency_reclaims", "Machines given back to their owners", metrics.reclaims.clone());
        registry.register("node_drains", "Drains that ended", metrics.drains.clone());
        registry.register("pod_evictions", "Pods asked to leave", metrics.evictions.clone());
        registry.register("api_requests", "Requests to API servers", metrics.requests.clone());
        registry.register("errors", "Passes that did not get to their end", metrics.errors.clone());
        registry.register(
            "overdue_shutdowns",
            "Machines that are still on their way out after gracefulShutdownTimeout",
            metrics.overdue.clone(),
        );
        registry.register("shard_held", "Whether this process looks after a shard", metrics.shards.clone());
        registry.register("build", "The build that runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        metrics.begin_at_zero();
        Metrics { registry, ..metrics }
    }

    /// What was never counted is shown as zero, so that an alert on a change sees the first one.
    fn begin_at_zero(&self) {
        for phase in Phase::ALL {
            self.machines.get_or_create(&OfPhase { phase: phase.as_str() }).set(0);
        }
        for (family, results) in [
            (&self.evaluations, &["ok", "invalid"][..]),
            (&self.reclaims, &["begun", "again", "finished"]),
            (&self.drains, &["drained", "timed_out"]),
            (&self.evictions, &["evicted", "gone", "blocked", "failed"]),
        ] {
            for result in results {
                family.get_or_create(&Resulting { result }).inc_by(0);
            }
        }
        self.holds(false);
        for error_type in Trouble::KINDS {
            self.errors.get_or_create(&OfError { error_type }).inc_by(0);
        }
    }

    /// The page that Prometheus reads.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut page, &self.registry);
        page
    }

    pub(crate) fn passed(&self, phase: Option<Phase>, result: &'static str, took: Duration) {
        let phase = phase.map_or("", Phase::as_str);
        self.reconciliations.get_or_create(&Reconciliation { phase, result }).inc();
        self.durations.get_or_create(&OfPhase { phase }).observe(took.as_secs_f64());
    }

    pub(crate) fn evaluated(&self, result: &'static str) {
        self.evaluations.get_or_create(&Resulting { result }).inc();
    }

    pub(crate) fn acted_on_boundary(&self, late: Duration) {
        self.lateness.observe(late.as_secs_f64());
    }

    pub(crate) fn kill_switch_activated(&self) {
        self.kill_switches.inc();
    }

    pub(crate) fn reclaimed(&self, result: &'static str) {
        self.reclaims.get_or_create(&Resulting { result }).inc();
    }

    pub(crate) fn drained(&self, result: &'static str) {
        self.drains.get_or_create(&Resulting { result }).inc();
    }

    pub(crate) fn evicted(&self, result: &'static str) {
        self.evictions.get_or_create(&Resulting { result }).inc();
    }

    pub(crate) fn requested(&self, verb: &'static str, resource: String, code: String) {
        self.requests.get_or_create(&Request { verb, resource, code }).inc();
    }

    pub(crate) fn failed(&self, error_type: &'static str) {
        self.errors.get_or_create(&OfError { error_type }).inc();
    }

    /// Whether the shutdown of an object should have been over.
    pub(crate) fn overdue(&self, key: &Key, overdue: bool) {
        let mut late = lock(&self.late);
        let changed = if overdue { late.insert(key.clone()) } else { late.remove(key) };
        if changed {
            self.overdue.set(i64::try_from(late.len()).unwrap_or(i64::MAX));
        }
    }

    /// Whether this process looks after its shard, which is all there is.
    pub(crate) fn holds(&self, held: bool) {
        self.shards.get_or_create(&OfShard { shard: 0 }).set(i64::from(held));
    }

    /// An object is in another phase than before, or there, or gone.
    pub(crate) fn moved(&self, from: Option<Phase>, to: Option<Phase>) {
        if from == to {
            return;
        }
        if let Some(phase) = from {
            self.machines.get_or_create(&OfPhase { phase: phase.as_str() }).dec();
        }
        if let Some(phase) = to {
            self.machines.get_or_create(&OfPhase { phase: phase.as_str() }).inc();
        }
    }

    /// All objects have been heard of, for the first time or anew.
    pub(crate) fn recount(&self, phases: impl Iterator<Item = Phase>) {
        let mut counts: HashMap<Phase, i64> = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
        phases.for_each(|phase| *counts.entry(phase).or_default() += 1);
        for (phase, count) in counts {
            self.machines.get_or_create(&OfPhase { phase: phase.as_str() }).set(count);
        }
    }
}
