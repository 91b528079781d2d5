//! The whole product: a ScheduledMachine whose Machine is this machine, the agent that the controller rolls out, and an owner
//! who reclaims the machine.

use std::process::Command;

use fivespot_api::{Phase, ScheduledMachine, ScheduledMachineStatus};
use fivespot_e2e::TIMEOUT;
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

use crate::env::install_agent;
use crate::process::Program;

const IMAGE: &str = "localhost/same-name:test";
const AGENT: &str = "system:serviceaccount:5spot-system:5spot-reclaim-agent";

/// The program that the owner starts. The agent matches substrings of command lines, so its name must be unique on this
/// machine.
fn program() -> String {
    format!("idea-{:x}", std::process::id())
}

struct EndToEnd {
    node: RealNode,
    _controller: Process,
    test: TestNamespace,
    testbed: Testbed,
}

impl EndToEnd {
    async fn start() -> Self {
        let testbed =
            Testbed::start_with_fleet(ControlPlaneOptions::named("end-to-end").for_real_nodes()).await.unwrap();
        let plane = testbed.control_plane();
        plane.install_without_controller().await.unwrap();
        let test = testbed.namespace("end to end").await;
        testbed.cluster(&test, "edge").await.unwrap();
        let by_kubelet = Behaviour { joining: Joining::ByKubelet, ..Behaviour::default() };
        testbed.fleet().await.provider.behave_in(&test.name, by_kubelet);
        let node = (node_name(&test.name, "desk-infra"), provider_id(&test.name, "desk-infra"));
        let node = RealNode::start(plane, &node.0, &node.1).await.unwrap();
        // Before the agent runs: the command that packs the image contains the program's name.
        node.import(&Image::sleeper(IMAGE, &program()).unwrap()).await.unwrap();
        install_agent(plane, &node).await;

        let program = tokio::task::spawn_blocking(|| static_program("5spot").unwrap()).await.unwrap();
        let access = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
        let mut command = Command::new(program);
        command.env("KUBECONFIG", plane.write_kubeconfig("5spot", &access).unwrap());
        command.args(["--health-port", "0", "--metrics-port", "0", "--namespace", &test.name]);
        let controller = Process::spawn("5spot", &mut command, &plane.logs()).unwrap();
        EndToEnd { node, _controller: controller, test, testbed }
    }

    fn objects(&self) -> Api<ScheduledMachine> {
        self.test.api()
    }

