//! A Node on a real API server, the agent of that Node with the shipped permissions, and programs for it to detect.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fivespot_testbed::audit::Entries;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{Access, ControlPlane, ControlPlaneOptions, NetworkNamespace};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::fixtures::{self, ChildProcess, TIMEOUT};

pub(crate) const NAMESPACE: &str = "5spot-system";
const SERVICE_ACCOUNT: &str = "5spot-reclaim-agent";
pub(crate) const REQUESTED: &str = "5spot.finos.org/reclaim-requested";
pub(crate) const REASON: &str = "5spot.finos.org/reclaim-reason";
pub(crate) const REQUESTED_AT: &str = "5spot.finos.org/reclaim-requested-at";
/// What a probe reports while there is nothing to match.
pub(crate) const NO_PATTERNS: &str = "does not exist or has no patterns";

/// A control plane with the shipped manifests of the agent, whose policy is in effect.
pub(crate) async fn start_control_plane(name: &str) -> ControlPlane {
    let options = ControlPlaneOptions::named(name).without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/overlays/workload-cluster");
    plane.apply(&manifests).await.unwrap();
    for node in ["policy", "other"] {
        create_node(&plane, node, "none", &existing_annotation()).await;
    }
    let account = plane.service_account_on_node(NAMESPACE, SERVICE_ACCOUNT, "policy").await.unwrap();
    let nodes: Api<Node> = Api::all(account.client());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUESTED: "true" } } }));
    eventually("the policy is in effect", TIMEOUT, async || {
        let response = nodes.patch("other", &PatchParams::default(), &patch).await;
        response.is_err_and(|error| error.to_string().contains("may not touch Node other"))
    })
    .await;
    plane
}

/// The control plane of all tests that do not stop its API server.
pub(crate) async fn shared() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_init(async || start_control_plane("agent").await).await
}

/// The agent must not change other annotations.
fn existing_annotation() -> Value {
    json!({ "annotations": { "kept": "yes" } })
}

