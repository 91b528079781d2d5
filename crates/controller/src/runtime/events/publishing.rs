//! Sends queued events: many at a time while no write could be delayed, few or one otherwise.
//!
//! A request that hangs takes none of the places of others, and a failed one is repeated after a while: for both, only the
//! events of the same namespace wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{QueuedEvent, Sent};
use crate::runtime::fair_queue::FairQueue;
use crate::runtime::permits::{Load, WritePermits};

/// How many events are sent at a time while there is no write, and while there are few.
pub(super) const MAX_IN_FLIGHT: usize = 32;
const MAX_IN_FLIGHT_WITH_WRITES: usize = 4;
/// How many of them are of one namespace.
pub(super) const MAX_IN_FLIGHT_OF_NAMESPACE: usize = 16;
/// A request that takes longer no longer counts as in flight, and its namespace waits until it ends.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How many of those there may be.
const MAX_SLOW: usize = 128;
/// How long an event is held back if there was none before: the write that it reports may be followed by an urgent one.
const SETTLE_DELAY: Duration = Duration::from_millis(50);
/// How long an event waits until no other write waits, and how often it checks. It needs no permit, so it delays none.
const MAX_WRITE_WAIT: Duration = Duration::from_secs(1);
/// The same for an event that follows others: writes may be busy for long, for example with those of a tenant that hang.
const MAX_WRITE_WAIT_IN_BURST: Duration = Duration::from_millis(50);
const WRITE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often an event is sent at most, and the delay between two attempts, which doubles. Together about two minutes, as in
/// client-go: an API server that restarts loses no event.
pub(super) const MAX_ATTEMPTS: u32 = 16;
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// `F` sends one event.
pub(super) struct Publishing<F> {
    queue: Arc<FairQueue<QueuedEvent>>,
    writes: Arc<WritePermits>,
    send: F,
    namespaces: HashMap<String, Namespace>,
    in_flight: usize,
    slow: usize,
    /// Nothing is queued or in flight.
    is_idle: bool,
    /// Until when the next event waits for writes that are busy.
    waits_for_writes_until: Instant,
    progress: mpsc::UnboundedSender<Progress>,
}

/// What is in flight of a namespace.
#[derive(Default)]
struct Namespace {
    in_flight: usize,
    slow: usize,
    /// When events may be sent again after a failure.
    not_before: Option<Instant>,
}

enum Progress {
    Slow(String),
    Ended { was_slow: bool, event: QueuedEvent, sent: Sent },
}

