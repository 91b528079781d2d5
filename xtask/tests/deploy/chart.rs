//! The Helm chart: the same objects as in `deploy/`, and values that are checked.

use serde_json::Value;

use crate::rendered::{Objects, chart, helm, helm_template, helm_template_output, kustomize, root, succeeded};

#[test]
fn it_passes_helms_own_lint() {
    let output = helm().args(["lint", "--strict"]).arg(chart()).output().unwrap();
    succeeded(output);
}

/// What Helm needs of an object and nobody else.
const HELM_ONLY: [&str; 1] = ["helm.sh/resource-policy"];

fn without_helm(mut objects: Objects) -> Objects {
    for object in objects.values_mut() {
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !HELM_ONLY.contains(&key.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    objects
}

/// `deploy/`, all of it. Namespaces are left to Helm's `--create-namespace`.
fn deployed() -> Objects {
    let crd = std::fs::read_to_string(root().join("deploy/crds/scheduledmachine.yaml")).unwrap();
    let mut objects = crate::rendered::objects(&crd);
    for directory in [
        "deploy/admission",
        "deploy/controller",
        "deploy/node-agent",
        "deploy/monitoring",
        "deploy/monitoring/node-agent",
    ] {
        for (key, object) in kustomize(directory) {
            if object["kind"] != "Namespace" {
                assert!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
            }
        }
    }
    objects
}

#[test]
fn it_renders_the_same_objects_as_kustomize() {
    let everything = "nodeAgent.enabled=true,monitoring.serviceMonitor=true,monitoring.prometheusRule=true,\
                      monitoring.dashboard=true";
    let (chart, deployed) = (without_helm(helm_template(&["--set", everything])), deployed());
    assert_eq!(chart.keys().collect::<Vec<_>>(), deployed.keys().collect::<Vec<_>>());
    for (key, object) in &deployed {
        assert_eq!(&chart[key], object, "{key}");
    }
}

#[test]
fn its_value_for_teams_is_the_hardened_overlay() {
    let hardened = kustomize("deploy/overlays/hardened");
    let values = ["--set", "controller.workloadAccess.clusterWide=false", "--set", "controller.requireKubeconfig=true"];
    let mut chart = without_helm(helm_template(&values));
    chart.retain(|key, _| !key.starts_with("CustomResourceDefinition") && !key.starts_with("ValidatingAdmission"));
    for (key, object) in hardened.iter().filter(|(_, it)| it["kind"] != "Namespace") {
        assert_eq!(chart.remove(key).as_ref(), Some(object), "{key}");
    }
    assert_eq!(chart, Objects::new());

    let given = [&values[..], &["--set", "controller.workloadAccess.namespaces={team-a,team-b}"]].concat();
    let chart = helm_template(&given);
    for namespace in ["team-a", "team-b"] {
        let binding = &chart[&format!("RoleBinding {namespace}/5spot-workload-access")];
        let mut shipped = kustomize("deploy/overlays/hardened/tenant").into_values().next().unwrap();
        shipped["metadata"]["namespace"] = namespace.into();
        assert_eq!(binding, &shipped);
    }
}

#[test]
fn every_value_has_its_effect() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let image = format!("controller.image.digest={digest}");
    for (set, key, pointer, expected) in [
        ("controller.image.tag=1.2.3", DEPLOYMENT, "/containers/0/image", "ghcr.io/finos/5-spot/controller:1.2.3"),
        (&image, DEPLOYMENT, "/containers/0/image", &format!("ghcr.io/finos/5-spot/controller@{digest}")),
        ("controller.image.pullPolicy=Always", DEPLOYMENT, "/containers/0/imagePullPolicy", "Always"),
        ("controller.imagePullSecrets[0].name=key", DEPLOYMENT, "/imagePullSecrets/0/name", "key"),
        ("controller.namespace=team-a", DEPLOYMENT, "/containers/0/args/0", "--namespace=team-a"),
        ("controller.requireKubeconfig=true", DEPLOYMENT, "/containers/0/args/0", "--require-kubeconfig"),
        ("controller.maxConcurrentWrites=4", DEPLOYMENT, "/containers/0/args/0", "--max-concurrent-writes=4"),
        ("controller.logFormat=text", DEPLOYMENT, "/containers/0/env/2/value", "text"),
        ("controller.ports.metrics=9090", DEPLOYMENT, "/containers/0/env/0/value", "9090"),
        ("controller.ports.health=9091", DEPLOYMENT, "/containers/0/env/1/value", "9091"),
        ("controller.resources.limits.memory=1Gi", DEPLOYMENT, "/containers/0/resources/limits/memory", "1Gi"),
        ("controller.priorityClass.name=high", DEPLOYMENT, "/priorityClassName", "high"),
        ("controller.nodeSelector.disk=ssd", DEPLOYMENT, "/nodeSelector/disk", "ssd"),
        ("controller.tolerations[0].operator=Exists", DEPLOYMENT, "/tolerations/0/operator", "Exists"),
    ] {
        let objects = helm_template(&["--set", set]);
        let found = objects[key].pointer("/spec/template/spec").unwrap().pointer(pointer);
        assert_eq!(found.and_then(Value::as_str), Some(expected), "{set}");
    }
    for (set, absent) in [
        ("admissionPolicy.enabled=false", "ValidatingAdmissionPolicy /scheduledmachine-validation"),
        ("crds.install=false", "CustomResourceDefinition /scheduledmachines.5spot.finos.org"),
        ("controller.enabled=false", DEPLOYMENT),
        ("controller.podDisruptionBudget.enabled=false", "PodDisruptionBudget 5spot-system/5spot-controller"),
        ("controller.networkPolicy.enabled=false", "NetworkPolicy 5spot-system/5spot-controller"),
        ("controller.priorityClass.create=false", "PriorityClass /5spot-controller"),
    ] {
        assert!(helm_template(&[]).contains_key(absent), "{absent}");
        assert!(!helm_template(&["--set", set]).contains_key(absent), "{set}");
    }
    let audited = "admissionPolicy.validationActions={Warn,Audit},\
                   admissionPolicy.namespaceSelector.matchLabels.managed=yes";
    let binding = helm_template(&["--set", audited]);
    let binding = &binding["ValidatingAdmissionPolicyBinding /scheduledmachine-validation-binding"]["spec"];
    assert_eq!(binding["validationActions"], serde_json::json!(["Warn", "Audit"]));
    assert_eq!(binding["matchResources"]["namespaceSelector"]["matchLabels"]["managed"], "yes");
    let ports = helm_template(&["--set", "controller.networkPolicy.apiServerPorts={8443}"]);
    let ports = &ports["NetworkPolicy 5spot-system/5spot-controller"]["spec"]["egress"][1]["ports"];
    assert_eq!(ports, &serde_json::json!([{ "port": 8443, "protocol": "TCP" }]));
}

const DEPLOYMENT: &str = "Deployment 5spot-system/5spot-controller";

#[test]
fn a_value_that_cannot_be_is_refused_by_its_name() {
    for (set, named) in [
        ("controller.logFormat=xml", "/controller/logFormat"),
        ("controller.ports.metrics=70000", "/controller/ports/metrics"),
        ("controller.image.digest=latest", "/controller/image/digest"),
        ("controller.networkPolicy.apiServerPorts={}", "/controller/networkPolicy/apiServerPorts"),
        ("controller.requireKubeConfig=true", "requireKubeConfig"),
        ("nodeAgent.enabled=perhaps", "/nodeAgent/enabled"),
        ("admissionPolicy.validationActions={Refuse}", "/admissionPolicy/validationActions"),
    ] {
        let output = helm_template_output(&["--set", set]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{set}: {said}");
    }
}
