//! Publishes Kubernetes events in the background: after the writes that they report, and without delaying other writes.
//! Namespaces take turns.
//!
//! kube's `Recorder` is not used: it folds a second event of the same reason into the first and drops its note, stamps the
//! time of publishing instead of the transition's, and creates names that are too long for long object names.

use std::sync::Arc;
use std::time::Duration;

use fivespot_planner::children::label_value;
use fivespot_planner::events::{Event, EventType};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::runtime::fair_queue::FairQueue;
use crate::runtime::permits::WritePermits;
use crate::runtime::rate_limit::OncePer;
use crate::runtime::request::{MANAGEMENT_TIMEOUT, Operation, send};
use crate::runtime::workqueue::Key;

/// The longest note that the API server accepts, in bytes.
const MAX_NOTE_LEN: usize = 1024;
/// How many events may wait to be published. If the API server is away for long, later events are dropped and logged.
const MAX_QUEUE_LEN: usize = 10_000;
/// How often a failure of the events of one namespace is logged.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// How long an event is held back if no other follows: the write that it reports may be followed by an urgent one.
const SETTLE_DELAY: Duration = Duration::from_millis(50);
/// How long an event waits until no other write waits, and how often it checks. It needs no permit, so it delays none.
const MAX_WRITE_WAIT: Duration = Duration::from_secs(1);
/// The same for an event that follows others: writes may be busy for long, for example with those of a tenant that hang.
const MAX_WRITE_WAIT_IN_BURST: Duration = Duration::from_millis(50);
const WRITE_POLL_INTERVAL: Duration = Duration::from_millis(5);

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
    event: KubeEvent,
    _pending: TaskTrackerToken,
}

impl EventPublisher {
    /// Starts the task that publishes events one by one; it ends when the last clone of the publisher is dropped.
    pub(crate) fn start(client: Client, instance: String, writes: Arc<WritePermits>) -> Self {
        let queue = Arc::new(FairQueue::<QueuedEvent>::new(MAX_QUEUE_LEN));
        let log_limit = Arc::new(OncePer::new(LOG_INTERVAL));
        let (events, log) = (Arc::clone(&queue), Arc::clone(&log_limit));
        let task = tokio::spawn(async move {
            let mut max_wait = MAX_WRITE_WAIT;
            loop {
                let QueuedEvent { event, _pending } = events.pop().await;
                if events.is_empty() {
                    tokio::time::sleep(SETTLE_DELAY).await;
                }
                let deadline = Instant::now() + max_wait;
                while writes.is_busy() && Instant::now() < deadline {
                    tokio::time::sleep(WRITE_POLL_INTERVAL).await;
                }
                create(&client, &event, &log).await;
                max_wait = if events.is_empty() { MAX_WRITE_WAIT } else { MAX_WRITE_WAIT_IN_BURST };
            }
        });
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
    pub(crate) fn publish(&self, object: &impl Resource<DynamicType = ()>, event: &Event, at: Timestamp) {
        let queued = QueuedEvent { event: self.kube_event(object, event, at), _pending: self.pending.token() };
        let namespace = object.namespace().unwrap_or_default();
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

async fn create(client: &Client, event: &KubeEvent, log_limit: &OncePer<String>) {
    let (key, reason) = subject(event);
    let operation = Operation::new("create", format!("event {reason} of ScheduledMachine {key}"));
    let events: Api<KubeEvent> = Api::namespaced(client.clone(), &key.namespace);
    let params = PostParams::default();
    let Err(error) = send(MANAGEMENT_TIMEOUT, operation, events.create(&params, event)).await else { return };
    // An event that exists was published by another process, or by this one before.
    if !error.is_already_exists() && log_limit.allows(&key.namespace) {
        tracing::warn!(scheduledmachine = %key, reason, %error, "Cannot publish event");
    }
}

#[cfg(test)]
mod tests {
    use fivespot_api::ScheduledMachine;
    use fivespot_planner::events::Reason;
    use futures::FutureExt as _;
    use kube::Config;
    use kube::client::Body;

    use super::*;
    use crate::runtime::permits::Urgency;

    fn publish(publisher: &EventPublisher, name: &str) {
        let spec = serde_json::json!({
            "schedule": { "cron": "* * * * *" },
            "clusterName": "edge",
            "bootstrapSpec": { "apiVersion": "a/v1", "kind": "A", "spec": {} },
            "infrastructureSpec": { "apiVersion": "b/v1", "kind": "B", "spec": {} },
        });
        let object = ScheduledMachine::new(name, serde_json::from_value(spec).unwrap());
        let event = Event::new(Reason::MachineCreated, "Created Machine desk-01-machine");
        publisher.publish(&object, &event, Timestamp::UNIX_EPOCH);
    }

    #[tokio::test]
    async fn flush_waits_until_no_event_is_pending() {
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let publisher = EventPublisher::start(client, "test".to_owned(), WritePermits::new(1));
        assert!(publisher.flush().now_or_never().is_some());
        publish(&publisher, "desk-01");
        assert!(publisher.flush().now_or_never().is_none());
        // The connection is refused, so the event is dropped.
        publisher.flush().await;
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_writes_delay_a_burst_of_events_once() {
        let service = tower::service_fn(async |_: http::Request<Body>| {
            Ok::<_, tower::BoxError>(http::Response::new(Body::from(b"{\"metadata\":{},\"eventTime\":null}".to_vec())))
        });
        let writes = WritePermits::new(1);
        let key = Key { namespace: "other".to_owned(), name: "desk".to_owned() };
        let _hanging = writes.acquire(&key, Urgency::Ordinary, 50).await;
        let publisher = EventPublisher::start(Client::new(service, "default"), "test".to_owned(), Arc::clone(&writes));
        for number in 0..100 {
            publish(&publisher, &format!("desk-{number}"));
        }
        assert!(writes.is_busy());
        let published = tokio::time::timeout(Duration::from_secs(10), publisher.flush()).await;
        assert!(published.is_ok(), "each event waits for the writes that hang");
    }
}
