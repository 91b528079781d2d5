//! The shards that this instance holds: which objects it may act on, and until when.

use std::time::Duration;

use fivespot_planner::shards::lease::{Term, Uptime};
use fivespot_planner::shards::shard_of;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::runtime::workqueue::Key;

/// Unlike `Instant`, this clock does not stop while the host sleeps: a process that continues must not trust a Lease that has
/// lapsed meanwhile.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Time since boot.
pub(crate) fn uptime() -> Uptime {
    let time = clock_gettime(CLOCK);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// All shards, and what this instance knows of each.
pub(crate) struct Shards {
    shards: Vec<Shard>,
}

struct Shard {
    state: Mutex<ShardState>,
    /// Has one token per write in flight. Always closed, so that `wait` returns when there is none.
    in_flight: TaskTracker,
}

#[derive(Clone, Copy, Default)]
struct ShardState {
    /// Until when writes may be sent; `None` if the shard is not held.
    write_until: Option<Uptime>,
    /// Until when writes in flight must have arrived, also after the shard was released.
    expires_at: Uptime,
    /// Version of the Lease when it was acquired: the previous holder wrote nothing later.
    acquired_version: u64,
    /// `acquired_version` when the list of objects that is in progress began.
    listed_version: u64,
}

/// Another instance holds the shard, or may do so any moment.
#[derive(Debug)]
pub(crate) struct ShardLost;

impl Shards {
    /// Without leader election, an instance always holds the shard with its own number.
    pub(crate) fn fixed(count: u32, instance: u32) -> Self {
        let shards = Self::leased(count);
        let forever = Term { write_until: Uptime::MAX, expires_at: Uptime::MAX };
        shards.set_term(instance, Some(forever));
        shards
    }

    /// With leader election, an instance holds the shards whose Leases it holds.
    pub(crate) fn leased(count: u32) -> Self {
        let shard = |_| {
            let in_flight = TaskTracker::new();
            in_flight.close();
            Shard { state: Mutex::default(), in_flight }
        };
        Shards { shards: (0..count).map(shard).collect() }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.shards.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn shard_of(&self, key: &Key) -> u32 {
        shard_of(&key.namespace, &key.name, self.count())
    }

    /// Whether this instance may act on an object now.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.holds_shard(self.shard_of(key))
    }

    pub(crate) fn holds_shard(&self, shard: u32) -> bool {
        self.shard(shard).is_some_and(Shard::is_held)
    }

    /// Permits a write for an object.
    pub(crate) fn fence(&self, key: &Key) -> Result<WriteFence<'_>, ShardLost> {
        let shard = self.shard(self.shard_of(key)).ok_or(ShardLost)?;
        // Counted before the check: a shard is closed first and then waits for what is in flight.
        let in_flight = shard.in_flight.token();
        if shard.is_held() { Ok(WriteFence { shard, _in_flight: in_flight }) } else { Err(ShardLost) }
    }

    /// Changes until when writes may be sent. Returns whether the shard is held now and was not before, or the reverse.
    pub(crate) fn set_term(&self, shard: u32, term: Option<Term>) -> bool {
        let Some(shard) = self.shard(shard) else { return false };
        let mut state = shard.state.lock();
        let was_held = state.write_until.is_some();
        state.write_until = term.map(|term| term.write_until);
        state.expires_at = term.map_or(state.expires_at, |term| term.expires_at);
        was_held != state.write_until.is_some()
    }

    /// Waits until no write to objects of a shard is in flight. None is sent after its term was removed.
    pub(crate) async fn wait_for_writes(&self, shard: u32) {
        if let Some(shard) = self.shard(shard) {
            shard.in_flight.wait().await;
        }
    }

    /// Another instance held the shard until its Lease got this version.
    pub(crate) fn set_acquired_version(&self, shard: u32, version: u64) {
        if let Some(shard) = self.shard(shard) {
            shard.state.lock().acquired_version = version;
        }
    }

    /// Whether a watch that has delivered objects up to this version can miss what the previous holder wrote.
    pub(crate) fn may_be_outdated(&self, key: &Key, watched_version: u64) -> bool {
        let shard = self.shard(self.shard_of(key));
        shard.is_some_and(|shard| watched_version < shard.state.lock().acquired_version)
    }

    /// A list of all objects begins.
    pub(crate) fn list_started(&self) {
        for shard in &self.shards {
            let mut state = shard.state.lock();
            state.listed_version = state.acquired_version;
        }
    }

    /// The list is complete: it has everything that previous holders wrote before it began.
    pub(crate) fn list_done(&self) {
        for shard in &self.shards {
            let mut state = shard.state.lock();
            if state.listed_version == state.acquired_version {
                state.acquired_version = 0;
            }
        }
    }

    fn shard(&self, shard: u32) -> Option<&Shard> {
        self.shards.get(usize::try_from(shard).ok()?)
    }
}

