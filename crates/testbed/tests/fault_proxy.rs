//! The fault proxy forwards everything until it injects a fault.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

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

/// Generous, for two busy cores: no test asserts a duration.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Set in a child of this test binary: the namespace to write to.
const NAMESPACE: &str = "FIVESPOT_TEST_NAMESPACE";
/// How many ConfigMaps the child creates.
const WRITES: usize = 5;
/// The ConfigMap that the child waits for.
const GO: &str = "go";

#[tokio::test]
async fn forwards_requests_counts_writes_and_injects_faults() {
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
        // The proxy streams watch events; it does not buffer them until the watch ends.
        let event = tokio::time::timeout(TIMEOUT, watch.try_next()).await.unwrap().unwrap();
        assert!(matches!(&event, Some(WatchEvent::Added(map)) if map.name_any() == name), "{event:?}");
    }
    maps.delete("c", &DeleteParams::default()).await.unwrap_err();
    // A client whose writes are not counted.
    let others: Api<ConfigMap> = Api::namespaced(access.client(), &test.name);
    others.delete("a", &DeleteParams::default()).await.unwrap();

    // The write is executed, but the client gets no response.
    proxy.drop_response_of(1);
    maps.create(&PostParams::default(), &named("d")).await.unwrap_err();
    maps.get("d").await.unwrap();

    // The request is delayed, and another client is faster.
    proxy.hold_request_of(1);
    let late = async { maps.create(&PostParams::default(), &named("e")).await.unwrap_err() };
    let faster = async {
        eventually("the request is held", TIMEOUT, async || proxy.holds_request()).await;
        others.create(&PostParams::default(), &named("e")).await.unwrap();
        proxy.release();
    };
    let (conflict, ()) = tokio::join!(late, faster);
    assert!(matches!(&conflict, kube::Error::Api(status) if status.code == 409), "{conflict}");
    assert!(!proxy.holds_request());

    // Two rejected writes. With another status the client would retry by itself.
    proxy.reject_next(2, StatusCode::INTERNAL_SERVER_ERROR, Some(7));
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

/// Not a test: the process that the next test kills. It sends all writes concurrently, once the ConfigMap `go` exists.
#[tokio::test]
async fn child_process_that_writes() {
    let Ok(namespace) = env::var(NAMESPACE) else { return };
    let maps: Api<ConfigMap> = Api::namespaced(client(Config::infer().await.unwrap()), &namespace);
    eventually("ConfigMap go exists", TIMEOUT, async || maps.get_opt(GO).await.unwrap()).await;
    let names: Vec<String> = (0..WRITES).map(|it| format!("map-{it}")).collect();
    let writes = names.iter().map(async |name| maps.create(&PostParams::default(), &named(name)).await);
    for written in futures::future::join_all(writes).await {
        written.unwrap();
    }
}

#[tokio::test]
async fn kills_the_process_after_the_nth_of_concurrent_writes() {
    let testbed = shared_control_plane().await;
    let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
    for nth in 1..=WRITES + 1 {
        let test = testbed.namespace("fault proxy kills").await;
        let access = testbed.control_plane().admin().through(&proxy);
        let kubeconfig = testbed.control_plane().write_kubeconfig("fault-proxy", &access).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "child_process_that_writes"]).env("KUBECONFIG", kubeconfig).env(NAMESPACE, &test.name);
        let mut process = Process::spawn("writes", &mut command, &testbed.control_plane().logs()).unwrap();
        proxy.kill_after(nth, process.pid());
        test.api().create(&PostParams::default(), &named(GO)).await.unwrap();
        let status = eventually("the process exits", TIMEOUT, async || process.exit_status().unwrap()).await;
        let killed = nth <= WRITES;
        assert_eq!(status.signal(), killed.then_some(9), "{status}");
        assert_eq!(status.success(), !killed, "{status}");
        assert_eq!(written(&test).await, nth.min(WRITES));
        proxy.clear_faults();
        test.close().await;
    }
}

async fn written(test: &TestNamespace) -> usize {
    let maps = test.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    maps.items.iter().filter(|it| it.name_any().starts_with("map-")).count()
}

/// A client with the user agent of a program whose writes are counted.
fn client(mut config: Config) -> Client {
    config.headers.push((USER_AGENT, HeaderValue::from_static("5spot/test")));
    Client::try_from(config).unwrap()
}

fn named(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}
