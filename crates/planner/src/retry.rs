//! When a failed reconcile is retried: what the controller remembers of an object between two reconciles.
//!
//! Nothing here has to survive a restart: a new process retries immediately. It decides when requests are sent, and never
//! what the status says: two processes remember different things.

use jiff::{SignedDuration, Timestamp};

use crate::plan::{Action, DesiredStatus, ForceRemoval, Step};

/// Backoff after a rejected request, and after a transient failure that has been reported.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_mins(5);
/// Backoff after a transient failure that has not been reported yet.
const FIRST_TRANSIENT_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
/// Limit of the backoff of a force removal: an owner or an administrator is waiting.
pub const MAX_FORCE_REMOVAL_BACKOFF: SignedDuration = SignedDuration::from_secs(5);
/// How often a status that another client changes back is reported again without delay, and the limit of the delay.
const FREE_REPEATS: u32 = 3;
const MAX_REPORT_BACKOFF: SignedDuration = SignedDuration::from_mins(1);
/// How many transient failures in a row are retried before one is reported.
const UNREPORTED_TRANSIENTS: u32 = 3;
/// The same for an API server that requests clients to wait: a report is another write.
const UNREPORTED_THROTTLES: u32 = 30;
/// How many conflicts in a row are retried before one is reported: that many are not caused by a lagging cache.
const UNREPORTED_CONFLICTS: u32 = 6;

/// What is remembered of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryState {
    failed: Option<FailedSteps>,
    generation: Option<i64>,
    reported: Option<Reported>,
}

/// The status that was reported last.
#[derive(Clone, Debug, PartialEq)]
struct Reported {
    fingerprint: u64,
    at: Timestamp,
    /// How often it was reported again although nothing else was reported in between: another client changes it back.
    repeats: u32,
}

#[derive(Clone, Debug, PartialEq)]
struct FailedSteps {
    /// Normalized for comparison: without timestamps and pod names.
    steps: Vec<Step>,
    class: FailureClass,
    attempts: u32,
    retry_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The decision was made from stale state; observing again usually helps.
    Conflict,
    /// The API server could not be reached, or failed.
    Transient,
    /// The API server of the management cluster requested the client to wait. The controller waits for as long as requested
    /// in addition to the backoff.
    Throttled,
    /// The API server rejected the request and will do so until something changes.
    Rejected,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Retry without reporting the failure.
    Retry(Timestamp),
    /// Report the failure in the status, and retry.
    Report(Timestamp),
}

impl RetryState {
    /// Records that the steps failed.
    pub fn failed(&mut self, steps: &[Step], class: FailureClass, now: Timestamp) -> RetryDecision {
        let comparable = comparable(steps);
        let attempts = self.failed.take().filter(|it| it.steps == comparable).map_or(0, |it| it.attempts);
        let unreported = match class {
            FailureClass::Conflict => UNREPORTED_CONFLICTS,
            FailureClass::Transient => UNREPORTED_TRANSIENTS,
            FailureClass::Throttled => UNREPORTED_THROTTLES,
            FailureClass::Rejected => 0,
        };
        let quiet = attempts < unreported;
        let delay = match class {
            FailureClass::Conflict | FailureClass::Throttled if quiet => FIRST_TRANSIENT_BACKOFF,
            FailureClass::Transient if quiet => backoff(FIRST_TRANSIENT_BACKOFF, MAX_BACKOFF, attempts),
            // Once the API server is back, a force removal must not wait for minutes.
            FailureClass::Transient | FailureClass::Throttled if is_force_removal(steps) => MAX_FORCE_REMOVAL_BACKOFF,
            FailureClass::Conflict | FailureClass::Transient | FailureClass::Throttled | FailureClass::Rejected => {
                backoff(FIRST_BACKOFF, MAX_BACKOFF, attempts - unreported)
            }
        };
        let retry_at = after(now, delay);
        // Once reported, every class backs off like a rejection; before that, an event overrides the delay of a conflict.
        let class = if quiet { class } else { FailureClass::Rejected };
        self.failed = Some(FailedSteps { steps: comparable, class, attempts: attempts + 1, retry_at });
        if quiet { RetryDecision::Retry(retry_at) } else { RetryDecision::Report(retry_at) }
    }

    /// Records that a reconcile succeeded.
    pub fn succeeded(&mut self) {
        self.failed = None;
    }

    /// When these steps may be retried, if they failed before and are still backing off. Other steps need not wait:
    /// something has changed.
    pub fn backoff_until(&self, steps: &[Step], now: Timestamp) -> Option<Timestamp> {
        let failed = self.failed.as_ref().filter(|it| it.class != FailureClass::Conflict)?;
        // A time that is further away than any backoff is from before the clock was stepped back.
        let is_waiting = now < failed.retry_at && failed.retry_at.duration_since(now) <= MAX_BACKOFF;
        (!steps.is_empty() && is_waiting && failed.steps == comparable(steps)).then_some(failed.retry_at)
    }

