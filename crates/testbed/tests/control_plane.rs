//! Control planes: one and several, as admin, as a `ServiceAccount`, and with the API server away.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

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
async fn a_service_account_may_do_what_its_role_says_and_no_more() {
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
    let refusal = maps.create(&create, &named("x")).await.unwrap_err();
    assert!(matches!(&refusal, kube::Error::Api(status) if status.code == 403), "{refusal}");

    testbed.audit().caught_up(&test.client).await;
    let user = format!("system:serviceaccount:{}:reader", test.name);
    let seen = testbed.audit().since(mark).by(&user).on("configmaps").0;
    let answers: Vec<(&str, u16)> = seen.iter().map(|entry| (entry.verb.as_str(), entry.code)).collect();
    assert_eq!(answers, [("list", 200), ("create", 403)]);
    test.close().await;
}

#[tokio::test]
async fn a_token_bound_to_a_node_tells_the_node() {
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
async fn two_control_planes_at_once_are_separate() {
    let options = |name| ControlPlaneOptions::named(name).without_scheduler().without_controller_manager();
    let (one, two) = tokio::join!(ControlPlane::start(options("one")), ControlPlane::start(options("two")));
    let (one, two) = (one.unwrap(), two.unwrap());
    let maps = |plane: &ControlPlane| Api::<ConfigMap>::namespaced(plane.client(), "default");
    maps(&one).create(&PostParams::default(), &named("only-here")).await.unwrap();
    assert!(maps(&two).get_opt("only-here").await.unwrap().is_none());

    let stranger = one.admin().with_token(two.admin().token());
    let refusal = stranger.client().list_core_api_resources("v1").await.unwrap_err();
    assert!(matches!(&refusal, kube::Error::Api(status) if status.code == 401), "{refusal}");
}

#[tokio::test]
async fn a_user_of_the_callers_choice_has_the_groups_it_was_given() {
    let options = ControlPlaneOptions::named("users").without_scheduler().without_controller_manager();
    let plane = ControlPlane::start(options.user("alice", &["staff", "readers"])).await.unwrap();
    let alice = who_am_i(&plane.access("alice").unwrap()).await["status"]["userInfo"].clone();
    assert_eq!(alice["username"], "alice");
    assert_eq!(alice["groups"], json!(["staff", "readers", "system:authenticated"]));
    assert!(plane.access("bob").is_none());
}

#[tokio::test]
async fn a_killed_api_server_comes_back_with_its_data_at_the_same_address() {
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
async fn a_stopped_api_server_gives_no_answer_until_it_goes_on() {
    let options = ControlPlaneOptions::named("hang").without_scheduler().without_controller_manager();
    let plane = ControlPlane::start(options).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    plane.signal_api_server(Signal::STOP).unwrap();
    let asking = maps.get_opt("absent");
    tokio::pin!(asking);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut asking).await.is_err());
    plane.signal_api_server(Signal::CONT).unwrap();
    assert!(asking.await.unwrap().is_none());
}

#[tokio::test]
async fn kubectl_and_the_scheduler_are_there() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("kubectl").await;
    let mut kubectl = testbed.control_plane().kubectl().unwrap();
    let output = kubectl.args(["get", "namespace", &test.name, "-o", "name"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("namespace/{}", test.name));
    testbed.control_plane().check_alive().unwrap();
}

#[tokio::test]
async fn a_file_and_a_kustomization_can_be_applied_and_a_bad_one_says_why() {
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

    let bad = write("bad.yaml", &json!({ "apiVersion": "v1", "kind": "Unheard" }).to_string());
    let error = testbed.control_plane().apply(&bad).await.unwrap_err();
    assert!(error.to_string().contains("Unheard"), "{error}");
    test.close().await;
}

#[tokio::test]
async fn a_panicking_test_leaves_the_objects_of_its_namespace_to_be_read() {
    let testbed = shared_control_plane().await;
    let test = testbed.namespace("evidence").await;
    let file = testbed.control_plane().run_dir().path().join(format!("evidence-{}.txt", test.name));
    let failing = tokio::spawn(async move {
        let pod: Pod = from(json!({ "metadata": { "name": "witness" },
            "spec": { "containers": [{ "name": "main", "image": "none" }] } }));
        test.api().create(&PostParams::default(), &pod).await.unwrap();
        panic!("on purpose");
    });
    assert!(failing.await.unwrap_err().is_panic());
    let evidence = std::fs::read_to_string(file).unwrap();
    assert!(evidence.contains("--- Pod witness"), "{evidence}");
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
