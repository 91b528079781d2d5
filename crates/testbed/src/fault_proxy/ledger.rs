//! The writes that count, and the one after which a process is killed.

use std::sync::{Mutex, MutexGuard};

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, StatusCode};

use super::killing::kill;

/// How a client calls itself whose writes count.
const COUNTED: &str = "5spot/";
/// Where Events are written. They are told behind the work, so no two runs have them at the same place.
const EVENTS: &str = "/apis/events.k8s.io/";

/// One write that the API server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// What the API server answered.
    pub status: StatusCode,
}

/// What was counted, and what is to happen.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<Write>,
    sentence: Option<Sentence>,
    life: Life,
}

/// Who is killed, and after how many writes in all.
#[derive(Debug)]
struct Sentence {
    after: usize,
    pid: u32,
}

/// How many kills there were before. A connection belongs to the life in which it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Life(u32);

impl Ledger {
    pub(super) fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    pub(super) fn arm(&self, nth: usize, pid: u32) {
        let mut state = self.lock();
        let after = state.writes.len() + nth;
        state.sentence = Some(Sentence { after, pid });
    }

    pub(super) fn disarm(&self) {
        self.lock().sentence = None;
    }

    pub(super) fn life(&self) -> Life {
        self.lock().life
    }

    /// Takes a write down, and kills if it was the one. Whoever waits for its turn then finds itself in another life.
    pub(super) fn record(&self, write: Write) {
        let mut state = self.lock();
        state.writes.push(write);
        let count = state.writes.len();
        if let Some(Sentence { pid, .. }) = state.sentence.take_if(|it| it.after == count) {
            state.life = Life(state.life.0 + 1);
            // One that has ended by itself is as dead.
            let _ = kill(pid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

/// Whether a request comes from a program whose writes count.
pub(super) fn is_ours(request: &Parts) -> bool {
    request.headers.get(USER_AGENT).is_some_and(|it| it.as_bytes().starts_with(COUNTED.as_bytes()))
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
            assert!(!counts(&request(method, node, "manager/v1.13")));
        }
        assert!(!counts(&request(Method::GET, node, "5spot/0.1.0")));
        let events = "/apis/events.k8s.io/v1/namespaces/a/events";
        assert!(!counts(&request(Method::POST, events, "5spot/0.1.0")));
    }
}
