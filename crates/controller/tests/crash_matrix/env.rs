//! Runs a flow again and again, each time with a fault after another write.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use fivespot_api::{ScheduledMachineStatus, keys};
use fivespot_testbed::audit::{AuditEntry, AuditLog, AuditMark};
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::fault_proxy::Write;
use fivespot_testbed::provider::kinds::{K0S_WORKER_CONFIG, REMOTE_MACHINE};
use fivespot_testbed::{FaultProxy, TestNamespace, Testbed};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixtures::{
    Controller, TestMachine, agent_config_name, machine_resource, namespace_with_cluster, sent_by_controller, testbed,
    wait_for,
};
use crate::flow::{Flow, pod_name};

/// A controller that writes nothing for this long is quiescent.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// Attempts per kill point: two status updates may coincide, and then a run has one write less.
const ATTEMPTS: usize = 6;

/// A namespace with a Cluster of its own, and a proxy for all requests of the controller.
pub(crate) struct CrashEnv {
    flow: Flow,
    testbed: &'static Testbed,
    ns: TestNamespace,
    proxy: FaultProxy,
}

impl CrashEnv {
    pub(crate) async fn new(flow: Flow) -> Self {
        let testbed = testbed().await;
        let ns = namespace_with_cluster(&format!("crash-{flow:?}")).await;
        let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
        // The proxy is also in front of the workload cluster.
        let workload = testbed.control_plane().access(WORKLOAD_ADMIN).unwrap().through(&proxy);
        let secret = Patch::Merge(json!({ "stringData": { "value": workload.kubeconfig() } }));
        ns.api::<Secret>().patch("edge-kubeconfig", &PatchParams::default(), &secret).await.unwrap();
        CrashEnv { flow, testbed, ns, proxy }
    }

    pub(crate) fn ns(&self) -> &TestNamespace {
        &self.ns
    }

    pub(crate) fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    pub(crate) fn audit(&self) -> AuditLog {
        self.testbed.audit()
    }

