//! A control plane, this machine as its Node, and the agent installed as in a workload cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fivespot_api::keys::{
    RECLAIM_AGENT_LABEL, RECLAIM_CONFIG_KEY, RECLAIM_REASON_ANNOTATION, RECLAIM_REQUESTED_ANNOTATION,
    RECLAIM_REQUESTED_AT_ANNOTATION, reclaim_config_map,
};
use fivespot_testbed::audit::Entries;
use fivespot_testbed::node::{Image, static_program};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, RealNode};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

pub(crate) const SOON: Duration = Duration::from_mins(5);
const NAMESPACE: &str = "5spot-system";
const NODE: &str = "desk-01";
pub(crate) const AGENT_IMAGE: &str = "localhost/5spot/agent:test";
const IDEA_IMAGE: &str = "localhost/idea:test";

/// What a test overlay changes: the image, which nobody can pull here, and the way to the API server, as there is no
/// kube-proxy.
fn overlay(port: &str) -> String {
    format!(
        r#"apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../deploy/overlays/workload-cluster]
patches:
  - patch: |
      apiVersion: apps/v1
      kind: DaemonSet
      metadata: {{ name: 5spot-reclaim-agent, namespace: {NAMESPACE} }}
      spec:
        template:
          spec:
            containers:
              - name: agent
                image: {AGENT_IMAGE}
                imagePullPolicy: Never
                env:
                  - {{ name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1 }}
                  - {{ name: KUBERNETES_SERVICE_PORT, value: "{port}" }}
"#
    )
}

/// Installs the agent as in a workload cluster, with its image on this node.
pub(crate) async fn install_agent(plane: &ControlPlane, node: &RealNode) {
    let program = tokio::task::spawn_blocking(|| static_program("5spot-reclaim-agent").unwrap()).await.unwrap();
    node.import(&Image::of(AGENT_IMAGE, &program)).await.unwrap();
    // Kustomize takes only what is reached by relative paths.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let directory = tempfile::tempdir_in(root.join("target")).unwrap();
    fs::write(directory.path().join("kustomization.yaml"), overlay(node.api_server_port())).unwrap();
    plane.apply(directory.path()).await.unwrap();
}

pub(crate) struct Stage {
    node: RealNode,
    plane: ControlPlane,
}

impl Stage {
    pub(crate) async fn set(name: &str) -> Self {
        let plane = ControlPlane::start(ControlPlaneOptions::named(name).for_real_nodes()).await.unwrap();
        let node = RealNode::start(&plane, NODE, "remote-machine://test/desk-01").await.unwrap();
        install_agent(&plane, &node).await;
        Self { node, plane }
    }

