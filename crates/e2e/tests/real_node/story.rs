//! The whole of it: a ScheduledMachine whose Machine is this machine, its owner, and the agent that the controller has put
//! there.

use std::process::Command;

use fivespot_api::{Phase, ScheduledMachine, ScheduledMachineStatus};
use fivespot_testbed::audit::AuditEntry;
use fivespot_testbed::node::{Image, static_program};
use fivespot_testbed::process::Process;
use fivespot_testbed::provider::kinds::{K0S_WORKER_CONFIG, REMOTE_MACHINE};
use fivespot_testbed::provider::{Behaviour, Joining, node_name, provider_id};
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlaneOptions, RealNode, TestNamespace, Testbed};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::process::Program;
use crate::stage::{SOON, install_agent};

const IMAGE: &str = "localhost/namesake:test";
const AGENT: &str = "system:serviceaccount:5spot-system:5spot-reclaim-agent";

/// What the owner starts. A part of any command line counts, so it must be in no other of this machine.
fn program() -> String {
    format!("idea-{:x}", std::process::id())
}

struct Story {
    node: RealNode,
    _controller: Process,
    test: TestNamespace,
    testbed: Testbed,
}

impl Story {
    async fn begin() -> Self {
        let testbed =
            Testbed::start_with_fleet(ControlPlaneOptions::named("real-story").for_real_nodes()).await.unwrap();
        let plane = testbed.control_plane();
        plane.install_without_controller().await.unwrap();
        let test = testbed.namespace("story").await;
        testbed.cluster(&test, "edge").await.unwrap();
        let by_kubelet = Behaviour { joining: Joining::ByKubelet, ..Behaviour::default() };
        testbed.fleet().await.provider.behave_in(&test.name, by_kubelet);
        let node = (node_name(&test.name, "desk-infra"), provider_id(&test.name, "desk-infra"));
        let node = RealNode::start(plane, &node.0, &node.1).await.unwrap();
        // Before anybody looks: who packs the image has the program's name in a command line.
        node.import(&Image::sleeper(IMAGE, &program()).unwrap()).await.unwrap();
        install_agent(plane, &node).await;

        let program = tokio::task::spawn_blocking(|| static_program("5spot").unwrap()).await.unwrap();
        let access = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
        let mut command = Command::new(program);
        command.env("KUBECONFIG", plane.write_kubeconfig("5spot", &access).unwrap());
        command.args(["--health-port", "0", "--metrics-port", "0", "--namespace", &test.name]);
        let controller = Process::spawn("5spot", &mut command, &plane.logs()).unwrap();
        Story { node, _controller: controller, test, testbed }
    }

    fn objects(&self) -> Api<ScheduledMachine> {
        self.test.api()
    }

    async fn lend(&self) {
        let provider = |kind: &str, version: String| json!({ "apiVersion": version, "kind": kind, "spec": {} });
        let object = serde_json::from_value(json!({
            "apiVersion": "5spot.finos.org/v1alpha1",
            "kind": "ScheduledMachine",
            "metadata": { "name": "desk" },
            "spec": {
                "schedule": { "cron": "* * * * *" },
                "clusterName": "edge",
                "killIfCommands": [program()],
                "bootstrapSpec": provider("K0sWorkerConfig", K0S_WORKER_CONFIG.api_version()),
                "infrastructureSpec": provider("RemoteMachine", REMOTE_MACHINE.api_version()),
            },
        }));
        self.objects().create(&PostParams::default(), &object.unwrap()).await.unwrap();
    }