    /// The writes that the proxy has forwarded so far.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.proxy.writes()
    }

    pub(crate) async fn close(self) {
        self.ns.close().await;
    }

    /// Starts a controller that sends all requests through the proxy, and waits until it is ready.
    pub(crate) async fn start_controller(&self) -> Controller {
        let access = self.testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap();
        let access = access.through(&self.proxy);
        let controller = Controller::start_as(self.testbed, &access, &["--namespace", &self.ns.name]);
        controller.wait_until_ready().await;
        controller
    }

    /// Kills the controller after each write of the flow in turn, and asserts that a new process completes the flow.
    pub(crate) async fn kill_after_each_write(self) {
        let mut controller = self.start_controller().await;
        // Boxed: this future is large, and so is each that contains it.
        let (mut writes, end) = Box::pin(self.run_uninterrupted()).await;
        let mut kill_points = 0;
        while kill_points < writes.len() {
            let (nth, write) = (kill_points + 1, &writes[kill_points]);
            self.print(&format!("kill after write {nth} ({} {})", write.verb, write.target()));
            match Box::pin(self.run_with_kill_after(&mut controller, nth, &end)).await {
                Ok(()) => kill_points += 1,
                Err(uninterrupted) => writes = uninterrupted,
            }
        }
        assert_eq!(kill_points, writes.len());
        self.print(&format!("{kill_points} kill points, one after each write"));
        self.ns.close().await;
    }

    /// Drops the response to each write of the flow in turn, and asserts that the same process completes the flow.
    pub(crate) async fn lose_response_to_each_write(self) {
        let _controller = self.start_controller().await;
        let (writes, end) = Box::pin(self.run_uninterrupted()).await;
        for nth in 1..=writes.len() {
            let sm = TestMachine::new(&self.ns, &format!("response-{nth}"));
            Box::pin(self.flow.prepare(&sm)).await;
            self.wait_until_quiescent().await;
            let (mark, before) = (self.audit().mark(), self.writes().len());
            self.proxy.drop_response_of(nth);
            let uid = self.flow.trigger(&sm).await;
            assert_eq!(
                Box::pin(self.wait_for_end(&sm, &uid)).await,
                end,
                "differs from the status of an uninterrupted run"
            );
            self.proxy.clear_faults();
            self.assert_nothing_created_twice(mark, &sm).await;
            if let Some(lost) = self.writes().get(before + nth - 1) {
                self.assert_reread_before_next_write(mark, &sm, nth, lost);
            }
        }
        self.print(&format!("{} lost responses, one to each write", writes.len()));
        self.ns.close().await;
    }

    /// Runs the flow without a fault. Returns its writes, from the audit log, and the final status.
    async fn run_uninterrupted(&self) -> (Vec<AuditEntry>, Value) {
        let sm = TestMachine::new(&self.ns, "uninterrupted");
        self.flow.prepare(&sm).await;
        self.wait_until_quiescent().await;
        let (mark, before) = (self.audit().mark(), self.writes().len());
        let uid = self.flow.trigger(&sm).await;
        let end = self.wait_for_end(&sm, &uid).await;
        self.audit().caught_up(&self.ns.client).await;
        let writes = self.writes_since(mark, &sm);
        let forwarded = &self.writes()[before..];
        assert_eq!(writes.len(), forwarded.len(), "audit log and proxy differ: {writes:#?} {forwarded:#?}");
        (writes, end)
    }

    /// Kills the controller after the nth write of the flow, and starts another. If no attempt has an nth write, returns
    /// the longest uninterrupted run as the error.
    async fn run_with_kill_after(
        &self,
        controller: &mut Controller,
        nth: usize,
        end: &Value,
    ) -> Result<(), Vec<AuditEntry>> {
        let mut uninterrupted = Vec::new();
        for attempt in 1..=ATTEMPTS {
            let sm = TestMachine::new(&self.ns, &format!("write-{nth}-{attempt}"));
            Box::pin(self.flow.prepare(&sm)).await;
            self.wait_until_quiescent().await;
            let mark = self.audit().mark();
            self.proxy.kill_after(nth, controller.pid());
            let uid = self.flow.trigger(&sm).await;
            if self.is_killed_before_end(controller, &sm).await {
                self.flow.change_while_down(&sm).await;
                *controller = self.start_controller().await;
                let recovered = self.wait_for_end(&sm, &uid).await;
                assert_eq!(&recovered, end, "differs from the status of an uninterrupted run");
                self.assert_nothing_created_twice(mark, &sm).await;
                return Ok(());
            }
            self.proxy.clear_faults();
            assert_eq!(&self.wait_for_end(&sm, &uid).await, end);
            self.audit().caught_up(&self.ns.client).await;
            let writes = self.writes_since(mark, &sm);
            if writes.len() > uninterrupted.len() {
                uninterrupted = writes;
            }
        }
        Err(uninterrupted)
    }

    /// Whether the proxy kills the controller before the flow is complete and the controller is quiescent.
    async fn is_killed_before_end(&self, controller: &mut Controller, sm: &TestMachine<'_>) -> bool {
        tokio::select! {
            status = controller.wait_for_exit() => {
                assert_eq!(status.signal(), Some(9), "{status}");
                true
            }
            () = self.wait_until_settled(sm) => false,
        }
    }

    async fn wait_until_settled(&self, sm: &TestMachine<'_>) {
        self.flow.wait_until_complete(sm).await;
        self.wait_until_quiescent().await;
    }

    /// Waits until the controller writes no more.
    pub(crate) async fn wait_until_quiescent(&self) {
        let mut before = None;
        wait_for("the controller is quiescent", async || {
            let now = self.writes().len();
            let quiescent = before.replace(now) == Some(now);
            if !quiescent {
                tokio::time::sleep(QUIET_PERIOD).await;
            }
            quiescent
        })
        .await;
    }

    /// Waits for the end of the flow, checks children, Node and pod, and returns the normalised status.
    async fn wait_for_end(&self, sm: &TestMachine<'_>, uid: &str) -> Value {
        self.wait_until_settled(sm).await;
        let children = self.count_children(uid).await;
        let node = sm.nodes().get_opt(&sm.node_name()).await.unwrap();
        if self.flow.creates() {
            assert_eq!(children, [1, 1, 1]);
            let node = node.expect("the machine has a Node");
            assert_ne!(node.spec.clone().unwrap_or_default().unschedulable, Some(true));
            let status = sm.status().await;
            assert_eq!(status.node_ref.as_ref().unwrap().uid, node.uid());
            assert_refs_name_children(sm, &status).await;
        } else {
            assert_eq!(children, [0, 0, 0]);
            assert!(node.is_none(), "{node:#?}");
            let pod = self.ns.api::<Pod>().get_opt(&pod_name(sm)).await.unwrap();
            assert!(pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
        }
        let object = sm.api().get_opt(&sm.name).await.unwrap();
        normalise(&sm.name, &json!(object.and_then(|object| object.status)))
    }

    /// The controller's writes for one object since `mark`, without Events.
    fn writes_since(&self, mark: AuditMark, sm: &TestMachine<'_>) -> Vec<AuditEntry> {
        self.requests_since(mark, sm).into_iter().filter(AuditEntry::is_write).collect()
    }

    /// The controller's requests in the namespace, for the Node and for the agent configuration since `mark`.
    fn requests_since(&self, mark: AuditMark, sm: &TestMachine<'_>) -> Vec<AuditEntry> {
        let (node, config) = (sm.node_name(), agent_config_name(sm));
        let requests = self.audit().since(mark).filter(sent_by_controller).filter(|it| it.group != "events.k8s.io");
        requests.filter(|it| it.namespace == self.ns.name || it.name == node || it.name == config).0
    }

    /// The numbers of Machines, bootstrap and infrastructure objects that this object owns.
    async fn count_children(&self, uid: &str) -> [usize; 3] {
        let is_child = |object: &DynamicObject| {
            object.owner_references().iter().any(|owner| owner.uid == uid)
                || object.annotations().get(keys::OWNER_UID_ANNOTATION).is_some_and(|it| it == uid)
        };
        let mut counts = [0; 3];
        let resources = [machine_resource(), K0S_WORKER_CONFIG.api_resource(), REMOTE_MACHINE.api_resource()];
        for (count, resource) in counts.iter_mut().zip(resources) {
            let objects = self.ns.dynamic_api(&resource).list(&ListParams::default()).await.unwrap();
            *count = objects.iter().filter(|object| is_child(object)).count();
        }
        counts
    }

    /// Asserts that each child was created once, and none in a flow that only removes.
    async fn assert_nothing_created_twice(&self, mark: AuditMark, sm: &TestMachine<'_>) {
        self.audit().caught_up(&self.ns.client).await;
        let writes = self.writes_since(mark, sm);
        let created: Vec<&str> = writes
            .iter()
            .filter(|it| it.verb == "create" && it.subresource.is_empty() && it.succeeded())
            .map(|it| it.resource.as_str())
            .collect();
        let expected: &[&str] =
            if self.flow.creates() { &["k0sworkerconfigs", "remotemachines", "machines"] } else { &[] };
        assert_eq!(created, expected, "{writes:#?}");
    }

    /// Asserts that the controller reads the ScheduledMachine before its next write if the lost response was to a write
    /// of it: the outcome of that write is unknown.
    fn assert_reread_before_next_write(&self, mark: AuditMark, sm: &TestMachine<'_>, nth: usize, lost: &Write) {
        if !lost.path.contains(&format!("/scheduledmachines/{}", sm.name)) {
            return;
        }
        let mut requests = self.requests_since(mark, sm).into_iter();
        let is_lost = requests.by_ref().filter(AuditEntry::is_write).nth(nth - 1);
        assert!(is_lost.is_some(), "{lost:?} is not in the audit log");
        let next = requests.find(|it| it.is_write() || (it.verb == "get" && it.resource == "scheduledmachines"));
        assert!(next.as_ref().is_none_or(|it| it.verb == "get"), "{next:?} follows {lost:?}");
    }

    /// Prints progress that the test harness does not capture.
    fn print(&self, progress: &str) {
        writeln!(std::io::stderr(), "{:?}: {progress}", self.flow).unwrap();
    }
}

async fn assert_refs_name_children(sm: &TestMachine<'_>, status: &ScheduledMachineStatus) {
    let uid = |child: Option<DynamicObject>| child.unwrap().uid();
    let refs = [&status.machine_ref, &status.bootstrap_ref, &status.infrastructure_ref];
    let children = [uid(sm.machine().await), uid(sm.bootstrap().await), uid(sm.infrastructure().await)];
    assert_eq!(refs.map(|it| it.as_ref().unwrap().uid.clone()), children, "{status:#?}");
}

/// Replaces what differs between objects: name, uids and times.
fn normalise(name: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let is_uid = key == "uid" || key == "machineUID";
                (key.clone(), if is_uid { json!("UID") } else { normalise(name, value) })
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) => items.iter().map(|item| normalise(name, item)).collect(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => json!("TIME"),
        Value::String(text) => json!(text.replace(name, "NAME")),
        other => other.clone(),
    }
}
