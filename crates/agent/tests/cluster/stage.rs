//! A Node of a real API server that claims to be this machine, the agent of it under the account that is shipped, and
//! programs for it to find.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use fivespot_testbed::audit::Entries;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{Access, ControlPlane, ControlPlaneOptions};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Generous: nothing is asserted about time, and a test must not wait for ever.
pub(crate) const SOON: Duration = Duration::from_mins(5);
pub(crate) const NAMESPACE: &str = "5spot-system";
const ACCOUNT: &str = "5spot-reclaim-agent";
pub(crate) const REQUESTED: &str = "5spot.finos.org/reclaim-requested";
pub(crate) const REASON: &str = "5spot.finos.org/reclaim-reason";
pub(crate) const REQUESTED_AT: &str = "5spot.finos.org/reclaim-requested-at";

/// Ends a process, whatever becomes of the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control plane with what is shipped for the agent: its account, its permissions and the policy, in force.
pub(crate) async fn plane(name: &str) -> ControlPlane {
    let options = ControlPlaneOptions::named(name).without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/overlays/workload-cluster");
    plane.apply(&shipped).await.unwrap();
    for node in ["policy", "other"] {
        make_node(&plane, node, "nobody", &json!({ "annotations": { "kept": "yes" } })).await;
    }
    let account = plane.service_account_on_node(NAMESPACE, ACCOUNT, "policy").await.unwrap();
    let nodes: Api<Node> = Api::all(account.client());
    let other = Patch::Merge(json!({ "metadata": { "annotations": { REQUESTED: "true" } } }));
    eventually("the policy is in force", SOON, async || {
        let answer = nodes.patch("other", &PatchParams::default(), &other).await;
        answer.is_err_and(|it| it.to_string().contains("may not touch Node other"))
    })
    .await;
    plane
}

/// The one that most tests share; those that end its API server have their own.
pub(crate) async fn shared() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_init(async || plane("agent").await).await
}

async fn make_node(plane: &ControlPlane, name: &str, machine_id: &str, metadata: &Value) {
    let nodes: Api<Node> = Api::all(plane.client());
    let mut node = json!({ "metadata": metadata });
    node["metadata"]["name"] = name.into();
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let status = json!({ "status": { "nodeInfo": { "machineID": machine_id } } });
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

/// One test's own Node, its agent's account, and a directory. Names of programs begin with the Node's, so that no other
/// test's agent knows them.
pub(crate) struct Stage<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) node: String,
    pub(crate) access: Access,
    directory: TempDir,
}

impl<'a> Stage<'a> {
    pub(crate) async fn new(plane: &'a ControlPlane, node: &str) -> Self {
        Stage::with_metadata(plane, node, &json!({ "annotations": { "kept": "yes" } })).await
    }

