//! An instance that fails, or stops for a while: another one takes over, and the old one writes nothing.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use fivespot_api::Phase;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::audit::Entries;
use fivespot_testbed::process::Signal;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, PostParams};

use crate::env::{Instance, for_each, lease, leases, names, namespace_with_leases, object_of, writes_since};
use crate::fixtures::{
    Endpoint, TcpRelay, TestMachine, namespace_with_cluster, never, scheduled_machine, testbed, wait_for, window,
};

fn creates(writes: &Entries) -> Vec<&str> {
    let creates = writes.0.iter().filter(|it| it.verb == "create" && it.resource == "machines");
    let mut names: Vec<&str> = creates.map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn killed_instance_is_replaced_at_a_boundary_and_nothing_is_done_twice() {
    let ns = namespace_with_leases("failover").await;
    let (first, second) = (Instance::start_leased(&ns, 0, 2).await, Instance::start_leased(&ns, 1, 2).await);
    first.wait_until_it_holds(&[0]).await;
    second.wait_until_it_holds(&[1]).await;
    let names = names(&ns, 2, 5);
    let schedule = window(12, 3600);
    let opens: Timestamp = schedule["overrides"][0]["from"].as_str().unwrap().parse().unwrap();
    let mark = testbed().await.audit().mark();
    for_each(&names, async |name| {
        scheduled_machine(&ns, name).schedule(schedule.clone()).create().await.wait_for_phase(Phase::Inactive).await;
    })
    .await;
    // Both hold their shards until just before the boundary.
    let wait = opens.duration_since(Timestamp::now()) - SignedDuration::from_millis(300);
    tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
    first.signal(Signal::KILL);
    for name in &names {
        TestMachine::new(&ns, name).wait_until_running().await;
    }
    second.wait_until_it_holds(&[0, 1]).await;
    let writes = writes_since(&ns, mark).await;
    let mut expected: Vec<String> = names.iter().map(|name| format!("{name}-machine")).collect();
    expected.sort_unstable();
    assert_eq!(creates(&writes), expected);
    let conflicts = writes.filter(|it| it.code == 409);
    assert!(conflicts.is_empty(), "{conflicts:#?}");
    ns.close().await;
}

/// Starts another instance with the same id, and runs machines that the first one has created.
async fn add_second_instance(ns: &TestNamespace) -> (Instance, Vec<TestMachine<'_>>) {
    let second = Instance::start_leased(ns, 0, 1).await;
    second.controller.wait_until_ready().await;
    let names = names(ns, 1, 12);
    for_each(&names, async |name| {
        scheduled_machine(ns, name).create_running().await;
    })
    .await;
    (second, names.iter().map(|name| TestMachine::new(ns, name)).collect())
}

/// Enables and disables all objects in turn, without end.
async fn toggle(machines: &[TestMachine<'_>]) {
    for round in 0.. {
        for sm in machines {
            sm.set_enabled(round % 2 == 1).await;
        }
    }
}

/// Both processes have the same id, so the one that was stopped does not get its shard back.
#[tokio::test]
async fn stopped_instance_writes_nothing_when_it_continues() {
    let ns = namespace_with_leases("stopped").await;
    let first = Instance::start_leased(&ns, 0, 1).await;
    first.wait_until_it_holds(&[0]).await;
    let (second, machines) = add_second_instance(&ns).await;
    let mark = testbed().await.audit().mark();
    let stop = async {
        // In the middle of reconciles, with requests in flight.
        tokio::time::sleep(Duration::from_secs(2)).await;
        first.signal(Signal::STOP);
        second.wait_until_it_holds(&[0]).await;
        testbed().await.audit().caught_up(&ns.client).await;
        let resumed = testbed().await.audit().mark();
        first.signal(Signal::CONT);
        first.wait_until_it_holds(&[]).await;
        // It has looked at everything that was due, and the other one has worked meanwhile.
        wait_for("the first instance has nothing left to do", async || {
            first.controller.metric("fivespot_internal_entries{map=\"queue\"}").await == 0
        })
        .await;
        wait_for("the second instance writes", async || writes_since(&ns, resumed).await.len() > 5).await;
        resumed
    };
    let resumed = tokio::select! {
        () = toggle(&machines) => unreachable!("the loop does not end"),
        resumed = stop => resumed,
    };
    let before = writes_since(&ns, mark).await.filter(|it| it.credential == first.credential);
    assert!(!before.is_empty(), "the first instance was idle before it was stopped");
    let after = writes_since(&ns, resumed).await;
    let by_first = after.clone().filter(|it| it.credential == first.credential);
    assert!(by_first.is_empty(), "{by_first:#?}");
    assert!(after.len() > 5, "{after:#?}");
    assert_eq!(second.held().await, [0]);
    for sm in &machines {
        sm.set_enabled(true).await;
        sm.wait_until_running().await;
    }
    ns.close().await;
}

/// Packets of an instance are held back without an error, and are delivered after another instance has worked on the same
/// objects.
#[tokio::test]
async fn instance_without_network_is_replaced_and_stores_nothing_when_it_is_back() {
    let ns = namespace_with_leases("no-network").await;
    let relay = TcpRelay::start(testbed().await.control_plane().admin(), Ipv4Addr::LOCALHOST).await;
    let first = Instance::start_behind(&relay, &ns).await;
    first.wait_until_it_holds(&[0]).await;
    let (second, machines) = add_second_instance(&ns).await;
    let mark = testbed().await.audit().mark();
    let hang = async {
        wait_for("the first instance writes", async || writes_since(&ns, mark).await.len() > 5).await;
        relay.suspend();
        second.wait_until_it_holds(&[0]).await;
        // The first one has noticed it without a response, and the second one has worked on each object.
        first.wait_until_it_holds(&[]).await;
        let suspended = testbed().await.audit().mark();
        wait_for("the second instance has written every object", async || {
            let writes = writes_since(&ns, suspended).await.succeeded();
            let written: BTreeSet<&str> = writes.0.iter().map(object_of).collect();
            if written.len() == machines.len() { Ok(()) } else { Err(format!("{written:?}")) }
        })
        .await;
        let resumed = testbed().await.audit().mark();
        relay.resume();
        // It watches again, and does not get its shard back.
        wait_for("the first instance is ready", async || {
            first.controller.get(Endpoint::Health, "/ready").await.code == 200
        })
        .await;
        resumed
    };
    let resumed = tokio::select! {
        () = toggle(&machines) => unreachable!("the loop does not end"),
        resumed = hang => resumed,
    };
    assert_eq!((first.held().await, second.held().await), (Vec::new(), vec![0]));
    let late = writes_since(&ns, resumed).await.filter(|it| it.credential == first.credential);
    let stored = late.clone().succeeded();
    assert!(stored.is_empty(), "{stored:#?}");
    for sm in &machines {
        sm.set_enabled(true).await;
        sm.wait_until_running().await;
    }
    ns.close().await;
}

#[tokio::test]
async fn processes_with_the_same_id_do_not_fight() {
    let ns = namespace_with_leases("same-id").await;
    let first = Instance::start_leased(&ns, 0, 1).await;
    first.wait_until_it_holds(&[0]).await;
    let second = Instance::start_leased(&ns, 0, 1).await;
    second.controller.wait_until_ready().await;
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    let before = lease(&ns, 0).await.spec.unwrap();
    wait_for("the Lease is renewed several times", async || {
        let now = lease(&ns, 0).await.spec.unwrap();
        let renewed = now.renew_time.unwrap().0.duration_since(before.renew_time.clone().unwrap().0);
        renewed > SignedDuration::from_secs(8)
    })
    .await;
    let after = lease(&ns, 0).await.spec.unwrap();
    assert_eq!((after.holder_identity, after.lease_transitions), (before.holder_identity, before.lease_transitions));
    assert_eq!((first.held().await, second.held().await), (vec![0], Vec::new()));
    sm.set_schedule(&never()).await;
    sm.wait_for_phase(Phase::Inactive).await;
    ns.close().await;
}

#[tokio::test]
async fn missing_permission_for_leases_is_reported() {
    let ns = namespace_with_cluster("no-leases").await;
    let instance = Instance::start_leased(&ns, 0, 1).await;
    wait_for("the instance reports the missing permission", async || {
        let ready = instance.controller.get(Endpoint::Health, "/ready").await;
        let is_reported =
            ready.code == 503 && ready.body.contains("the watch of Leases fails") && ready.body.contains("forbidden");
        if is_reported { Ok(()) } else { Err(ready.body) }
    })
    .await;
    ns.close().await;

    // It may watch Leases, but not write them.
    let ns = namespace_with_leases("read-only-leases").await;
    let mut role = ns.api::<Role>().get("5spot-leases").await.unwrap();
    role.rules.iter_mut().flatten().for_each(|rule| rule.verbs.retain(|verb| verb != "create"));
    ns.api::<Role>().replace("5spot-leases", &PostParams::default(), &role).await.unwrap();
    let instance = Instance::start_leased(&ns, 0, 1).await;
    wait_for("the instance reports the missing permission", async || {
        let ready = instance.controller.get(Endpoint::Health, "/ready").await;
        let is_reported =
            ready.code == 503 && ready.body.contains("cannot acquire Lease") && ready.body.contains("forbidden");
        if is_reported { Ok(()) } else { Err(ready.body) }
    })
    .await;
    assert_eq!(instance.held().await, Vec::<u32>::new());
    assert!(leases(&ns).await.is_empty());
    ns.api::<RoleBinding>().delete("5spot-leases", &DeleteParams::default()).await.unwrap();
    ns.close().await;
}
