//! A tenant who may only create ScheduledMachines in one namespace reaches nothing of other tenants. Tests of the
//! admission policy cover what it rejects.

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::allow;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::fixtures::{
    Children, Controller, TestMachine, condition, foreign_machine, messages, scheduled_machine, testbed,
};

async fn create_as(tenant: &Client, namespace: &str, object: &ScheduledMachine) -> Result<(), kube::Error> {
    let api: Api<ScheduledMachine> = Api::namespaced(tenant.clone(), namespace);
    api.create(&PostParams::default(), object).await.map(drop)
}

#[tokio::test]
async fn tenant_cannot_reach_other_clusters_kubeconfigs_or_machines() {
    let testbed = testbed().await;
    let (victim, own) = (testbed.namespace("victim").await, testbed.namespace("tenant").await);
    testbed.cluster(&victim, "edge").await.unwrap();
    testbed.cluster(&own, "own").await.unwrap();
    let create_only = allow("5spot.finos.org", &["scheduledmachines"], &["create"]);
    let tenant = own.account("tenant", vec![create_only]).await.unwrap().client();
    let _controller = Controller::start(testbed, &own).await;

    // The other namespace, and the Secret in it.
    let manifest = scheduled_machine(&own, "desk").manifest();
    let error = create_as(&tenant, &victim.name, &manifest).await.unwrap_err().to_string();
    assert!(error.contains(&format!("in the namespace \"{}\"", victim.name)), "{error}");
    let secrets: Api<Secret> = Api::namespaced(tenant.clone(), &victim.name);
    let Err(kube::Error::Api(error)) = secrets.get("edge-kubeconfig").await else {
        panic!("the tenant could read the Secret")
    };
    let user = format!("User \"system:serviceaccount:{}:tenant\"", own.name);
    let message = format!(
        "secrets \"edge-kubeconfig\" is forbidden: {user} cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"{}\"",
        victim.name
    );
    assert_eq!((error.code, &error.message), (403, &message));

    // The other Cluster and its kubeconfig: the name resolves only in the own namespace, and cannot be a path.
    create_as(&tenant, &own.name, &manifest).await.unwrap();
    let sm = TestMachine::new(&own, "desk");
    let status = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&status, "ReferencesValid"), ("False", "ClusterNotFound"));
    assert_eq!(sm.children().await, Children::NONE);
    let path = format!("../../{}/secrets/edge", victim.name);
    let traversal = scheduled_machine(&own, "traversal").cluster(&path).manifest();
    let error = create_as(&tenant, &own.name, &traversal).await.unwrap_err().to_string();
    assert!(error.contains(messages::INVALID_CLUSTER_NAME), "{error}");

    // A foreign Machine with the name of a child.
    let sm = TestMachine::new(&own, "taken");
    let machine = foreign_machine("taken-machine", "own", &json!({}));
    let machine = sm.machines().create(&PostParams::default(), &machine).await.unwrap();
    let manifest = scheduled_machine(&own, "taken").cluster("own").manifest();
    create_as(&tenant, &own.name, &manifest).await.unwrap();
    let status = sm.wait_for_phase(Phase::Error).await;
    assert_eq!(condition(&status, "ReferencesValid"), ("False", "NameConflict"));
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    sm.delete().await;
    sm.wait_until_deleted().await;
    let remaining = sm.machine().await.unwrap();
    assert_eq!(remaining.uid(), machine.uid());
    assert!(remaining.metadata.deletion_timestamp.is_none());
    own.close().await;
    victim.close().await;
}
