//! One object, its children, a Node with a pod, and a Cluster API that finishes what it is asked, paused or not: enough
//! to carry out decisions to their end, and small enough to start from everywhere.

mod acts;
mod claims;
mod eyes;
mod facts;
mod others;
mod parts;
mod starts;

use fivespot_api::Phase;
use jiff::Timestamp;

use crate::drain::DrainAction;
use crate::observed::{AgentRollout, Child, Cluster, Cordon, Machine, ProviderChild, Stored};
use crate::plan::Plan;

pub(super) use acts::PARTS;
pub(super) use eyes::{DRAIN_TIMEOUT, GRACEFUL_SHUTDOWN_TIMEOUT};
pub(super) use starts::every_start;

/// More passes than any way to an end needs.
const BOUND: usize = 60;

/// What people ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub(super) struct Asked {
    pub(super) deleted: bool,
    pub(super) killed: bool,
    pub(super) enabled: bool,
    pub(super) schedule: Schedule,
    /// The owner asks for the machine on its Node, or will as soon as there is one.
    pub(super) reclaim: bool,
    /// There are programs for which the owner may ask.
    pub(super) orders: bool,
}

/// What the schedule says, for as long as a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    Open,
    Closed,
    /// It does not parse.
    Invalid,
}

/// Whether the cluster that the Node lives in can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Answers,
    /// It is being connected, for this many passes more.
    Sought(u8),
    /// It does not answer, for this many passes more.
    Silent(u8),
    Never,
}

/// The pod on the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pod {
    /// It leaves when it is asked to.
    Willing,
    Leaving,
    /// A disruption budget keeps it where it is.
    Stubborn,
}

impl Pod {
    fn verdict(self) -> DrainAction {
        match self {
            Pod::Willing | Pod::Stubborn => DrainAction::Evict,
            Pod::Leaving => DrainAction::Wait,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    pub(super) asked: Asked,
    pub(super) cluster: Cluster,
    pub(super) finalizer: bool,
    pub(super) phase: Option<Phase>,
    pub(super) stored: Stored,
    pub(super) machine: Child<Machine>,
    pub(super) bootstrap: Option<ProviderChild>,
    pub(super) infrastructure: Option<ProviderChild>,
    pub(super) node: Option<Cordon>,
    pub(super) agent: AgentRollout,
    pub(super) reach: Reach,
    pub(super) pod: Option<Pod>,
    /// What a process remembers of a machine that failed, and forgets when it dies.
    pub(super) recreate_backoff: Option<Timestamp>,
    pub(super) object_gone: bool,
    pub(super) now: Timestamp,
    /// How many machines have been made.
    pub(super) made: u32,
}

impl World {
    /// Passes, and what the rest of the world does between them, until nothing changes any more.
    pub(super) fn settle(self) -> World {
        self.settle_and_tell(|_, _| {})
    }

    /// The same, telling of each world on the way what is decided in it.
    pub(super) fn settle_and_tell(mut self, mut tell: impl FnMut(&World, &Plan)) -> World {
        for _ in 0..BOUND {
            if self.object_gone || !self.turn(&mut tell) {
                return self;
            }
        }
        panic!("no rest after {BOUND} passes: {self:#?}");
    }

    /// One pass, and what others do until the next. Says whether there is a next: others did something that a watch tells
    /// of, or the pass asked to be woken. What it wrote itself is no news to it.
    pub(super) fn turn(&mut self, tell: &mut impl FnMut(&World, &Plan)) -> bool {
        self.remember();
        let before = self.clone();
        let (seen, plan) = self.look();
        tell(self, &plan);
        self.pass(&plan, &seen);
        let written = self.clone();
        self.others_act();
        if self.object_gone || self.as_watched() != written.as_watched() {
            return true;
        }
        let changed = self.as_watched() != before.as_watched();
        let Some(at) = plan.wake_at else {
            let again = self.decide();
            assert_eq!(again.steps, Vec::new(), "nobody looks again, and there is something to do: {self:#?}");
            assert_eq!(again.status.phase, plan.status.phase, "nobody looks again, and it is over: {self:#?}");
            return false;
        };
        assert!(changed || at > before.now, "it is looked at again at once, for nothing: {self:#?}\n{plan:#?}");
        self.now = self.now.max(at);
        true
    }

    /// What a watch tells of. Pods and provider objects are looked at, and time passes.
    fn as_watched(&self) -> World {
        let now = Timestamp::UNIX_EPOCH;
        World { pod: None, bootstrap: None, infrastructure: None, recreate_backoff: None, now, ..self.clone() }
    }

    /// The process dies, and another one begins.
    pub(super) fn restart(&mut self) {
        self.recreate_backoff = None;
    }

    /// Whether all that matters is the same: times, and the names of machines that were made, do not.
    pub(super) fn is_like(&self, other: &World) -> bool {
        if self.object_gone {
            // The last status of an object that is gone is nobody's.
            return other.object_gone && self.nothing_of_ours() == other.nothing_of_ours();
        }
        self.without_names_and_times() == other.without_names_and_times()
    }

    fn without_names_and_times(&self) -> World {
        let mut it = self.clone();
        (it.now, it.recreate_backoff, it.made) = (Timestamp::UNIX_EPOCH, None, 0);
        // When a shutdown began of which nothing is left matters to nobody; an end that has to forget it says so.
        let under_way = it.stored.shutdown_started_at.filter(|_| !self.nothing_of_ours());
        it.stored.shutdown_started_at = under_way.map(|_| Timestamp::UNIX_EPOCH);
        if let Child::Managed(machine) = &mut it.machine {
            machine.uid.clear();
        }
        for adopted in [&mut it.bootstrap, &mut it.infrastructure].into_iter().flatten() {
            adopted.adopted_by = adopted.adopted_by.as_ref().map(|_| String::new());
        }
        if let Some(reclaim) = &mut it.stored.reclaim {
            reclaim.machine_uid.clear();
        }
        it
    }
}
