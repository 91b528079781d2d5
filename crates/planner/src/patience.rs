//! When to try again what failed: what a controller remembers of an object between two passes.
//!
//! Nothing here has to survive a restart. A process that has forgotten it tries at once, which is what a person who
//! restarts a controller hopes for.

use jiff::{SignedDuration, Timestamp};

use crate::observed::{Health, HeldOff, Machine, Node, Observed, Pods};
use crate::plan::{Action, Standing};

/// The first wait after a failure.
const FIRST: SignedDuration = SignedDuration::from_secs(30);
/// The longest wait.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);
/// The first wait after something that comes right by itself, such as an API server that is restarted.
const FIRST_HICCUP: SignedDuration = SignedDuration::from_secs(1);
/// The longest wait after one where somebody waits for the machine to be out.
pub const LONGEST_EJECT: SignedDuration = SignedDuration::from_secs(5);
/// How many of those are nobody's business.
const HICCUPS: u32 = 3;
/// How often in a row a look may have been too early before something else must be wrong.
const STALE: u32 = 6;

/// What is remembered of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patience {
    failed: Option<Failed>,
    generation: Option<i64>,
    lost: Option<Lost>,
    pods_at_first: usize,
}

/// Acts that failed.
#[derive(Clone, Debug, PartialEq)]
struct Failed {
    gist: Vec<Action>,
    kind: Kind,
    attempts: u32,
    again_at: Timestamp,
}

/// A machine that failed.
#[derive(Clone, Debug, PartialEq)]
struct Lost {
    uid: String,
    why: String,
    times: u32,
    again_at: Timestamp,
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was decided from is not what is there any more: looking again helps, most often.
    Stale,
    /// The API server could not be asked, or asked to be left alone for a while.
    Hiccup,
    /// It answered, and it will answer the same until something changes.
    Refusal,
}

/// What to make of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Try again soon, and say nothing.
    Soon(Timestamp),
    /// Say so, and try again then.
    Report(Timestamp),
}

impl Patience {
    /// Acts failed, for the first time or again.
    pub fn failed(&mut self, actions: &[Action], kind: Kind, now: Timestamp) -> Verdict {
        let gist = gist(actions);
        let before = self.failed.take().filter(|it| it.gist == gist).map_or(0, |it| it.attempts);
        let (quietly, first) = match kind {
            Kind::Stale => (STALE, FIRST_HICCUP),
            Kind::Hiccup => (HICCUPS, FIRST_HICCUP),
            Kind::Refusal => (0, FIRST),
        };
        let quiet = before < quietly;
        let again_at = match kind {
            Kind::Stale if quiet => after(now, first, 0),
            Kind::Hiccup if quiet => after(now, first, before),
            // An API server that is back must not find that it has been given up for minutes.
            Kind::Hiccup if is_eject(actions) => now.saturating_add(LONGEST_EJECT).unwrap_or(Timestamp::MAX),
            Kind::Stale | Kind::Hiccup | Kind::Refusal => after(now, FIRST, before - quietly),
        };
        // What was only looked at too early may be tried as soon as there is news.
        let kind = if quiet { kind } else { Kind::Refusal };
        self.failed = Some(Failed { gist, kind, attempts: before + 1, again_at });
        if quiet { Verdict::Soon(again_at) } else { Verdict::Report(again_at) }
    }

    /// Acts were carried out.
    pub fn succeeded(&mut self) {
        self.failed = None;
    }

    /// When these acts may be tried again, if they failed before and it is not yet time. Other acts may be tried at once:
    /// something has changed.
    pub fn wait_for(&self, actions: &[Action], now: Timestamp) -> Option<Timestamp> {
        let failed = self.failed.as_ref().filter(|it| it.kind != Kind::Stale)?;
        (!actions.is_empty() && now < failed.again_at && failed.gist == gist(actions)).then_some(failed.again_at)
    }

    /// Remembers what is seen, and adds to it what is remembered.
    pub fn remember(&mut self, seen: &mut Observed, generation: Option<i64>, now: Timestamp) {
        // A spec that was edited may be one that is not refused.
        if self.generation != generation {
            (self.failed, self.generation) = (None, generation);
        }
        if let Some(machine) = seen.machine.ours() {
            self.look_at(machine, &seen.node, now);
        }
        seen.held_off = self.lost.as_ref().map(|it| HeldOff { until: it.again_at, why: it.why.clone() });
    }

    /// Remembers how many pods there were to leave, and says so.
    pub fn count_pods(&mut self, seen: &mut Observed) {
        if seen.stored.shutdown_started_at.is_none() {
            self.pods_at_first = 0;
        }
        if let Pods::Read { now, at_first } = &mut seen.pods {
            self.pods_at_first = self.pods_at_first.max(now.iter().filter(|pod| pod.has_to_leave()).count());
            *at_first = self.pods_at_first;
        }
    }

    fn look_at(&mut self, machine: &Machine, node: &Node, now: Timestamp) {
        match &machine.health {
            Health::Failed(_) if self.lost.as_ref().is_some_and(|it| it.uid == machine.uid) => {}
            Health::Failed(why) => {
                let times = self.lost.as_ref().map_or(0, |it| it.times);
                let again_at = after(now, FIRST, times);
                self.lost = Some(Lost { uid: machine.uid.clone(), why: why.clone(), times: times + 1, again_at });
            }
            // A machine that made it is the end of a row of failures.
            Health::Running if matches!(node, Node::Ours(node) if node.ready) => self.lost = None,
            Health::Running | Health::Provisioning => {}
        }
    }
}

