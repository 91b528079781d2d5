//! What the manifests say, whatever they are installed by.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::rendered::{Objects, kustomize};

fn everything() -> Vec<(&'static str, Objects)> {
    [
        "deploy/controller",
        "deploy/node-agent",
        "deploy/overlays/hardened",
        "deploy/overlays/hardened/tenant",
        "deploy/overlays/workload-cluster",
    ]
    .map(|directory| (directory, kustomize(directory)))
    .into()
}

/// Where two are installed in one cluster, removing one must leave the other alone.
#[test]
fn no_object_comes_with_both_the_controller_and_the_agent() {
    let (controller, agent) = (kustomize("deploy/controller"), kustomize("deploy/node-agent"));
    let of_both: Vec<&String> = controller.keys().filter(|it| agent.contains_key(*it)).collect();
    assert!(of_both.is_empty(), "{of_both:?}");

    let mut alone = kustomize("deploy/overlays/workload-cluster");
    let namespace = alone.remove("Namespace /5spot-system").unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
    assert_eq!(alone, agent);
}

fn rules(objects: &Objects) -> Vec<(&str, &Value)> {
    let roles = objects.iter().filter(|(_, it)| it["kind"] == "ClusterRole" || it["kind"] == "Role");
    roles
        .flat_map(|(key, role)| role["rules"].as_array().unwrap().iter().map(move |rule| (key.as_str(), rule)))
        .collect()
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn nobody_may_everything_and_of_secrets_only_get_in_a_role_of_its_own() {
    let mut roles_with_secrets = BTreeSet::new();
    for (directory, objects) in everything() {
        for (role, rule) in rules(&objects) {
            assert!(!texts(&rule["verbs"]).contains("*"), "{directory}: {role}: {rule}");
            assert!(!texts(&rule["apiGroups"]).contains("*"), "{directory}: {role}: {rule}");
            if texts(&rule["resources"]).contains("secrets") {
                assert_eq!(texts(&rule["verbs"]), ["get"].into(), "{directory}: {role}");
                roles_with_secrets.insert(role.to_owned());
            }
            for dangerous in ["escalate", "bind", "impersonate", "deletecollection"] {
                assert!(!texts(&rule["verbs"]).contains(dangerous), "{directory}: {role}: {rule}");
            }
        }
    }
    assert_eq!(roles_with_secrets, ["ClusterRole /5spot-workload-access".to_owned()].into());
}

#[test]
fn what_is_selected_is_what_there_is() {
    let objects = kustomize("deploy/controller");
    let of = |key: &str| &objects[key];
    let pod = &of("Deployment 5spot-system/5spot-controller")["spec"]["template"];
    let labels = pod["metadata"]["labels"].as_object().unwrap();
    let selectors = [
        &of("Deployment 5spot-system/5spot-controller")["spec"]["selector"]["matchLabels"],
        &of("Service 5spot-system/fivespot-controller-metrics")["spec"]["selector"],
        &of("PodDisruptionBudget 5spot-system/5spot-controller")["spec"]["selector"]["matchLabels"],
        &of("NetworkPolicy 5spot-system/5spot-controller")["spec"]["podSelector"]["matchLabels"],
        &pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        &pod["spec"]["topologySpreadConstraints"][1]["labelSelector"]["matchLabels"],
    ];
    for selector in selectors {
        let selector = selector.as_object().unwrap();
        assert!(!selector.is_empty());
        assert!(selector.iter().all(|(key, value)| labels.get(key) == Some(value)), "{selector:?}");
    }
    let container = &pod["spec"]["containers"][0];
    let named: BTreeSet<&str> =
        container["ports"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    let policy = &of("NetworkPolicy 5spot-system/5spot-controller")["spec"];
    let admitted: BTreeSet<&str> =
        policy["ingress"][0]["ports"].as_array().unwrap().iter().filter_map(|it| it["port"].as_str()).collect();
    assert_eq!(named, admitted);
    for probe in ["livenessProbe", "readinessProbe"] {
        assert!(named.contains(container[probe]["httpGet"]["port"].as_str().unwrap()), "{probe}");
    }
    assert_eq!(of("PriorityClass /5spot-controller")["metadata"]["name"], pod["spec"]["priorityClassName"]);
}

#[test]
fn the_image_is_of_the_version_that_is_built_here() {
    let objects = kustomize("deploy/controller");
    let image =
        &objects["Deployment 5spot-system/5spot-controller"]["spec"]["template"]["spec"]["containers"][0]["image"];
    assert!(image.as_str().unwrap().ends_with(&format!(":{}", env!("CARGO_PKG_VERSION"))), "{image}");
    let chart: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(crate::rendered::chart().join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}
