//! The queue between reconciles and the exporter. Adding a span never waits: if the queue is full, the span is dropped and
//! counted.
//!
//! The SDK's batch processor is not used: it counts drops only in a log line at its end, and runs its exporter on a thread
//! without the runtime that the HTTP client needs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::runtime::metrics::Metrics;
use crate::runtime::rate_limit::OncePer;

/// How often a failure is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The limits of the standard's batch processor, with its names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    queue: usize,
    batch: usize,
    /// How long the first span of a batch waits for others.
    delay: Duration,
    /// How long the export of a batch may take.
    timeout: Duration,
}

impl Limits {
    pub(super) fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let number = |name: &str, default: u32| match variable(name).map(|value| (value.parse::<u32>(), value)) {
            None => Ok(default),
            Some((Ok(number), _)) if number > 0 => Ok(number),
            Some((_, value)) => Err(format!("{name} is {value:?}, which is not a positive number")),
        };
        let milliseconds = |name: &str, default| Ok::<_, String>(Duration::from_millis(number(name, default)?.into()));
        Ok(Limits {
            queue: number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)? as usize,
            batch: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)? as usize,
            delay: milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5_000)?,
            timeout: milliseconds("OTEL_BSP_EXPORT_TIMEOUT", 30_000)?,
        })
    }
}

/// Queues spans that have ended.
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    metrics: Arc<Metrics>,
}

