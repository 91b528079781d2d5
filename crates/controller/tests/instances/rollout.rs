//! Instances that are replaced one by one, as by a rolling update, while objects change.

use std::collections::HashMap;

use fivespot_api::Phase;
use fivespot_planner::shards::shard_of;
use fivespot_testbed::TestNamespace;
use fivespot_testbed::audit::Entries;

use crate::env::{Instance, for_each, leases, names, namespace_with_leases, object_of, writes_since};
use crate::fixtures::{Children, TestMachine, always, never, scheduled_machine, testbed};

/// Opens and closes windows until it is dropped.
async fn change_fleet(ns: &TestNamespace, names: &[String]) -> ! {
    let mut round = 0_usize;
    loop {
        for (index, name) in names.iter().enumerate() {
            let schedule = if (index + round).is_multiple_of(3) { never() } else { always() };
            TestMachine::new(ns, name).set_schedule(&schedule).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        round += 1;
    }
}

/// The instances that wrote about each object, in order. One that is followed by another must not write again.
fn assert_no_interleaving(writes: &Entries) {
    let mut writers: HashMap<&str, Vec<&str>> = HashMap::new();
    for write in &writes.0 {
        let of_object = writers.entry(object_of(write)).or_default();
        if of_object.last() != Some(&write.credential.as_str()) {
            assert!(
                !of_object.contains(&write.credential.as_str()),
                "an instance wrote after another one had taken over: {write:#?}"
            );
            of_object.push(&write.credential);
        }
    }
}

async fn assert_all_windows_are_kept(ns: &TestNamespace, names: &[String]) {
    for (index, name) in names.iter().enumerate() {
        let sm = TestMachine::new(ns, name);
        if index % 2 == 0 {
            sm.set_schedule(&never()).await;
        } else {
            sm.set_schedule(&always()).await;
        }
    }
    for (index, name) in names.iter().enumerate() {
        let sm = TestMachine::new(ns, name);
        if index % 2 == 0 {
            sm.wait_for_phase(Phase::Inactive).await;
            assert_eq!(sm.children().await, Children::NONE);
        } else {
            sm.wait_until_running().await;
            assert_eq!(sm.children().await, Children::ALL);
        }
    }
}

#[tokio::test]
async fn rolling_update_loses_and_duplicates_nothing() {
    let ns = namespace_with_leases("rollout").await;
    let mut instances = Vec::new();
    for id in 0..3 {
        instances.push(Instance::start_leased(&ns, id, 3).await);
    }
    for (id, instance) in instances.iter().enumerate() {
        instance.wait_until_it_holds(&[u32::try_from(id).unwrap()]).await;
    }
    let names = names(&ns, 3, 5);
    for_each(&names, async |name| {
        scheduled_machine(&ns, name).create_running().await;
    })
    .await;
    let mark = testbed().await.audit().mark();
    let update = async {
        for id in (0..3_u32).rev() {
            let index = usize::try_from(id).unwrap();
            let status = instances[index].controller.stop().await;
            assert_eq!(status.code(), Some(0));
            instances[index] = Instance::start_leased(&ns, id, 3).await;
            instances[index].controller.wait_until_ready().await;
            instances[index].wait_until_it_holds(&[id]).await;
        }
    };
    tokio::select! {
        never = change_fleet(&ns, &names) => never,
        () = update => {}
    }
    assert_all_windows_are_kept(&ns, &names).await;
    assert_no_interleaving(&writes_since(&ns, mark).await);
    ns.close().await;
}

#[tokio::test]
async fn another_instance_count_moves_a_part_of_the_objects_and_never_overlaps() {
    let ns = namespace_with_leases("more-instances").await;
    let mark = testbed().await.audit().mark();
    let mut old = Vec::new();
    for id in 0..3 {
        old.push(Instance::start_leased(&ns, id, 3).await);
    }
    let names = names(&ns, 4, 4);
    for_each(&names, async |name| {
        scheduled_machine(&ns, name).create_running().await;
    })
    .await;
    let mut new = Vec::new();
    let update = async {
        // As a StatefulSet does: the new pod first, then the others from the highest one.
        for id in (0..4_u32).rev() {
            if let Some(instance) = old.get_mut(usize::try_from(id).unwrap()) {
                assert_eq!(instance.controller.stop().await.code(), Some(0));
            }
            let instance = Instance::start_leased(&ns, id, 4).await;
            instance.controller.wait_until_ready().await;
            if id > 0 {
                assert_eq!(instance.held().await, Vec::<u32>::new());
            }
            new.insert(0, instance);
        }
        for (id, instance) in new.iter().enumerate() {
            instance.wait_until_it_holds(&[u32::try_from(id).unwrap()]).await;
        }
    };
    tokio::select! {
        never = change_fleet(&ns, &names) => never,
        () = update => {}
    }
    assert_all_windows_are_kept(&ns, &names).await;

    let writes = writes_since(&ns, mark).await;
    let is_new = |credential: &str| new.iter().any(|it| it.credential == credential);
    let first_new = writes.0.iter().position(|it| is_new(&it.credential)).unwrap();
    let overlapping: Vec<_> = writes.0[first_new..].iter().filter(|it| !is_new(&it.credential)).collect();
    assert!(overlapping.is_empty(), "{overlapping:#?}");
    let mark = testbed().await.audit().mark();
    for_each(&names, async |name| {
        let sm = TestMachine::new(&ns, name);
        sm.set_enabled(false).await;
        sm.wait_for_phase(Phase::Disabled).await;
    })
    .await;
    let writes = writes_since(&ns, mark).await;
    assert!(writes.len() >= names.len(), "{writes:#?}");
    for write in &writes.0 {
        let shard = usize::try_from(shard_of(&ns.name, object_of(write), 4)).unwrap();
        assert_eq!(write.credential, new[shard].credential, "{write:#?}");
    }
    let moved = names.iter().filter(|name| shard_of(&ns.name, name, 3) != shard_of(&ns.name, name, 4)).count();
    assert_eq!(moved, names.len() / 4);
    assert_eq!(leases(&ns).await.len(), 4);
    ns.close().await;
}