impl<F, T> Publishing<F>
where
    F: Fn(QueuedEvent) -> T,
    T: Future<Output = (QueuedEvent, Sent)> + Send + 'static,
{
    /// Sends events until the task is dropped.
    pub(super) async fn run(queue: Arc<FairQueue<QueuedEvent>>, writes: Arc<WritePermits>, send: F) {
        let (progress, mut ended) = mpsc::unbounded_channel();
        let mut publishing = Publishing {
            queue,
            writes,
            send,
            namespaces: HashMap::new(),
            in_flight: 0,
            slow: 0,
            is_idle: true,
            waits_for_writes_until: Instant::now(),
            progress,
        };
        // Aborts the requests when it is dropped.
        let mut requests = JoinSet::new();
        loop {
            if publishing.is_idle {
                publishing.wait_for_first_event().await;
            }
            let wake_at = publishing.send_next(&mut requests);
            tokio::select! {
                Some(progress) = ended.recv() => publishing.apply(progress),
                () = publishing.queue.added() => {}
                () = tokio::time::sleep_until(wake_at) => {}
            }
            while requests.try_join_next().is_some() {}
            publishing.is_idle = publishing.in_flight + publishing.slow == 0 && publishing.queue.is_empty();
        }
    }

    async fn wait_for_first_event(&mut self) {
        self.namespaces.clear();
        while self.queue.is_empty() {
            self.queue.added().await;
        }
        tokio::time::sleep(SETTLE_DELAY).await;
        self.waits_for_writes_until = Instant::now() + MAX_WRITE_WAIT;
    }

    /// Sends as many events as may be sent now. Returns when to check again if nothing happens before.
    fn send_next(&mut self, requests: &mut JoinSet<()>) -> Instant {
        let now = Instant::now();
        loop {
            if let Some(until) = self.writes.paused_until() {
                return until;
            }
            let load = self.writes.load();
            if self.in_flight >= max_in_flight(load) || self.slow >= MAX_SLOW {
                // The end of a request is the next change.
                return now + SLOW_AFTER;
            }
            if load == Load::Busy && now < self.waits_for_writes_until {
                return now + WRITE_POLL_INTERVAL;
            }
            let namespaces = &self.namespaces;
            let Some(event) = self.queue.pop_if(|name| namespaces.get(name).is_none_or(|it| it.may_send(now))) else {
                let later = self.namespaces.values().filter_map(|it| it.not_before.filter(|at| *at > now));
                return later.min().unwrap_or(now + SLOW_AFTER);
            };
            self.waits_for_writes_until = now + MAX_WRITE_WAIT_IN_BURST;
            self.start(event, requests);
        }
    }

    fn start(&mut self, event: QueuedEvent, requests: &mut JoinSet<()>) {
        let name = event.object.namespace.clone();
        self.in_flight += 1;
        self.namespaces.entry(name.clone()).or_default().in_flight += 1;
        let (request, progress) = ((self.send)(event), self.progress.clone());
        requests.spawn(async move {
            let mut request = std::pin::pin!(request);
            let in_time = tokio::time::timeout(SLOW_AFTER, &mut request).await;
            let was_slow = in_time.is_err();
            let (event, sent) = if let Ok(ended) = in_time {
                ended
            } else {
                // The receiver is dropped together with this task.
                let _ = progress.send(Progress::Slow(name));
                request.await
            };
            let _ = progress.send(Progress::Ended { was_slow, event, sent });
        });
    }

    fn apply(&mut self, progress: Progress) {
        let now = Instant::now();
        match progress {
            Progress::Slow(name) => {
                let namespace = self.namespaces.entry(name).or_default();
                (self.in_flight, self.slow) = (self.in_flight - 1, self.slow + 1);
                (namespace.in_flight, namespace.slow) = (namespace.in_flight - 1, namespace.slow + 1);
            }
            Progress::Ended { was_slow, mut event, sent } => {
                let namespace = self.namespaces.entry(event.object.namespace.clone()).or_default();
                if was_slow {
                    (self.slow, namespace.slow) = (self.slow - 1, namespace.slow - 1);
                } else {
                    (self.in_flight, namespace.in_flight) = (self.in_flight - 1, namespace.in_flight - 1);
                }
                if let Sent::Failed { retry_after } = sent {
                    event.attempts += 1;
                    namespace.not_before = Some(now + retry_after.unwrap_or_else(|| retry_delay(event.attempts)));
                    let name = event.object.namespace.clone();
                    self.queue.push_front(&name, event);
                }
                self.namespaces.retain(|_, namespace| !namespace.is_unused(now));
            }
        }
    }
}

impl Namespace {
    fn may_send(&self, now: Instant) -> bool {
        self.slow == 0 && self.in_flight < MAX_IN_FLIGHT_OF_NAMESPACE && self.not_before.is_none_or(|at| at <= now)
    }

    fn is_unused(&self, now: Instant) -> bool {
        self.in_flight == 0 && self.slow == 0 && self.not_before.is_none_or(|at| at <= now)
    }
}

fn max_in_flight(load: Load) -> usize {
    match load {
        Load::Idle => MAX_IN_FLIGHT,
        Load::Light => MAX_IN_FLIGHT_WITH_WRITES,
        Load::Heavy | Load::Busy => 1,
    }
}

fn retry_delay(attempts: u32) -> Duration {
    let factor = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST_RETRY_DELAY.saturating_mul(factor).min(MAX_RETRY_DELAY)
}
