//! Whether the process is alive and ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::runtime::metrics::Metrics;

/// How long after its last heartbeat the event loop counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// How often the event loop calls [`Health::heartbeat`].
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// How long a watch may fail before the process is no longer ready: longer than an API server takes to restart.
const WATCH_TOLERANCE: Duration = Duration::from_secs(15);

pub(crate) struct Health {
    started: Instant,
    /// Milliseconds from the start to the last heartbeat.
    last_heartbeat: AtomicU64,
    synced: AtomicBool,
    /// Watches of the management cluster that fail, by kind.
    failing_watches: Mutex<BTreeMap<&'static str, FailingWatch>>,
    /// Leases that cannot be written.
    failing_leases: Mutex<Option<FailingWatch>>,
    metrics: Arc<Metrics>,
}

struct FailingWatch {
    since: Instant,
    /// The last error, in one line of bounded length.
    error: String,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Health {
            started: Instant::now(),
            last_heartbeat: AtomicU64::new(0),
            synced: AtomicBool::new(false),
            failing_watches: Mutex::default(),
            failing_leases: Mutex::default(),
            metrics,
        }
    }

    pub(crate) fn heartbeat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_heartbeat.store(now, Ordering::Release);
    }

    /// Synced means that the caches were filled and the process is not shutting down.
    pub(crate) fn set_synced(&self, synced: bool) {
        self.synced.store(synced, Ordering::Release);
    }

    pub(crate) fn watch_works(&self, kind: &'static str) {
        self.failing_watches.lock().remove(kind);
        self.metrics.set_watch_up(kind, true);
    }

    pub(crate) fn watch_failed(&self, kind: &'static str, error: String) {
        let mut failing = self.failing_watches.lock();
        let since = failing.get(kind).map_or_else(Instant::now, |watch| watch.since);
        failing.insert(kind, FailingWatch { since, error });
        self.metrics.set_watch_up(kind, false);
    }

    /// The last error of a watch that fails.
    #[cfg(test)]
    pub(crate) fn failing_watch(&self, kind: &str) -> Option<String> {
        self.failing_watches.lock().get(kind).map(|watch| watch.error.clone())
    }

    pub(crate) fn leases_work(&self) {
        *self.failing_leases.lock() = None;
    }

    /// Returns whether the last attempt succeeded.
    pub(crate) fn leases_failed(&self, error: String) -> bool {
        let mut failing = self.failing_leases.lock();
        let is_first = failing.is_none();
        let since = failing.as_ref().map_or_else(Instant::now, |it| it.since);
        *failing = Some(FailingWatch { since, error });
        is_first
    }

    pub(super) fn is_alive(&self) -> bool {
        let last = Duration::from_millis(self.last_heartbeat.load(Ordering::Acquire));
        self.started.elapsed().saturating_sub(last) < STUCK_AFTER
    }

    /// Ready means that the caches are synced and the watches work. The error says what is missing.
    pub(super) fn readiness(&self) -> Result<(), String> {
        let failing = self.failing_watches.lock();
        let is_synced = self.synced.load(Ordering::Acquire);
        let is_reported = |watch: &FailingWatch| !is_synced || watch.since.elapsed() >= WATCH_TOLERANCE;
        let mut failing: Vec<String> = failing
            .iter()
            .filter(|(_, watch)| is_reported(watch))
            .map(|(kind, watch)| format!("not ready: the watch of {kind}s fails: {}\n", watch.error))
            .collect();
        if let Some(leases) = self.failing_leases.lock().as_ref().filter(|it| is_reported(it)) {
            failing.push(format!("not ready: {}\n", leases.error));
        }
        match (is_synced, failing.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => Err("not ready: starting or shutting down\n".to_owned()),
            (_, false) => Err(failing.concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        Health::new(Arc::new(Metrics::new()))
    }

    fn long_ago() -> Instant {
        Instant::now().checked_sub(STUCK_AFTER * 2).unwrap()
    }

    #[test]
    fn missing_heartbeat_means_stuck() {
        let health = Health { started: long_ago(), ..health() };
        assert!(!health.is_alive());
        health.heartbeat();
        assert!(health.is_alive());
    }

    #[test]
    fn short_failure_of_watch_is_tolerated_once_synced() {
        let health = health();
        health.watch_failed("Machine", "forbidden".to_owned());
        let error = health.readiness().unwrap_err();
        assert_eq!(error, "not ready: the watch of Machines fails: forbidden\n");
        health.set_synced(true);
        assert_eq!(health.readiness(), Ok(()));
        health.watch_works("Machine");
        health.set_synced(false);
        assert_eq!(health.readiness(), Err("not ready: starting or shutting down\n".to_owned()));
    }

    #[test]
    fn long_failure_of_watch_is_reported_until_it_works() {
        let health = health();
        health.set_synced(true);
        health.failing_watches.lock().insert("Machine", FailingWatch { since: long_ago(), error: String::new() });
        // The last error is reported, and counts from the first.
        health.watch_failed("Machine", "forbidden".to_owned());
        assert_eq!(health.readiness(), Err("not ready: the watch of Machines fails: forbidden\n".to_owned()));
        health.watch_works("Machine");
        assert_eq!(health.readiness(), Ok(()));
    }
}
