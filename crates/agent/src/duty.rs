//! The agent's duty in a cluster: hears its orders, asks for the machine when a match is found, and looks again when the
//! request has been cleared. One thread does all of it; another one listens to the kernel.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fivespot_cli_support::Failure;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use crate::config::{Config, ConfigError};
use crate::lookout::Found;
use crate::output::Line;
use crate::post::Post;
use crate::probe::Answers;
use crate::request::Wanted;
use crate::store::{AnotherMachine, Store};

/// A Node that is another machine's is not asked again for each of many matches.
const AFTER_A_REFUSAL: Duration = Duration::from_secs(30);

type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// What has been heard of the orders.
#[derive(Debug, PartialEq, Eq)]
enum Orders {
    Unheard,
    Nothing,
    Unreadable(ConfigError),
    Armed(Config),
}

/// How far a request is.
enum Errand {
    /// Nothing is asked for.
    None,
    /// On its way. It is stored whatever becomes of the process that it is for.
    Asking(Wanted, Later<Result<(), AnotherMachine>>),
    /// Stored, until somebody clears it. Further matches ask for nothing more.
    Stored(Later<()>),
    /// The Node is another machine's.
    Refused(Later<()>),
}

enum Turn {
    Asked(Result<(), AnotherMachine>),
    Cleared,
    Rested,
}

impl Errand {
    async fn turn(&mut self) -> Turn {
        match self {
            Errand::None => pending().await,
            Errand::Asking(_, asked) => Turn::Asked(asked.await),
            Errand::Stored(cleared) => {
                cleared.await;
                Turn::Cleared
            }
            Errand::Refused(rested) => {
                rested.await;
                Turn::Rested
            }
        }
    }
}

/// What a duty is made of.
pub(crate) struct Parts {
    pub(crate) post: Arc<Post>,
    pub(crate) node: String,
    /// Where the orders are, in words.
    pub(crate) source: String,
    pub(crate) detector: &'static str,
    /// Whether that looks by itself, every so often.
    pub(crate) polls: bool,
    /// `None` in a dry run: nothing is asked for, and matches are lines.
    pub(crate) store: Option<Store>,
    pub(crate) answers: Option<Arc<Answers>>,
}

pub(crate) struct Duty {
    parts: Parts,
    orders: Orders,
    errand: Errand,
    comparing: Option<Later<Result<(), AnotherMachine>>>,
    stranger: Option<AnotherMachine>,
}

/// What a duty hears.
pub(crate) struct Ears {
    pub(crate) orders: BoxStream<'static, Option<String>>,
    pub(crate) found: mpsc::UnboundedReceiver<Found>,
    /// Why the detector has ended.
    pub(crate) ended: oneshot::Receiver<Failure>,
}

impl Duty {
    pub(crate) fn new(parts: Parts) -> Self {
        let duty = Duty { parts, orders: Orders::Unheard, errand: Errand::None, comparing: None, stranger: None };
        duty.say_how_it_is();
        duty
    }

    /// Does its duty until something fails that cannot be repaired from here.
    pub(crate) async fn serve(mut self, mut ears: Ears) -> Failure {
        loop {
            let done = tokio::select! {
                // The shortest way for what matters most.
                biased;
                Some(found) = ears.found.recv() => {
                    self.ask_for_the_machine(&found);
                    Ok(())
                }
                turn = self.errand.turn() => self.go_on(turn),
                Some(text) = ears.orders.next() => self.obey(text.as_deref()),
                compared = compared(&mut self.comparing) => self.recognise(compared),
                // It cannot end without a reason: a thread that panics ends the process.
                ended = &mut ears.ended => Err(ended.unwrap_or_else(|_| Failure::Failed("the detector has ended".into()))),
            };
            if let Err(failure) = done {
                return failure;
            }
        }
    }

    fn ask_for_the_machine(&mut self, found: &Found) {
        if let (Errand::None, Some(store)) = (&self.errand, &self.parts.store) {
            let wanted = Wanted::because_of(found, Timestamp::now());
            self.errand = Errand::Asking(wanted.clone(), Box::pin(store.clone().request(wanted)));
        }
    }

    fn go_on(&mut self, turn: Turn) -> Result<(), Failure> {
        let node = &self.parts.node;
        match (turn, &self.errand, &self.parts.store) {
            (Turn::Asked(Ok(())), Errand::Asking(wanted, _), Some(store)) => {
                info!(node, reason = wanted.reason(), "the request is stored");
                self.errand = Errand::Stored(Box::pin(store.clone().cleared()));
                self.recognise(Ok(()))?;
            }
            (Turn::Asked(Err(another)), ..) => {
                self.errand = Errand::Refused(Box::pin(tokio::time::sleep(AFTER_A_REFUSAL)));
                self.recognise(Err(another))?;
            }
            (Turn::Cleared, ..) => {
                info!(node, "the request has been cleared: looking at every process again");
                self.errand = Errand::None;
                self.parts.post.look_again()?;
            }
            (Turn::Rested | Turn::Asked(Ok(())), ..) => self.errand = Errand::None,
        }
        Ok(())
    }

