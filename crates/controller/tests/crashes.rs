//! Killed after each single write of each flow, and started again: it ends as if nothing had happened.
//!
//! The writes of an uninterrupted run are taken from the API server's audit log. Then, for each of them, a fresh object
//! goes through the same flow, and the process is killed when the API server has carried out that write, before it hears
//! of it. A new process has to bring it to the same end.
#![allow(clippy::explicit_write, reason = "what a passing test prints in the usual way is kept from view")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

mod fixtures;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use fivespot_api::{Phase, keys};
use fivespot_testbed::audit::{AuditEntry, AuditMark};
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::process::Signal;
use fivespot_testbed::provider::kinds::{K0S_WORKER_CONFIG, REMOTE_MACHINE};
use fivespot_testbed::provider::{Behaviour, Provider, Removal};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{FaultProxy, TestNamespace, Testbed};
use fixtures::{Controller, Desk, SOON, always, condition, machine_resource, never, testbed};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

/// Who writes nothing for so long is at rest.
const REST: Duration = Duration::from_secs(1);
/// How often a kill point is tried: two reports of progress may fall together, and then there is one write less.
const TRIES: usize = 6;

#[tokio::test]
async fn killed_after_any_write_of_an_activation_there_is_one_machine() {
    Stage::set(Flow::Activation).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_shutdown_nothing_is_left() {
    Stage::set(Flow::Shutdown).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_kill_nothing_is_left() {
    Stage::set(Flow::Kill).await.kill_after_each_write().await;
}

#[tokio::test]
async fn killed_after_any_write_of_a_deletion_nothing_is_left() {
    Stage::set(Flow::Deletion).await.kill_after_each_write().await;
}

#[tokio::test]
async fn started_again_while_all_is_at_rest_it_writes_nothing() {
    let stage = Stage::set(Flow::Activation).await;
    let mut controller = stage.start().await;
    let desk = Desk::new(&stage.test, "resting");
    desk.create(&always(), &json!({})).await;
    let before = desk.runs().await;
    stage.rests().await;
    let writes = stage.proxy.writes().len();
    controller.signal(Signal::KILL);
    controller.ended().await;

    let restarted = stage.start().await;
    eventually("it has found the Node", SOON, async || restarted.log().contains("the workload cluster is connected"))
        .await;
    stage.rests().await;
    assert_eq!(stage.proxy.writes()[writes..], []);
    assert_eq!(desk.status().await, before);
    stage.test.close().await;
}

/// What a person does, and what is to come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// An object is created whose window is open.
    Activation,
    /// The window of a machine that runs a pod closes.
    Shutdown,
    /// Its kill switch is set.
    Kill,
    /// It is deleted.
    Deletion,
}

impl Flow {
    /// What there is before.
    async fn prepare(self, desk: &Desk<'_>, provider: &Provider) {
        match self {
            Flow::Activation => {}
            Flow::Shutdown | Flow::Kill | Flow::Deletion => {
                if self == Flow::Kill {
                    // Nothing waits for the pods, and here a machine could be gone before anybody has looked for them.
                    let stays = Behaviour { removal: Removal::Never, ..Behaviour::default() };
                    provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), stays);
                }
                desk.create(&always(), &json!({})).await;
                desk.runs().await;
                desk.pod(&pod_of(desk), &json!({})).await;
            }
        }
    }

    /// What others do meanwhile, up to the end that the object tells of.
    async fn run_its_course(self, desk: &Desk<'_>, provider: &Provider) {
        if self == Flow::Kill {
            let pods: Api<Pod> = desk.test.api();
            let pod = pod_of(desk);
            eventually("the pod has been ended", SOON, async || match pods.get_opt(&pod).await {
                Ok(None) => Ok(()),
                Ok(Some(pod)) => Err(json!(pod)),
                Err(error) => Err(json!(error.to_string())),
            })
            .await;
            provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), Behaviour::default());
        }
        eventually("the flow ends", SOON, async || self.has_ended(desk).await).await;
    }

    /// What a person does. The answer is the uid of the object.
    async fn begin(self, desk: &Desk<'_>) -> String {
        if self == Flow::Activation {
            desk.create(&always(), &json!({})).await;
        }
        let uid = desk.get().await.uid().unwrap();
        match self {
            Flow::Activation => {}
            Flow::Shutdown => desk.reschedule(&never()).await,
            Flow::Kill => desk.edit(&json!({ "spec": { "killSwitch": true } })).await,
            Flow::Deletion => desk.delete().await,
        }
        uid
    }

    /// Whether it has come to its end, as the object says.
    async fn has_ended(self, desk: &Desk<'_>) -> Result<(), String> {
        let object = desk.api().get_opt(desk.name).await.map_err(|error| error.to_string())?;
        let status = object.as_ref().and_then(|it| it.status.clone()).unwrap_or_default();
        let ended = match self {
            Flow::Activation => status.phase == Some(Phase::Active) && condition(&status, "Ready").0 == "True",
            Flow::Shutdown => status.phase == Some(Phase::Inactive),
            Flow::Kill => status.phase == Some(Phase::Terminated),
            Flow::Deletion => object.is_none(),
        };
        if ended { Ok(()) } else { Err(json!(status).to_string()) }
    }
}

