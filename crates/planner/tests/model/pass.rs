//! One pass of the controller: it looks once, and sends the requests of its plan one by one.

use super::request::{Request, Subject};
use super::server::Answer;
use super::state::{Caches, Lost, Object, World};
use super::view::View;

/// A plan that is being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    /// What it was decided from.
    pub(crate) view: View,
    /// The version of the object that the next write of it names: the one seen, or the one that this pass wrote itself.
    pub(crate) known: Option<Object>,
    /// How many of its requests were sent.
    sent: u8,
    /// Whether one was refused for good, which is all that there is left to tell.
    failed: bool,
}

impl World {
    /// Begins a pass with what is seen now, if there is anything to do.
    pub(crate) fn look(&mut self) {
        let failed = self.caches.machine.filter(|it| it.is_ours() && it.failed);
        if let Some(machine) = failed
            && self.lost.is_none_or(|it| it.uid != machine.uid)
        {
            self.lost = Some(Lost { uid: machine.uid, waits: true });
        }
        let view = View::of(self);
        self.pass =
            (!view.requests().is_empty()).then_some(Pass { view, known: view.caches.object, sent: 0, failed: false });
    }

    /// Sends the next request of the pass.
    pub(crate) fn send(&mut self) {
        if let Some(pass) = self.pass {
            self.send_next(&pass.view.requests());
        }
    }

    /// Sends all that is left of the pass.
    pub(crate) fn finish_pass(&mut self) {
        let Some(pass) = self.pass else { return };
        let requests = pass.view.requests();
        while self.pass.is_some() {
            self.send_next(&requests);
        }
    }

    /// Sends the next of these requests; one that is not carried out ends the pass.
    fn send_next(&mut self, requests: &[Request]) {
        let Some(pass) = self.pass.take() else { return };
        let request = if pass.failed { &Request::ReportFailure } else { &requests[usize::from(pass.sent)] };
        match self.receive(&pass, request) {
            Answer::Done => {
                self.learn(request);
                let known = if matches!(request.subject(), Some(Subject::Object)) { self.object } else { pass.known };
                let next = Pass { known, sent: pass.sent + 1, ..pass };
                let more = !pass.failed && usize::from(next.sent) < requests.len();
                self.pass = more.then_some(next);
            }
            Answer::Taken => self.pass = Some(Pass { failed: true, ..pass }),
            Answer::Outdated | Answer::Silence => {}
        }
    }

    /// The answer to a write is newer than the cache, and is looked at in its place.
    fn learn(&mut self, request: &Request) {
        match request.subject() {
            Some(Subject::Object) => self.caches.object = self.object,
            Some(Subject::Machine) => self.caches.machine = self.there.machine,
            Some(Subject::Node) => self.caches.node = self.there.node,
            None => {}
        }
    }

    /// Sends the next request, and never hears whether it was carried out. Whether the object was written is found out by
    /// reading it: a pass that decided from less than was stored before could begin what is over.
    pub(crate) fn lose_answer(&mut self) {
        let caches = self.caches;
        self.send();
        self.caches = Caches { object: self.caches.object, ..caches };
        self.pass = None;
    }

    /// The process ends, and a new one begins with a list of what there is.
    pub(crate) fn crash(&mut self) {
        self.pass = None;
        self.lost = None;
        self.catch_up();
    }
}
