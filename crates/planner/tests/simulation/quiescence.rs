//! Runs a world without further disturbances until nothing changes.
//!
//! Reconciles happen only when a watch event or `wake_at` triggers one, so a decision that forgets to be woken is found.

use std::mem;

use jiff::SignedDuration;

use super::observe::{Decided, View};
use super::reconcile::Reconcile;
use super::request::Request;
use super::server::Response;
use super::state::{Caches, Failure, Object, World};
use super::time::Seconds;

/// More reconciles than any world needs to come to rest.
pub(crate) const MAX_RECONCILES: usize = 60;

/// Time between two reconciles, unless `wake_at` is later.
const ROUND: SignedDuration = SignedDuration::from_secs(30);

/// After every deadline and backoff.
const LATER: SignedDuration = SignedDuration::from_hours(1);

/// What triggers the next reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Reconcile,
    /// Nothing: the world is at rest, the object is deleted, or an invariant was violated.
    Rest,
}

/// Why a world does not come to rest as it should.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unsettled {
    /// Not within [`MAX_RECONCILES`].
    Endless,
    /// A reconcile was requested immediately although nothing changed.
    BusyLoop,
    /// No reconcile was requested although another one would do or report something.
    NotWoken(Vec<Request>),
    /// A request that was based on the current state had no effect.
    Ineffective(Request, Response),
}

impl World {
    pub(crate) fn settle(self) -> Result<World, Unsettled> {
        self.settle_checking(|_, _| {})
    }

    /// Settles and calls `check` with each decision.
    pub(crate) fn settle_checking(mut self, mut check: impl FnMut(&World, &Decided)) -> Result<World, Unsettled> {
        for _ in 0..MAX_RECONCILES {
            if self.round(&mut check)? == Next::Rest {
                return Ok(self);
            }
        }
        Err(Unsettled::Endless)
    }

    /// One reconcile, and what the other actors do until the next one.
    pub(crate) fn round(&mut self, check: &mut impl FnMut(&World, &Decided)) -> Result<Next, Unsettled> {
        let before = *self;
        let Some(decided) = View::of(self).decide() else { return Ok(Next::Rest) };
        check(self, &decided);
        let outcome = self.execute(&decided)?;
        if self.violated.is_some() {
            return Ok(Next::Rest);
        }
        let written = *self;
        self.wait_a_round();
        if self.object.is_none() {
            return Ok(Next::Rest);
        }
        if outcome == Outcome::Failed || self.watched() != written.watched() {
            return Ok(Next::Reconcile);
        }
        let Some(wake_at) = decided.plan.wake_at else {
            let missed: Vec<Request> =
                [self.now, self.now + LATER].into_iter().flat_map(|now| self.requests_at(now)).collect();
            return if missed.is_empty() { Ok(Next::Rest) } else { Err(Unsettled::NotWoken(missed)) };
        };
        let wake_at = Seconds::from_timestamp(wake_at);
        if self.watched() == before.watched() && wake_at <= before.now {
            return Err(Unsettled::BusyLoop);
        }
        self.now = self.now.max(wake_at);
        Ok(Next::Reconcile)
    }

    /// Time passes, the other actors act, and the caches receive all events.
    pub(crate) fn wait_a_round(&mut self) {
        self.now = self.now + ROUND;
        self.others_act();
        self.sync_caches();
    }

    /// What a reconcile would do at another time.
    fn requests_at(&self, now: Seconds) -> Vec<Request> {
        View { now, ..View::of(self) }.decide().map_or_else(Vec::new, |it| it.requests().to_vec())
    }

    /// Executes a plan that was decided from the current state.
    fn execute(&mut self, decided: &Decided) -> Result<Outcome, Unsettled> {
        let mut reconcile = Reconcile::new(View::of(self));
        for request in decided.requests() {
            match self.send(&mut reconcile, request) {
                _ if self.violated.is_some() => return Ok(Outcome::Failed),
                Response::Done => {}
                // The name of a child is known to be taken only once its ref is stored.
                Response::NameTaken => {
                    self.send(&mut reconcile, &Request::WriteFailure);
                    return Ok(Outcome::Failed);
                }
                response @ (Response::Unchanged | Response::Conflict | Response::Unreachable) => {
                    return Err(Unsettled::Ineffective(request.clone(), response));
                }
            }
        }
        Ok(Outcome::Succeeded)
    }

    /// The part of the world that is watched. Pods and provider objects are polled.
    fn watched(&self) -> World {
        let mut watched = *self;
        (watched.servers.pod, watched.servers.bootstrap, watched.servers.infrastructure) = (None, None, None);
        watched.now = Seconds::ZERO;
        watched.sync_caches();
        watched
    }

    /// The same world at time zero. Decisions depend only on how long ago something happened.
    pub(crate) fn rebased(mut self) -> World {
        let now = mem::replace(&mut self.now, Seconds::ZERO);
        let rebase = |object: Option<Object>| {
            object.map(|it| Object {
                shutdown_started_at: it.shutdown_started_at.map(|at| at.since(now)),
                // How long ago a backoff ended does not matter.
                failure: it.failure.map(|it| Failure { retry_at: it.retry_at.since(now).max(Seconds(-1)), ..it }),
                ..it
            })
        };
        self.object = rebase(self.object);
        self.caches = Caches { object: rebase(self.caches.object), ..self.caches };
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Succeeded,
    /// The failure was reported; the controller retries.
    Failed,
}
