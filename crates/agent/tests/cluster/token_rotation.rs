//! A rotated token, as the kubelet does it: the mounted file is replaced, and the previous token expires.

use std::os::unix::fs::symlink;

use fivespot_testbed::Access;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::env::{NAMESPACE, NodeEnv, REASON, shared};
use crate::fixtures::TIMEOUT;
use crate::tcp_proxy::TcpProxy;

/// The kubelet writes a volume behind a symlink, which it replaces atomically.
fn mount(env: &NodeEnv<'_>, token: &str, generation: &str) {
    let volume = env.path("volume");
    std::fs::create_dir_all(volume.join(generation)).unwrap();
    std::fs::write(volume.join(generation).join("token"), token).unwrap();
    symlink(generation, volume.join("..data_tmp")).unwrap();
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    if generation == "..1" {
        symlink("..data/token", volume.join("token")).unwrap();
    }
}

fn use_mounted_token(env: &NodeEnv<'_>, server: &str) {
    let mut kubeconfig: Value = serde_json::from_str(&env.access.kubeconfig()).unwrap();
    kubeconfig["users"][0]["user"] = json!({ "tokenFile": env.path("volume/token") });
    kubeconfig["clusters"][0]["cluster"]["server"] = server.into();
    std::fs::write(env.path("kubeconfig"), kubeconfig.to_string()).unwrap();
}

/// The API server caches tokens for a while.
async fn wait_until_rejected(access: &Access) {
    let maps: Api<ConfigMap> = Api::namespaced(access.client(), NAMESPACE);
    eventually(
        "the previous token is rejected",
        TIMEOUT,
        async || matches!(maps.get_opt("none").await, Err(kube::Error::Api(status)) if status.code == 401),
    )
    .await;
}

#[tokio::test]
async fn request_and_watch_use_the_rotated_token() {
    let env = NodeEnv::new(shared().await, "rotated").await;
    let (first, second) = (env.pod_access("rotated-1").await, env.pod_access("rotated-2").await);
    let proxy = TcpProxy::in_front_of(env.access.server()).await;
    mount(&env, first.token(), "..1");
    use_mounted_token(&env, &proxy.server());
    let _agent = env.start_armed_agent("match_commands = ['rotated-idea']\n", &[]).await;

    mount(&env, second.token(), "..2");
    env.pods().delete("rotated-1", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait_until_rejected(&first).await;
    let idea = env.start_program("rotated-idea");
    env.wait_for_request().await;

    // An open watch is not authenticated again, so a new one is forced.
    drop(idea);
    proxy.close_connections();
    env.apply_config("match_commands = ['rotated-idea-2']\n").await;
    env.clear_request().await;
    let _idea = env.start_program("rotated-idea-2");
    assert_eq!(env.wait_for_request().await[REASON], "process-match: rotated-idea-2");
}