/// A Cluster of its own for one flow, and a controller that does all its writes through a proxy.
struct Stage {
    flow: Flow,
    testbed: &'static Testbed,
    test: TestNamespace,
    provider: &'static Provider,
    proxy: FaultProxy,
}

impl Stage {
    async fn set(flow: Flow) -> Self {
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

    async fn kill_after_each_write(self) {
        let mut controller = self.start().await;
        let mut writes = self.run_undisturbed().await;
        let mut kill_points = 0;
        while kill_points < writes.len() {
            let write = &writes[kill_points];
            let said = format!("killed after write {} ({} {})", kill_points + 1, write.verb, write.target());
            self.say(&format!(", {said}"));
            match self.survive(&mut controller, kill_points + 1).await {
                Ok(()) => kill_points += 1,
                Err(undisturbed) => writes = undisturbed,
            }
        }
        assert_eq!(kill_points, writes.len());
        self.say(&format!(": {kill_points} kill points, one after each write"));
        self.test.close().await;
    }

    /// Says something of the flow, also where the output of a test that passes is not shown.
    fn say(&self, what: &str) {
        let mut out = std::io::stderr();
        writeln!(out, "{:?}{what}", self.flow).unwrap();
    }

    async fn start(&self) -> Controller {
        let access = self.testbed.control_plane().service_account("5spot-system", "5spot-controller").await.unwrap();
        let controller =
            Controller::start_as(self.testbed, &access.through(&self.proxy), &["--namespace", &self.test.name]);
        controller.ready().await;
        controller
    }

    /// The writes of a flow that nobody interrupts, as the API server saw them.
    async fn run_undisturbed(&self) -> Vec<AuditEntry> {
        let desk = Desk::new(&self.test, "undisturbed");
        self.flow.prepare(&desk, self.provider).await;
        self.rests().await;
        let (mark, before) = (self.testbed.audit().mark(), self.proxy.writes().len());
        let uid = self.flow.begin(&desk).await;
        self.ends(&desk, &uid).await;
        self.rests().await;
        self.testbed.audit().caught_up(&self.test.client).await;
        let writes = self.writes_since(mark, &desk);
        let passed_on = &self.proxy.writes()[before..];
        assert_eq!(writes.len(), passed_on.len(), "the audit log and the proxy agree: {writes:#?} {passed_on:#?}");
        writes
    }

    fn writes_since(&self, mark: AuditMark, desk: &Desk<'_>) -> Vec<AuditEntry> {
        let here = |it: &AuditEntry| it.namespace == self.test.name || it.name == desk.node_name();
        let writes = self.testbed.audit().since(mark).writes();
        writes.filter(|it| it.user_agent.starts_with("5spot/") && it.group != "events.k8s.io" && here(it)).0
    }

    /// Kills the controller after the nth write of the flow, and starts another. If there is no nth write any more, the
    /// error is those of the flow that nobody interrupted.
    async fn survive(&self, controller: &mut Controller, nth: usize) -> Result<(), Vec<AuditEntry>> {
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
                *controller = self.start().await;
                self.ends(&desk, &uid).await;
                self.made_nothing_twice(mark, &desk).await;
                return Ok(());
            }
            self.proxy.spare();
            self.ends(&desk, &uid).await;
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
    async fn rests(&self) {
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
    async fn ends(&self, desk: &Desk<'_>, uid: &str) {
        self.flow.run_its_course(desk, self.provider).await;
        let children = self.children_of(uid).await;
        let node = desk.nodes().get_opt(&desk.node_name()).await.unwrap();
        if self.flow == Flow::Activation {
            assert_eq!(children, [1, 1, 1], "one of each");
            assert!(node.is_some_and(|it| it.spec.unwrap_or_default().unschedulable != Some(true)));
            return;
        }
        assert_eq!(children, [0, 0, 0], "nothing is left");
        assert!(node.is_none(), "{node:#?}");
        let pod = self.test.api::<Pod>().get_opt(&pod_of(desk)).await.unwrap();
        assert!(pod.is_none_or(|it| it.metadata.deletion_timestamp.is_some()));
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

fn pod_of(desk: &Desk<'_>) -> String {
    format!("{}-pod", desk.name)
}
