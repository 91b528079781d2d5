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

use fivespot_api::keys;
use fivespot_planner::children::label_value;
use fivespot_planner::events::{Event, EventType};
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
use crate::runtime::permits::WritePermits;
use crate::runtime::rate_limit::OncePer;
use crate::runtime::reconcile_id::ReconcileId;
use crate::runtime::request::{Operation, send};
use crate::runtime::workqueue::Key;

/// The longest note that the API server accepts, in bytes.
const MAX_NOTE_LEN: usize = 1024;
/// How many events may wait to be published. If the API server is away for long, later events are dropped and logged.
const MAX_QUEUE_LEN: usize = 10_000;
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
    log_limit: Arc<OncePer<String>>,
    instance: String,
}

struct QueuedEvent {
    namespace: String,
    event: Box<KubeEvent>,
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
    pub(crate) fn start(client: Client, instance: String, writes: Arc<WritePermits>) -> Self {
        let queue = Arc::new(FairQueue::<QueuedEvent>::new(MAX_QUEUE_LEN));
        let log_limit = Arc::new(OncePer::new(LOG_INTERVAL));
        let log = Arc::clone(&log_limit);
        let send = move |event: QueuedEvent| {
            let (client, log) = (client.clone(), Arc::clone(&log));
            async move {
                let sent = create(&client, &event, &log).await;
                (event, sent)
            }
        };
        let task = tokio::spawn(Publishing::run(Arc::clone(&queue), writes, send));
        let pending = TaskTracker::new();
        // A tracker that is never closed is never done; it still hands out tokens.
        pending.close();
        let task = Arc::new(AbortOnDropHandle::new(task));
        EventPublisher { queue, _task: task, pending, log_limit, instance }
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
        let mut kube_event = self.kube_event(object, event, at);
        let annotation = (keys::RECONCILE_ID_ANNOTATION.to_owned(), reconcile.to_string());
        kube_event.metadata.annotations = Some([annotation].into());
        let queued = QueuedEvent {
            namespace: namespace.clone(),
            event: Box::new(kube_event),
            attempts: 0,
            _pending: self.pending.token(),
        };
        if let Some(QueuedEvent { event, .. }) = self.queue.push(&namespace, queued) {
            let (key, reason) = subject(&event);
            if self.log_limit.allows(&key.namespace) {
                tracing::warn!(scheduledmachine = %key, reason, "Dropped event because the event queue is full");
            }
        }
    }

    fn kube_event(&self, object: &impl Resource<DynamicType = ()>, event: &Event, at: Timestamp) -> KubeEvent {
        let type_ = match event.reason.event_type() {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let mut note = event.note.clone();
        if note.len() > MAX_NOTE_LEN {
            note.truncate(note.floor_char_boundary(MAX_NOTE_LEN - 3));
            note.push_str("...");
        }
        KubeEvent {
            metadata: ObjectMeta {
                // Nanoseconds make the name unique, as in the names that client-go generates.
                name: Some(format!(
                    "{}.{}.{:x}",
                    label_value(&object.name_any()),
                    event.reason.as_str().to_lowercase(),
                    at.as_nanosecond()
                )),
                namespace: object.namespace(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(at)),
            reporting_controller: Some("5spot.finos.org/controller".to_owned()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(event.reason.as_str().to_owned()),
            reason: Some(event.reason.as_str().to_owned()),
            regarding: Some(ObjectReference { resource_version: None, ..object.object_ref(&()) }),
            note: Some(note),
            type_: Some(type_.to_owned()),
            ..KubeEvent::default()
        }
    }
}

/// What an event is about, for the log.
fn subject(event: &KubeEvent) -> (Key, &str) {
    let key = event.regarding.clone().unwrap_or_default();
    let key = Key { namespace: key.namespace.unwrap_or_default(), name: key.name.unwrap_or_default() };
    (key, event.reason.as_deref().unwrap_or_default())
}

async fn create(client: &Client, queued: &QueuedEvent, log_limit: &OncePer<String>) -> Sent {
    let (key, reason) = subject(&queued.event);
    let operation = Operation::new("create", format!("event {reason} of ScheduledMachine {key}"));
    let events: Api<KubeEvent> = Api::namespaced(client.clone(), &key.namespace);
    let params = PostParams::default();
    let Err(error) = send(EVENT_TIMEOUT, operation, events.create(&params, queued.event.as_ref())).await else {
        return Sent::Done;
    };
    // An event that exists was published by another process, or by this one before.
    if error.is_already_exists() {
        return Sent::Done;
    }
    if log_limit.allows(&key.namespace) {
        tracing::warn!(scheduledmachine = %key, reason, %error, "Cannot publish event");
    }
    match error.class() {
        FailureClass::Transient | FailureClass::Throttled if queued.attempts + 1 < MAX_ATTEMPTS => {
            Sent::Failed { retry_after: error.retry_after() }
        }
        FailureClass::Transient | FailureClass::Throttled | FailureClass::Conflict | FailureClass::Rejected => {
            Sent::Done
        }
    }
}
