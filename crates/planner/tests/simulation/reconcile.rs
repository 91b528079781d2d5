//! One reconcile of the controller: it observes once, and sends the requests of its plan one by one.

use super::mutations::Mutation;
use super::observe::View;
use super::request::{Request, Target};
use super::server::Response;
use super::state::{Caches, Object, Standby, World};

/// A plan that is being executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reconcile {
    pub(crate) view: View,
    /// The version of the object that the next write carries: the one observed, or the one that this reconcile wrote.
    pub(crate) known: Option<Object>,
    /// How many requests were sent.
    sent: u8,
    /// Whether a request was rejected, so that only the failure remains to be reported.
    failed: bool,
}

impl Reconcile {
    pub(crate) fn new(view: View) -> Self {
        Reconcile { view, known: view.caches.object, sent: 0, failed: false }
    }
}

impl World {
    /// Observes and decides. There is no reconcile in progress afterwards if there is nothing to do.
    pub(crate) fn start_reconcile(&mut self) {
        if self.reread && View::of(self).decide().is_some_and(|it| !it.plan.steps.is_empty()) {
            self.caches.object = self.object;
            self.reread = false;
        }
        let view = View::of(self);
        let is_idle = view.decide().is_none_or(|it| it.requests().is_empty());
        self.reconcile = (!is_idle).then_some(Reconcile::new(view));
    }

    /// Sends the next request of the reconcile in progress.
    pub(crate) fn send_next(&mut self) {
        if let Some(decided) = self.reconcile.and_then(|it| it.view.decide()) {
            self.send_next_of(decided.requests());
        }
    }

    /// Sends all remaining requests of the reconcile in progress.
    pub(crate) fn finish_reconcile(&mut self) {
        let Some(decided) = self.reconcile.and_then(|it| it.view.decide()) else { return };
        while self.reconcile.is_some() {
            self.send_next_of(decided.requests());
        }
    }

    fn send_next_of(&mut self, requests: &[Request]) {
        let Some(mut reconcile) = self.reconcile.take() else { return };
        let request = if reconcile.failed { &Request::WriteFailure } else { &requests[usize::from(reconcile.sent)] };
        match self.send(&mut reconcile, request) {
            Response::Done | Response::Unchanged => {
                reconcile.sent += 1;
                let more = !reconcile.failed && usize::from(reconcile.sent) < requests.len();
                self.reconcile = more.then_some(reconcile);
            }
            Response::NameTaken => self.reconcile = Some(Reconcile { failed: true, ..reconcile }),
            Response::Conflict | Response::Unreachable => {}
        }
    }

    /// Sends one request. A response is newer than the cache and replaces what it has.
    pub(crate) fn send(&mut self, reconcile: &mut Reconcile, request: &Request) -> Response {
        let response = self.receive(reconcile, request);
        if response.is_success() {
            match request.target() {
                Target::Object => {
                    self.caches.object = self.object;
                    reconcile.known = self.object;
                }
                Target::Machine => self.caches.machine = self.servers.machine,
                Target::Node => self.caches.node = self.servers.node,
                Target::Uncached => {}
            }
        }
        response
    }

    /// Sends requests until one fails, and returns the last response. A failure is not reported.
    pub(crate) fn send_all(&mut self, reconcile: &mut Reconcile, requests: &[Request]) -> Response {
        let mut response = Response::Done;
        for request in requests {
            response = self.send(reconcile, request);
            if !response.is_success() {
                break;
            }
        }
        response
    }

    /// Sends the next request and loses its response. The object is read afterwards: a reconcile that decided from an
    /// older version than the one stored could start over what is done.
    pub(crate) fn lose_response(&mut self) {
        let caches = self.caches;
        self.send_next();
        self.caches = Caches { object: self.caches.object, ..caches };
        self.reconcile = None;
    }

    /// The process ends. A new one starts by listing everything.
    pub(crate) fn restart(&mut self) {
        (self.reconcile, self.reread) = (None, false);
        self.sync_caches();
    }

    /// The standby takes over with its own caches.
    pub(crate) fn take_over(&mut self) {
        if let Standby::Watching(caches) = self.standby {
            let is_last = self.budget.take_overs <= 1;
            self.standby = if is_last { Standby::Absent } else { Standby::Watching(self.caches) };
            self.caches = caches;
            (self.reconcile, self.reread) = (None, self.mutation != Some(Mutation::SkipReread));
        }
    }
}
