//! The metrics of the controller, in the `OpenMetrics` text format.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fivespot_api::Phase;
use fivespot_api::conditions::{ConditionStatus, Ready, Reason as _};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::runtime::workqueue::Key;

/// The values of the label `error_type`.
pub(crate) const ERROR_TYPES: [&str; 7] =
    ["conflict", "transient", "throttled", "reference", "rejected", "shutdown", "panic"];

pub(crate) struct Metrics {
    registry: Registry,
    reconciliations: Family<PhaseResultLabels, Counter>,
    durations: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    machines: Family<PhaseLabels, Gauge>,
    not_ready: Family<ReasonLabels, Gauge>,
    evaluations: Family<ResultLabels, Counter>,
    lateness: Histogram,
    kill_switches: Counter,
    reclaims: Family<ResultLabels, Counter>,
    drains: Family<ResultLabels, Counter>,
    evictions: Family<ResultLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    overdue: Gauge,
    /// The objects that `overdue` counts.
    overdue_keys: Mutex<HashSet<Key>>,
    shards: Family<ShardLabels, Gauge>,
    entries: Family<MapLabels, Gauge>,
    watches: Family<KindLabels, Gauge>,
    dropped_events: Counter,
    dropped_spans: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseResultLabels {
    phase: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// What an object counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectState {
    pub(crate) phase: Option<Phase>,
    pub(crate) not_ready: Option<Ready>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    error_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ShardLabels {
    shard: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MapLabels {
    map: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    resource: &'static str,
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
            not_ready: Family::default(),
            evaluations: Family::default(),
            lateness: Histogram::new(exponential_buckets(0.01, 4.0, 8)),
            kill_switches: Counter::default(),
            reclaims: Family::default(),
            drains: Family::default(),
            evictions: Family::default(),
            requests: Family::default(),
            errors: Family::default(),
            overdue: Gauge::default(),
            overdue_keys: Mutex::default(),
            shards: Family::default(),
            entries: Family::default(),
            watches: Family::default(),
            dropped_events: Counter::default(),
            dropped_spans: Counter::default(),
            registry: Registry::default(),
        };
        registry.register(
            "reconciliations",
            "Total number of reconciliations of a ScheduledMachine, by phase and result",
            metrics.reconciliations.clone(),
        );
        registry.register(
            "reconciliation_duration_seconds",
            "Duration of a reconciliation of a ScheduledMachine, by phase",
            metrics.durations.clone(),
        );
        registry.register("machines_by_phase", "Number of ScheduledMachines, by phase", metrics.machines.clone());
        registry.register(
            "machines_not_ready",
            "Number of ScheduledMachines whose condition Ready is False, by reason",
            metrics.not_ready.clone(),
        );
        registry.register(
            "schedule_evaluations",
            "Total number of schedule evaluations, by result",
            metrics.evaluations.clone(),
        );
        registry.register(
            "boundary_lateness_seconds",
            "Time from the start or end of a window until the controller acted on it",
            metrics.lateness.clone(),
        );
        registry.register(
            "kill_switch_activations",
            "Total number of kill switch activations",
            metrics.kill_switches.clone(),
        );
        registry.register(
            "emergency_reclaims",
            "Total number of emergency reclaims, by result",
            metrics.reclaims.clone(),
        );
        registry.register("node_drains", "Total number of Node drains, by result", metrics.drains.clone());
        registry.register("pod_evictions", "Total number of pod evictions, by result", metrics.evictions.clone());
        registry.register(
            "api_requests",
            "Total number of requests to API servers, by verb, resource and HTTP status code",
            metrics.requests.clone(),
        );
        registry.register("errors", "Total number of failed reconciliations, by type of error", metrics.errors.clone());
        registry.register(
            "overdue_shutdowns",
            "Number of machines whose shutdown exceeds gracefulShutdownTimeout",
            metrics.overdue.clone(),
        );
        registry.register(
            "internal_entries",
            "Number of entries that the process keeps in memory, by what they are about",
            metrics.entries.clone(),
        );
        registry.register("shard_held", "Whether this instance holds the shard", metrics.shards.clone());
        registry.register(
            "watch_up",
            "Whether the watch of a kind of the management cluster works",
            metrics.watches.clone(),
        );
        registry.register(
            "events_dropped",
            "Total number of Kubernetes events that were not published",
            metrics.dropped_events.clone(),
        );
        registry.register(
            "trace_spans_dropped",
            "Total number of spans that were not exported",
            metrics.dropped_spans.clone(),
        );
        registry.register("build", "Version of the running build", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        metrics.initialize();
        Metrics { registry, ..metrics }
    }

    /// Exports counters at zero from the start, so that an alert on an increase sees the first one.
    fn initialize(&self) {
        for phase in Phase::ALL {
            self.machines.get_or_create(&PhaseLabels { phase: phase.as_str() }).set(0);
        }
        for reason in not_ready_reasons() {
            self.not_ready.get_or_create(&ReasonLabels { reason: reason.as_str() }).set(0);
        }
        for (family, results) in [
            (&self.evaluations, &["ok", "invalid"][..]),
            (&self.reclaims, &["started", "repeated", "completed"]),
            (&self.drains, &["drained", "timed_out"]),
            (&self.evictions, &["evicted", "gone", "blocked", "failed"]),
        ] {
            for result in results {
                family.get_or_create(&ResultLabels { result }).inc_by(0);
            }
        }
        for error_type in ERROR_TYPES {
            self.errors.get_or_create(&ErrorLabels { error_type }).inc_by(0);
        }
    }

    /// The response to a scrape.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// `phase`: the phase after the reconciliation, `None` if the object no longer exists.
    pub(crate) fn record_reconcile(&self, phase: Option<Phase>, result: &'static str, duration: Duration) {
        let phase = phase.map_or("", Phase::as_str);
        self.reconciliations.get_or_create(&PhaseResultLabels { phase, result }).inc();
        self.durations.get_or_create(&PhaseLabels { phase }).observe(duration.as_secs_f64());
    }

    pub(crate) fn record_schedule_evaluation(&self, result: &'static str) {
        self.evaluations.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn record_boundary_lateness(&self, lateness: Duration) {
        self.lateness.observe(lateness.as_secs_f64());
    }

    pub(crate) fn record_kill_switch_activation(&self) {
        self.kill_switches.inc();
    }

    pub(crate) fn record_reclaim(&self, result: &'static str) {
        self.reclaims.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn record_drain(&self, result: &'static str) {
        self.drains.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn record_eviction(&self, result: &'static str) {
        self.evictions.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn record_request(&self, verb: &'static str, resource: &'static str, code: String) {
        self.requests.get_or_create(&RequestLabels { verb, resource, code }).inc();
    }

    /// `error_type`: one of [`ERROR_TYPES`].
    pub(crate) fn record_error(&self, error_type: &'static str) {
        self.errors.get_or_create(&ErrorLabels { error_type }).inc();
    }

    pub(crate) fn set_overdue(&self, key: &Key, overdue: bool) {
        let mut keys = self.overdue_keys.lock();
        let changed = if overdue { keys.insert(key.clone()) } else { keys.remove(key) };
        if changed {
            self.overdue.set(i64::try_from(keys.len()).unwrap_or(i64::MAX));
        }
    }

    /// Each instance exports all shards, so that one without a holder is 0 and not absent.
    pub(crate) fn set_shard_held(&self, shard: u32, held: bool) {
        self.shards.get_or_create(&ShardLabels { shard }).set(i64::from(held));
    }

    pub(crate) fn record_dropped_event(&self) {
        self.dropped_events.inc();
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn record_dropped_spans(&self, count: u64) {
        self.dropped_spans.inc_by(count);
    }

    pub(crate) fn set_entries(&self, map: &'static str, entries: usize) {
        self.entries.get_or_create(&MapLabels { map }).set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    pub(crate) fn overdue_entries(&self) -> usize {
        self.overdue_keys.lock().len()
    }

    pub(crate) fn set_watch_up(&self, kind: &'static str, up: bool) {
        self.watches.get_or_create(&KindLabels { kind }).set(i64::from(up));
    }

    /// Changes what an object counts as; the default if it did not exist before, or does not any more.
    pub(crate) fn move_object(&self, from: ObjectState, to: ObjectState) {
        if from == to {
            return;
        }
        for (state, change) in [(from, -1), (to, 1)] {
            if let Some(phase) = state.phase {
                self.machines.get_or_create(&PhaseLabels { phase: phase.as_str() }).inc_by(change);
            }
            if let Some(reason) = state.not_ready {
                self.not_ready.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc_by(change);
            }
        }
    }

    /// Counts all objects again, after a list.
    pub(crate) fn recount_objects(&self, states: impl Iterator<Item = ObjectState>) {
        let mut phases: HashMap<Phase, i64> = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
        let mut reasons: HashMap<Ready, i64> = not_ready_reasons().map(|reason| (reason, 0)).collect();
        for state in states {
            state.phase.into_iter().for_each(|phase| *phases.entry(phase).or_default() += 1);
            state.not_ready.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
        }
        for (phase, count) in phases {
            self.machines.get_or_create(&PhaseLabels { phase: phase.as_str() }).set(count);
        }
        for (reason, count) in reasons {
            self.not_ready.get_or_create(&ReasonLabels { reason: reason.as_str() }).set(count);
        }
    }
}

/// The reasons for which condition `Ready` is False.
fn not_ready_reasons() -> impl Iterator<Item = Ready> {
    Ready::ALL.iter().copied().filter(|reason| reason.status() == ConditionStatus::False)
}
