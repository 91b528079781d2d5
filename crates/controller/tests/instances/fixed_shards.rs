//! Instances without Leases: each has a fixed shard.

use fivespot_api::Phase;
use fivespot_planner::shards::shard_of;

use crate::env::{Instance, for_each, names, object_of, writes_since};
use crate::fixtures::{TestMachine, namespace_with_cluster, scheduled_machine, testbed};

#[tokio::test]
async fn instance_acts_on_its_own_shard_only() {
    let ns = namespace_with_cluster("fixed-shards").await;
    let mark = testbed().await.audit().mark();
    let start = async |id: &str| {
        Instance::start(&["--namespace", &ns.name, "--instance-id", id, "--instance-count", "3"]).await
    };
    let (first, last) = (start("0").await, start("2").await);
    let names = names(&ns, 3, 4);
    for_each(&names, async |name| {
        scheduled_machine(&ns, name).create().await;
    })
    .await;
    for name in names.iter().filter(|name| shard_of(&ns.name, name, 3) != 1) {
        TestMachine::new(&ns, name).wait_until_running().await;
    }
    assert_eq!((first.held().await, last.held().await), (vec![0], vec![2]));
    for name in names.iter().filter(|name| shard_of(&ns.name, name, 3) == 1) {
        assert_eq!(TestMachine::new(&ns, name).get().await.status, None, "{name} has no instance");
    }
    // Each instance counts its own objects.
    for instance in [&first, &last] {
        let metrics = instance.controller.metrics().await;
        assert!(metrics.contains("fivespot_machines_by_phase{phase=\"Active\"} 4\n"), "{metrics}");
    }

    let middle = start("1").await;
    for name in &names {
        TestMachine::new(&ns, name).wait_until_running().await;
    }
    for_each(&names, async |name| TestMachine::new(&ns, name).set_enabled(false).await).await;
    for name in &names {
        TestMachine::new(&ns, name).wait_for_phase(Phase::Disabled).await;
    }
    let writes = writes_since(&ns, mark).await;
    for (shard, instance) in [(0, &first), (1, &middle), (2, &last)] {
        let of_shard = writes.clone().filter(|it| shard_of(&ns.name, object_of(it), 3) == shard);
        assert!(of_shard.len() >= 4 * 6, "{of_shard:#?}");
        let others = of_shard.filter(|it| it.credential != instance.credential);
        assert!(others.is_empty(), "{others:#?}");
    }
    ns.close().await;
}
