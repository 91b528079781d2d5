//! Control planes: users, ServiceAccounts, several at once, and outages of the API server.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use fivespot_testbed::process::Signal;
use fivespot_testbed::{Access, ControlPlane, ControlPlaneOptions, shared_control_plane};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[tokio::test]
async fn service_account_has_only_the_permissions_of_its_role() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("a service account").await;
    let create = PostParams::default();
    let account: ServiceAccount = from(json!({ "metadata": { "name": "reader" } }));
    test.api().create(&create, &account).await.unwrap();
    let role: Role = from(json!({ "metadata": { "name": "reads" }, "rules": [
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] },
    ] }));
    test.api().create(&create, &role).await.unwrap();
    let binding: RoleBinding = from(json!({
        "metadata": { "name": "reads" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads" },
        "subjects": [{ "kind": "ServiceAccount", "name": "reader", "namespace": test.name }],
    }));
    test.api().create(&create, &binding).await.unwrap();

    let mark = testbed.audit().mark();
    let reader = testbed.control_plane().service_account(&test.name, "reader").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(reader.client(), &test.name);
    maps.list(&ListParams::default()).await.unwrap();
    let error = maps.create(&create, &named("x")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{error}");

    testbed.audit().caught_up(&test.client).await;
    let user = format!("system:serviceaccount:{}:reader", test.name);
    let entries = testbed.audit().since(mark).by(&user).on("configmaps").0;
    let codes: Vec<(&str, u16)> = entries.iter().map(|entry| (entry.verb.as_str(), entry.code)).collect();
    assert_eq!(codes, [("list", 200), ("create", 403)]);
    test.close().await;
}

#[tokio::test]
async fn token_bound_to_a_node_has_node_name_claim() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("bound token").await;
    let nodes: Api<Node> = Api::all(test.client.clone());
    nodes.create(&PostParams::default(), &named(&test.name)).await.unwrap();
    test.api().create(&PostParams::default(), &named::<ServiceAccount>("agent")).await.unwrap();
    let agent = testbed.control_plane().service_account_on_node(&test.name, "agent", &test.name).await.unwrap();
    let extra = who_am_i(&agent).await["status"]["userInfo"]["extra"].clone();
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!([test.name]));
    test.close().await;
}

#[tokio::test]
async fn two_control_planes_are_isolated() {
    let options = |name| ControlPlaneOptions::named(name).without_scheduler().without_controller_manager();
    let (one, two) = tokio::join!(ControlPlane::start(options("one")), ControlPlane::start(options("two")));
    let (one, two) = (one.unwrap(), two.unwrap());
    let maps = |plane: &ControlPlane| Api::<ConfigMap>::namespaced(plane.client(), "default");
    maps(&one).create(&PostParams::default(), &named("only-here")).await.unwrap();
    assert!(maps(&two).get_opt("only-here").await.unwrap().is_none());

    let wrong_token = one.admin().with_token(two.admin().token());
    let error = wrong_token.client().list_core_api_resources("v1").await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
}

#[tokio::test]
async fn custom_user_has_its_groups() {
    let options = ControlPlaneOptions::named("users").without_scheduler().without_controller_manager();
    let plane = ControlPlane::start(options.user("alice", &["staff", "readers"])).await.unwrap();
    let alice = who_am_i(&plane.access("alice").unwrap()).await["status"]["userInfo"].clone();
    assert_eq!(alice["username"], "alice");
    assert_eq!(alice["groups"], json!(["staff", "readers", "system:authenticated"]));
    assert!(plane.access("bob").is_none());
}

#[tokio::test]
async fn restarted_api_server_keeps_address_and_data() {
    let options = ControlPlaneOptions::named("outage").without_scheduler().without_controller_manager();
    let plane = ControlPlane::start(options).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    maps.create(&PostParams::default(), &named("kept")).await.unwrap();
    plane.kill_api_server();
    maps.get("kept").await.unwrap_err();
    plane.start_api_server().await.unwrap();
    maps.get("kept").await.unwrap();
}

#[tokio::test]
async fn stopped_api_server_hangs_until_continued() {
    let options = ControlPlaneOptions::named("hang").without_scheduler().without_controller_manager();
    let plane = ControlPlane::start(options).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    plane.signal_api_server(Signal::STOP).unwrap();
    let request = maps.get_opt("absent");
    tokio::pin!(request);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut request).await.is_err());
    plane.signal_api_server(Signal::CONT).unwrap();
    assert!(request.await.unwrap().is_none());
}

#[tokio::test]
async fn kubectl_works_and_all_servers_run() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("kubectl").await;
    let mut kubectl = testbed.control_plane().kubectl().unwrap();
    let output = kubectl.args(["get", "namespace", &test.name, "-o", "name"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("namespace/{}", test.name));
    testbed.control_plane().check_alive().unwrap();
}

#[tokio::test]
async fn applies_files_and_kustomizations_and_reports_errors() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("apply").await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let map = |name| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    write("a.yaml", &map("kustomized").to_string());
    write("kustomization.yaml", &json!({ "namespace": test.name, "resources": ["a.yaml"] }).to_string());
    testbed.control_plane().apply(directory.path()).await.unwrap();
    test.api::<ConfigMap>().get("kustomized").await.unwrap();

    let bad = write("bad.yaml", &json!({ "apiVersion": "v1", "kind": "Unknown" }).to_string());
    let error = testbed.control_plane().apply(&bad).await.unwrap_err();
    assert!(error.to_string().contains("Unknown"), "{error}");
    test.close().await;
}

#[tokio::test]
async fn panicking_test_dumps_its_namespace() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("dump").await;
    let file = testbed.control_plane().run_dir().path().join(format!("objects-{}.txt", test.name));
    let failing = tokio::spawn(async move {
        let pod: Pod = from(json!({ "metadata": { "name": "dumped" },
            "spec": { "containers": [{ "name": "main", "image": "none" }] } }));
        test.api().create(&PostParams::default(), &pod).await.unwrap();
        panic!("on purpose");
    });
    assert!(failing.await.unwrap_err().is_panic());
    let dump = std::fs::read_to_string(file).unwrap();
    assert!(dump.contains("--- Pod dumped"), "{dump}");
}

async fn who_am_i(access: &Access) -> Value {
    let reviews: Api<SelfSubjectReview> = Api::all(access.client());
    json!(reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap())
}

fn named<T: DeserializeOwned>(name: &str) -> T {
    from(json!({ "metadata": { "name": name } }))
}

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
