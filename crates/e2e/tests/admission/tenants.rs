//! A tenant who may only create ScheduledMachines in one namespace tries to gain more.

use fivespot_testbed::allow;
use fivespot_validation::rules;
use serde_json::{Value, json};

use crate::env::{env, example};
use crate::requests::create_as;

#[tokio::test]
async fn tenant_cannot_reach_other_namespaces_groups_or_reserved_keys() {
    let testbed = env().await.testbed;
    let test = testbed.namespace("tenant").await;
    let create_only = allow("5spot.finos.org", &["scheduledmachines"], &["create"]);
    let tenant = test.account("tenant", vec![create_only]).await.unwrap().client();
    let attempts: &[(&str, Value, &str)] = &[
        ("/spec/bootstrapSpec/namespace", json!("kube-system"), rules::BOOTSTRAP.namespace),
        ("/spec/infrastructureSpec/namespace", json!("kube-system"), rules::INFRASTRUCTURE.namespace),
        ("/spec/bootstrapSpec/apiVersion", json!("rbac.authorization.k8s.io/v1"), rules::BOOTSTRAP.group_allowed),
        ("/spec/infrastructureSpec/apiVersion", json!("v1"), rules::INFRASTRUCTURE.group_present),
        ("/spec/bootstrapSpec/kind", json!("JoinTokenRequest"), rules::BOOTSTRAP.kind_allowed),
        ("/spec/infrastructureSpec/kind", json!("RemoteCluster"), rules::INFRASTRUCTURE.kind_allowed),
        ("/spec/infrastructureSpec/spec/providerID", json!("another"), rules::INFRASTRUCTURE.provider_id),
        (
            "/spec/nodeTaints",
            json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoExecute" }]),
            rules::TAINT_KEY_RESERVED,
        ),
        (
            "/spec/machineTemplate",
            json!({ "labels": { "cluster.x-k8s.io/set-name": "another" } }),
            rules::TEMPLATE_RESERVED,
        ),
        (
            "/spec/machineTemplate",
            json!({ "annotations": { "pre-terminate.delete.hook.machine.cluster.x-k8s.io/tenant": "" } }),
            rules::TEMPLATE_RESERVED,
        ),
    ];
    for (pointer, value, rule) in attempts {
        let mut manifest = example("valid", "minimal").manifest;
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap()[field] = value.clone();
        create_as(&tenant, &test, &manifest).await.rejected_for(rule, pointer);
    }
    create_as(&tenant, &test, &example("valid", "minimal").manifest).await.accepted("a valid object of the tenant");
    test.close().await;
}
