//! Instances of the controller that share a namespace of their own, for objects and Leases.

use fivespot_planner::shards::shard_of;
use fivespot_testbed::audit::{AuditEntry, AuditMark, Entries};
use fivespot_testbed::process::Signal;
use fivespot_testbed::{Access, TestNamespace};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, PostParams};

use crate::fixtures::{Controller, TcpRelay, namespace_with_cluster, testbed, wait_for};

/// Not the shortest possible one: a process that gets no CPU for two seconds must not lose its Lease in most tests.
pub(crate) const LEASE_DURATION: &str = "6s";
pub(crate) const LEASE_NAME: &str = "5spot-shard-";

/// One instance, and what identifies its requests in the audit log.
pub(crate) struct Instance {
    pub(crate) controller: Controller,
    pub(crate) credential: String,
}

impl Instance {
    pub(crate) async fn start(args: &[&str]) -> Self {
        let (access, credential) = new_credential().await;
        Instance { controller: Controller::start_as(testbed().await, &access, args), credential }
    }

    /// Starts instance `id` of `count` with Leases.
    pub(crate) async fn start_leased(ns: &TestNamespace, id: u32, count: u32) -> Self {
        Self::start(&leased(ns, &id.to_string(), &count.to_string())).await
    }

    /// Starts the only instance of a count of one, which reaches the API server through a relay.
    pub(crate) async fn start_behind(relay: &TcpRelay, ns: &TestNamespace) -> Self {
        let (access, credential) = new_credential().await;
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = relay.write_kubeconfig(directory.path(), &access);
        let controller = Controller::start_with_kubeconfig(testbed().await, &kubeconfig, &leased(ns, "0", "1"));
        // It has read the kubeconfig by then.
        controller.wait_until_ready().await;
        Instance { controller, credential }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.controller.signal(signal);
    }

    /// Waits until this instance holds exactly these shards.
    pub(crate) async fn wait_until_it_holds(&self, shards: &[u32]) {
        wait_for(&format!("an instance holds {shards:?}"), async || {
            let held = self.held().await;
            if held == shards { Ok(()) } else { Err(format!("{held:?}\n{}", self.controller.log())) }
        })
        .await;
    }

    /// The shards that this instance holds, from its metrics.
    pub(crate) async fn held(&self) -> Vec<u32> {
        let metrics = self.controller.metrics().await;
        let held = metrics.lines().filter_map(|line| {
            let (shard, held) = line.strip_prefix("fivespot_shard_held{shard=\"")?.split_once("\"} ")?;
            (held == "1").then(|| shard.parse().unwrap())
        });
        let mut held: Vec<u32> = held.collect();
        held.sort_unstable();
        held
    }
}

/// A token of the controller's ServiceAccount, and its id in the audit log.
async fn new_credential() -> (Access, String) {
    let plane = testbed().await.control_plane();
    let access = plane.service_account("5spot-system", "5spot-controller").await.unwrap();
    let credential = access.credential(plane.admin()).await.unwrap();
    assert!(!credential.is_empty());
    (access, credential)
}

fn leased<'a>(ns: &'a TestNamespace, id: &'a str, count: &'a str) -> Vec<&'a str> {
    let leases = ["--leader-election", "--lease-namespace", &ns.name, "--lease-duration", LEASE_DURATION];
    let instance = ["--instance-id", id, "--instance-count", count];
    [&["--namespace", &ns.name][..], &leases, &instance].concat()
}

/// A namespace in which the controller may use Leases, with the permissions that are shipped for its own namespace.
pub(crate) async fn namespace_with_leases(prefix: &str) -> TestNamespace {
    let ns = namespace_with_cluster(prefix).await;
    let shipped: Api<Role> = Api::namespaced(ns.client.clone(), "5spot-system");
    let role = shipped.get("5spot-leases").await.unwrap();
    let metadata = ObjectMeta { name: role.metadata.name.clone(), ..ObjectMeta::default() };
    ns.api::<Role>().create(&PostParams::default(), &Role { metadata: metadata.clone(), ..role }).await.unwrap();
    let shipped: Api<RoleBinding> = Api::namespaced(ns.client.clone(), "5spot-system");
    let binding = shipped.get("5spot-leases").await.unwrap();
    ns.api::<RoleBinding>().create(&PostParams::default(), &RoleBinding { metadata, ..binding }).await.unwrap();
    ns
}

pub(crate) async fn leases(ns: &TestNamespace) -> Vec<Lease> {
    ns.api::<Lease>().list(&ListParams::default()).await.unwrap().items
}

pub(crate) async fn lease(ns: &TestNamespace, shard: u32) -> Lease {
    ns.api::<Lease>().get(&format!("{LEASE_NAME}{shard}")).await.unwrap()
}

/// Names of objects, in turn one of each shard.
pub(crate) fn names(ns: &TestNamespace, shards: u32, per_shard: usize) -> Vec<String> {
    let of_shard = |shard: u32| {
        let names = (0..).map(|number| format!("desk-{number}"));
        names.filter(move |name| shard_of(&ns.name, name, shards) == shard).take(per_shard).collect::<Vec<_>>()
    };
    (0..shards).flat_map(of_shard).collect()
}

/// Runs a step for each object, a few at a time.
pub(crate) async fn for_each(names: &[String], step: impl AsyncFn(&str)) {
    stream::iter(names).for_each_concurrent(8, async |name| step(name).await).await;
}

/// The writes of all instances about objects and their children, in the order of their arrival.
pub(crate) async fn writes_since(ns: &TestNamespace, mark: AuditMark) -> Entries {
    let audit = testbed().await.audit();
    audit.caught_up(&ns.client).await;
    let is_about_objects = |it: &AuditEntry| it.resource != "leases" && it.resource != "events";
    let mut writes = audit.since(mark).writes().in_namespace(&ns.name).filter(is_about_objects);
    writes = writes.filter(crate::fixtures::sent_by_controller);
    writes.0.sort_by_key(|it| it.received);
    writes
}

/// The object that a write is about, by the name of the object or of its child.
pub(crate) fn object_of(entry: &AuditEntry) -> &str {
    let name = entry.name.as_str();
    let child = ["-machine", "-bootstrap", "-infra"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
    child.unwrap_or(name)
}
