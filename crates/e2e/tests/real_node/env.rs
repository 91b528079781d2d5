//! A control plane with this machine as its Node, and the agent installed as in a workload cluster.

use std::collections::BTreeMap;
use std::fs;

use fivespot_api::keys::{
    RECLAIM_AGENT_LABEL, RECLAIM_CONFIG_KEY, RECLAIM_REASON_ANNOTATION, RECLAIM_REQUESTED_ANNOTATION,
    RECLAIM_REQUESTED_AT_ANNOTATION, reclaim_config_map,
};
use fivespot_e2e::{TIMEOUT, kustomization_dir};
use fivespot_testbed::audit::Entries;
use fivespot_testbed::node::{Image, static_program};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions, RealNode};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

const NAMESPACE: &str = "5spot-system";
const AGENT_USER: &str = "system:serviceaccount:5spot-system:5spot-reclaim-agent";
const NODE: &str = "desk-01";
/// A Node that is another machine.
pub(crate) const VICTIM: &str = "victim";
pub(crate) const VICTIM_MACHINE_ID: &str = "00000000000000000000000000000001";
pub(crate) const AGENT_IMAGE: &str = "localhost/5spot/agent:test";
const IDEA_IMAGE: &str = "localhost/idea:test";

/// An overlay for tests: an imported image, and the address of the API server because there is no kube-proxy.
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

/// Installs the agent as in a workload cluster, and imports its image.
pub(crate) async fn install_agent(plane: &ControlPlane, node: &RealNode) {
    let program = tokio::task::spawn_blocking(|| static_program("5spot-reclaim-agent").unwrap()).await.unwrap();
    node.import(&Image::of(AGENT_IMAGE, &program)).await.unwrap();
    let directory = kustomization_dir();
    fs::write(directory.path().join("kustomization.yaml"), overlay(node.api_server_port())).unwrap();
    plane.apply(directory.path()).await.unwrap();
}

pub(crate) struct AgentEnv {
    node: RealNode,
    plane: ControlPlane,
}

impl AgentEnv {
    pub(crate) async fn start(name: &str) -> Self {
        let plane = ControlPlane::start(ControlPlaneOptions::named(name).for_real_nodes()).await.unwrap();
        let node = RealNode::start(&plane, NODE, "remote-machine://test/desk-01").await.unwrap();
        install_agent(&plane, &node).await;
        Self { node, plane }
    }

