//! The watch of a cluster is simulated: no real one falls silent on demand, between two of its Nodes.

use futures::stream::{self, Stream};
use kube::runtime::watcher::Event;
use kube::{Client, Config};

use super::*;
use crate::runtime::metrics::Metrics;
use crate::runtime::workqueue::{Placement, Widths, WorkQueue};

const SERVER: &str = "https://10.0.0.1:6443";

type WatchResult = Result<Event<Node>, WatchError>;

/// A client whose connections are refused.
fn unreachable_client() -> Client {
    let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn shared() -> Shared {
    let deps = ConnectionDeps {
        management: unreachable_client(),
        require_kubeconfig: false,
        agent_namespace: "5spot-system".into(),
        queue: Arc::new(WorkQueue::new(Widths { total: 1, lane: 1, namespace: 1 })),
        metrics: Arc::new(Metrics::new()),
        large_responses: Arc::new(LargeResponses::new()),
        log_limit: Arc::new(LogLimit::new(super::super::LOG_INTERVAL)),
    };
    Shared::new(deps, ClusterKey { namespace: "team".to_owned(), name: "edge".to_owned() }, Arc::default())
}

fn connection(stream: impl Stream<Item = WatchResult> + Send + 'static) -> Connection {
    let shared = shared();
    let key = |index: usize| Key { namespace: "team".to_owned(), name: format!("desk-{index}") };
    (0..9).for_each(|index| shared.subscribers.lock().add(&key(index), &format!("n{index}")));
    let nodes = shared.node_cache(unreachable_client());
    Connection { server: SERVER.to_owned(), nodes, stream: stream.boxed() }
}

fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node
}

/// Delivers each event after a delay.
fn delayed(delay: Duration, events: Vec<Event<Node>>) -> impl Stream<Item = WatchResult> + Send {
    stream::iter(events).then(move |event| async move {
        tokio::time::sleep(delay).await;
        Ok(event)
    })
}

fn is_connected(shared: &Shared) -> bool {
    matches!(&*shared.state.lock(), ConnectionState::Connected(_))
}

#[tokio::test]
async fn earlier_suspicion_does_not_close_new_connection() {
    let shared = shared();
    shared.suspected.notify_one();
    let mut follow = std::pin::pin!(shared.follow(connection(stream::pending()), b""));
    assert!(follow.as_mut().now_or_never().is_none(), "the connection was closed immediately");
    assert!(is_connected(&shared));
    // A suspicion from now on is about this connection.
    shared.suspected.notify_one();
    assert!(follow.now_or_never().is_some());
    assert!(!is_connected(&shared));
}

#[tokio::test]
async fn lost_request_does_not_close_later_connection() {
    let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
    let cluster = ClusterConnection { shared: Arc::new(shared()), task };
    let first = connection(stream::empty());
    let first_nodes = Arc::clone(&first.nodes);
    cluster.shared.follow(first, b"").await.unwrap();
    let second = connection(stream::pending());
    let second_nodes = Arc::clone(&second.nodes);
    let mut follow = std::pin::pin!(cluster.shared.follow(second, b""));
    assert!(follow.as_mut().now_or_never().is_none());
    cluster.suspect(&first_nodes);
    assert!(follow.as_mut().now_or_never().is_none(), "a request of the first connection closed the second");
    cluster.suspect(&second_nodes);
    assert!(follow.now_or_never().is_some());
}

#[tokio::test]
async fn lost_connection_changes_state_and_queues_subscribers() {
    let shared = shared();
    let key = Key { namespace: "team".to_owned(), name: "desk".to_owned() };
    shared.subscribers.lock().add(&key, "n1");
    let mut follow = std::pin::pin!(shared.follow(connection(stream::pending()), b""));
    assert!(follow.as_mut().now_or_never().is_none());
    // Queued when the connection is established, and again when it is lost.
    for lost in [false, true] {
        if lost {
            shared.suspected.notify_one();
            assert!(follow.as_mut().now_or_never().is_some());
        }
        assert_eq!(is_connected(&shared), !lost);
        assert_eq!(shared.deps.queue.next(|_| Placement::default(), |_| {}).now_or_never(), Some(key.clone()));
        shared.deps.queue.done(&key, None);
    }
    assert!(matches!(&*shared.state.lock(), ConnectionState::Connecting));

    // The same if the cluster closes the watch.
    shared.follow(connection(stream::empty()), b"").await.unwrap();
    assert!(matches!(&*shared.state.lock(), ConnectionState::Connecting));
}

#[tokio::test]
async fn connection_is_kept_while_management_cluster_does_not_respond() {
    let shared = shared();
    let key = Key { namespace: "team".to_owned(), name: "desk".to_owned() };
    shared.subscribers.lock().add(&key, "n1");
    // A Node is missing, so the Secret is read, and the management cluster does not respond.
    shared.node_missing.notify_one();
    let queued_twice = async {
        for _ in 0..2 {
            shared.deps.queue.next(|_| Placement::default(), |_| {}).await;
            shared.deps.queue.done(&key, None);
        }
    };
    tokio::select! {
        biased;
        _ = shared.follow(connection(stream::pending()), b"") => panic!("the connection was closed"),
        () = queued_twice => {}
    }
    assert!(is_connected(&shared));
}

#[tokio::test(start_paused = true)]
async fn sync_timeout_applies_to_each_node() {
    let slowly = RESPONSE_TIMEOUT * 9 / 10;
    let mut events = vec![Event::Init];
    events.extend((0..10).map(|index| Event::InitApply(node(&format!("n{index}")))));
    events.push(Event::InitDone);
    let mut many = connection(delayed(slowly, events.clone()).chain(stream::pending()));
    many.sync().await.unwrap();
    assert!(many.nodes.get("n8").is_some());
    // No object is subscribed to this one.
    assert!(many.nodes.get("n9").is_none());

    events.truncate(2);
    let mut silent = connection(delayed(slowly, events).chain(stream::pending()));
    let error = silent.sync().await.unwrap_err().to_string();
    assert_eq!(error, format!("server {SERVER} did not respond within 15 s"));
    let error = connection(stream::empty()).sync().await.unwrap_err().to_string();
    assert_eq!(error, format!("server {SERVER} closed the watch of its Nodes"));
}
