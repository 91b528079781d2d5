//! The writes that count, and the one after which something goes wrong.

use std::sync::{Mutex, MutexGuard};

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::sync::Notify;

use super::killing::kill;

/// How a client calls itself whose writes count.
const COUNTED: [&str; 2] = ["5spot/", "5spot-reclaim-agent/"];
/// Where Events are written. They are told behind the work, so no two runs have them at the same place.
const EVENTS: &str = "/apis/events.k8s.io/";

/// One write that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// What the API server answered, or the proxy in its place.
    pub status: StatusCode,
}

/// The answer to a write that the API server does not get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// How long to wait before the next, in seconds.
    pub(super) retry_after: Option<u32>,
}

/// What was counted, and what is to happen.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
    /// What is held may go.
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<Write>,
    mishap: Option<(usize, Mishap)>,
    /// How many of the next writes are refused, and how.
    refusals: Option<(usize, Refusal)>,
    life: Life,
    /// Whether a write is kept from the API server.
    holds_request: bool,
}

/// What goes wrong with the last of so many writes in all.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mishap {
    /// The process of this id is killed.
    Kill(u32),
    /// Whoever sent the write does not get its answer.
    LoseAnswer,
    /// Whoever sent the write waits for its answer until it is let go.
    HoldAnswer,
    /// The API server does not get the write until it is let go.
    HoldRequest,
}

/// What becomes of the answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Given,
    Lost,
    Held,
}

/// How many kills there were before. A connection belongs to the life in which it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Life(u32);

impl Ledger {
    pub(super) fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    /// Has something go wrong after the nth write from now on.
    pub(super) fn arm(&self, nth: usize, mishap: Mishap) {
        let mut state = self.lock();
        let after = state.writes.len() + nth;
        state.mishap = Some((after, mishap));
    }

    /// Has the next writes refused, so many of them.
    pub(super) fn refuse(&self, times: usize, refusal: Refusal) {
        self.lock().refusals = Some((times, refusal));
    }

    /// How the next write is refused, if it is.
    pub(super) fn refusal_of_next(&self) -> Option<Refusal> {
        let mut state = self.lock();
        let (left, refusal) = state.refusals.as_mut().filter(|(left, _)| *left > 0)?;
        *left -= 1;
        Some(*refusal)
    }

    pub(super) fn disarm(&self) {
        let mut state = self.lock();
        (state.mishap, state.refusals) = (None, None);
    }

    /// Waits until what is held may go.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }

    /// Waits, if the next write is to be held before the API server gets it, until it may go.
    pub(super) async fn next_may_go(&self) {
        {
            let mut state = self.lock();
            let next = state.writes.len() + 1;
            let held = state.mishap.take_if(|it| matches!(it, (at, Mishap::HoldRequest) if *at == next));
            if held.is_none() {
                return;
            }
            state.holds_request = true;
        }
        self.released().await;
        self.lock().holds_request = false;
    }

    pub(super) fn holds_request(&self) -> bool {
        self.lock().holds_request
    }

    /// Lets go what is held, or the next that is.
    pub(super) fn release(&self) {
        self.released.notify_one();
    }

    pub(super) fn life(&self) -> Life {
        self.lock().life
    }

    /// Takes a write down, and has go wrong what is to. Whoever waits for its turn at a kill finds itself in another life.
    pub(super) fn record(&self, write: Write) -> Answer {
        let mut state = self.lock();
        state.writes.push(write);
        let count = state.writes.len();
        match state.mishap.take_if(|(after, _)| *after == count) {
            Some((_, Mishap::Kill(pid))) => {
                state.life = Life(state.life.0 + 1);
                // One that has ended by itself is as dead.
                let _ = kill(pid);
                Answer::Lost
            }
            Some((_, Mishap::LoseAnswer)) => Answer::Lost,
            Some((_, Mishap::HoldAnswer)) => Answer::Held,
            Some((_, Mishap::HoldRequest)) | None => Answer::Given,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

/// Whether a request comes from a program whose writes count.
pub(super) fn is_ours(request: &Parts) -> bool {
    let name = request.headers.get(USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default();
    COUNTED.iter().any(|it| name.starts_with(it.as_bytes()))
}

/// Whether a request is a write that counts.
pub(super) fn counts(request: &Parts) -> bool {
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&request.method);
    writes && is_ours(request) && !request.uri.path().starts_with(EVENTS)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn request(method: Method, path: &str, agent: &str) -> Parts {
        Request::builder().method(method).uri(path).header(USER_AGENT, agent).body(()).unwrap().into_parts().0
    }

    #[test]
    fn writes_of_the_program_count_and_nothing_else() {
        let node = "/api/v1/nodes/n1";
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(counts(&request(method.clone(), node, "5spot/0.1.0")));
            assert!(counts(&request(method.clone(), node, "5spot-reclaim-agent/0.1.0")));
            assert!(!counts(&request(method, node, "manager/v1.13")));
        }
        assert!(!counts(&request(Method::GET, node, "5spot/0.1.0")));
        let events = "/apis/events.k8s.io/v1/namespaces/a/events";
        assert!(!counts(&request(Method::POST, events, "5spot/0.1.0")));
    }
}
