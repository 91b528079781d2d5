//! Where a flow is played, again and again, with a controller that is killed.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use crate::fixtures::{Controller, Desk, SOON, machine_resource, testbed};
use crate::flow::{Flow, meanwhile, orders_of, pod_of};
use fivespot_api::{ScheduledMachineStatus, keys};
use fivespot_testbed::audit::{AuditEntry, AuditMark};
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::fault_proxy::Write;
use fivespot_testbed::provider::Provider;
use fivespot_testbed::provider::kinds::{K0S_WORKER_CONFIG, REMOTE_MACHINE};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{FaultProxy, TestNamespace, Testbed};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

/// Who writes nothing for so long is at rest.
const REST: Duration = Duration::from_secs(1);
/// How often a kill point is tried: two reports of progress may fall together, and then there is one write less.
const TRIES: usize = 6;

/// A Cluster of its own for one flow, and a controller that does all its writes through a proxy.
pub(crate) struct Stage {
    flow: Flow,
    testbed: &'static Testbed,
    test: TestNamespace,
    provider: &'static Provider,
    proxy: FaultProxy,
}

impl Stage {
    pub(crate) async fn set(flow: Flow) -> Self {
        let testbed = testbed().await;
        let test = testbed.namespace(&format!("crashes {flow:?}")).await;
        testbed.cluster(&test, "edge").await.unwrap();
        let proxy = FaultProxy::start(testbed.control_plane()).unwrap();
        // Nodes and pods are reached through it, too.
        let workload = testbed.control_plane().access(WORKLOAD_ADMIN).unwrap().through(&proxy);
        let secret = Patch::Merge(json!({ "stringData": { "value": workload.kubeconfig() } }));
        test.api::<Secret>().patch("edge-kubeconfig", &PatchParams::default(), &secret).await.unwrap();
        let provider = &testbed.fleet().await.provider;
        Stage { flow, testbed, test, provider, proxy }
    }

    pub(crate) fn test(&self) -> &TestNamespace {
        &self.test
    }