    /// As the controller does for a machine whose owner has named programs.
    pub(crate) async fn label_node(&self, value: &str) {
        let nodes: Api<Node> = Api::all(self.plane.client());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { RECLAIM_AGENT_LABEL: value } } }));
        nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// As an administrator does who wants no pods there.
    pub(crate) async fn taint_node(&self) {
        let nodes: Api<Node> = Api::all(self.plane.client());
        let taints = json!([{ "key": "example.com/mine", "effect": "NoExecute" }]);
        let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
        nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn daemon_set_once(&self, is_so: impl Fn(&DaemonSetStatus) -> bool) -> DaemonSetStatus {
        let sets: Api<DaemonSet> = Api::namespaced(self.plane.client(), NAMESPACE);
        eventually("the DaemonSet is so", SOON, async || {
            let status = sets.get("5spot-reclaim-agent").await.unwrap().status.unwrap_or_default();
            if is_so(&status) { Ok(status) } else { Err(json!(status)) }
        })
        .await
    }

    /// The name of the agent's pod, once it runs.
    pub(crate) async fn agent(&self) -> String {
        eventually("the agent runs", SOON, async || {
            let found = self.pods().await;
            found.iter().find(|it| is_running(it)).map(kube::ResourceExt::name_any).ok_or_else(|| json!(found))
        })
        .await
    }

    /// The agent's process, as the host sees it.
    pub(crate) async fn pid_of(&self, pod: &str) -> u32 {
        let pods: Api<Pod> = Api::namespaced(self.plane.client(), NAMESPACE);
        process_in(&pods.get(pod).await.unwrap(), "5spot-reclaim-a").await
    }

    /// Runs a pod whose program has the name of one of the owner's, and gives its process.
    pub(crate) async fn run_idea_in_a_pod(&self) -> u32 {
        self.node.import(&Image::sleeper(IDEA_IMAGE, "idea").unwrap()).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(self.plane.client(), "default");
        let pod = serde_json::from_value(json!({
            "metadata": { "name": "idea" },
            "spec": {
                "nodeName": NODE,
                "hostNetwork": true,
                "containers": [{ "name": "idea", "image": IDEA_IMAGE, "imagePullPolicy": "Never" }],
            },
        }));
        pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
        process_in(&pods.get("idea").await.unwrap(), "idea").await
    }

    /// As the controller does for a machine whose owner has named programs: what to look for.
    pub(crate) async fn look_for(&self, command: &str) {
        self.let_look_for(NODE, command).await;
    }

    async fn let_look_for(&self, node: &str, command: &str) {
        let orders: Api<ConfigMap> = Api::namespaced(self.plane.client(), NAMESPACE);
        let data = json!({ RECLAIM_CONFIG_KEY: format!("match_commands = ['{command}']\n") });
        let name = reclaim_config_map(node);
        let map = serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap();
        orders.create(&PostParams::default(), &map).await.unwrap();
    }

    /// As somebody does who may edit the DaemonSet, and wants another machine to go: its agents take themselves for the
    /// agent of a Node that is another machine.
    pub(crate) async fn take_it_for(&self, victim: &str, command: &str) {
        let nodes: Api<Node> = Api::all(self.plane.client());
        let node = serde_json::from_value(json!({ "metadata": { "name": victim } })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let info = json!({
            "machineID": "00000000000000000000000000000001", "systemUUID": "", "bootID": "", "kernelVersion": "",
            "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        });
        let status = Patch::Merge(json!({ "status": { "nodeInfo": info } }));
        nodes.patch_status(victim, &PatchParams::default(), &status).await.unwrap();
        self.let_look_for(victim, command).await;

        let name = json!({ "name": "NODE_NAME", "value": victim, "valueFrom": null });
        self.roll_out(json!({ "env": [name] })).await;
    }

    /// Changes the agent's container, so that its pods are replaced.
    pub(crate) async fn roll_out(&self, mut container: Value) {
        container["name"] = "agent".into();
        self.edit_daemon_set(json!({ "template": { "spec": { "containers": [container] } } })).await;
    }

    pub(crate) async fn edit_daemon_set(&self, spec: Value) {
        let sets: Api<DaemonSet> = Api::namespaced(self.plane.client(), NAMESPACE);
        let patch = Patch::Strategic(json!({ "spec": spec }));
        sets.patch("5spot-reclaim-agent", &PatchParams::default(), &patch).await.unwrap();
    }

    /// The agent's pods.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.plane.client(), NAMESPACE);
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until the request is on the Node.
    pub(crate) async fn requested(&self, command: &str) {
        eventually("the request is on the Node", SOON, async || {
            let annotations = self.annotations().await;
            let of = |key| annotations.get(key).map(String::as_str);
            let stored = of(RECLAIM_REQUESTED_ANNOTATION) == Some("true")
                && of(RECLAIM_REASON_ANNOTATION) == Some(&*format!("process-match: {command}"))
                && of(RECLAIM_REQUESTED_AT_ANNOTATION).is_some();
            if stored { Ok(()) } else { Err(format!("{annotations:?}")) }
        })
        .await;
    }

    /// What the agent has tried to write so far.
    pub(crate) fn tried(&self) -> Entries {
        self.plane.audit().entries().by("system:serviceaccount:5spot-system:5spot-reclaim-agent").writes()
    }

    /// The first line of a pod's log that is so.
    pub(crate) async fn logs(&self, pod: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the agent logs {what}"), SOON, async || {
            let printed = self.node.logs_of(NAMESPACE, pod);
            let line = printed.lines().filter_map(|it| serde_json::from_str(it).ok()).find(&is_so);
            line.ok_or(printed)
        })
        .await
    }

    /// The annotations of the Node.
    pub(crate) async fn annotations(&self) -> BTreeMap<String, String> {
        let nodes: Api<Node> = Api::all(self.plane.client());
        nodes.get(NODE).await.unwrap().metadata.annotations.unwrap_or_default()
    }

    pub(crate) async fn end(self) {
        self.node.stop().await;
    }
}

fn is_running(pod: &Pod) -> bool {
    let states = pod.status.as_ref().and_then(|it| it.container_statuses.as_ref()).into_iter().flatten();
    states.filter_map(|it| it.state.as_ref()).any(|it| it.running.is_some())
}

/// The process of this name in the control groups of a pod.
async fn process_in(pod: &Pod, name: &str) -> u32 {
    let uid = pod.uid().unwrap();
    eventually(&format!("{name} runs in the pod"), SOON, async || {
        let is_it = |pid: &u32| {
            let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            of("cgroup").contains(&uid) && of("comm").trim() == name
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.into_iter().find(is_it)
    })
    .await
}