    /// Sets the label that the controller sets for a machine with `killIfCommands`.
    pub(crate) async fn label_node(&self, value: &str) {
        let nodes: Api<Node> = Api::all(self.plane.client());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { RECLAIM_AGENT_LABEL: value } } }));
        nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Adds a taint that evicts pods without a toleration.
    pub(crate) async fn taint_node(&self) {
        let nodes: Api<Node> = Api::all(self.plane.client());
        let taints = json!([{ "key": "example.com/reserved", "effect": "NoExecute" }]);
        let patch = Patch::Merge(json!({ "spec": { "taints": taints } }));
        nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until `condition` holds for the status of the DaemonSet.
    pub(crate) async fn await_daemon_set(&self, condition: impl Fn(&DaemonSetStatus) -> bool) -> DaemonSetStatus {
        let sets: Api<DaemonSet> = Api::namespaced(self.plane.client(), NAMESPACE);
        eventually("the DaemonSet has the expected status", TIMEOUT, async || {
            let status = sets.get("5spot-reclaim-agent").await.unwrap().status.unwrap_or_default();
            if condition(&status) { Ok(status) } else { Err(json!(status)) }
        })
        .await
    }

    /// Waits until the agent is armed, which its readiness probe reports.
    pub(crate) async fn await_armed(&self) {
        self.await_daemon_set(|status| status.number_ready == 1).await;
    }

    /// Waits until the agent has read its configuration.
    pub(crate) async fn await_config_read(&self) {
        eventually("the agent has read its configuration", TIMEOUT, async || {
            let entries = self.plane.audit().entries().by(AGENT_USER);
            if entries.clone().on("configmaps").succeeded().is_empty() { Err(format!("{entries:?}")) } else { Ok(()) }
        })
        .await;
    }

    /// Waits until the agent's pod runs, and returns its name.
    pub(crate) async fn await_agent(&self) -> String {
        eventually("the agent runs", TIMEOUT, async || {
            let pods = self.pods().await;
            pods.iter().find(|pod| is_running(pod)).map(kube::ResourceExt::name_any).ok_or_else(|| json!(pods))
        })
        .await
    }

    /// The host's process ID of the agent.
    pub(crate) async fn agent_pid(&self, pod: &str) -> u32 {
        let pods: Api<Pod> = Api::namespaced(self.plane.client(), NAMESPACE);
        await_process(&pods.get(pod).await.unwrap(), "5spot-reclaim-a").await
    }

    /// Runs a pod whose program is called `idea`, and returns the host's process ID.
    pub(crate) async fn run_idea_pod(&self) -> u32 {
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
        await_process(&pods.get("idea").await.unwrap(), "idea").await
    }

    /// Runs a pod with volumes of several kinds, one of them mounted by subPath, until it is deleted. The names of the pod,
    /// its container and its volumes begin with `name`.
    pub(crate) async fn run_pod_with_volumes(&self, name: &str) {
        self.node.import(&Image::sleeper(IDEA_IMAGE, "sleeper").unwrap()).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), "default");
        let secret = json!({ "metadata": { "name": name }, "stringData": { "key": "value" } });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        let volumes = [
            ("memory", json!({ "emptyDir": { "medium": "Memory" } })),
            ("secret", json!({ "secret": { "secretName": name } })),
            ("projected", json!({ "projected": { "sources": [{ "secret": { "name": name } }] } })),
            ("disk", json!({ "emptyDir": {} })),
        ];
        let named = |kind: &str| format!("{name}-{kind}");
        let mount = |kind: &str| json!({ "name": named(kind), "mountPath": format!("/{kind}") });
        let mut mounts: Vec<Value> = volumes.iter().map(|(kind, _)| mount(kind)).collect();
        mounts.push(json!({ "name": named("disk"), "mountPath": "/sub-path", "subPath": "part" }));
        let volumes = volumes.map(|(kind, mut volume)| {
            volume["name"] = named(kind).into();
            volume
        });
        let container =
            json!({ "name": name, "image": IDEA_IMAGE, "imagePullPolicy": "Never", "volumeMounts": mounts });
        let spec = json!({
            "nodeName": NODE, "hostNetwork": true, "containers": [container], "volumes": volumes,
            "terminationGracePeriodSeconds": 1,
        });
        let pods: Api<Pod> = Api::namespaced(self.plane.client(), "default");
        let pod = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        eventually("the pod with volumes runs", TIMEOUT, async || {
            let pod = pods.get(name).await.unwrap();
            if is_running(&pod) { Ok(()) } else { Err(json!(pod.status)) }
        })
        .await;
        pods.delete(name, &DeleteParams::default()).await.unwrap();
        eventually("the pod with volumes is deleted", TIMEOUT, async || pods.get_opt(name).await.unwrap().is_none())
            .await;
    }

    /// Creates the ConfigMap that the controller creates for `killIfCommands: [command]`.
    pub(crate) async fn configure_agent(&self, command: &str) {
        self.create_agent_config(NODE, command).await;
    }

    /// Creates the ConfigMap with the text that the controller writes, which also matches arguments.
    pub(crate) async fn configure_agent_for_arguments(&self, command: &str) {
        let text = fivespot_planner::agent_config::render(&[command.to_owned()]).unwrap();
        self.create_agent_config_with(NODE, &text).await;
    }

    async fn create_agent_config(&self, node: &str, command: &str) {
        self.create_agent_config_with(node, &format!("match_commands = ['{command}']\n")).await;
    }

    async fn create_agent_config_with(&self, node: &str, text: &str) {
        let config_maps: Api<ConfigMap> = Api::namespaced(self.plane.client(), NAMESPACE);
        let data = json!({ RECLAIM_CONFIG_KEY: text });
        let name = reclaim_config_map(node);
        let map = serde_json::from_value(json!({ "metadata": { "name": name }, "data": data })).unwrap();
        config_maps.create(&PostParams::default(), &map).await.unwrap();
    }

    /// Acts as an attacker who may edit the DaemonSet: its agents get the name of a Node that is another machine.
    pub(crate) async fn impersonate_victim(&self, command: &str) {
        let nodes: Api<Node> = Api::all(self.plane.client());
        let node = serde_json::from_value(json!({ "metadata": { "name": VICTIM } })).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let info = json!({
            "machineID": VICTIM_MACHINE_ID, "systemUUID": "", "bootID": "", "kernelVersion": "",
            "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        });
        let status = Patch::Merge(json!({ "status": { "nodeInfo": info } }));
        nodes.patch_status(VICTIM, &PatchParams::default(), &status).await.unwrap();
        self.create_agent_config(VICTIM, command).await;

        let name = json!({ "name": "NODE_NAME", "value": VICTIM, "valueFrom": null });
        self.roll_out(json!({ "env": [name] })).await;
    }

    /// Patches the agent's container, which replaces its pods.
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

    /// Waits until the Node has the annotations of a reclaim request.
    pub(crate) async fn await_reclaim_request(&self, command: &str) {
        eventually("the Node has the reclaim request", TIMEOUT, async || {
            let annotations = self.annotations().await;
            let value = |key| annotations.get(key).map(String::as_str);
            let stored = value(RECLAIM_REQUESTED_ANNOTATION) == Some("true")
                && value(RECLAIM_REASON_ANNOTATION) == Some(&*format!("process-match: {command}"))
                && value(RECLAIM_REQUESTED_AT_ANNOTATION).is_some();
            if stored { Ok(()) } else { Err(format!("{annotations:?}")) }
        })
        .await;
    }

    /// All writes of the agent so far, including rejected ones.
    pub(crate) fn agent_writes(&self) -> Entries {
        self.plane.audit().entries().by(AGENT_USER).writes()
    }

    /// Waits until the agent logs a match, and returns its fields.
    pub(crate) async fn await_match(&self, pod: &str) -> Value {
        self.await_log(pod, "a match", |line| line["pid"].is_number() && line["matched"].is_string()).await
    }

    /// Waits for the first line of a pod's log that satisfies `condition`.
    pub(crate) async fn await_log(&self, pod: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the agent logs {what}"), TIMEOUT, async || {
            let log = self.node.logs_of(NAMESPACE, pod);
            let line = log.lines().filter_map(|line| serde_json::from_str(line).ok()).find(&condition);
            line.ok_or(log)
        })
        .await
    }

    async fn annotations(&self) -> BTreeMap<String, String> {
        let nodes: Api<Node> = Api::all(self.plane.client());
        nodes.get(NODE).await.unwrap().metadata.annotations.unwrap_or_default()
    }

    pub(crate) async fn stop(self) {
        self.node.stop().await;
    }
}

fn is_running(pod: &Pod) -> bool {
    let states = pod.status.as_ref().and_then(|it| it.container_statuses.as_ref()).into_iter().flatten();
    states.filter_map(|it| it.state.as_ref()).any(|it| it.running.is_some())
}

/// Waits for the process with this name in the cgroups of a pod.
async fn await_process(pod: &Pod, name: &str) -> u32 {
    let uid = pod.uid().unwrap();
    eventually(&format!("{name} runs in the pod"), TIMEOUT, async || {
        let matches = |pid: &u32| {
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            read("cgroup").contains(&uid) && read("comm").trim() == name
        };
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        pids.into_iter().find(matches)
    })
    .await
}