    /// The writes that went through the proxy so far.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.proxy.writes()
    }

    pub(crate) fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    pub(crate) async fn close(self) {
        self.test.close().await;
    }

    pub(crate) async fn kill_after_each_write(self) {
        let mut controller = self.start().await;
        let (mut writes, end) = self.run_undisturbed().await;
        let mut kill_points = 0;
        while kill_points < writes.len() {
            let write = &writes[kill_points];
            let said = format!("killed after write {} ({} {})", kill_points + 1, write.verb, write.target());
            self.say(&format!(", {said}"));
            match self.survive(&mut controller, kill_points + 1, &end).await {
                Ok(()) => kill_points += 1,
                Err(undisturbed) => writes = undisturbed,
            }
        }
        assert_eq!(kill_points, writes.len());
        self.say(&format!(": {kill_points} kill points, one after each write"));
        self.test.close().await;
    }

    /// The same with a controller that lives, and does not hear what became of a write.
    pub(crate) async fn lose_the_answer_to_each_write(self) {
        let _controller = self.start().await;
        let (writes, end) = self.run_undisturbed().await;
        for nth in 1..=writes.len() {
            let name = format!("answer-{nth}");
            let desk = Desk::new(&self.test, &name);
            self.flow.prepare(&desk, self.provider).await;
            self.rests().await;
            let (mark, before) = (self.testbed.audit().mark(), self.proxy.writes().len());
            self.proxy.drop_response_of(nth);
            let uid = self.flow.begin(&desk).await;
            assert_eq!(self.ends(&desk, &uid).await, end, "the same status as if nothing had happened");
            self.proxy.clear_faults();
            self.made_nothing_twice(mark, &desk).await;
            if let Some(lost) = self.proxy.writes().get(before + nth - 1) {
                self.asked_before_it_went_on(mark, &desk, nth, lost);
            }
        }
        self.say(&format!(": {} answers lost, one of each write", writes.len()));
        self.test.close().await;
    }

    /// A write of the object that was not answered is followed by a read of it, before anything else is written.
    fn asked_before_it_went_on(&self, mark: AuditMark, desk: &Desk<'_>, nth: usize, lost: &Write) {
        if !lost.path.contains(&format!("/scheduledmachines/{}", desk.name)) {
            return;
        }
        let sent = self.testbed.audit().since(mark).filter(|it| it.user_agent.starts_with("5spot/"));
        let (node, orders) = (desk.node_name(), orders_of(desk));
        let about = sent.filter(|it| it.namespace == self.test.name || it.name == node || it.name == orders);
        let mut about = about.0.into_iter().filter(|it| it.group != "events.k8s.io");
        let is_write = |it: &AuditEntry| ["create", "update", "patch", "delete"].contains(&it.verb.as_str());
        let _ = about.by_ref().filter(is_write).nth(nth - 1).expect("the write whose answer was lost");
        let next = about.find(|it| is_write(it) || (it.verb == "get" && it.resource == "scheduledmachines"));
        assert!(next.as_ref().is_none_or(|it| it.verb == "get"), "{lost:?} was lost, and then {next:?} was sent");
    }

    /// Says something of the flow, also where the output of a test that passes is not shown.
    fn say(&self, what: &str) {
        use std::io::Write as _;
        let mut out = std::io::stderr();
        writeln!(out, "{:?}{what}", self.flow).unwrap();
    }

    pub(crate) async fn start(&self) -> Controller {
        let access = self.testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap();
        let controller =
            Controller::start_as(self.testbed, &access.through(&self.proxy), &["--namespace", &self.test.name]);
        controller.ready().await;
        controller
    }

    /// The writes of a flow that nobody interrupts, as the API server saw them, and what the status says in the end.
    async fn run_undisturbed(&self) -> (Vec<AuditEntry>, Value) {
        let desk = Desk::new(&self.test, "undisturbed");
        self.flow.prepare(&desk, self.provider).await;
        self.rests().await;
        let (mark, before) = (self.testbed.audit().mark(), self.proxy.writes().len());
        let uid = self.flow.begin(&desk).await;
        let end = self.ends(&desk, &uid).await;
        self.testbed.audit().caught_up(&self.test.client).await;
        let writes = self.writes_since(mark, &desk);
        let passed_on = &self.proxy.writes()[before..];
        assert_eq!(writes.len(), passed_on.len(), "the audit log and the proxy agree: {writes:#?} {passed_on:#?}");
        (writes, end)
    }

    fn writes_since(&self, mark: AuditMark, desk: &Desk<'_>) -> Vec<AuditEntry> {
        let (node, orders) = (desk.node_name(), orders_of(desk));
        let here = |it: &AuditEntry| it.namespace == self.test.name || it.name == node || it.name == orders;
        let writes = self.testbed.audit().since(mark).writes();
        writes.filter(|it| it.user_agent.starts_with("5spot/") && it.group != "events.k8s.io" && here(it)).0
    }

    /// Kills the controller after the nth write of the flow, and starts another. If there is no nth write any more, the
    /// error is those of the flow that nobody interrupted.
    async fn survive(&self, controller: &mut Controller, nth: usize, end: &Value) -> Result<(), Vec<AuditEntry>> {
        let mut undisturbed = Vec::new();
        for attempt in 1..=TRIES {
            let name = format!("write-{nth}-{attempt}");
            let desk = Desk::new(&self.test, &name);
            self.flow.prepare(&desk, self.provider).await;
            self.rests().await;
            let mark = self.testbed.audit().mark();
            self.proxy.kill_after(nth, controller.pid());
            let uid = self.flow.begin(&desk).await;
            if self.dies(controller, &desk).await {
                meanwhile(self.flow, &desk).await;
                *controller = self.start().await;
                assert_eq!(&self.ends(&desk, &uid).await, end, "the same status as if nothing had happened");
                self.made_nothing_twice(mark, &desk).await;
                return Ok(());
            }
            self.proxy.clear_faults();
            assert_eq!(&self.ends(&desk, &uid).await, end);
            self.testbed.audit().caught_up(&self.test.client).await;
            let writes = self.writes_since(mark, &desk);
            if writes.len() > undisturbed.len() {
                undisturbed = writes;
            }
        }
        Err(undisturbed)
    }

    /// Whether the controller dies before the flow has come to its end and all is at rest.
    async fn dies(&self, controller: &mut Controller, desk: &Desk<'_>) -> bool {
        tokio::select! {
            status = controller.ended() => {
                assert_eq!(status.signal(), Some(9), "{status}");
                true
            }
            () = self.comes_to_rest(desk) => false,
        }
    }

    async fn comes_to_rest(&self, desk: &Desk<'_>) {
        self.flow.run_its_course(desk, self.provider).await;
        self.rests().await;
    }

    /// Waits until the controller writes no more.
    pub(crate) async fn rests(&self) {
        let mut before = None;
        eventually("the controller rests", SOON, async || {
            let now = self.proxy.writes().len();
            let rests = before.replace(now) == Some(now);
            if !rests {
                tokio::time::sleep(REST).await;
            }
            rests
        })
        .await;
    }

    /// Waits for the end of the flow, and looks at what there is then.
    async fn ends(&self, desk: &Desk<'_>, uid: &str) -> Value {
        self.flow.run_its_course(desk, self.provider).await;
        self.rests().await;
        let children = self.children_of(uid).await;
        let node = desk.nodes().get_opt(&desk.node_name()).await.unwrap();
        if self.flow == Flow::Activation {
            assert_eq!(children, [1, 1, 1], "one of each");
            let node = node.expect("its Node is there");
            assert_ne!(node.spec.clone().unwrap_or_default().unschedulable, Some(true));
            let status = desk.status().await;
            assert_eq!(status.node_ref.as_ref().unwrap().uid, node.uid());
            self.names_the_children_that_are_there(desk, &status).await;
        } else {
            assert_eq!(children, [0, 0, 0], "nothing is left");
            assert!(node.is_none(), "{node:#?}");
            let pod = self.test.api::<Pod>().get_opt(&pod_of(desk)).await.unwrap();
            assert!(pod.is_none_or(|it| it.metadata.deletion_timestamp.is_some()));
        }
        let left = desk.api().get_opt(desk.name).await.unwrap();
        told(desk, &json!(left.and_then(|it| it.status)))
    }

    async fn names_the_children_that_are_there(&self, desk: &Desk<'_>, status: &ScheduledMachineStatus) {
        let uid = |child: Option<DynamicObject>| child.unwrap().uid();
        let named = [&status.machine_ref, &status.bootstrap_ref, &status.infrastructure_ref];
        let there = [uid(desk.machine().await), uid(desk.bootstrap().await), uid(desk.infrastructure().await)];
        assert_eq!(named.map(|it| it.as_ref().unwrap().uid.clone()), there, "{status:#?}");
    }

    /// How many Machines, bootstrap and infrastructure objects say that they belong to this object.
    async fn children_of(&self, uid: &str) -> [usize; 3] {
        let is_child = |it: &DynamicObject| {
            it.owner_references().iter().any(|it| it.uid == uid)
                || it.annotations().get(keys::OWNER_UID_ANNOTATION).is_some_and(|it| it == uid)
        };
        let mut counts = [0; 3];
        let kinds = [machine_resource(), K0S_WORKER_CONFIG.api_resource(), REMOTE_MACHINE.api_resource()];
        for (count, kind) in counts.iter_mut().zip(kinds) {
            let all = self.test.dynamic_api(&kind).list(&ListParams::default()).await.unwrap();
            *count = all.iter().filter(|it| is_child(it)).count();
        }
        counts
    }

    /// What was made was not thrown away to be made again.
    async fn made_nothing_twice(&self, mark: AuditMark, desk: &Desk<'_>) {
        self.testbed.audit().caught_up(&self.test.client).await;
        let writes = self.writes_since(mark, desk);
        let made: Vec<&str> = writes
            .iter()
            .filter(|it| it.verb == "create" && it.subresource.is_empty() && it.succeeded())
            .map(|it| it.resource.as_str())
            .collect();
        let expected: &[&str] =
            if self.flow == Flow::Activation { &["k0sworkerconfigs", "remotemachines", "machines"] } else { &[] };
        assert_eq!(made, expected, "{writes:#?}");
    }
}

/// What a status says, apart from what differs from one object to the next: its name, uids and times.
fn told(desk: &Desk<'_>, status: &Value) -> Value {
    match status {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let value = if key == "uid" || key == "machineUID" { json!("a uid") } else { told(desk, value) };
                (key.clone(), value)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(items) => items.iter().map(|it| told(desk, it)).collect(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => json!("a time"),
        Value::String(text) => json!(text.replace(desk.name, "NAME")),
        other => other.clone(),
    }
}
