use std::collections::HashMap;

use fivespot_api::ScheduledMachine;
use fivespot_planner::events::Reason;
use futures::FutureExt as _;
use http::{Request, Response, StatusCode};
use kube::Config;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::publishing::{MAX_IN_FLIGHT, MAX_IN_FLIGHT_OF_NAMESPACE, SLOW_AFTER};
use super::*;
use crate::runtime::permits::Urgency;

/// How long the server takes to store an event.
const TAKES: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

fn publish(publisher: &EventPublisher, namespace: &str, name: &str) {
    let spec = serde_json::json!({
        "schedule": { "cron": "* * * * *" },
        "clusterName": "edge",
        "bootstrapSpec": { "apiVersion": "a/v1", "kind": "A", "spec": {} },
        "infrastructureSpec": { "apiVersion": "b/v1", "kind": "B", "spec": {} },
    });
    let mut object = ScheduledMachine::new(name, serde_json::from_value(spec).unwrap());
    object.metadata.namespace = Some(namespace.to_owned());
    let event = Event::new(Reason::MachineCreated, "Created Machine desk-01-machine");
    publisher.publish(&object, &event, Timestamp::UNIX_EPOCH, ReconcileId::random());
}

fn publish_many(publisher: &EventPublisher, namespace: &str, count: usize) {
    (0..count).for_each(|number| publish(publisher, namespace, &format!("desk-{number}")));
}

/// What the server does with an event.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Stored,
    Never,
    /// HTTP status and seconds of `retryAfterSeconds`.
    Status(u16, u32),
}

/// A server that answers by namespace and counts.
#[derive(Default)]
struct Server {
    answers: HashMap<&'static str, Vec<Answer>>,
    /// When each event was stored, with its namespace.
    stored: Vec<(Instant, String)>,
    received: Vec<(Instant, String)>,
    in_flight: usize,
    max_in_flight: usize,
}

type Shared = Arc<Mutex<Server>>;

impl Server {
    /// Answers the first requests of a namespace; the last answer is repeated.
    fn answering(answers: impl IntoIterator<Item = (&'static str, Vec<Answer>)>) -> Shared {
        Arc::new(Mutex::new(Server { answers: answers.into_iter().collect(), ..Server::default() }))
    }

    fn receive(&mut self, namespace: &str) -> Answer {
        self.received.push((Instant::now(), namespace.to_owned()));
        self.in_flight += 1;
        self.max_in_flight = self.max_in_flight.max(self.in_flight);
        match self.answers.get_mut(namespace) {
            None => Answer::Stored,
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0],
        }
    }

    fn stored_in(&self, namespace: &str) -> usize {
        self.stored.iter().filter(|(_, it)| it == namespace).count()
    }
}

fn client(server: &Shared) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        let namespace = request.uri().path().split('/').nth(5).unwrap_or_default().to_owned();
        async move {
            let answer = server.lock().receive(&namespace);
            if let Answer::Never = answer {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(TAKES).await;
            let mut server = server.lock();
            server.in_flight -= 1;
            let (code, body) = match answer {
                Answer::Status(code, seconds) => {
                    let details = serde_json::json!({ "retryAfterSeconds": seconds });
                    let status = serde_json::json!({ "kind": "Status", "status": "Failure", "message": "no",
                        "reason": "no", "code": code, "details": details });
                    (code, status.to_string())
                }
                Answer::Stored | Answer::Never => {
                    server.stored.push((Instant::now(), namespace));
                    (201, r#"{"metadata":{},"eventTime":null}"#.to_owned())
                }
            };
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, tower::BoxError>(response)
        }
    });
    Client::new(service, "default")
}

fn publisher(server: &Shared, writes: &Arc<WritePermits>) -> EventPublisher {
    EventPublisher::start(client(server), "test".to_owned(), Arc::clone(writes), &Arc::new(Metrics::new()))
}

fn dropped(publisher: &EventPublisher) -> u64 {
    let metrics = publisher.metrics.render();
    let line = metrics.lines().find_map(|line| line.strip_prefix("fivespot_events_dropped_total ")).unwrap();
    line.parse().unwrap()
}