/// Acts without what changes from one pass to the next while it is the same that is tried: times, and which pods are left.
fn gist(actions: &[Action]) -> Vec<Action> {
    let gist_of = |action: &Action| match action {
        Action::Store(_) => Action::Store(Box::new(Standing::unknown())),
        Action::Evict(_) => Action::Evict(Vec::new()),
        Action::EndPods(_) => Action::EndPods(Vec::new()),
        Action::Together(lists) => Action::Together(lists.iter().map(|list| gist(list)).collect()),
        other => other.clone(),
    };
    actions.iter().map(gist_of).collect()
}

/// Whether somebody waits for what these acts come to: only an eject does things side by side.
fn is_eject(actions: &[Action]) -> bool {
    actions.iter().any(|it| matches!(it, Action::Together(_)))
}

/// `first`, doubled for every time before, at most the longest wait, from now on.
fn after(now: Timestamp, first: SignedDuration, times: u32) -> Timestamp {
    let doubled = 2_i32.checked_pow(times).and_then(|factor| first.checked_mul(factor));
    now.saturating_add(doubled.map_or(LONGEST, |it| it.min(LONGEST))).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PodKey;

    fn now() -> Timestamp {
        "2026-11-16T12:00:00Z".parse().unwrap()
    }

    fn wait(verdict: Verdict) -> i64 {
        match verdict {
            Verdict::Soon(at) | Verdict::Report(at) => at.duration_since(now()).as_secs(),
        }
    }

    #[test]
    fn a_refusal_is_told_at_once_and_tried_ever_less_often() {
        let mut patience = Patience::default();
        let waits: Vec<i64> = (0..6).map(|_| wait(patience.failed(&[Action::Cordon], Kind::Refusal, now()))).collect();
        assert_eq!(waits, [30, 60, 120, 240, 300, 300]);
    }

    #[test]
    fn a_hiccup_is_nobodys_business_until_it_goes_on() {
        let mut patience = Patience::default();
        let verdicts: Vec<Verdict> = (0..6).map(|_| patience.failed(&[Action::Cordon], Kind::Hiccup, now())).collect();
        assert_eq!(verdicts.iter().map(|it| wait(*it)).collect::<Vec<_>>(), [1, 2, 4, 30, 60, 120]);
        assert!(verdicts[..3].iter().all(|it| matches!(it, Verdict::Soon(_))));
        assert!(verdicts[3..].iter().all(|it| matches!(it, Verdict::Report(_))));
    }

    #[test]
    fn an_owner_does_not_wait_for_minutes_for_an_api_server_that_was_away() {
        let eject = [Action::Together(vec![vec![Action::Mark(crate::observed::Marks::ALL)], vec![Action::Cordon]])];
        let mut patience = Patience::default();
        let waits: Vec<i64> = (0..6).map(|_| wait(patience.failed(&eject, Kind::Hiccup, now()))).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5, 5]);
        // What is refused is refused until somebody does something about it.
        let mut patience = Patience::default();
        let waits: Vec<i64> = (0..3).map(|_| wait(patience.failed(&eject, Kind::Refusal, now()))).collect();
        assert_eq!(waits, [30, 60, 120]);
    }

    #[test]
    fn a_look_that_is_always_too_early_is_told_in_the_end() {
        let mut patience = Patience::default();
        for _ in 0..STALE {
            assert!(matches!(patience.failed(&[Action::Cordon], Kind::Stale, now()), Verdict::Soon(_)));
            assert_eq!(patience.wait_for(&[Action::Cordon], now()), None, "news is acted on");
        }
        assert!(matches!(patience.failed(&[Action::Cordon], Kind::Stale, now()), Verdict::Report(_)));
        assert!(patience.wait_for(&[Action::Cordon], now()).is_some());
    }

    #[test]
    fn other_acts_need_not_wait() {
        let mut patience = Patience::default();
        patience.failed(&[Action::Cordon], Kind::Refusal, now());
        assert!(patience.wait_for(&[Action::Cordon], now()).is_some());
        assert_eq!(patience.wait_for(&[Action::Uncordon], now()), None);
        assert_eq!(patience.wait_for(&[Action::Cordon], now() + SignedDuration::from_secs(30)), None);
        patience.succeeded();
        assert_eq!(patience.wait_for(&[Action::Cordon], now()), None);
    }

    #[test]
    fn it_is_the_same_that_is_tried_when_only_pods_and_times_differ() {
        let pod = |name: &str| PodKey { namespace: "a".to_owned(), name: name.to_owned(), uid: name.to_owned() };
        let tried = |name: &str, at: Timestamp| {
            let standing = Standing { shutdown_started_at: Some(at), ..Standing::unknown() };
            vec![Action::Store(Box::new(standing)), Action::Evict(vec![pod(name)])]
        };
        let mut patience = Patience::default();
        patience.failed(&tried("one", now()), Kind::Refusal, now());
        assert!(patience.wait_for(&tried("two", now() + LONGEST), now()).is_some());
        assert_eq!(wait(patience.failed(&tried("two", now() + LONGEST), Kind::Refusal, now())), 60);
    }

    #[test]
    fn a_wait_that_is_doubled_for_ever_stays_a_wait() {
        assert_eq!(after(now(), FIRST, 1_000), now() + LONGEST);
    }
}