    /// When a status may be reported, if not now. Another client that changes the status back, such as a second controller
    /// that observes something else, makes this process write it again at most once a minute.
    pub fn report_postponed_until(&self, fingerprint: u64, now: Timestamp) -> Option<Timestamp> {
        let last = self.reported.as_ref().filter(|last| last.fingerprint == fingerprint)?;
        let repeats = last.repeats.checked_sub(FREE_REPEATS)?;
        let due = after(last.at, backoff(FIRST_TRANSIENT_BACKOFF, MAX_REPORT_BACKOFF, repeats));
        // A time that is further away than any backoff is from before the clock was stepped back.
        (now < due && due.duration_since(now) <= MAX_REPORT_BACKOFF).then_some(due)
    }

    /// Records that a status was reported.
    pub fn reported(&mut self, fingerprint: u64, now: Timestamp) {
        let is_recent = |last: &&Reported| now.duration_since(last.at).abs() < 2 * MAX_REPORT_BACKOFF;
        let last = self.reported.as_ref().filter(|last| last.fingerprint == fingerprint).filter(is_recent);
        let repeats = last.map_or(0, |last| last.repeats.saturating_add(1));
        self.reported = Some(Reported { fingerprint, at: now, repeats });
    }

    /// An edited spec may be one that is accepted.
    pub fn observe_generation(&mut self, generation: Option<i64>) {
        if self.generation != generation {
            (self.failed, self.generation) = (None, generation);
        }
    }
}

/// The steps normalized for comparison: without timestamps and pod names.
fn comparable(steps: &[Step]) -> Vec<Step> {
    let action = |action: &Action| match action {
        Action::DeletePods(_) => Action::DeletePods(Vec::new()),
        other => other.clone(),
    };
    let step = |step: &Step| match step {
        Step::StoreStatus(_) => Step::StoreStatus(Box::new(DesiredStatus::undecided())),
        Step::EvictPods(_) => Step::EvictPods(Vec::new()),
        Step::ForceRemove(removal) => Step::ForceRemove(removal.map(action)),
        Step::Run(run) => Step::Run(action(run)),
        other => other.clone(),
    };
    steps.iter().map(step).collect()
}

fn is_force_removal(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::ForceRemove(ForceRemoval { .. })))
}

/// Exponential backoff: `first`, doubled for each attempt before, at most `max`.
pub fn backoff(first: SignedDuration, max: SignedDuration, attempts: u32) -> SignedDuration {
    let doubled = 2_i32.checked_pow(attempts).and_then(|factor| first.checked_mul(factor));
    doubled.map_or(max, |delay| delay.min(max))
}