    /// Orders that cannot be read change nothing: those before them hold.
    pub(crate) fn obey(&mut self, text: Option<&str>) -> Result<(), Failure> {
        match text.map(Config::parse).transpose() {
            Ok(config) => return self.take(config.unwrap_or_else(Config::nothing)),
            Err(reason) => {
                let (what, kept) = (&self.parts.source, matches!(self.orders, Orders::Armed(_)));
                error!(what, %reason, last_orders_hold = kept, "it cannot be read: correct it");
                if !kept {
                    self.orders = Orders::Unreadable(reason);
                }
            }
        }
        self.say_how_it_is();
        Ok(())
    }

    /// Arms anew, if these are other orders than before.
    pub(crate) fn take(&mut self, config: Config) -> Result<(), Failure> {
        let orders = if config.patterns.is_empty() { Orders::Nothing } else { Orders::Armed(config) };
        if self.orders == orders {
            return Ok(());
        }
        self.orders = orders;
        match &self.orders {
            Orders::Armed(config) => self.arm(&config.clone())?,
            Orders::Unheard | Orders::Nothing | Orders::Unreadable(_) => self.stand_down(),
        }
        self.say_how_it_is();
        Ok(())
    }

    fn arm(&mut self, config: &Config) -> Result<(), Failure> {
        let Parts { node, detector, store, .. } = &self.parts;
        if matches!(self.errand, Errand::Refused(_)) {
            self.errand = Errand::None;
        }
        self.stranger = None;
        self.comparing = store.clone().map(|it| -> Later<_> { Box::pin(it.compare()) });
        let patterns = config.patterns.commands.len() + config.patterns.argv_substrings.len();
        info!(node, detector, patterns, "armed");
        if store.is_none() {
            Line::Armed { detector }.write().map_err(|it| Failure::failed("standard output", &it))?;
        }
        self.parts.post.arm(config)
    }

    /// Nobody asks for anything any more: neither does a request that is still on its way.
    fn stand_down(&mut self) {
        let Parts { node, source, post, .. } = &self.parts;
        post.disarm();
        if let Errand::Asking(wanted, _) = &self.errand {
            warn!(node, reason = wanted.reason(), "the request is dropped: nothing is to be looked for any more");
        }
        (self.errand, self.comparing, self.stranger) = (Errand::None, None, None);
        info!(node, what = source, "nothing to look for");
    }

    /// A machine that was set up anew may find the Node of the one before it, for a while.
    fn recognise(&mut self, compared: Result<(), AnotherMachine>) -> Result<(), Failure> {
        let node = &self.parts.node;
        let was_a_stranger = std::mem::replace(&mut self.stranger, compared.err()).is_some();
        if let Some(another) = &self.stranger {
            error!("{another}");
            let recognised = self.parts.store.clone().map(Store::recognised);
            self.comparing = recognised.map(|it| -> Later<_> { Box::pin(it.map(Ok)) });
        } else {
            self.comparing = None;
        }
        self.say_how_it_is();
        if was_a_stranger && self.stranger.is_none() {
            info!(node, "the Node is this machine's after all");
            if let Errand::None | Errand::Refused(_) = self.errand {
                self.errand = Errand::None;
                self.parts.post.look_again()?;
            }
        }
        Ok(())
    }

    /// To whoever asks by a probe.
    fn say_how_it_is(&self) {
        let Some(answers) = &self.parts.answers else { return };
        let source = &self.parts.source;
        match (&self.orders, &self.stranger) {
            (Orders::Armed(_), Some(another)) => answers.not_armed(&another.to_string()),
            (Orders::Armed(config), None) => {
                answers.armed(if self.parts.polls { config.poll_interval } else { Duration::ZERO });
            }
            (Orders::Unheard, _) => answers.not_armed(&format!("{source} has not been read yet")),
            (Orders::Nothing, _) => answers.not_armed(&format!("{source} is not there, or names nothing to look for")),
            (Orders::Unreadable(reason), _) => answers.not_armed(&format!("{source}: {reason}")),
        }
    }
}

async fn compared(comparing: &mut Option<Later<Result<(), AnotherMachine>>>) -> Result<(), AnotherMachine> {
    match comparing {
        Some(comparing) => comparing.await,
        None => pending().await,
    }
}
