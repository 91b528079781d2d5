//! etcd is restored from a backup while controllers run, so that resource versions go back.

use std::net::Ipv4Addr;

use fivespot_api::Phase;
use fivespot_testbed::{ControlPlaneOptions, TestNamespace, Testbed};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use serde_json::json;

use crate::fixtures::{Controller, TcpRelay, TestMachine, scheduled_machine, wait_for};

/// More versions than the cluster writes by itself during the test: the controller must not just wait for them.
const VERSIONS_LOST: usize = 3000;

#[tokio::test]
async fn running_controller_acts_on_restored_state() {
    let testbed = &Testbed::start_with_fleet(ControlPlaneOptions::named("restore")).await.unwrap();
    let plane = testbed.control_plane();
    plane.install_without_controller().await.unwrap();
    // One controller sees that the API server is down. The relay hides it from the other one, which resumes its watches.
    let (direct, relayed) = (namespace(testbed, "direct").await, namespace(testbed, "relayed").await);
    let directory = tempfile::tempdir().unwrap();
    let relay = TcpRelay::start(plane.admin(), Ipv4Addr::LOCALHOST).await;
    let access = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let kubeconfig = relay.write_kubeconfig(directory.path(), &access);
    let mut controllers = [
        (Controller::start(testbed, &direct).await, &direct),
        (Controller::start_with_kubeconfig(testbed, &kubeconfig, &["--namespace", &relayed.name]), &relayed),
    ];
    for ns in [&direct, &relayed] {
        for name in ["kept", "deleted"] {
            scheduled_machine(ns, name).disabled().create().await.wait_for_phase(Phase::Disabled).await;
        }
    }
    let snapshot = plane.save_etcd().await.unwrap();

    for ns in [&direct, &relayed] {
        scheduled_machine(ns, "created").disabled().create().await.wait_for_phase(Phase::Disabled).await;
        let deleted = TestMachine::new(ns, "deleted");
        deleted.delete().await;
        deleted.wait_until_deleted().await;
    }
    write_versions(&direct).await;
    for ns in [&direct, &relayed] {
        let kept = TestMachine::new(ns, "kept");
        kept.patch(&json!({ "spec": { "priority": 77 } })).await;
        kept.wait_until("edited", |status| status.observed_generation == Some(2)).await;
    }
    let held = relay.hold_new_connections().await;
    plane.restore_etcd(&snapshot).await.unwrap();
    drop(held);

    for (controller, ns) in &mut controllers {
        for sm in ["kept", "deleted"].map(|name| TestMachine::new(ns, name)) {
            sm.set_enabled(true).await;
            let what = format!("a Machine of {}/{} is created", ns.name, sm.name);
            wait_for(&what, async || sm.machine().await.is_some()).await;
            sm.wait_for_phase(Phase::Active).await;
        }
        wait_for("the object that no longer exists is not counted", async || {
            let metrics = controller.metrics().await;
            let is_counted = !metrics.contains("fivespot_machines_by_phase{phase=\"Disabled\"} 0");
            if is_counted { Err(metrics) } else { Ok(()) }
        })
        .await;
        assert!(controller.is_running(), "{}", controller.log());
    }
}

async fn namespace(testbed: &Testbed, prefix: &str) -> TestNamespace {
    let ns = testbed.namespace(prefix).await;
    testbed.cluster(&ns, "edge").await.unwrap();
    ns
}

async fn write_versions(ns: &TestNamespace) {
    let maps = ns.api::<ConfigMap>();
    stream::iter(0..VERSIONS_LOST)
        .for_each_concurrent(32, async |number| {
            let map = json!({ "metadata": { "name": format!("version-{number}") } });
            maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        })
        .await;
}
