//! What a cluster tells, and when, is made up here: no real one falls silent on demand, between two of its Nodes.

use futures::stream::{self, Stream};
use kube::runtime::watcher::Event;
use kube::{Client, Config};

use super::*;
use crate::metrics::Metrics;
use crate::queue::{Place, Queue};

type Told = Result<Event<Node>, watcher::Error>;

/// A client of which nobody is at the other end.
fn nobody() -> Client {
    let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn shared() -> Shared {
    let means = Means {
        management: nobody(),
        require_kubeconfig: false,
        agent_namespace: "5spot-system".into(),
        queue: Arc::new(Queue::new(1)),
        metrics: Arc::new(Metrics::new()),
    };
    Shared::new(means, ClusterKey { namespace: "team".to_owned(), name: "edge".to_owned() }, Arc::default())
}

fn connection(stream: impl Stream<Item = Told> + Send + 'static) -> Connection {
    Connection { nodes: Arc::new(Nodes::new(nobody())), stream: stream.boxed() }
}

fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node
}

/// These, one after the other, each after a wait.
fn each_after(wait: Duration, told: Vec<Event<Node>>) -> impl Stream<Item = Told> + Send {
    stream::iter(told).then(move |event| async move {
        tokio::time::sleep(wait).await;
        Ok(event)
    })
}

fn is_connected(shared: &Shared) -> bool {
    matches!(&*lock(&shared.state), State::Connected(_))
}

#[tokio::test]
async fn what_was_suspected_of_one_connection_does_not_end_the_next() {
    let shared = shared();
    shared.suspected.notify_one();
    let mut follow = std::pin::pin!(shared.follow(connection(stream::pending()), ""));
    assert!(follow.as_mut().now_or_never().is_none(), "the connection was given up at once");
    assert!(is_connected(&shared));
    // What is suspected from now on is about this one.
    shared.suspected.notify_one();
    assert!(follow.now_or_never().is_some());
    assert!(!is_connected(&shared));
}

#[tokio::test]
async fn what_was_sent_over_one_connection_and_not_answered_does_not_end_the_next() {
    let home = Home { shared: Arc::new(shared()), task: tokio::spawn(std::future::pending::<()>()).abort_handle() };
    let lost = connection(stream::empty());
    let before = Arc::clone(&lost.nodes);
    home.shared.follow(lost, "").await;
    let next = connection(stream::pending());
    let now = Arc::clone(&next.nodes);
    let mut follow = std::pin::pin!(home.shared.follow(next, ""));
    assert!(follow.as_mut().now_or_never().is_none());
    home.suspect(&before);
    assert!(follow.as_mut().now_or_never().is_none(), "the connection was given up for another's sake");
    home.suspect(&now);
    assert!(follow.now_or_never().is_some());
}

#[tokio::test]
async fn nobody_relies_on_a_connection_that_is_lost_and_everybody_is_called() {
    let shared = shared();
    let key = Key { namespace: "team".to_owned(), name: "desk".to_owned() };
    lock(&shared.watched).add(&key, "n1");
    let mut follow = std::pin::pin!(shared.follow(connection(stream::pending()), ""));
    assert!(follow.as_mut().now_or_never().is_none());
    // Called because it is connected, and again because it is not any more.
    for lost in [false, true] {
        if lost {
            shared.suspected.notify_one();
            assert!(follow.as_mut().now_or_never().is_some());
        }
        assert_eq!(is_connected(&shared), !lost);
        assert_eq!(shared.means.queue.next(|_| Place::default()).now_or_never(), Some(key.clone()));
        shared.means.queue.done(&key, None);
    }
    assert!(matches!(&*lock(&shared.state), State::Sought));

    // The same where the cluster itself ends it.
    shared.follow(connection(stream::empty()), "").await;
    assert!(matches!(&*lock(&shared.state), State::Sought));
}

#[tokio::test]
async fn a_connection_that_works_is_not_given_up_because_the_management_cluster_does_not_answer() {
    let shared = shared();
    let key = Key { namespace: "team".to_owned(), name: "desk".to_owned() };
    lock(&shared.watched).add(&key, "n1");
    // A Node is missed, so the Secret is looked for, and nobody says whether it is there.
    shared.missed.notify_one();
    let called_twice = async {
        for _ in 0..2 {
            shared.means.queue.next(|_| Place::default()).await;
            shared.means.queue.done(&key, None);
        }
    };
    tokio::select! {
        biased;
        () = shared.follow(connection(stream::pending()), "") => panic!("the connection was given up"),
        () = called_twice => {}
    }
    assert!(is_connected(&shared));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_may_take_its_time_over_many_nodes_but_not_over_the_next() {
    let slowly = FIRST_ANSWER * 9 / 10;
    let mut told = vec![Event::Init];
    told.extend((0..9).map(|it| Event::InitApply(node(&format!("n{it}")))));
    told.push(Event::InitDone);
    let mut many = connection(each_after(slowly, told.clone()).chain(stream::pending()));
    assert_eq!(shared().hear_of_all(&mut many).await, Ok(()));
    assert!(many.nodes.get("n8").is_some());

    told.truncate(2);
    let mut silent = connection(each_after(slowly, told).chain(stream::pending()));
    assert_eq!(shared().hear_of_all(&mut silent).await, Err("did not answer within 15 s".to_owned()));
    let mut ended = connection(stream::empty());
    assert_eq!(shared().hear_of_all(&mut ended).await, Err("ended the watch of its Nodes".to_owned()));
}
