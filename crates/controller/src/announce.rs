//! Events, published behind the work: never ahead of a write, and never in its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fivespot_api::ScheduledMachine;
use fivespot_planner::children::label_value;
use fivespot_planner::event::{Event, Weight};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::trouble::{MANAGEMENT, told, within};

/// The longest text that the API server takes.
const LONGEST_NOTE: usize = 1024;
/// How many may wait to be published. An API server that is away for long loses the rest, which is told in the log.
const WAITING: usize = 10_000;

/// How long an event that no other follows is held back: a write that somebody waits for may follow the one it tells of.
const A_MOMENT: Duration = Duration::from_millis(50);
/// How long an event waits at most while all turns to write are taken, and how often it looks.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where events are handed in.
#[derive(Clone)]
pub(crate) struct Announcer {
    sender: mpsc::Sender<KubeEvent>,
    /// How many have been handed in and not been dealt with.
    open: Arc<AtomicUsize>,
    instance: String,
}

impl Announcer {
    /// Publishes what is handed in, one after the other, until everybody who could hand something in is gone.
    pub(crate) fn start(client: Client, instance: String, writes: Arc<Semaphore>) -> Self {
        let (sender, mut waiting) = mpsc::channel::<KubeEvent>(WAITING);
        let open = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&open);
        tokio::spawn(async move {
            while let Some(event) = waiting.recv().await {
                if waiting.is_empty() {
                    tokio::time::sleep(A_MOMENT).await;
                }
                let until = Instant::now() + LONGEST_WAIT;
                while writes.available_permits() == 0 && Instant::now() < until {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                let events: Api<KubeEvent> = Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
                let params = PostParams::default();
                let published = within(MANAGEMENT, "cannot publish an event", events.create(&params, &event)).await;
                left.fetch_sub(1, Ordering::AcqRel);
                let error = match published {
                    Ok(Ok(_)) => continue,
                    Ok(Err(error)) => told(&error),
                    Err(trouble) => trouble.to_string(),
                };
                tracing::warn!(reason = event.reason, error, "an event was not published");
            }
        });
        Announcer { sender, open, instance }
    }

    /// Whether nothing waits to be published.
    pub(crate) fn is_silent(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Tells of something that happened to an object.
    pub(crate) fn tell(&self, object: &ScheduledMachine, event: &Event, at: Timestamp) {
        let weight = match event.reason.weight() {
            Weight::Normal => "Normal",
            Weight::Warning => "Warning",
        };
        let mut note = event.note.clone();
        if note.len() > LONGEST_NOTE {
            note.truncate(note.floor_char_boundary(LONGEST_NOTE - 3));
            note.push_str("...");
        }
        let published = KubeEvent {
            metadata: ObjectMeta {
                // Nanoseconds tell two events of one object apart, as the names of all events do.
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
            type_: Some(weight.to_owned()),
            ..KubeEvent::default()
        };
        self.open.fetch_add(1, Ordering::AcqRel);
        if self.sender.try_send(published).is_err() {
            self.open.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!(reason = event.reason.as_str(), "an event was lost: too many wait to be published");
        }
    }
}