impl Shard {
    fn is_held(&self) -> bool {
        let write_until = self.state.lock().write_until;
        write_until.is_some_and(|until| until == Uptime::MAX || uptime() < until)
    }

    /// How long a write may still take.
    fn remaining(&self) -> Option<Duration> {
        let expires_at = self.state.lock().expires_at;
        expires_at.checked_sub(uptime()).filter(|remaining| !remaining.is_zero())
    }
}

/// Permission for one write. While it exists, the shard is not released.
pub(crate) struct WriteFence<'a> {
    shard: &'a Shard,
    _in_flight: TaskTrackerToken,
}

impl WriteFence<'_> {
    /// Sends a request, and abandons it when the Lease expires. That is checked each time before the request makes progress,
    /// not only by a timer: a process that was stopped must not send what it was about to send.
    pub(crate) fn guard<T>(&self, request: impl Future<Output = T>) -> impl Future<Output = Result<T, ShardLost>> {
        // Boxed: request futures are large, and the future of a reconcile contains one for each of its requests.
        let mut request = Box::pin(request);
        async move {
            loop {
                let remaining = self.shard.remaining().ok_or(ShardLost)?;
                let checked = std::future::poll_fn(|context| match self.shard.remaining() {
                    Some(_) => request.as_mut().poll(context).map(Ok),
                    None => std::task::Poll::Ready(Err(ShardLost)),
                });
                // At the end of the time the Lease may have been renewed.
                if let Ok(result) = tokio::time::timeout(remaining, checked).await {
                    return result;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn key() -> Key {
        Key { namespace: "team-a".to_owned(), name: "desk".to_owned() }
    }

    fn hold(shards: &Shards, write_for: Duration, expires_in: Duration) -> bool {
        shards.set_term(0, Some(Term { write_until: uptime() + write_for, expires_at: uptime() + expires_in }))
    }

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn fixed_instance_holds_its_shard_only() {
        let held: Vec<bool> = (0..3).map(|shard| Shards::fixed(3, 1).holds_shard(shard)).collect();
        assert_eq!(held, [false, true, false]);
    }

    #[test]
    fn no_write_starts_after_its_time() {
        let shards = Shards::leased(1);
        assert!(shards.fence(&key()).is_err());
        assert!(hold(&shards, HOUR, HOUR));
        assert!(shards.fence(&key()).is_ok());
        assert!(!hold(&shards, Duration::ZERO, HOUR));
        assert!(shards.fence(&key()).is_err());
        assert!(!shards.holds(&key()));
    }

    #[tokio::test]
    async fn request_is_not_polled_after_the_lease_expired() {
        let shards = Shards::leased(1);
        hold(&shards, HOUR, HOUR);
        let fence = shards.fence(&key()).unwrap();
        hold(&shards, Duration::ZERO, Duration::ZERO);
        let request = async { panic!("the request was polled") };
        assert!(fence.guard::<()>(request).await.is_err());
    }

    #[tokio::test]
    async fn request_that_hangs_is_abandoned_when_the_lease_expires() {
        let shards = Shards::leased(1);
        hold(&shards, Duration::from_millis(20), Duration::from_millis(40));
        let fence = shards.fence(&key()).unwrap();
        assert!(fence.guard(std::future::pending::<()>()).await.is_err());
    }

    #[tokio::test]
    async fn request_in_flight_is_finished_and_waited_for_when_the_shard_is_released() {
        let shards = Shards::leased(1);
        hold(&shards, HOUR, HOUR);
        let fence = shards.fence(&key()).unwrap();
        assert!(shards.set_term(0, None));
        assert!(shards.wait_for_writes(0).now_or_never().is_none());
        assert!(fence.guard(std::future::ready(())).await.is_ok());
        drop(fence);
        assert!(shards.wait_for_writes(0).now_or_never().is_some());
    }

    #[test]
    fn watch_is_outdated_until_it_passed_the_acquisition_or_everything_was_listed() {
        let shards = Shards::leased(1);
        assert!(!shards.may_be_outdated(&key(), 0));
        shards.list_started();
        shards.set_acquired_version(0, 7);
        // It began before the acquisition.
        shards.list_done();
        assert!(shards.may_be_outdated(&key(), 6));
        assert!(!shards.may_be_outdated(&key(), 7));
        shards.list_started();
        shards.list_done();
        assert!(!shards.may_be_outdated(&key(), 6));
    }
}