    pub(crate) async fn with_metadata(plane: &'a ControlPlane, node: &str, metadata: &Value) -> Self {
        make_node(plane, node, &format!("machine-of-{node}"), metadata).await;
        let access = plane.service_account_on_node(NAMESPACE, ACCOUNT, node).await.unwrap();
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("kubeconfig"), access.kubeconfig()).unwrap();
        std::fs::write(directory.path().join("machine-id"), format!("machine-of-{node}\n")).unwrap();
        Stage { plane, node: node.to_owned(), access, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lets the agent reach the API server at another address.
    pub(crate) fn reach_at(&self, server: &str) {
        let kubeconfig = self.access.kubeconfig().replace(self.access.server(), server);
        std::fs::write(self.path("kubeconfig"), kubeconfig).unwrap();
    }

    /// A pod on the Node, as the agent's is, and the access that a kubelet would mount into it. Unlike the other one it
    /// outlives the Node, and ends with the pod.
    pub(crate) async fn pod(&self, name: &str) -> Access {
        let container = json!({ "name": "agent", "image": "localhost/none" });
        let spec = json!({ "serviceAccountName": ACCOUNT, "nodeName": self.node, "containers": [container] });
        let pod = json!({ "metadata": { "name": name }, "spec": spec });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        self.plane.service_account_in_pod(NAMESPACE, ACCOUNT, name).await.unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }

    /// The agent's access from now on.
    pub(crate) fn act_as(&self, access: &Access) {
        std::fs::write(self.path("kubeconfig"), access.kubeconfig()).unwrap();
    }

    pub(crate) async fn remove_node(&self) {
        Api::<Node>::all(self.plane.client()).delete(&self.node, &DeleteParams::default()).await.unwrap();
    }

    /// A Node of the same name.
    pub(crate) async fn make_node_again(&self, machine_id: &str) {
        make_node(self.plane, &self.node, machine_id, &json!({ "annotations": { "kept": "yes" } })).await;
    }

    pub(crate) fn pretend_to_be(&self, machine_id: &str) {
        std::fs::write(self.path("machine-id"), machine_id).unwrap();
    }

    /// A program that runs until it is ended. A link, since a copy may not be run while it is open for writing.
    pub(crate) fn start(&self, name: &str) -> Running {
        let program = self.path(name);
        if !program.exists() {
            std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        }
        Running(Command::new(program).arg("600").spawn().unwrap())
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }

    /// What the controller would write.
    pub(crate) async fn order(&self, text: &str) {
        let name = format!("reclaim-agent-{}", self.node);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "reclaim.toml": text },
        });
        self.maps().patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    }

    pub(crate) async fn withdraw(&self) {
        let name = format!("reclaim-agent-{}", self.node);
        self.maps().delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// The agent's command line.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_5spot-reclaim-agent"));
        command.env("KUBECONFIG", self.path("kubeconfig")).args(["--node-name", &self.node]);
        command.arg("--machine-id-path").arg(self.path("machine-id"));
        command.arg("--state-dir").arg(self.path("state")).args(arguments);
        command
    }

    /// The agent, running.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Agent {
        let log = self.path("log");
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let output = File::options().create(true).append(true).open(self.path("output")).unwrap();
        let process = Running(self.command(arguments).stdout(output).stderr(file).spawn().unwrap());
        Agent { process, log }
    }

    /// The agent, running, once it is armed with this.
    pub(crate) async fn armed(&self, text: &str, arguments: &[&str]) -> Agent {
        self.order(text).await;
        let agent = self.agent(arguments);
        agent.says("\"armed\"").await;
        agent
    }

    pub(crate) fn probe(&self) -> Output {
        self.command(&["--probe"]).output().unwrap()
    }

    async fn annotations(&self) -> Value {
        let node = Api::<Node>::all(self.plane.client()).get(&self.node).await.unwrap();
        json!(node.metadata.annotations.unwrap_or_default())
    }

    /// The annotations, once there is a request among them.
    pub(crate) async fn requested(&self) -> Value {
        eventually("the request is on the Node", SOON, async || {
            let annotations = self.annotations().await;
            (annotations[REQUESTED] == "true").then_some(annotations)
        })
        .await
    }

    pub(crate) async fn is_not_requested(&self) -> bool {
        let annotations = self.annotations().await;
        [REQUESTED, REASON, REQUESTED_AT].iter().all(|it| annotations[it].is_null())
    }

    /// As the controller does it.
    pub(crate) async fn clear(&self) {
        let cleared = json!({ "metadata": { "annotations": { REQUESTED: null, REASON: null, REQUESTED_AT: null } } });
        let nodes: Api<Node> = Api::all(self.plane.client());
        nodes.patch(&self.node, &PatchParams::default(), &Patch::Merge(&cleared)).await.unwrap();
    }

    /// What the agent has asked of the API server so far, watches aside.
    pub(crate) async fn asked(&self) -> Entries {
        self.plane.audit().caught_up(&self.plane.client()).await;
        let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let own = |name: &str| name == self.node || name == format!("reclaim-agent-{}", self.node);
        let map = format!("metadata.name%3Dreclaim-agent-{}", self.node);
        let of_this_test = self.plane.audit().entries().by(&account);
        of_this_test.filter(|it| {
            it.verb != "watch" && (own(&it.name) || it.uri.ends_with(&map) || it.uri.contains(&format!("{map}&")))
        })
    }

    /// How often it has asked for the machine. What it sends once more because a busy server has not answered for a second
    /// is the same request; another one comes at once, or when the Node is looked at again after five seconds.
    pub(crate) async fn patches(&self) -> usize {
        let sent = self.asked().await.filter(|it| it.verb == "patch").0;
        let mut received: Vec<_> = sent.into_iter().map(|it| it.received).collect();
        received.sort();
        let repeats = |pair: &[jiff::Timestamp]| (1..5).contains(&pair[1].duration_since(pair[0]).as_secs());
        received.len() - received.windows(2).filter(|pair| repeats(pair)).count()
    }
}

/// An agent that runs, and what it logs.
pub(crate) struct Agent {
    pub(crate) process: Running,
    log: PathBuf,
}

impl Agent {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it does.
    pub(crate) async fn says(&self, text: &str) {
        self.says_times(text, 1).await;
    }

    pub(crate) async fn says_times(&self, text: &str, times: usize) {
        eventually(&format!("the agent says {text:?} {times} times"), SOON, async || {
            let log = self.log();
            if log.matches(text).count() >= times { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// Told to stop, it ends well.
    pub(crate) fn stop(mut self) {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.0.wait().unwrap().code(), Some(0));
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.process.0.try_wait().unwrap().is_none()
    }
}
