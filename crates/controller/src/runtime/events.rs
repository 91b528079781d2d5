//! Publishes Kubernetes events in the background: after the writes that they report, and without delaying other writes.
//! Namespaces take turns. An event is repeated if the API server could not store it.
//!
//! kube's `Recorder` is not used: it folds a second event of the same reason into the first and drops its note, stamps the
//! time of publishing instead of the transition's, and creates names that are too long for long object names.

mod publishing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use fivespot_api::{ScheduledMachine, keys};
use fivespot_planner::children::label_value;
use fivespot_planner::events::{Event, EventType, Reason};
use fivespot_planner::retry::FailureClass;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::publishing::{MAX_ATTEMPTS, Publishing};
use crate::runtime::fair_queue::FairQueue;
use crate::runtime::metrics::Metrics;
use crate::runtime::permits::WritePermits;
use crate::runtime::rate_limit::OncePer;
use crate::runtime::reconcile_id::ReconcileId;
use crate::runtime::request::{Operation, send};
use crate::runtime::workqueue::Key;

/// The longest note that the API server accepts, in bytes.
const MAX_NOTE_LEN: usize = 1024;
/// How many events may wait to be published: more than those of a window that opens for 10,000 objects, which are sent when the
/// writes are done. If the API server is away for long, later events are dropped, counted and logged.
const MAX_QUEUE_LEN: usize = 30_000;
/// How often a failure of the events of one namespace is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// How long the API server may take to store an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct EventPublisher {
    queue: Arc<FairQueue<QueuedEvent>>,
    /// Publishes the events.
    _task: Arc<AbortOnDropHandle<()>>,
    /// Has one token per event that has not been published or dropped yet.
    pending: TaskTracker,
    metrics: Arc<Metrics>,
    log_limit: Arc<OncePer<String>>,
}

/// An event that waits. What is the same for all is added when it is sent: there may be tens of thousands.
struct QueuedEvent {
    /// The ScheduledMachine.
    object: Key,
    uid: Option<Box<str>>,
    reason: Reason,
    note: Box<str>,
    at: Timestamp,
    reconcile: ReconcileId,
    /// How often sending it has failed.
    attempts: u32,
    _pending: TaskTrackerToken,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It was published, or it will never be.
    Done,
    /// It is sent again, after the time that the API server requests.
    Failed { retry_after: Option<Duration> },
}

impl EventPublisher {
    /// Starts the task that publishes events; it ends when the last clone of the publisher is dropped.
    pub(crate) fn start(client: Client, instance: String, writes: Arc<WritePermits>, metrics: &Arc<Metrics>) -> Self {
        let queue = Arc::new(FairQueue::<QueuedEvent>::new(MAX_QUEUE_LEN));
        let log_limit = Arc::new(OncePer::new(LOG_INTERVAL));
        let sender =
            Arc::new(EventSender { client, instance, metrics: Arc::clone(metrics), log_limit: Arc::clone(&log_limit) });
        let send = move |event: QueuedEvent| {
            let sender = Arc::clone(&sender);
            async move {
                let sent = sender.create(&event).await;
                (event, sent)
            }
        };
        let task = tokio::spawn(Publishing::run(Arc::clone(&queue), writes, send));
        let pending = TaskTracker::new();
        // A tracker that is never closed is never done; it still hands out tokens.
        pending.close();
        let task = Arc::new(AbortOnDropHandle::new(task));
        EventPublisher { queue, _task: task, pending, metrics: Arc::clone(metrics), log_limit }
    }

    /// Waits until every event has been published or dropped.
    pub(crate) async fn flush(&self) {
        self.pending.wait().await;
    }

    /// Queues an event about an object; `at` is the time of the transition that it reports.
    pub(crate) fn publish(
        &self,
        object: &impl Resource<DynamicType = ()>,
        event: &Event,
        at: Timestamp,
        reconcile: ReconcileId,
    ) {
        let namespace = object.namespace().unwrap_or_default();
        let queued = QueuedEvent {
            object: Key { namespace: namespace.clone(), name: object.name_any() },
            uid: object.uid().map(String::into_boxed_str),
            reason: event.reason,
            note: bounded_note(&event.note),
            at,
            reconcile,
            attempts: 0,
            _pending: self.pending.token(),
        };
        if let Some(QueuedEvent { object, reason, .. }) = self.queue.push(&namespace, queued) {
            self.metrics.record_dropped_event();
            if self.log_limit.allows(&object.namespace) {
                let reason = reason.as_str();
                tracing::warn!(scheduledmachine = %object, reason, "Dropped event because the event queue is full");
            }
        }
    }
}

fn bounded_note(note: &str) -> Box<str> {
    if note.len() <= MAX_NOTE_LEN {
        return note.into();
    }
    format!("{}...", &note[..note.floor_char_boundary(MAX_NOTE_LEN - 3)]).into_boxed_str()
}

/// Sends events to the API server.
struct EventSender {
    client: Client,
    instance: String,
    metrics: Arc<Metrics>,
    log_limit: Arc<OncePer<String>>,
}

impl EventSender {
    fn kube_event(&self, queued: &QueuedEvent) -> KubeEvent {
        let type_ = match queued.reason.event_type() {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let Key { namespace, name } = &queued.object;
        let reason = queued.reason.as_str();
        KubeEvent {
            metadata: ObjectMeta {
                // Nanoseconds make the name unique, as in the names that client-go generates.
                name: Some(format!("{}.{}.{:x}", label_value(name), reason.to_lowercase(), queued.at.as_nanosecond())),
                namespace: Some(namespace.clone()),
                annotations: Some([(keys::RECONCILE_ID_ANNOTATION.to_owned(), queued.reconcile.to_string())].into()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(queued.at)),
            reporting_controller: Some("5spot.finos.org/controller".to_owned()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(reason.to_owned()),
            reason: Some(reason.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(ScheduledMachine::api_version(&()).into_owned()),
                kind: Some(ScheduledMachine::kind(&()).into_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                uid: queued.uid.as_deref().map(str::to_owned),
                ..ObjectReference::default()
            }),
            note: Some(queued.note.to_string()),
            type_: Some(type_.to_owned()),
            ..KubeEvent::default()
        }
    }

    async fn create(&self, queued: &QueuedEvent) -> Sent {
        let (key, reason) = (&queued.object, queued.reason.as_str());
        let operation = Operation::new("create", format!("event {reason} of ScheduledMachine {key}"));
        let events: Api<KubeEvent> = Api::namespaced(self.client.clone(), &key.namespace);
        let (params, event) = (PostParams::default(), self.kube_event(queued));
        let Err(error) = send(EVENT_TIMEOUT, operation, events.create(&params, &event)).await else {
            return Sent::Done;
        };
        // An event that exists was published by another process, or by this one before.
        if error.is_already_exists() {
            return Sent::Done;
        }
        if self.log_limit.allows(&key.namespace) {
            tracing::warn!(scheduledmachine = %key, reason, %error, "Cannot publish event");
        }
        match error.class() {
            FailureClass::Transient | FailureClass::Throttled if queued.attempts + 1 < MAX_ATTEMPTS => {
                Sent::Failed { retry_after: error.retry_after() }
            }
            FailureClass::Transient | FailureClass::Throttled | FailureClass::Conflict | FailureClass::Rejected => {
                self.metrics.record_dropped_event();
                Sent::Done
            }
        }
    }
}
