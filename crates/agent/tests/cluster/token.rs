//! A token that is rotated, as a kubelet does it: the file is another one at once, and the old token ends.

use std::os::unix::fs::symlink;

use fivespot_testbed::Access;
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::stage::{NAMESPACE, SOON, Stage, shared};

/// A volume as the kubelet writes it: what is read is behind a link that is swapped.
fn mount(stage: &Stage<'_>, token: &str, generation: &str) {
    let volume = stage.path("volume");
    std::fs::create_dir_all(volume.join(generation)).unwrap();
    std::fs::write(volume.join(generation).join("token"), token).unwrap();
    symlink(generation, volume.join("..data_tmp")).unwrap();
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    if generation == "..1" {
        symlink("..data/token", volume.join("token")).unwrap();
    }
}

fn read_token_from_volume(stage: &Stage<'_>, server: &str) {
    let mut kubeconfig: Value = serde_json::from_str(&stage.access.kubeconfig()).unwrap();
    kubeconfig["users"][0]["user"] = json!({ "tokenFile": stage.path("volume/token") });
    kubeconfig["clusters"][0]["cluster"]["server"] = server.into();
    std::fs::write(stage.path("kubeconfig"), kubeconfig.to_string()).unwrap();
}

/// The API server remembers a token for a while.
async fn ended(access: &Access) {
    let maps: Api<ConfigMap> = Api::namespaced(access.client(), NAMESPACE);
    eventually(
        "the old token is refused",
        SOON,
        async || matches!(maps.get_opt("none").await, Err(kube::Error::Api(status)) if status.code == 401),
    )
    .await;
}

#[tokio::test]
async fn a_token_that_is_rotated_is_read_anew_by_the_watch_and_by_the_request() {
    let stage = Stage::new(shared().await, "rotated").await;
    let (first, second) = (stage.pod("rotated-1").await, stage.pod("rotated-2").await);
    let gate = Gate::before(stage.access.server()).await;
    mount(&stage, first.token(), "..1");
    read_token_from_volume(&stage, &gate.server());
    let agent = stage.armed("match_commands = ['rotated-idea']\n", &[]).await;

    mount(&stage, second.token(), "..2");
    stage.pods().delete("rotated-1", &DeleteParams::default().grace_period(0)).await.unwrap();
    ended(&first).await;
    let _idea = stage.start("rotated-idea");
    stage.requested().await;
    agent.says("the request is stored").await;

    // A watch that has begun is not asked again who it is; the next one is.
    gate.cut();
    stage.order("match_commands = ['rotated-idea', 'rotated-idea-2']\n").await;
    agent.says_times("\"armed\"", 2).await;
}