impl Queue {
    pub(super) fn new(limits: &Limits, metrics: &Arc<Metrics>) -> (Self, mpsc::Receiver<SpanData>) {
        let (spans, receiver) = mpsc::channel(limits.queue);
        (Queue { spans, metrics: Arc::clone(metrics) }, receiver)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.metrics.record_dropped_spans(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Takes spans from the queue.
pub(super) struct Batches {
    pub(super) spans: mpsc::Receiver<SpanData>,
    pub(super) limits: Limits,
    /// Ends the queue, after what is in it.
    pub(super) stop: CancellationToken,
}

impl Batches {
    /// The next batch; `None` at the end.
    async fn next(&mut self) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        let mut deadline = None;
        while batch.len() < self.limits.batch {
            let room = self.limits.batch - batch.len();
            let added = tokio::select! {
                // The queue is closed, and what is in it is still received.
                () = self.stop.cancelled(), if !self.spans.is_closed() => {
                    self.spans.close();
                    continue;
                }
                added = receive(&mut self.spans, &mut batch, room, deadline) => added,
            };
            if added == 0 {
                break;
            }
            deadline = deadline.or_else(|| Some(Instant::now() + self.limits.delay));
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }
}

/// Receives up to `room` spans; none at the deadline or at the end.
async fn receive(
    spans: &mut mpsc::Receiver<SpanData>,
    batch: &mut Vec<SpanData>,
    room: usize,
    deadline: Option<Instant>,
) -> usize {
    match deadline {
        None => spans.recv_many(batch, room).await,
        Some(deadline) => timeout_at(deadline, spans.recv_many(batch, room)).await.unwrap_or(0),
    }
}

/// Exports batches until the queue ends. A batch that fails is dropped and counted.
pub(super) async fn run<F>(mut batches: Batches, metrics: Arc<Metrics>, export: F)
where
    F: AsyncFn(Vec<SpanData>) -> Result<(), String>,
{
    let log_limit = OncePer::new(LOG_INTERVAL);
    while let Some(batch) = batches.next().await {
        let spans = batch.len();
        let result = timeout(batches.limits.timeout, export(batch)).await;
        if let Err(error) = result.unwrap_or_else(|_| Err("timeout".to_owned())) {
            metrics.record_dropped_spans(spans as u64);
            if log_limit.allows(&()) {
                tracing::warn!(error, spans, "Cannot export traces");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use parking_lot::Mutex;

    use super::*;

    const LIMITS: Limits =
        Limits { queue: 10, batch: 4, delay: Duration::from_secs(5), timeout: Duration::from_secs(30) };

    struct Fixture {
        provider: SdkTracerProvider,
        metrics: Arc<Metrics>,
        batches: Batches,
        stop: CancellationToken,
    }

    fn fixture() -> Fixture {
        let metrics = Arc::new(Metrics::new());
        let (queue, spans) = Queue::new(&LIMITS, &metrics);
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let stop = CancellationToken::new();
        Fixture { provider, metrics, batches: Batches { spans, limits: LIMITS, stop: stop.clone() }, stop }
    }

    fn end_spans(provider: &SdkTracerProvider, count: usize) {
        (0..count).for_each(|_| drop(provider.tracer("test").start("reconcile")));
    }

    fn dropped(metrics: &Metrics) -> String {
        let text = metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix("fivespot_trace_spans_dropped_total "));
        line.unwrap().to_owned()
    }

    #[test]
    fn span_never_waits_for_a_full_queue_and_is_counted() {
        let Fixture { provider, metrics, batches: _batches, .. } = fixture();
        end_spans(&provider, LIMITS.queue + 1_000);
        assert_eq!(dropped(&metrics), "1000");
    }

    #[tokio::test(start_paused = true)]
    async fn spans_are_exported_in_batches_and_all_at_the_end() {
        let Fixture { provider, metrics, batches, stop } = fixture();
        let exported = Arc::new(Mutex::new(Vec::new()));
        let sizes = Arc::clone(&exported);
        let export = async move |batch: Vec<SpanData>| {
            sizes.lock().push(batch.len());
            Ok(())
        };
        let task = tokio::spawn(run(batches, Arc::clone(&metrics), export));
        end_spans(&provider, 6);
        tokio::time::sleep(LIMITS.delay / 2).await;
        assert_eq!(*exported.lock(), [4], "the others wait for a full batch");
        tokio::time::sleep(LIMITS.delay).await;
        assert_eq!(*exported.lock(), [4, 2]);
        end_spans(&provider, 5);
        stop.cancel();
        task.await.unwrap();
        assert_eq!(*exported.lock(), [4, 2, 4, 1]);
        assert_eq!(dropped(&metrics), "0");
    }

    #[tokio::test(start_paused = true)]
    async fn batch_that_fails_or_hangs_is_counted_and_the_next_is_exported() {
        let Fixture { provider, metrics, batches, stop } = fixture();
        let attempts = Arc::new(Mutex::new(0));
        let count = Arc::clone(&attempts);
        let export = async move |_| {
            let attempt = {
                let mut count = count.lock();
                *count += 1;
                *count
            };
            match attempt {
                1 => Err("refused".to_owned()),
                2 => std::future::pending().await,
                _ => Ok(()),
            }
        };
        let task = tokio::spawn(run(batches, Arc::clone(&metrics), export));
        end_spans(&provider, 10);
        tokio::time::sleep(LIMITS.timeout + LIMITS.delay).await;
        assert_eq!(dropped(&metrics), "8");
        stop.cancel();
        task.await.unwrap();
        assert_eq!((*attempts.lock(), dropped(&metrics).as_str()), (3, "8"));
    }

    #[test]
    fn limits_are_those_of_the_standard() {
        let limits = |set: &[(&str, &str)]| {
            Limits::from_env(|name| set.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned()))
        };
        let default = limits(&[]).unwrap();
        assert_eq!((default.queue, default.batch), (2048, 512));
        assert_eq!((default.delay, default.timeout), (Duration::from_secs(5), Duration::from_secs(30)));
        assert_eq!(limits(&[("OTEL_BSP_MAX_QUEUE_SIZE", "7")]).unwrap().queue, 7);
        for value in ["0", "-1", "many"] {
            let error = limits(&[("OTEL_BSP_SCHEDULE_DELAY", value)]).unwrap_err();
            assert!(error.contains("OTEL_BSP_SCHEDULE_DELAY"), "{error}");
        }
    }
}
