//! A proxy that lets everything through, until it kills.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use fivespot_testbed::process::Process;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{FaultProxy, TestNamespace, shared_control_plane};
use futures::TryStreamExt as _;
use http::header::USER_AGENT;
use http::{HeaderValue, Method, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Config, ResourceExt as _};

/// Generous: two busy cores, and nothing is asserted about time.
const SOON: Duration = Duration::from_mins(2);
/// Set in a child of this test binary: where it writes.
const NAMESPACE: &str = "FIVESPOT_TEST_NAMESPACE";
/// How often it writes.
const WRITES: usize = 5;
/// What it waits for.
const GO: &str = "go";

#[tokio::test]
async fn lists_watches_and_writes_go_through_and_writes_are_counted() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("fault proxy").await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    let access = testbed.control_plane().admin().through(&proxy);
    let maps: Api<ConfigMap> = Api::namespaced(client(access.config()), &test.name);

    let listed = maps.list(&ListParams::default()).await.unwrap();
    let version = listed.metadata.resource_version.unwrap();
    let mut watch = Box::pin(maps.watch(&WatchParams::default(), &version).await.unwrap());
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &named(name)).await.unwrap();
        // The watch goes on: what it tells comes at once, not when it ends.
        let told = tokio::time::timeout(SOON, watch.try_next()).await.unwrap().unwrap();
        assert!(matches!(&told, Some(WatchEvent::Added(map)) if map.name_any() == name), "{told:?}");
    }
    maps.delete("c", &DeleteParams::default()).await.unwrap_err();
    // Somebody else, who does not count.
    let others: Api<ConfigMap> = Api::namespaced(access.client(), &test.name);
    others.delete("a", &DeleteParams::default()).await.unwrap();

    // One that is carried out, and nobody is told of it.
    proxy.lose_answer_of(1);
    maps.create(&PostParams::default(), &named("d")).await.unwrap_err();
    maps.get("d").await.unwrap();

    // One that comes late.
    proxy.hold_request_of(1);
    let late = async { maps.create(&PostParams::default(), &named("e")).await.unwrap_err() };
    let faster = async {
        eventually("it is held", SOON, async || proxy.holds_request()).await;
        others.create(&PostParams::default(), &named("e")).await.unwrap();
        proxy.release();
    };
    let (refused, ()) = tokio::join!(late, faster);
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 409), "{refused}");
    assert!(!proxy.holds_request());

    // Two that the API server does not get. Of other statuses the client would try again by itself.
    proxy.refuse(2, StatusCode::INTERNAL_SERVER_ERROR, Some(7));
    for _ in 0..2 {
        maps.create(&PostParams::default(), &named("f")).await.unwrap_err();
    }
    maps.create(&PostParams::default(), &named("f")).await.unwrap();

    let path = format!("/api/v1/namespaces/{}/configmaps", test.name);
    let writes: Vec<_> = proxy.writes().into_iter().map(|it| (it.method, it.path, it.status)).collect();
    assert_eq!(
        writes,
        [
            (Method::POST, path.clone(), StatusCode::CREATED),
            (Method::POST, path.clone(), StatusCode::CREATED),
            (Method::DELETE, format!("{path}/c"), StatusCode::NOT_FOUND),
            (Method::POST, path.clone(), StatusCode::CREATED),
            (Method::POST, path.clone(), StatusCode::CONFLICT),
            (Method::POST, path.clone(), StatusCode::INTERNAL_SERVER_ERROR),
            (Method::POST, path.clone(), StatusCode::INTERNAL_SERVER_ERROR),
            (Method::POST, path.clone(), StatusCode::CREATED),
        ]
    );
    test.close().await;
}

/// Not a test of its own: the process that the other kills. It writes when it is told to, all at once.
#[tokio::test]
async fn a_process_that_writes() {
    let Ok(namespace) = env::var(NAMESPACE) else { return };
    let maps: Api<ConfigMap> = Api::namespaced(client(Config::infer().await.unwrap()), &namespace);
    eventually("there is something to do", SOON, async || maps.get_opt(GO).await.unwrap()).await;
    let names: Vec<String> = (0..WRITES).map(|it| format!("map-{it}")).collect();
    let writes = names.iter().map(async |name| maps.create(&PostParams::default(), &named(name)).await);
    for written in futures::future::join_all(writes).await {
        written.unwrap();
    }
}

#[tokio::test]
async fn a_process_is_killed_after_the_write_of_choice_whatever_it_has_sent_meanwhile() {
    let testbed = shared_control_plane().await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    for nth in 1..=WRITES + 1 {
        let test = testbed.namespace("fault proxy kills").await;
        let access = testbed.control_plane().admin().through(&proxy);
        let kubeconfig = testbed.control_plane().write_kubeconfig("fault-proxy", &access).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "a_process_that_writes"]).env("KUBECONFIG", kubeconfig).env(NAMESPACE, &test.name);
        let mut process = Process::spawn("writes", &mut command, &testbed.control_plane().logs()).unwrap();
        proxy.kill_after(nth, process.pid());
        test.api().create(&PostParams::default(), &named(GO)).await.unwrap();
        let ended = eventually("the process ends", SOON, async || process.exit_status().unwrap()).await;
        let killed = nth <= WRITES;
        assert_eq!(ended.signal(), killed.then_some(9), "{ended}");
        assert_eq!(ended.success(), !killed, "{ended}");
        assert_eq!(written(&test).await, nth.min(WRITES));
        proxy.spare();
        test.close().await;
    }
}

async fn written(test: &TestNamespace) -> usize {
    let maps = test.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    maps.items.iter().filter(|it| it.name_any().starts_with("map-")).count()
}

/// A client that calls itself as the programs do whose writes count.
fn client(mut config: Config) -> Client {
    config.headers.push((USER_AGENT, HeaderValue::from_static("5spot/test")));
    Client::try_from(config).unwrap()
}

fn named(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}