async fn create_node(plane: &ControlPlane, name: &str, machine_id: &str, metadata: &Value) {
    let nodes: Api<Node> = Api::all(plane.client());
    let mut node = json!({ "metadata": metadata });
    node["metadata"]["name"] = name.into();
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let status = json!({ "status": { "nodeInfo": { "machineID": machine_id } } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

/// The Node of one test, the agent's access and a directory. Program names begin with the name of the Node, so that the agents
/// of other tests do not match them.
pub(crate) struct NodeEnv<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) node: String,
    pub(crate) access: Access,
    directory: TempDir,
}

impl<'a> NodeEnv<'a> {
    pub(crate) async fn new(plane: &'a ControlPlane, node: &str) -> Self {
        NodeEnv::with_metadata(plane, node, &existing_annotation()).await
    }

    pub(crate) async fn with_metadata(plane: &'a ControlPlane, node: &str, metadata: &Value) -> Self {
        create_node(plane, node, &format!("machine-of-{node}"), metadata).await;
        let access = plane.service_account_on_node(NAMESPACE, SERVICE_ACCOUNT, node).await.unwrap();
        let env = NodeEnv { plane, node: node.to_owned(), access, directory: TempDir::new().unwrap() };
        env.use_access(&env.access);
        env.set_machine_id(&format!("machine-of-{node}\n"));
        env
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn set_machine_id(&self, machine_id: &str) {
        std::fs::write(self.path("machine-id"), machine_id).unwrap();
    }

    pub(crate) fn use_access(&self, access: &Access) {
        std::fs::write(self.path("kubeconfig"), access.kubeconfig()).unwrap();
    }

    /// Connects the agent to the API server through a proxy. The certificate is checked as if there were none.
    pub(crate) fn connect_via(&self, proxy: &str) {
        let mut kubeconfig: Value = serde_json::from_str(&self.access.kubeconfig()).unwrap();
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = proxy.into();
        cluster["tls-server-name"] = "127.0.0.1".into();
        std::fs::write(self.path("kubeconfig"), kubeconfig.to_string()).unwrap();
    }

    /// Creates a pod of the agent on the Node and returns the access that the kubelet would mount into it. Unlike
    /// `self.access` it survives the Node, and ends with the pod.
    pub(crate) async fn pod_access(&self, name: &str) -> Access {
        let container = json!({ "name": "agent", "image": "localhost/none" });
        let spec = json!({ "serviceAccountName": SERVICE_ACCOUNT, "nodeName": self.node, "containers": [container] });
        let pod = json!({ "metadata": { "name": name }, "spec": spec });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        self.plane.service_account_in_pod(NAMESPACE, SERVICE_ACCOUNT, name).await.unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.plane.client())
    }

    pub(crate) async fn delete_node(&self) {
        self.nodes().delete(&self.node, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn recreate_node(&self, machine_id: &str) {
        create_node(self.plane, &self.node, machine_id, &existing_annotation()).await;
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }

    fn config_map_name(&self) -> String {
        format!("reclaim-agent-{}", self.node)
    }

    /// Writes the agent configuration, as the controller does.
    pub(crate) async fn apply_config(&self, text: &str) {
        let name = self.config_map_name();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "reclaim.toml": text },
        });
        self.config_maps().patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    }

    pub(crate) async fn delete_config(&self) {
        self.config_maps().delete(&self.config_map_name(), &DeleteParams::default()).await.unwrap();
    }

    pub(crate) fn start_program(&self, name: &str) -> ChildProcess {
        fixtures::start_program(self.directory.path(), name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = fixtures::agent_command();
        command.env("KUBECONFIG", self.path("kubeconfig")).args(["--node-name", &self.node]);
        command.arg("--machine-id-path").arg(self.path("machine-id"));
        command.arg("--state-dir").arg(self.path("state")).args(arguments);
        command
    }

    pub(crate) fn start_agent(&self, arguments: &[&str]) -> Agent {
        self.start_agent_by(self.command(arguments))
    }

    /// Starts the agent in a network namespace, where it receives no kernel events and polls.
    pub(crate) fn start_agent_in(&self, network: &NetworkNamespace) -> Agent {
        let agent = self.command(&["--detector", "poll"]);
        let mut command = network.command(Path::new(agent.get_program()));
        command.args(agent.get_args()).env("KUBECONFIG", self.path("kubeconfig")).env_remove("RUST_LOG");
        self.start_agent_by(command)
    }

    fn start_agent_by(&self, mut command: Command) -> Agent {
        let log = self.path("log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let output = File::options().create(true).append(true).open(self.path("output")).unwrap();
        let process = ChildProcess(command.stdout(output).stderr(file).spawn().unwrap());
        Agent { process, log }
    }

    /// Writes the agent configuration, starts the agent and waits until it is ready.
    pub(crate) async fn start_armed_agent(&self, config: &str, arguments: &[&str]) -> Agent {
        self.apply_config(config).await;
        let agent = self.start_agent(arguments);
        self.wait_until_ready().await;
        agent
    }

    pub(crate) fn probe(&self) -> Output {
        self.command(&["--probe"]).output().unwrap()
    }

    /// On a busy machine a probe may time out before the agent was scheduled, so it is repeated.
    pub(crate) async fn wait_until_ready(&self) {
        eventually("a probe succeeds", TIMEOUT, async || {
            let probe = self.probe();
            if probe.status.success() { Ok(()) } else { Err(probe_error(&probe)) }
        })
        .await;
    }

    pub(crate) async fn wait_until_not_ready(&self, reason: &str) {
        eventually(&format!("a probe fails with {reason:?}"), TIMEOUT, async || {
            let probe = self.probe();
            if probe.status.success() {
                return Err("the probe succeeded".to_owned());
            }
            let error = probe_error(&probe);
            if error.contains(reason) { Ok(()) } else { Err(error) }
        })
        .await;
    }

    /// Waits until the agent has handled every program that was started before this call: it handles a probe, which is a
    /// program too, after them.
    pub(crate) async fn wait_until_handled(&self) {
        self.wait_until_ready().await;
    }

    pub(crate) async fn annotations(&self) -> Value {
        let node = self.nodes().get(&self.node).await.unwrap();
        json!(node.metadata.annotations.unwrap_or_default())
    }

    /// Returns the annotations of the Node.
    pub(crate) async fn wait_for_request(&self) -> Value {
        eventually("the Node has a reclaim request", TIMEOUT, async || {
            let annotations = self.annotations().await;
            (annotations[REQUESTED] == "true").then_some(annotations)
        })
        .await
    }

    pub(crate) async fn has_no_request(&self) -> bool {
        let annotations = self.annotations().await;
        [REQUESTED, REASON, REQUESTED_AT].iter().all(|key| annotations[key].is_null())
    }

    /// Clears the request, as the controller does.
    pub(crate) async fn clear_request(&self) {
        let cleared = json!({ "metadata": { "annotations": { REQUESTED: null, REASON: null, REQUESTED_AT: null } } });
        self.nodes().patch(&self.node, &PatchParams::default(), &Patch::Merge(&cleared)).await.unwrap();
    }

    async fn audit(&self) -> Entries {
        self.plane.audit().caught_up(&self.plane.client()).await;
        self.plane.audit().entries()
    }

    /// The requests that this agent has sent, except watches and dry runs.
    pub(crate) async fn agent_requests(&self) -> Entries {
        let account = format!("system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}");
        let config_map = self.config_map_name();
        let field_selector = format!("metadata.name%3D{config_map}");
        self.audit().await.by(&account).filter(|entry| {
            entry.verb != "watch"
                && !entry.is_dry_run()
                && (entry.name == self.node
                    || entry.name == config_map
                    || entry.uri.ends_with(&field_selector)
                    || entry.uri.contains(&format!("{field_selector}&")))
        })
    }

    /// The agent reads its Node once each time it is armed, and then only while a request is stored.
    pub(crate) async fn node_reads(&self) -> usize {
        self.agent_requests().await.filter(|entry| entry.verb == "get").len()
    }

    /// Waits until the agent has been armed this many times, if it has stored no request meanwhile.
    pub(crate) async fn wait_until_armed(&self, times: usize) {
        eventually(&format!("the agent was armed {times} times"), TIMEOUT, async || {
            let reads = self.node_reads().await;
            if reads >= times { Ok(()) } else { Err(reads) }
        })
        .await;
    }

    /// How many reclaim requests the agent has sent. A hedge, sent when a busy server has not responded for a second, does not
    /// count; a new request follows immediately or after the poll for its clearing, at least five seconds later.
    pub(crate) async fn reclaim_requests(&self) -> usize {
        let patches = self.agent_requests().await.filter(|entry| entry.verb == "patch").0;
        let mut received: Vec<_> = patches.into_iter().map(|entry| entry.received).collect();
        received.sort();
        let is_hedge = |pair: &[jiff::Timestamp]| (1..5).contains(&pair[1].duration_since(pair[0]).as_secs());
        received.len() - received.windows(2).filter(|pair| is_hedge(pair)).count()
    }

    /// Whether the agent sent its first reclaim request after the last change of its configuration.
    pub(crate) async fn requested_after_last_config(&self) -> bool {
        let requests = self.agent_requests().await.filter(|entry| entry.verb == "patch").0;
        let config_map = self.config_map_name();
        let configs = self.audit().await.filter(|entry| entry.name == config_map && entry.is_write()).0;
        let requested = requests.iter().map(|entry| entry.received).min().unwrap();
        requested > configs.iter().map(|entry| entry.received).max().unwrap()
    }
}

/// The error of a probe that failed.
pub(crate) fn probe_error(probe: &Output) -> String {
    let error = String::from_utf8(probe.stderr.clone()).unwrap();
    assert_eq!(probe.status.code(), Some(1), "{error}");
    error
}

/// A running agent and its log.
pub(crate) struct Agent {
    pub(crate) process: ChildProcess,
    log: PathBuf,
}

impl Agent {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// The log lines with this message.
    pub(crate) fn logged(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let complete = log.lines().filter(|line| line.ends_with('}'));
        let lines = complete.map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// For tests of the log itself.
    pub(crate) async fn wait_for_log(&self, message: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("the agent logs {message:?}"), TIMEOUT, async || {
            self.logged(message).into_iter().find(&is_expected).ok_or_else(|| self.log())
        })
        .await
    }
}
