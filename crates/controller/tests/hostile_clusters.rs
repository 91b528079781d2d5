//! Workload clusters whose API server attacks the controller. The kubeconfig Secret, and so the server, is a tenant's.
//!
//! In a binary of its own, because the controller watches all namespaces: that of the hostile tenant and that of another.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics, also outside of test functions")]

mod fixtures;

use std::time::{Duration, Instant};

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::control_plane::WORKLOAD_ADMIN;
use fivespot_testbed::hostile_server::{Attack, HostileServer, PAGES};
use fivespot_testbed::process::Signal;
use fixtures::{
    Controller, Endpoint, TestMachine, condition, namespace_with_cluster, never, scheduled_machine, testbed, wait_for,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The Deployment's limit is 256 Mi; a debug build of an idle controller uses about 30 MiB.
const MAX_RESIDENT_MIB: u64 = 140;
const MAX_LOG_LINE: usize = 4 * 1024;

/// The tests run one after the other, because each controller watches all namespaces.
static SERIAL: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Current and highest resident memory of a process.
fn resident_mib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024
}

/// Kills the controller when it uses too much memory: otherwise a failed test would take the machine down with it.
async fn kill_above_limit(controller: &Controller) {
    loop {
        let resident = resident_mib(controller.pid(), "VmRSS");
        if resident > MAX_RESIDENT_MIB {
            controller.signal(Signal::KILL);
            panic!("the controller uses {resident} MiB");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn use_server(ns: &TestNamespace, cluster: &str, server: &str) {
    let access = testbed().await.control_plane().access(WORKLOAD_ADMIN).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&access.kubeconfig()).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
    let patch = json!({ "data": { "value": ByteString(kubeconfig.to_string().into_bytes()) } });
    let secret = format!("{cluster}-kubeconfig");
    ns.api::<Secret>().patch(&secret, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Machines of a hostile tenant, each in a Cluster of its own, and one of another tenant.
struct Tenants {
    hostile: TestNamespace,
    honest: TestNamespace,
}

impl Tenants {
    async fn create(count: usize) -> Self {
        let testbed = testbed().await;
        let tenants =
            Tenants { hostile: testbed.namespace("hostile").await, honest: namespace_with_cluster("honest").await };
        let mut controller = Controller::start_with_args(testbed, &[]).await;
        let names: Vec<String> = (0..count).map(cluster_name).collect();
        for name in &names {
            testbed.cluster(&tenants.hostile, name).await.unwrap();
            scheduled_machine(&tenants.hostile, name).cluster(name).create().await;
        }
        tenants.honest_machine().await;
        for name in &names {
            TestMachine::new(&tenants.hostile, name).wait_until_running().await;
        }
        controller.stop().await;
        tenants
    }

    async fn honest_machine(&self) -> TestMachine<'_> {
        scheduled_machine(&self.honest, "desk-01").create_running().await
    }

    fn machine(&self, index: usize) -> TestMachine<'_> {
        TestMachine::new(&self.hostile, &cluster_name(index))
    }

    /// Name and providerID of a hostile machine's Node.
    async fn node(&self, index: usize) -> (String, String) {
        let sm = self.machine(index);
        (sm.node_name(), sm.node().await.spec.unwrap().provider_id.unwrap())
    }

    /// Points the kubeconfig of each Cluster at a server with this attack.
    async fn attack(&self, attacks: &[Attack]) -> Vec<HostileServer> {
        let mut servers = Vec::new();
        for (index, attack) in attacks.iter().enumerate() {
            let server = HostileServer::start(testbed().await.control_plane(), attack.clone()).await.unwrap();
            use_server(&self.hostile, &cluster_name(index), &server.server()).await;
            servers.push(server);
        }
        servers
    }

    async fn close(self) {
        self.hostile.close().await;
        self.honest.close().await;
    }
}

fn cluster_name(index: usize) -> String {
    format!("far-{index:02}")
}

#[tokio::test]
async fn hostile_servers_exhaust_neither_memory_nor_log() {
    let _serial = SERIAL.lock().await;
    // What the status says of each.
    let attacks = [
        (Attack::EndlessBody, "response is larger than"),
        (Attack::TinyChunks, "response is larger than"),
        (Attack::EndlessLine, "watch event is larger than"),
        (Attack::EndlessPages, "more than 500 pages"),
        (Attack::ManyItems, "invalid response"),
        (Attack::LongStrings, "response is larger than"),
        (Attack::DeepNesting, "invalid response"),
        (Attack::LongError, "HTTP status 403"),
        (Attack::EndlessHeader, "invalid response"),
        (Attack::SlowBody, "did not respond within"),
        (Attack::SilentHandshake, "did not respond within"),
        (Attack::NamelessObjects, "invalid response"),
        (Attack::ManyNodes, "invalid response"),
    ];
    let attacks: Vec<_> = attacks.iter().cycle().take(attacks.len() * 2).collect();
    let tenants = Tenants::create(attacks.len()).await;
    let servers = tenants.attack(&attacks.iter().map(|it| it.0.clone()).collect::<Vec<_>>()).await;
    let controller = Controller::start_with_args(testbed().await, &[]).await;
    let handled = async {
        let desk = TestMachine::new(&tenants.honest, "desk-01");
        desk.set_schedule(&never()).await;
        desk.wait_for_phase(Phase::Inactive).await;
        for (index, (attack, expected)) in attacks.iter().enumerate() {
            let sm = tenants.machine(index);
            let unreachable = ("Unknown", "WorkloadClusterUnreachable");
            let status = sm.wait_for_condition("MachineReady", unreachable).await;
            let message = status.message.clone().unwrap_or_default();
            assert!(message.contains(expected), "{attack:?}: {message}");
            assert!(!message.contains("FOREIGN") && message.len() < 400, "{message}");
        }
    };
    tokio::select! {
        () = handled => {}
        () = kill_above_limit(&controller) => {}
    }
    let peak = resident_mib(controller.pid(), "VmHWM");
    assert!((1..=MAX_RESIDENT_MIB).contains(&peak), "{peak} MiB");
    let log = controller.log();
    assert!(log.lines().all(|line| line.len() < MAX_LOG_LINE), "{log}");
    // Two servers send this text on each attempt.
    let quoted = log.lines().filter(|line| line.contains("FOREIGN-TEXT")).count();
    assert!((1..10).contains(&quoted), "{log}");
    let metrics = controller.metrics().await;
    assert!(metrics.contains("fivespot_errors_total{error_type=\"panic\"} 0"), "{metrics}");
    drop(servers);
    tenants.close().await;
}

#[tokio::test]
async fn flood_of_watch_events_causes_few_writes() {
    let _serial = SERIAL.lock().await;
    let tenants = Tenants::create(3).await;
    let (node, provider_id) = tenants.node(0).await;
    let flood = Attack::Flood { node, provider_id };
    let servers = tenants.attack(&[flood, Attack::ClosedWatches, Attack::BrokenWatches]).await;
    let (mark, started) = (testbed().await.audit().mark(), Instant::now());
    let controller = Controller::start_with_args(testbed().await, &[]).await;
    // The flooded Node is in use, and the other tenant's machine is removed meanwhile.
    let sm = tenants.machine(0);
    sm.wait_until("Ready is reported", |it| condition(it, "MachineReady").1 != "WorkloadClusterUnreachable").await;
    let desk = TestMachine::new(&tenants.honest, "desk-01");
    desk.set_schedule(&never()).await;
    let work = async {
        desk.wait_for_phase(Phase::Inactive).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        () = work => {}
        () = kill_above_limit(&controller) => {}
    }
    let audit = testbed().await.audit();
    audit.caught_up(&tenants.hostile.client).await;
    let writes = audit.since(mark).by(fixtures::CONTROLLER_USER);
    // The flooded Node causes about two reconciles per second, each with a few requests, and the other machine is removed.
    let limit = 100 + 8 * started.elapsed().as_secs();
    assert!(u64::try_from(writes.len()).unwrap() < limit, "{} requests, expected less than {limit}", writes.len());
    wait_for("metrics are served", async || {
        let metrics = controller.metrics().await;
        let watches = metrics.lines().find(|it| it.contains("verb=\"watch\"") && it.contains("resource=\"nodes\""));
        let count: f64 = watches.and_then(|it| it.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
        // The server that closes each watch is not asked again without a delay. The metric counts all three clusters.
        if count < 50.0 + started.elapsed().as_secs_f64() { Ok(()) } else { Err(metrics) }
    })
    .await;
    assert_eq!(controller.get(Endpoint::Health, "/readyz").await.code, 200);
    // A connection that is lost again and again is logged once a minute.
    let log = controller.log();
    let lines = |text: &str| log.lines().filter(|it| it.contains(text) && it.contains(&cluster_name(2))).count();
    let minutes = usize::try_from(started.elapsed().as_secs() / 60).unwrap() + 1;
    for text in ["Lost connection to workload cluster", "Connected to workload cluster"] {
        assert!((1..=minutes).contains(&lines(text)), "{} lines in {minutes} minutes: {log}", lines(text));
    }
    drop(servers);
    tenants.close().await;
}

#[tokio::test]
async fn configurations_of_other_nodes_are_not_kept() {
    let _serial = SERIAL.lock().await;
    let tenants = Tenants::create(1).await;
    let (node, provider_id) = tenants.node(0).await;
    tenants.machine(0).patch(&json!({ "spec": { "killIfCommands": ["idea"] } })).await;
    let servers = tenants.attack(&[Attack::ManyConfigs { node, provider_id }]).await;
    let controller = Controller::start_with_args(testbed().await, &[]).await;
    let listed = wait_for("all configurations are listed", async || {
        if servers[0].pages() >= PAGES { Ok(()) } else { Err(servers[0].pages()) }
    });
    tokio::select! {
        () = listed => {}
        () = kill_above_limit(&controller) => {}
    }
    let peak = resident_mib(controller.pid(), "VmHWM");
    assert!((1..=MAX_RESIDENT_MIB).contains(&peak), "{peak} MiB");
    drop(servers);
    tenants.close().await;
}

/// A list of pods that does not end would take hours.
#[tokio::test]
async fn kill_switch_does_not_wait_for_slow_pages() {
    let _serial = SERIAL.lock().await;
    let tenants = Tenants::create(1).await;
    let (node, provider_id) = tenants.node(0).await;
    let servers = tenants.attack(&[Attack::SlowPages { node, provider_id }]).await;
    let _controller = Controller::start_with_args(testbed().await, &[]).await;
    let sm = tenants.machine(0);
    sm.set_schedule(&never()).await;
    wait_for("pods are listed", async || servers[0].pages() > 0).await;
    assert!(!sm.machine_is_terminating().await);
    sm.set_kill_switch(true).await;
    let is_deleted = async || sm.machine().await.is_none() || sm.machine_is_terminating().await;
    wait_for("the Machine is deleted", is_deleted).await;
    drop(servers);
    tenants.close().await;
}
