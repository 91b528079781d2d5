//! Somebody who may create ScheduledMachines in one namespace, and nothing else, reaches for what others have. What the
//! policy refuses by itself is tested with the policy.

use fivespot_api::{Phase, ScheduledMachine};
use fivespot_testbed::allow;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::fixtures::{Controller, Desk, always, condition, machine_resource, references, testbed};

async fn create_as(tenant: &Client, namespace: &str, object: &ScheduledMachine) -> Result<(), String> {
    let api: Api<ScheduledMachine> = Api::namespaced(tenant.clone(), namespace);
    api.create(&PostParams::default(), object).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_tenant_gets_at_nobody_elses_cluster_kubeconfig_or_machine() {
    let testbed = testbed().await;
    let (theirs, own) = (testbed.namespace("victim").await, testbed.namespace("tenant").await);
    testbed.cluster(&theirs, "edge").await.unwrap();
    testbed.cluster(&own, "own").await.unwrap();
    let create_only = allow("5spot.finos.org", &["scheduledmachines"], &["create"]);
    let tenant = own.account("tenant", vec![create_only]).await.unwrap().client();
    let _controller = Controller::start_in(testbed, &own).await;

    // Their namespace, and what is in it.
    let desk = Desk::new(&own, "desk");
    let object = desk.manifest(&always(), &json!({}));
    let refused = create_as(&tenant, &theirs.name, &object).await.unwrap_err();
    assert!(refused.contains(&format!("in the namespace \"{}\"", theirs.name)), "{refused}");
    let secrets: Api<Secret> = Api::namespaced(tenant.clone(), &theirs.name);
    let Err(kube::Error::Api(refused)) = secrets.get("edge-kubeconfig").await else {
        panic!("a Secret was given away")
    };
    let who = format!("User \"system:serviceaccount:{}:tenant\"", own.name);
    let words = format!(
        "secrets \"edge-kubeconfig\" is forbidden: {who} cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"{}\"",
        theirs.name
    );
    assert_eq!((refused.code, &refused.message), (403, &words));

    // Their Cluster and its kubeconfig: by its name there is none here, and a name is no path.
    create_as(&tenant, &own.name, &object).await.unwrap();
    let told = desk.reaches(Phase::Error).await;
    assert_eq!(condition(&told, "ReferencesValid"), references("ClusterNotFound"));
    assert_eq!(desk.children().await, (false, false, false));
    let path = format!("../../{}/secrets/edge", theirs.name);
    let sly = Desk::new(&own, "sly").manifest(&always(), &json!({ "clusterName": path }));
    let refused = create_as(&tenant, &own.name, &sly).await.unwrap_err();
    assert!(refused.contains("spec.clusterName must be a valid label value"), "{refused}");

    // Somebody else's Machine, by having the name that ours would have.
    let reference = |kind: &str, group: &str| json!({ "apiGroup": group, "kind": kind, "name": "another" });
    let precious = DynamicObject::new("taken-machine", &machine_resource()).data(json!({ "spec": {
        "clusterName": "own",
        "bootstrap": { "configRef": reference("K0sWorkerConfig", "bootstrap.cluster.x-k8s.io") },
        "infrastructureRef": reference("RemoteMachine", "infrastructure.cluster.x-k8s.io"),
    } }));
    let taken = Desk::new(&own, "taken");
    let precious = taken.machines().create(&PostParams::default(), &precious).await.unwrap();
    create_as(&tenant, &own.name, &taken.manifest(&always(), &json!({ "clusterName": "own" }))).await.unwrap();
    let told = taken.reaches(Phase::Error).await;
    assert_eq!(condition(&told, "ReferencesValid"), references("NameConflict"));
    taken.edit(&json!({ "spec": { "killSwitch": true } })).await;
    taken.reaches(Phase::Terminated).await;
    taken.delete().await;
    taken.is_gone().await;
    let there = taken.machine().await.unwrap();
    assert_eq!(there.uid(), precious.uid());
    assert!(there.metadata.deletion_timestamp.is_none());
    own.close().await;
    theirs.close().await;
}
