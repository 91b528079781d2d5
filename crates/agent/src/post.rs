//! The post: what is looked for, shared by the thread that hears of processes and the one that hears of orders.
//!
//! Guarantee: nothing that is started while the orders change is missed. They are changed first, and all that runs is
//! looked at afterwards; both under one lock, so whatever is heard of meanwhile is looked at with the new ones.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use fivespot_cli_support::Failure;
use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;
use tracing::info;

use crate::config::Config;
use crate::detect::Hint;
use crate::lookout::{Found, Lookout};
use crate::output::Line;
use crate::probe::Answers;

/// Whom matches are told.
pub(crate) enum Voice {
    /// Whoever reads standard output.
    Lines,
    /// Whoever asks the API server for the machine.
    Requests(UnboundedSender<Found>),
}

pub(crate) struct Post {
    inner: Mutex<Inner>,
    changed: Condvar,
    voice: Voice,
    answers: Option<Arc<Answers>>,
}

struct Inner {
    lookout: Lookout,
    poll_interval: Option<Duration>,
}

impl Post {
    /// A post without orders.
    pub(crate) fn new(lookout: Lookout, voice: Voice, answers: Option<Arc<Answers>>) -> Self {
        let inner = Inner { lookout, poll_interval: None };
        Post { inner: Mutex::new(inner), changed: Condvar::new(), voice, answers }
    }

    /// Looks for this from now on, and at all that runs already.
    pub(crate) fn arm(&self, config: &Config) -> Result<(), Failure> {
        let mut inner = self.lock();
        inner.lookout.look_for(config.patterns.clone());
        inner.poll_interval = (!config.patterns.is_empty()).then_some(config.poll_interval);
        self.changed.notify_all();
        self.look_and_tell(&mut inner.lookout, Hint::All).map(drop)
    }

    /// Looks for nothing.
    pub(crate) fn disarm(&self) {
        let mut inner = self.lock();
        inner.lookout.look_for(crate::matcher::Patterns::default());
        inner.poll_interval = None;
    }

    /// Looks at all that runs as if nothing had been told yet.
    pub(crate) fn look_again(&self) -> Result<(), Failure> {
        let mut inner = self.lock();
        inner.lookout.forget();
        self.look_and_tell(&mut inner.lookout, Hint::All).map(drop)
    }

    /// Looks where the detector points.
    pub(crate) fn look(&self, hint: Hint) -> Result<(), Failure> {
        self.look_and_tell(&mut self.lock().lookout, hint).map(drop)
    }

    /// For who has to look by himself: waits until it is time to look again, for ever if there is nothing to look for.
    pub(crate) fn rest(&self) {
        let inner = self.lock();
        match inner.poll_interval {
            Some(interval) => drop(self.changed.wait_timeout(inner, interval)),
            None => drop(self.changed.wait_while(inner, |it| it.poll_interval.is_none())),
        }
    }

    fn look_and_tell(&self, lookout: &mut Lookout, hint: Hint) -> Result<(), Failure> {
        let seen = lookout.look(hint).map_err(|it| Failure::failed("the list of processes", &it))?;
        for found in seen.matches {
            self.tell(found).map_err(|it| Failure::failed("standard output", &it))?;
        }
        if let Some(answers) = &self.answers {
            seen.probes.into_iter().for_each(|pid| answers.answer(pid));
        }
        Ok(())
    }

    fn tell(&self, found: Found) -> io::Result<()> {
        match &self.voice {
            Voice::Lines => Line::of(&found, Timestamp::now()).write(),
            Voice::Requests(requests) => {
                let (pid, what) = (found.pid, found.what.clone());
                // Nobody hears it only when the process ends. The request goes first, and then the log.
                let _ = requests.send(found);
                info!(pid, comm = what.comm, matched = what.matched, "match");
                Ok(())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder panics")
    }
}
