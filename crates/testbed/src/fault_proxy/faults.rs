//! Counts writes and decides which fault applies to which write.

use std::sync::{Mutex, MutexGuard};

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::sync::Notify;

use super::kill::kill;

/// User agents whose writes are counted.
const COUNTED_AGENTS: [&str; 2] = ["5spot/", "5spot-reclaim-agent/"];
/// Events are published in the background, so their position differs between runs and they are not counted.
const EVENTS: &str = "/apis/events.k8s.io/";

/// A write that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub method: Method,
    /// Without the query.
    pub path: String,
    /// The status code of the API server, or of the proxy if it rejected the write.
    pub status: StatusCode,
}

/// The response to a write that is not forwarded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    /// In seconds.
    pub(super) retry_after: Option<u32>,
    pub(super) sender: Sender,
}

/// Who rejects a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sender {
    /// A load balancer, or API priority and fairness: plain text.
    Server,
    /// An admission webhook: a `Status`, with the time in its details too.
    Webhook,
}

/// The counted writes and the armed fault.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<Write>,
    /// The number of the write, counted from the start, and its fault.
    fault: Option<(usize, Fault)>,
    /// How many of the next writes are rejected, and how.
    rejections: Option<(usize, Rejection)>,
    epoch: Epoch,
    holds_request: bool,
}

/// The fault to inject at a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Kill the process with this ID after the write.
    Kill(u32),
    DropResponse,
    HoldResponse,
    HoldRequest,
}

/// What the proxy does with the response to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseAction {
    Forward,
    Drop,
    Hold,
}

/// The number of kills so far. A connection belongs to the epoch in which it was accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Epoch(u32);

impl Faults {
    pub(super) fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    /// Injects the fault at the nth write from now.
    pub(super) fn arm(&self, nth: usize, fault: Fault) {
        let mut state = self.lock();
        let number = state.writes.len() + nth;
        state.fault = Some((number, fault));
    }

    pub(super) fn reject_next(&self, times: usize, rejection: Rejection) {
        self.lock().rejections = Some((times, rejection));
    }

    /// The rejection of the next write, if it is to be rejected. Consumes one rejection.
    pub(super) fn take_rejection(&self) -> Option<Rejection> {
        let mut state = self.lock();
        let (left, rejection) = state.rejections.as_mut().filter(|(left, _)| *left > 0)?;
        *left -= 1;
        Some(*rejection)
    }

    pub(super) fn clear(&self) {
        let mut state = self.lock();
        (state.fault, state.rejections) = (None, None);
    }

    /// Waits for [`Self::release`].
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }

    /// Waits for [`Self::release`] if the next write is to be held before it is forwarded.
    pub(super) async fn hold_next_request(&self) {
        {
            let mut state = self.lock();
            let next = state.writes.len() + 1;
            let held = state.fault.take_if(|fault| matches!(fault, (at, Fault::HoldRequest) if *at == next));
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

    /// Releases what is held, or the next request or response to be held.
    pub(super) fn release(&self) {
        self.released.notify_one();
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.lock().epoch
    }

    /// Records a write and injects its fault. A kill starts a new epoch, which invalidates the requests that are waiting
    /// for their turn.
    pub(super) fn record(&self, write: Write) -> ResponseAction {
        let mut state = self.lock();
        state.writes.push(write);
        let count = state.writes.len();
        match state.fault.take_if(|(number, _)| *number == count) {
            Some((_, Fault::Kill(pid))) => {
                state.epoch = Epoch(state.epoch.0 + 1);
                // Fails only if the process has already exited.
                let _ = kill(pid);
                ResponseAction::Drop
            }
            Some((_, Fault::DropResponse)) => ResponseAction::Drop,
            Some((_, Fault::HoldResponse)) => ResponseAction::Hold,
            Some((_, Fault::HoldRequest)) | None => ResponseAction::Forward,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding the lock")
    }
}

/// Whether a request comes from a program whose writes are counted.
pub(super) fn is_from_counted_agent(request: &Parts) -> bool {
    let agent = request.headers.get(USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default();
    COUNTED_AGENTS.iter().any(|prefix| agent.starts_with(prefix.as_bytes()))
}

/// A dry run writes nothing.
pub(super) fn is_counted_write(request: &Parts) -> bool {
    let is_dry_run = request.uri.query().is_some_and(|query| query.contains("dryRun=All"));
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&request.method) && !is_dry_run;
    writes && is_from_counted_agent(request) && !request.uri.path().starts_with(EVENTS)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn request(method: Method, path: &str, agent: &str) -> Parts {
        Request::builder().method(method).uri(path).header(USER_AGENT, agent).body(()).unwrap().into_parts().0
    }

    #[test]
    fn counts_only_writes_of_the_programs_except_events() {
        let node = "/api/v1/nodes/n1";
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(is_counted_write(&request(method.clone(), node, "5spot/0.1.0")));
            assert!(is_counted_write(&request(method.clone(), node, "5spot-reclaim-agent/0.1.0")));
            assert!(!is_counted_write(&request(method, node, "manager/v1.13")));
        }
        assert!(!is_counted_write(&request(Method::GET, node, "5spot/0.1.0")));
        assert!(!is_counted_write(&request(Method::PATCH, "/api/v1/nodes/n1?dryRun=All", "5spot/0.1.0")));
        let events = "/apis/events.k8s.io/v1/namespaces/a/events";
        assert!(!is_counted_write(&request(Method::POST, events, "5spot/0.1.0")));
    }
}
