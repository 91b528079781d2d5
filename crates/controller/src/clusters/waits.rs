//! How long one reconcile waits for its workload cluster.
//!
//! Each request has a timeout, but a reconcile sends many. A server that responds slowly to each must not keep an object from
//! its next reconcile, which may be the one in which the kill switch is on.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::runtime::permits::Urgency;
use crate::runtime::request::{Operation, RequestError, WORKLOAD_TIMEOUT};
use crate::runtime::workqueue::Key;

/// How long all requests of one reconcile to its workload cluster may take.
pub(crate) const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);

/// The waits of one reconcile.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    deadline: Instant,
    urgency: Urgency,
    /// The object became urgent: it has to be reconciled again as soon as possible.
    superseded: CancellationToken,
}

impl Waits {
    pub(super) fn new(urgency: Urgency) -> Self {
        Waits { deadline: Instant::now() + RECONCILE_TIMEOUT, urgency, superseded: CancellationToken::new() }
    }

    /// How long the next request may take.
    fn limit(&self) -> Duration {
        WORKLOAD_TIMEOUT.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    /// Waits for a response at most as long as the reconcile may.
    pub(super) async fn wait<T, R>(
        &self,
        operation: Operation,
        send: impl FnOnce(Duration, Operation) -> R,
    ) -> Result<T, RequestError>
    where
        R: Future<Output = Result<T, RequestError>>,
    {
        let limit = self.limit();
        if limit.is_zero() {
            return Err(RequestError::NoTimeLeft { operation, limit: RECONCILE_TIMEOUT });
        }
        tokio::select! {
            biased;
            () = self.superseded.cancelled() => Err(RequestError::Superseded { operation }),
            result = send(limit, operation.clone()) => result,
        }
    }

    /// Waits for something else than a response, at most until then.
    pub(super) async fn wait_until<T>(
        &self,
        until: Instant,
        operation: &Operation,
        future: impl Future<Output = T>,
    ) -> Result<T, RequestError> {
        tokio::select! {
            biased;
            () = self.superseded.cancelled() => Err(RequestError::Superseded { operation: operation.clone() }),
            result = tokio::time::timeout_at(until.min(self.deadline), future) => {
                result.map_err(|_| RequestError::NoTimeLeft { operation: operation.clone(), limit: WORKLOAD_TIMEOUT })
            }
        }
    }
}

/// The reconciles in progress.
#[derive(Debug, Default)]
pub(super) struct RunningReconciles(Mutex<HashMap<Key, Waits>>);

impl RunningReconciles {
    pub(super) fn start(&self, key: &Key, urgency: Urgency) -> RunningReconcile<'_> {
        self.0.lock().insert(key.clone(), Waits::new(urgency));
        RunningReconcile { running: self, key: key.clone() }
    }

    pub(super) fn waits(&self, key: &Key) -> Waits {
        self.0.lock().get(key).cloned().unwrap_or_else(|| Waits::new(Urgency::Ordinary))
    }

    /// Ends the waits of the reconcile of an object that has become urgent. One that began as urgent already does what is
    /// urgent.
    pub(super) fn supersede(&self, key: &Key) {
        match self.0.lock().get(key) {
            Some(Waits { urgency: Urgency::Ordinary, superseded, .. }) => superseded.cancel(),
            Some(Waits { urgency: Urgency::Urgent, .. }) | None => {}
        }
    }
}

/// A reconcile in progress. Ends when dropped.
pub(crate) struct RunningReconcile<'a> {
    running: &'a RunningReconciles,
    key: Key,
}

impl Drop for RunningReconcile<'_> {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::runtime::request::{Origin, send_to};

    fn key() -> Key {
        Key { namespace: "team".to_owned(), name: "desk".to_owned() }
    }

    async fn request(waits: &Waits, takes: Duration) -> Result<(), RequestError> {
        let send = |limit, operation| {
            send_to(Origin::Workload, limit, operation, async {
                tokio::time::sleep(takes).await;
                Ok(())
            })
        };
        waits.wait(Operation::new("list", "pods"), send).await
    }

    #[tokio::test(start_paused = true)]
    async fn slow_responses_end_at_the_deadline_of_the_reconcile() {
        let (waits, started) = (Waits::new(Urgency::Ordinary), Instant::now());
        let mut responses = 0;
        let error = loop {
            match request(&waits, Duration::from_secs(9)).await {
                Ok(()) => responses += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((responses, started.elapsed()), (3, RECONCILE_TIMEOUT));
        // The server did respond in time before.
        assert!(!error.is_connection_error(), "{error}");
        let error = request(&waits, Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, RequestError::NoTimeLeft { .. }) && !error.is_connection_error());
    }

    #[tokio::test(start_paused = true)]
    async fn object_that_becomes_urgent_waits_no_longer() {
        let running = RunningReconciles::default();
        for (urgency, is_superseded) in [(Urgency::Ordinary, true), (Urgency::Urgent, false)] {
            let reconcile = running.start(&key(), urgency);
            let waits = running.waits(&key());
            let mut hanging = std::pin::pin!(request(&waits, Duration::from_hours(1)));
            assert!(hanging.as_mut().now_or_never().is_none());
            running.supersede(&key());
            let result = hanging.as_mut().now_or_never();
            assert_eq!(matches!(result, Some(Err(RequestError::Superseded { .. }))), is_superseded);
            drop(reconcile);
        }
        assert!(running.0.lock().is_empty());
    }
}