async fn flushed_after(publisher: &EventPublisher) -> Duration {
    let start = Instant::now();
    tokio::time::timeout(Duration::from_mins(10), publisher.flush()).await.expect("all events are published");
    start.elapsed()
}

fn key(namespace: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: "desk".to_owned() }
}

#[tokio::test]
async fn flush_waits_until_no_event_is_pending() {
    let server = Server::answering([]);
    let publisher = publisher(&server, &WritePermits::new(1));
    assert!(publisher.flush().now_or_never().is_some());
    publish(&publisher, "a", "desk-01");
    assert!(publisher.flush().now_or_never().is_none());
    publisher.flush().await;
    assert_eq!(server.lock().stored_in("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn events_are_published_concurrently_while_there_are_no_writes() {
    let server = Server::answering([]);
    let publisher = publisher(&server, &WritePermits::new(32));
    for namespace in ["a", "b", "c"] {
        publish_many(&publisher, namespace, 2_000);
    }
    let took = flushed_after(&publisher).await;
    assert_eq!(server.lock().stored.len(), 6_000);
    assert_eq!(server.lock().max_in_flight, MAX_IN_FLIGHT);
    assert!(took < 6_000 * TAKES / u32::try_from(MAX_IN_FLIGHT).unwrap() * 3 / 2, "{took:?}");
    // Namespaces take turns.
    let early: Vec<usize> = ["a", "b", "c"]
        .map(|namespace| server.lock().stored[..300].iter().filter(|(_, it)| it == namespace).count())
        .to_vec();
    assert!(early.iter().all(|count| (80..=120).contains(count)), "{early:?}");
}

#[tokio::test(start_paused = true)]
async fn one_event_at_a_time_while_writes_are_busy() {
    let server = Server::answering([]);
    let writes = WritePermits::new(1);
    let hanging = writes.acquire(&key("other"), Urgency::Ordinary, 50, Timestamp::UNIX_EPOCH).await;
    let publisher = publisher(&server, &writes);
    publish_many(&publisher, "a", 100);
    tokio::time::sleep(SECOND).await;
    assert_eq!(server.lock().received.len(), 0, "the first event waits for the writes");
    // Writes that hang delay a burst once.
    tokio::time::sleep(3 * SECOND).await;
    let published = server.lock().stored.len();
    assert!((20..=80).contains(&published), "{published}");
    assert_eq!(server.lock().max_in_flight, 1);
    drop(hanging);
    let took = flushed_after(&publisher).await;
    assert!(took < SECOND, "{took:?}");
    assert_eq!(server.lock().max_in_flight, MAX_IN_FLIGHT_OF_NAMESPACE);
}

#[tokio::test(start_paused = true)]
async fn hanging_events_of_one_namespace_do_not_stop_others() {
    let server = Server::answering([("hangs", vec![Answer::Never]), ("also-hangs", vec![Answer::Never])]);
    let publisher = publisher(&server, &WritePermits::new(32));
    for namespace in ["hangs", "also-hangs", "works"] {
        publish_many(&publisher, namespace, 500);
    }
    tokio::time::sleep(SLOW_AFTER + 2 * SECOND).await;
    assert_eq!(server.lock().stored_in("works"), 500);
    // The same with a single place, while writes are busy.
    let writes = WritePermits::new(1);
    let _hanging = writes.acquire(&key("other"), Urgency::Ordinary, 50, Timestamp::UNIX_EPOCH).await;
    let server = Server::answering([("hangs", vec![Answer::Never])]);
    let publisher = self::publisher(&server, &writes);
    publish_many(&publisher, "hangs", 20);
    publish_many(&publisher, "works", 20);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(server.lock().stored_in("works"), 20);
}

#[tokio::test(start_paused = true)]
async fn temporary_failure_loses_no_event() {
    let failures = vec![Answer::Status(503, 0), Answer::Status(500, 0), Answer::Never, Answer::Stored];
    let server = Server::answering([("fails", failures)]);
    let publisher = publisher(&server, &WritePermits::new(32));
    publish_many(&publisher, "fails", 20);
    publish_many(&publisher, "works", 20);
    tokio::time::sleep(SECOND).await;
    assert_eq!(server.lock().stored_in("works"), 20, "events of other namespaces do not wait");
    flushed_after(&publisher).await;
    assert_eq!(server.lock().stored_in("fails"), 20);
}

/// Each object has two events when its window opens.
#[tokio::test(start_paused = true)]
async fn events_of_ten_thousand_objects_wait_for_the_writes() {
    let server = Server::answering([]);
    let writes = WritePermits::new(32);
    let publisher = publisher(&server, &writes);
    writes.pause(30 * SECOND);
    publish_many(&publisher, "a", 20_000);
    flushed_after(&publisher).await;
    assert_eq!((server.lock().stored.len(), dropped(&publisher)), (20_000, 0));
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_limit_are_dropped_and_counted() {
    let server = Server::answering([("rejects", vec![Answer::Status(403, 0)])]);
    let writes = WritePermits::new(32);
    let publisher = publisher(&server, &writes);
    writes.pause(30 * SECOND);
    publish_many(&publisher, "a", MAX_QUEUE_LEN + 5);
    assert_eq!(dropped(&publisher), 5);
    publish(&publisher, "rejects", "desk-01");
    flushed_after(&publisher).await;
    assert_eq!((server.lock().stored.len(), dropped(&publisher)), (MAX_QUEUE_LEN - 1, 7));
}

#[tokio::test(start_paused = true)]
async fn event_is_not_repeated_before_the_time_that_the_server_requests() {
    let server = Server::answering([("a", vec![Answer::Status(429, 7), Answer::Stored])]);
    let publisher = publisher(&server, &WritePermits::new(32));
    publish(&publisher, "a", "desk-01");
    flushed_after(&publisher).await;
    let received: Vec<Instant> = server.lock().received.iter().map(|(at, _)| *at).collect();
    assert_eq!(received.len(), 2);
    let waited = received[1] - received[0];
    assert!((7 * SECOND..8 * SECOND).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn no_event_is_sent_while_the_server_is_overloaded() {
    let server = Server::answering([]);
    let writes = WritePermits::new(32);
    let publisher = publisher(&server, &writes);
    writes.pause(30 * SECOND);
    publish_many(&publisher, "a", 20);
    tokio::time::sleep(29 * SECOND).await;
    assert_eq!(server.lock().received.len(), 0);
    let took = flushed_after(&publisher).await;
    assert!(took < 2 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_and_rejected_event_is_not_repeated() {
    let server =
        Server::answering([("fails", vec![Answer::Status(503, 0)]), ("rejects", vec![Answer::Status(403, 0)])]);
    let publisher = publisher(&server, &WritePermits::new(32));
    publish(&publisher, "fails", "desk-01");
    publish(&publisher, "rejects", "desk-01");
    let took = flushed_after(&publisher).await;
    assert!((Duration::from_mins(2)..Duration::from_mins(3)).contains(&took), "{took:?}");
    let received = |namespace: &str| server.lock().received.iter().filter(|(_, it)| it == namespace).count();
    assert_eq!((received("fails"), received("rejects")), (MAX_ATTEMPTS as usize, 1));
}

/// The connection is refused, which is repeated, but not for longer than a shutdown waits.
#[tokio::test]
async fn unpublished_events_are_dropped_with_the_publisher() {
    let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
    config.default_retry = false;
    let (client, writes) = (Client::try_from(config).unwrap(), WritePermits::new(1));
    let publisher = EventPublisher::start(client, "test".to_owned(), writes, &Arc::new(Metrics::new()));
    publish(&publisher, "a", "desk-01");
    let pending = publisher.pending.clone();
    assert!(tokio::time::timeout(SECOND / 2, publisher.flush()).await.is_err());
    drop(publisher);
    tokio::time::timeout(5 * SECOND, pending.wait()).await.unwrap();
}