    async fn create_scheduled_machine(&self) {
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

    async fn await_status(
        &self,
        what: &str,
        condition: impl Fn(&ScheduledMachineStatus) -> bool,
    ) -> ScheduledMachineStatus {
        eventually(what, TIMEOUT, async || {
            let status = self.objects().get("desk").await.unwrap().status.unwrap_or_default();
            if condition(&status) { Ok(status) } else { Err(json!(status)) }
        })
        .await
    }

    /// Waits until the DaemonSet has this many ready and scheduled agents.
    async fn await_agents(&self, ready: i32, scheduled: i32) {
        let sets: Api<DaemonSet> = Api::namespaced(self.test.client.clone(), "5spot-system");
        eventually(&format!("{ready} of {scheduled} agents are ready"), TIMEOUT, async || {
            let status = sets.get("5spot-reclaim-agent").await.unwrap().status.unwrap_or_default();
            let matches = (status.number_ready, status.current_number_scheduled) == (ready, scheduled);
            if matches { Ok(()) } else { Err(json!(status)) }
        })
        .await;
    }

    async fn await_no_agent_pod(&self) {
        let pods: Api<Pod> = Api::namespaced(self.test.client.clone(), "5spot-system");
        eventually("no agent pod exists", TIMEOUT, async || {
            let pods = pods.list(&ListParams::default()).await.unwrap().items;
            if pods.is_empty() { Ok(()) } else { Err(json!(pods)) }
        })
        .await;
    }

    /// Runs a pod whose program has the same name as the owner's.
    async fn run_pod_with_same_program(&self) {
        let pods: Api<Pod> = self.test.api();
        let container = json!({ "name": "main", "image": IMAGE, "imagePullPolicy": "Never" });
        let node = node_name(&self.test.name, "desk-infra");
        let pod = json!({
            "metadata": { "name": "same-name" },
            "spec": { "nodeName": node, "hostNetwork": true, "containers": [container], "terminationGracePeriodSeconds": 1 },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        eventually("the pod runs", TIMEOUT, async || {
            let status = pods.get("same-name").await.unwrap().status.unwrap_or_default();
            if status.phase.as_deref() == Some("Running") { Ok(()) } else { Err(json!(status)) }
        })
        .await;
    }

    /// All writes of the agents, including rejected ones.
    async fn agent_writes(&self) -> Vec<String> {
        self.testbed.audit().caught_up(&self.test.client).await;
        let writes = self.testbed.audit().entries().by(AGENT).writes();
        writes.0.into_iter().map(|it| format!("{} {} {}", it.verb, it.target(), it.code)).collect()
    }

    /// Waits until there is exactly one Event with this reason.
    async fn await_event(&self, reason: &str) {
        let events: Api<Event> = self.test.api();
        eventually(&format!("there is one {reason} Event"), TIMEOUT, async || {
            let events = events.list(&ListParams::default()).await.unwrap().items;
            let reasons: Vec<_> = events.into_iter().filter_map(|event| event.reason).collect();
            if reasons.iter().filter(|it| *it == reason).count() == 1 { Ok(()) } else { Err(json!(reasons)) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_reclaims_the_machine_by_starting_a_program() {
    if !RealNode::is_possible() {
        return;
    }
    let env = EndToEnd::start().await;
    env.create_scheduled_machine().await;
    let active = |status: &ScheduledMachineStatus| status.phase == Some(Phase::Active) && is_ready(status);
    env.await_status("this machine is Active", active).await;
    env.await_agents(1, 1).await;

    // Clearing the list removes the agent, and setting it again restores it.
    env.edit(json!({ "killIfCommands": null })).await;
    env.await_agents(0, 0).await;
    env.await_no_agent_pod().await;
    env.edit(json!({ "killIfCommands": [program()] })).await;
    env.await_agents(1, 1).await;

    // A program in a pod is no match. Changing the list makes the agent scan all processes.
    env.run_pod_with_same_program().await;
    env.edit(json!({ "killIfCommands": [program(), "something-else"] })).await;
    env.await_agents(1, 1).await;
    assert_eq!(env.agent_writes().await, Vec::<String>::new());

    let idea = Program::start_unprivileged(&program());
    let status = env.await_status("the machine is Disabled", |status| status.phase == Some(Phase::Disabled)).await;
    assert!(crate::process::status_of(idea.pid()).is_some(), "the owner's program keeps running");
    let reclaim = status.reclaim.clone().unwrap();
    assert_eq!((reclaim.count, reclaim.reason.unwrap()), (1, format!("process-match: {}", program())));
    let scheduled = status.conditions.iter().find(|it| it.type_ == "Scheduled").unwrap();
    assert_eq!((&*scheduled.status, &*scheduled.reason), ("False", "EmergencyReclaimDisabledSchedule"));
    assert!(!env.objects().get("desk").await.unwrap().spec.schedule.enabled);
    env.await_event("EmergencyReclaim").await;
    env.await_event("EmergencyReclaimDisabledSchedule").await;

    let machines = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let machines: Vec<DynamicObject> =
        env.test.dynamic_api(&machines).list(&ListParams::default()).await.unwrap().items;
    assert!(machines.is_empty(), "{machines:#?}");
    let nodes: Api<Node> = Api::all(env.test.client.clone());
    eventually("the Node is deleted", TIMEOUT, async || {
        nodes.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    let config_maps: Api<ConfigMap> = Api::namespaced(env.test.client.clone(), "5spot-system");
    let config_maps = config_maps.list(&ListParams::default()).await.unwrap().items;
    let agent_config = config_maps.iter().find(|map| map.name_any().starts_with("reclaim-agent-"));
    assert!(agent_config.is_none(), "{agent_config:#?}");
    // One write, which the agent repeats if a busy API server does not answer within a second.
    let writes = env.agent_writes().await;
    assert!(!writes.is_empty() && writes.iter().all(|write| write == "patch nodes 200"), "{writes:?}");
    // The agent checks with a dry run that it is forbidden to write more than its annotations.
    let is_forbidden = |entry: &AuditEntry| {
        entry.user.starts_with("system:serviceaccount:5spot-system:") && entry.code == 403 && !entry.is_dry_run()
    };
    let forbidden = env.testbed.audit().entries().filter(is_forbidden);
    assert!(forbidden.is_empty(), "the shipped RBAC is insufficient: {forbidden:?}");
    env.node.stop().await;
}

fn is_ready(status: &ScheduledMachineStatus) -> bool {
    status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