fn after(now: Timestamp, delay: SignedDuration) -> Timestamp {
    now.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::Exclusions;
    use crate::plan::PodKey;

    const CORDON: &[Step] = &[Step::Run(Action::Cordon)];

    fn now() -> Timestamp {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn delay(decision: RetryDecision) -> i64 {
        match decision {
            RetryDecision::Retry(at) | RetryDecision::Report(at) => at.duration_since(now()).as_secs(),
        }
    }

    #[test]
    fn rejection_is_reported_and_backed_off() {
        let mut retry = RetryState::default();
        let delays: Vec<i64> = (0..6).map(|_| delay(retry.failed(CORDON, FailureClass::Rejected, now()))).collect();
        assert_eq!(delays, [30, 60, 120, 240, 300, 300]);
    }

    #[test]
    fn transient_failure_is_reported_only_if_it_persists() {
        let mut retry = RetryState::default();
        let decisions: Vec<RetryDecision> =
            (0..6).map(|_| retry.failed(CORDON, FailureClass::Transient, now())).collect();
        assert_eq!(decisions.iter().map(|it| delay(*it)).collect::<Vec<_>>(), [1, 2, 4, 30, 60, 120]);
        assert!(decisions[..3].iter().all(|it| matches!(it, RetryDecision::Retry(_))));
        assert!(decisions[3..].iter().all(|it| matches!(it, RetryDecision::Report(_))));
    }

    #[test]
    fn throttled_client_retries_soon_and_reports_late() {
        let mut retry = RetryState::default();
        for _ in 0..UNREPORTED_THROTTLES {
            let decision = retry.failed(CORDON, FailureClass::Throttled, now());
            assert_eq!((decision, delay(decision)), (RetryDecision::Retry(now() + FIRST_TRANSIENT_BACKOFF), 1));
        }
        let decision = retry.failed(CORDON, FailureClass::Throttled, now());
        assert_eq!(decision, RetryDecision::Report(now() + FIRST_BACKOFF));
    }

    #[test]
    fn force_removal_is_retried_soon_after_an_outage() {
        let removal = ForceRemoval {
            machine: vec![Action::SetExclusions(Exclusions::ALL)],
            node: vec![Action::Cordon],
            pods: Vec::new(),
        };
        let steps = [Step::ForceRemove(removal)];
        let mut retry = RetryState::default();
        let delays: Vec<i64> = (0..6).map(|_| delay(retry.failed(&steps, FailureClass::Transient, now()))).collect();
        assert_eq!(delays, [1, 2, 4, 5, 5, 5]);
        // A rejection lasts until something changes.
        let mut retry = RetryState::default();
        let delays: Vec<i64> = (0..3).map(|_| delay(retry.failed(&steps, FailureClass::Rejected, now()))).collect();
        assert_eq!(delays, [30, 60, 120]);
    }

    #[test]
    fn persistent_conflict_is_reported() {
        let mut retry = RetryState::default();
        for _ in 0..UNREPORTED_CONFLICTS {
            assert!(matches!(retry.failed(CORDON, FailureClass::Conflict, now()), RetryDecision::Retry(_)));
            assert_eq!(retry.backoff_until(CORDON, now()), None, "an event triggers a retry");
        }
        assert!(matches!(retry.failed(CORDON, FailureClass::Conflict, now()), RetryDecision::Report(_)));
        assert!(retry.backoff_until(CORDON, now()).is_some());
    }

    #[test]
    fn other_steps_do_not_back_off() {
        let mut retry = RetryState::default();
        retry.failed(CORDON, FailureClass::Rejected, now());
        assert!(retry.backoff_until(CORDON, now()).is_some());
        assert_eq!(retry.backoff_until(&[Step::Run(Action::Uncordon)], now()), None);
        assert_eq!(retry.backoff_until(CORDON, now() + SignedDuration::from_secs(30)), None);
        retry.succeeded();
        assert_eq!(retry.backoff_until(CORDON, now()), None);
    }

    #[test]
    fn backoff_is_over_if_the_clock_is_stepped_back() {
        let mut retry = RetryState::default();
        retry.failed(CORDON, FailureClass::Rejected, now());
        assert!(retry.backoff_until(CORDON, now() - SignedDuration::from_mins(1)).is_some());
        assert_eq!(retry.backoff_until(CORDON, now() - SignedDuration::from_hours(1)), None);
    }

    #[test]
    fn pods_and_times_do_not_reset_the_backoff() {
        let pod = |name: &str| PodKey { namespace: "a".to_owned(), name: name.to_owned(), uid: name.to_owned() };
        let steps = |name: &str, at: Timestamp| {
            let status = DesiredStatus { shutdown_started_at: Some(at), ..DesiredStatus::undecided() };
            vec![Step::StoreStatus(Box::new(status)), Step::EvictPods(vec![pod(name)])]
        };
        let mut retry = RetryState::default();
        retry.failed(&steps("one", now()), FailureClass::Rejected, now());
        assert!(retry.backoff_until(&steps("two", now() + MAX_BACKOFF), now()).is_some());
        assert_eq!(delay(retry.failed(&steps("two", now() + MAX_BACKOFF), FailureClass::Rejected, now())), 60);
    }

    #[test]
    fn report_that_is_changed_back_is_repeated_less_and_less_often() {
        let mut retry = RetryState::default();
        let (mut at, mut written) = (now(), Vec::new());
        for _ in 0..3_000 {
            if retry.report_postponed_until(1, at).is_none() {
                retry.reported(1, at);
                written.push(at.duration_since(now()).as_millis());
            }
            at += SignedDuration::from_millis(100);
        }
        let seconds = [1_300, 3_300, 7_300, 15_300, 31_300, 63_300, 123_300, 183_300, 243_300];
        assert_eq!(written, [&[0, 100, 200, 300][..], &seconds].concat());
        assert!(retry.report_postponed_until(1, at).is_some());
        assert_eq!(retry.report_postponed_until(2, at), None, "another status is reported immediately");
        assert_eq!(
            retry.report_postponed_until(1, at - SignedDuration::from_hours(1)),
            None,
            "the clock is stepped back"
        );
        // Something that was reported long ago is reported as if for the first time.
        retry.reported(1, at + 2 * MAX_REPORT_BACKOFF);
        assert_eq!(retry.report_postponed_until(1, at + 2 * MAX_REPORT_BACKOFF), None);
    }

    #[test]
    fn backoff_is_bounded() {
        assert_eq!(backoff(FIRST_BACKOFF, MAX_BACKOFF, 1_000), MAX_BACKOFF);
    }
}