    async fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.objects().patch("desk", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until(&self, what: &str, is: impl Fn(&ScheduledMachineStatus) -> bool) -> ScheduledMachineStatus {
        eventually(what, SOON, async || {
            let status = self.objects().get("desk").await.unwrap().status.unwrap_or_default();
            if is(&status) { Ok(status) } else { Err(json!(status)) }
        })
        .await
    }

    /// Waits until so many agents are armed, of so many that there are.
    async fn agents(&self, ready: i32, there: i32) {
        let sets: Api<DaemonSet> = Api::namespaced(self.test.client.clone(), "5spot-system");
        eventually(&format!("{ready} of {there} agents are armed"), SOON, async || {
            let status = sets.get("5spot-reclaim-agent").await.unwrap().status.unwrap_or_default();
            let is = (status.number_ready, status.current_number_scheduled) == (ready, there);
            if is { Ok(()) } else { Err(json!(status)) }
        })
        .await;
    }

    async fn no_agent_pod_is_left(&self) {
        let pods: Api<Pod> = Api::namespaced(self.test.client.clone(), "5spot-system");
        eventually("no agent is left", SOON, async || {
            let pods = pods.list(&ListParams::default()).await.unwrap().items;
            if pods.is_empty() { Ok(()) } else { Err(json!(pods)) }
        })
        .await;
    }

    /// A pod whose program is called as the owner's is.
    async fn run_the_same_in_a_pod(&self) {
        let pods: Api<Pod> = self.test.api();
        let container = json!({ "name": "main", "image": IMAGE, "imagePullPolicy": "Never" });
        let node = node_name(&self.test.name, "desk-infra");
        let pod = json!({
            "metadata": { "name": "namesake" },
            "spec": { "nodeName": node, "hostNetwork": true, "containers": [container], "terminationGracePeriodSeconds": 1 },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        eventually("the namesake runs", SOON, async || {
            let status = pods.get("namesake").await.unwrap().status.unwrap_or_default();
            if status.phase.as_deref() == Some("Running") { Ok(()) } else { Err(json!(status)) }
        })
        .await;
    }

    /// What the agents have written, and what they were refused.
    async fn written_by_agents(&self) -> Vec<String> {
        self.testbed.audit().caught_up(&self.test.client).await;
        let writes = self.testbed.audit().entries().by(AGENT).writes();
        writes.0.into_iter().map(|it| format!("{} {} {}", it.verb, it.target(), it.code)).collect()
    }

    async fn told(&self, reason: &str) {
        let events: Api<Event> = self.test.api();
        eventually(&format!("{reason} is told"), SOON, async || {
            let told: Vec<_> = events
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .into_iter()
                .filter_map(|it| it.reason)
                .collect();
            if told.iter().filter(|it| *it == reason).count() == 1 { Ok(()) } else { Err(json!(told)) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_starts_a_program_and_has_the_machine_back() {
    if !RealNode::is_possible() {
        return;
    }
    let story = Story::begin().await;
    story.lend().await;
    let running = |it: &ScheduledMachineStatus| it.phase == Some(Phase::Active) && is_ready(it);
    story.until("this machine is in the cluster", running).await;
    story.agents(1, 1).await;

    // Whoever clears the list has no agent, and has one again.
    story.edit(json!({ "killIfCommands": null })).await;
    story.agents(0, 0).await;
    story.no_agent_pod_is_left().await;
    story.edit(json!({ "killIfCommands": [program()] })).await;
    story.agents(1, 1).await;

    // What runs in a pod is not the owner's. An agent that is made anew looks at all that runs.
    story.run_the_same_in_a_pod().await;
    story.edit(json!({ "killIfCommands": [program(), "something-else"] })).await;
    story.agents(1, 1).await;
    assert_eq!(story.written_by_agents().await, Vec::<String>::new());

    let idea = Program::start_as_nobody(&program());
    let over = story.until("it is given back", |it| it.phase == Some(Phase::Disabled)).await;
    assert!(crate::process::status_of(idea.pid()).is_some(), "the owner's program is nobody's business");
    let reclaim = over.reclaim.clone().unwrap();
    assert_eq!((reclaim.count, reclaim.reason.unwrap()), (1, format!("process-match: {}", program())));
    let scheduled = over.conditions.iter().find(|it| it.type_ == "Scheduled").unwrap();
    assert_eq!((&*scheduled.status, &*scheduled.reason), ("False", "EmergencyReclaimDisabledSchedule"));
    assert!(!story.objects().get("desk").await.unwrap().spec.schedule.enabled);
    story.told("EmergencyReclaim").await;
    story.told("EmergencyReclaimDisabledSchedule").await;

    let machines = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let left: Vec<DynamicObject> = story.test.dynamic_api(&machines).list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "{left:#?}");
    let nodes: Api<Node> = Api::all(story.test.client.clone());
    eventually("the Node is gone", SOON, async || nodes.list(&ListParams::default()).await.unwrap().items.is_empty())
        .await;
    let orders: Api<ConfigMap> = Api::namespaced(story.test.client.clone(), "5spot-system");
    let orders = orders.list(&ListParams::default()).await.unwrap().items;
    assert!(!orders.iter().any(|it| it.name_any().starts_with("reclaim-agent-")), "{orders:#?}");
    // One request, in one write, which is sent once more where a busy server does not answer within a second.
    let written = story.written_by_agents().await;
    assert!(!written.is_empty() && written.iter().all(|it| it == "patch nodes 200"), "{written:?}");
    let ours = |it: &AuditEntry| it.user.starts_with("system:serviceaccount:5spot-system:");
    let refused = story.testbed.audit().entries().filter(|it| ours(it) && it.code == 403);
    assert!(refused.is_empty(), "what is shipped suffices: {refused:?}");
    story.node.stop().await;
}

fn is_ready(status: &ScheduledMachineStatus) -> bool {
    status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
