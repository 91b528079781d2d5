//! The Helm chart renders the same objects as `deploy/`, and validates its values.

use std::collections::BTreeSet;
use std::fs;

use fivespot_e2e::read_repo_file;
use serde_json::{Value, json};

use crate::render::{Objects, chart, failed, helm, helm_template, helm_template_in, kustomize, objects, succeeded};

#[test]
fn passes_helm_lint() {
    let output = helm().args(["lint", "--strict"]).arg(chart()).output().unwrap();
    succeeded(output);
}

/// Annotations that only the chart sets.
const HELM_ANNOTATIONS: [&str; 1] = ["helm.sh/resource-policy"];

fn without_helm_annotations(mut objects: Objects) -> Objects {
    for object in objects.values_mut() {
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !HELM_ANNOTATIONS.contains(&key.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    objects
}

/// All objects of `deploy/` except Namespaces, which Helm creates with `--create-namespace`.
fn deployed() -> Objects {
    let crd = read_repo_file("deploy/crds/scheduledmachine.yaml");
    let controller = kustomized(&["deploy/admission", "deploy/controller", "deploy/monitoring"]);
    let agent = kustomized(&["deploy/node-agent", "deploy/monitoring/node-agent"]);
    objects(&crd).into_iter().chain(controller).chain(agent).collect()
}

/// The objects of several directories except Namespaces.
fn kustomized(directories: &[&str]) -> Objects {
    let mut objects = Objects::new();
    for (key, object) in directories.iter().flat_map(|it| kustomize(it)) {
        if object["kind"] != "Namespace" {
            assert!(objects.insert(key.clone(), object).is_none(), "{key} occurs twice");
        }
    }
    objects
}

const EVERYTHING: &str = "nodeAgent.enabled=true,monitoring.serviceMonitor=true,monitoring.prometheusRule=true,\
                          monitoring.dashboard=true";

#[test]
fn renders_the_same_objects_as_kustomize() {
    let (chart, deployed) = (without_helm_annotations(helm_template(&["--set", EVERYTHING])), deployed());
    assert_eq!(chart.keys().collect::<Vec<_>>(), deployed.keys().collect::<Vec<_>>());
    for (key, object) in &deployed {
        assert_eq!(&chart[key], object, "{key}");
    }
}

#[test]
fn agent_only_release_has_no_controller_objects() {
    let values = "controller.enabled=false,nodeAgent.enabled=true,monitoring.serviceMonitor=true,\
                  monitoring.prometheusRule=true";
    let chart = helm_template(&["--set", values]);
    assert_eq!(chart, kustomized(&["deploy/overlays/workload-cluster", "deploy/monitoring/node-agent"]));
}

#[test]
fn validation_actions_match_the_overlays() {
    for (actions, directory) in [
        ("{Audit}", "deploy/overlays/audit"),
        ("{Deny}", "deploy/admission"),
        ("{Deny,Audit}", "deploy/overlays/deny-and-audit"),
    ] {
        let mut chart = helm_template(&["--set", &format!("admissionPolicy.validationActions={actions}")]);
        chart.retain(|key, _| key.starts_with("ValidatingAdmission"));
        assert_eq!(chart, kustomize(directory), "{directory}");
    }
}

/// With a namespace that YAML could parse as a number.
#[test]
fn custom_namespace_is_used_everywhere() {
    let values = ["--set", EVERYTHING, "--set", "controller.workloadAccess.clusterWide=false"];
    let namespaces = ["--set-json", r#"controller.workloadAccess.namespaces=["5678"]"#];
    let text = succeeded(helm_template_in("1234", &[&values[..], &namespaces].concat()));
    let default_namespace: Vec<&str> = text.lines().filter(|it| it.contains("5spot-system")).collect();
    assert!(default_namespace.is_empty(), "{default_namespace:#?}");
    let mut namespaces = BTreeSet::new();
    for (key, object) in objects(&text) {
        let subjects = object["subjects"].as_array().into_iter().flatten().map(|it| &it["namespace"]);
        for namespace in subjects.chain(object["metadata"].get("namespace")) {
            namespaces.insert(namespace.as_str().unwrap_or_else(|| panic!("{key}: {namespace}")).to_owned());
        }
    }
    assert_eq!(namespaces, ["1234".to_owned(), "5678".to_owned()].into());
}

#[test]
fn hardened_values_match_the_hardened_overlay() {
    let hardened = kustomize("deploy/overlays/hardened");
    let values = ["--set", "controller.workloadAccess.clusterWide=false", "--set", "controller.requireKubeconfig=true"];
    let mut chart = without_helm_annotations(helm_template(&values));
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

const CONTROLLER: &str = "StatefulSet 5spot-system/5spot-controller";

/// The effect of `--set <value><set>`: the field `pointer` of `object` changes to `expected`. Null: the field does not exist.
struct Effect {
    value: &'static str,
    set: &'static str,
    object: &'static str,
    pointer: String,
    expected: Value,
}

impl Effect {
    fn on_object(
        (value, set, object, pointer, expected): (&'static str, &'static str, &'static str, &str, Value),
    ) -> Self {
        Effect { value, set, object, pointer: pointer.to_owned(), expected }
    }

    /// On the controller's pod.
    fn on_pod((value, set, pointer, expected): (&'static str, &'static str, &str, Value)) -> Self {
        Effect { value, set, object: CONTROLLER, pointer: format!("/spec/template/spec{pointer}"), expected }
    }

    fn actual<'a>(&self, objects: &'a Objects) -> &'a Value {
        objects.get(self.object).and_then(|it| it.pointer(&self.pointer)).unwrap_or(&Value::Null)
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn controller_effects() -> impl Iterator<Item = Effect> {
    let image = "ghcr.io/finos/5-spot/controller";
    let digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let by_digest =
        "=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,controller.image.tag=1.2.3";
    [
        ("controller.image.repository", "=a.example/b", "/containers/0/image", json!(format!("a.example/b:{VERSION}"))),
        ("controller.image.tag", "=1.2.3", "/containers/0/image", json!(format!("{image}:1.2.3"))),
        ("controller.image.digest", by_digest, "/containers/0/image", json!(format!("{image}@{digest}"))),
        ("controller.image.pullPolicy", "=Always", "/containers/0/imagePullPolicy", json!("Always")),
        ("controller.imagePullSecrets", "[0].name=key", "/imagePullSecrets/0/name", json!("key")),
        ("controller.namespace", "=team-a", "/containers/0/args", json!(["--namespace=team-a"])),
        ("controller.requireKubeconfig", "=true", "/containers/0/args", json!(["--require-kubeconfig"])),
        ("controller.leaseDuration", "=30s", "/containers/0/args", json!(["--lease-duration=30s"])),
        ("controller.maxConcurrentWrites", "=4", "/containers/0/args", json!(["--max-concurrent-writes=4"])),
        ("controller.logFormat", "=text", "/containers/0/env/6/value", json!("text")),
        ("controller.ports.metrics", "=9090", "/containers/0/env/4/value", json!("9090")),
        ("controller.ports.metrics", "=9090", "/containers/0/ports/0/containerPort", json!(9090)),
        ("controller.ports.health", "=9091", "/containers/0/env/5/value", json!("9091")),
        ("controller.ports.health", "=9091", "/containers/0/ports/1/containerPort", json!(9091)),
        ("controller.resources.requests.cpu", "=1", "/containers/0/resources/requests/cpu", json!(1)),
        ("controller.resources.requests.memory", "=1Gi", "/containers/0/resources/requests/memory", json!("1Gi")),
        ("controller.resources.limits.memory", "=1Gi", "/containers/0/resources/limits/memory", json!("1Gi")),
        ("controller.priorityClass.name", "=high", "/priorityClassName", json!("high")),
        ("controller.nodeSelector", ".disk=ssd", "/nodeSelector", json!({ "disk": "ssd" })),
        ("controller.tolerations", "[0].operator=Exists", "/tolerations", json!([{ "operator": "Exists" }])),
        ("controller.affinity", ".podAffinity.a=b", "/affinity", json!({ "podAffinity": { "a": "b" } })),
    ]
    .into_iter()
    .map(Effect::on_pod)
}

const WITH_AGENT: &str = "nodeAgent.enabled=true";
const DAEMON_SET: &str = "DaemonSet 5spot-system/5spot-reclaim-agent";

fn agent_effects() -> impl Iterator<Item = Effect> {
    let image = "ghcr.io/finos/5-spot/agent";
    let digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let by_digest =
        "=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,nodeAgent.image.tag=1.2.3";
    let (container, requests) = ("/spec/containers/0", "/spec/containers/0/resources/requests");
    [
        (
            "nodeAgent.image.repository",
            "=a.example/b",
            format!("{container}/image"),
            json!(format!("a.example/b:{VERSION}")),
        ),
        ("nodeAgent.image.tag", "=1.2.3", format!("{container}/image"), json!(format!("{image}:1.2.3"))),
        ("nodeAgent.image.digest", by_digest, format!("{container}/image"), json!(format!("{image}@{digest}"))),
        ("nodeAgent.image.pullPolicy", "=Always", format!("{container}/imagePullPolicy"), json!("Always")),
        ("nodeAgent.imagePullSecrets", "[0].name=key", "/spec/imagePullSecrets/0/name".to_owned(), json!("key")),
        ("nodeAgent.detector", "=poll", format!("{container}/env/2/value"), json!("poll")),
        (
            "nodeAgent.pollInterval",
            "=1s",
            format!("{container}/env/3"),
            json!({ "name": "RECLAIM_POLL_INTERVAL", "value": "1s" }),
        ),
        ("nodeAgent.skipHostIdCheck", "=true", format!("{container}/env/4/name"), json!("SKIP_HOST_ID_CHECK")),
        ("nodeAgent.skipHostIdCheck", "=true", format!("{container}/volumeMounts/1"), Value::Null),
        ("nodeAgent.skipHostIdCheck", "=true", "/spec/volumes/1".to_owned(), Value::Null),
        ("nodeAgent.resources.requests.cpu", "=1", format!("{requests}/cpu"), json!(1)),
        ("nodeAgent.resources.requests.memory", "=1Gi", format!("{requests}/memory"), json!("1Gi")),
        ("nodeAgent.resources.limits.memory", "=1Gi", format!("{container}/resources/limits/memory"), json!("1Gi")),
        ("nodeAgent.podLabels", ".team=a", "/metadata/labels/team".to_owned(), json!("a")),
        ("nodeAgent.podAnnotations", ".team=a", "/metadata/annotations/team".to_owned(), json!("a")),
    ]
    .map(|(value, set, pointer, expected)| Effect {
        value,
        set,
        object: DAEMON_SET,
        pointer: format!("/spec/template{pointer}"),
        expected,
    })
    .into_iter()
}

fn other_effects() -> impl Iterator<Item = Effect> {
    let policy = "ValidatingAdmissionPolicy /scheduledmachine-validation";
    let binding = "ValidatingAdmissionPolicyBinding /scheduledmachine-validation-binding";
    let crd = "CustomResourceDefinition /scheduledmachines.5spot.finos.org";
    let (service, monitor) =
        ("Service 5spot-system/fivespot-controller-metrics", "ServiceMonitor 5spot-system/5spot-controller");
    let (network, budget) =
        ("NetworkPolicy 5spot-system/5spot-controller", "PodDisruptionBudget 5spot-system/5spot-controller");
    let (rules, agent_rules) = ("PrometheusRule 5spot-system/5spot", "PrometheusRule 5spot-system/5spot-agent");
    let labelled = ".release=a,monitoring.prometheusRule=true,monitoring.serviceMonitor=true,nodeAgent.enabled=true";
    let labels = "/metadata/labels";
    [
        ("crds.install", "=false", crd, "", Value::Null),
        ("admissionPolicy.enabled", "=false", policy, "", Value::Null),
        ("admissionPolicy.enabled", "=false", binding, "", Value::Null),
        (
            "admissionPolicy.validationActions",
            "={Warn,Audit}",
            binding,
            "/spec/validationActions",
            json!(["Warn", "Audit"]),
        ),
        (
            "admissionPolicy.namespaceSelector",
            ".matchLabels.managed=yes",
            binding,
            "/spec/matchResources",
            json!({ "namespaceSelector": { "matchLabels": { "managed": "yes" } } }),
        ),
        ("controller.enabled", "=false", CONTROLLER, "", Value::Null),
        ("controller.enabled", "=false", crd, "", Value::Null),
        ("controller.enabled", "=false", policy, "", Value::Null),
        ("controller.requireKubeconfig", "=true", "ClusterRole /5spot-management-nodes", "", Value::Null),
        ("controller.requireKubeconfig", "=true", "ClusterRoleBinding /5spot-management-nodes", "", Value::Null),
        ("controller.ports.metrics", "=9090", service, "/spec/ports/0/port", json!(9090)),
        (
            "controller.workloadAccess.clusterWide",
            "=false",
            "ClusterRoleBinding /5spot-workload-access",
            "",
            Value::Null,
        ),
        (
            "controller.workloadAccess.namespaces",
            "={team-a},controller.workloadAccess.clusterWide=false",
            "RoleBinding team-a/5spot-workload-access",
            "/roleRef/name",
            json!("5spot-workload-access"),
        ),
        ("controller.priorityClass.create", "=false", "PriorityClass /5spot-controller", "", Value::Null),
        ("controller.priorityClass.name", "=high", "PriorityClass /high", "/value", json!(1_000_000)),
        ("controller.priorityClass.value", "=7", "PriorityClass /5spot-controller", "/value", json!(7)),
        ("controller.podDisruptionBudget.enabled", "=false", budget, "", Value::Null),
        ("controller.networkPolicy.enabled", "=false", network, "", Value::Null),
        (
            "controller.networkPolicy.apiServerPorts",
            "={8443}",
            network,
            "/spec/egress/1/ports",
            json!([{ "port": 8443, "protocol": "TCP" }]),
        ),
        (
            "controller.networkPolicy.apiServersTo",
            "[0].ipBlock.cidr=10.0.0.0/8",
            network,
            "/spec/egress/1/to",
            json!([{ "ipBlock": { "cidr": "10.0.0.0/8" } }]),
        ),
        ("controller.networkPolicy.metricsFrom", "=null", network, "/spec/ingress", json!([])),
        (
            "controller.networkPolicy.dnsPorts",
            "={5353}",
            network,
            "/spec/egress/0/ports",
            json!([{ "port": 5353, "protocol": "UDP" }, { "port": 5353, "protocol": "TCP" }]),
        ),
        ("controller.replicas", "=3", CONTROLLER, "/spec/replicas", json!(3)),
        ("controller.replicas", "=3", CONTROLLER, "/spec/template/spec/containers/0/env/1/value", json!("3")),
        ("controller.podLabels", ".team=a", CONTROLLER, "/spec/template/metadata/labels/team", json!("a")),
        ("controller.podAnnotations", ".team=a", CONTROLLER, "/spec/template/metadata/annotations/team", json!("a")),
        (
            "nodeAgent.enabled",
            "=true",
            "ServiceAccount 5spot-system/5spot-reclaim-agent",
            "/metadata/name",
            json!("5spot-reclaim-agent"),
        ),
        ("monitoring.serviceMonitor", "=true", monitor, "/kind", json!("ServiceMonitor")),
        ("monitoring.prometheusRule", "=true", rules, "/kind", json!("PrometheusRule")),
        ("monitoring.prometheusRule", "=true,nodeAgent.enabled=true", agent_rules, "/kind", json!("PrometheusRule")),
        ("monitoring.dashboard", "=true", "ConfigMap 5spot-system/5spot-dashboard", "/kind", json!("ConfigMap")),
        ("monitoring.labels", labelled, rules, labels, json!({ "release": "a" })),
        ("monitoring.labels", labelled, agent_rules, labels, json!({ "release": "a" })),
        ("monitoring.labels", labelled, monitor, labels, json!({ "release": "a" })),
    ]
    .into_iter()
    .map(Effect::on_object)
}

/// The paths of all values.
fn names(values: &Value, name: &str) -> BTreeSet<String> {
    match values.as_object().filter(|it| !it.is_empty()) {
        None => [name.to_owned()].into(),
        Some(inner) => inner
            .iter()
            .flat_map(|(key, it)| names(it, &if name.is_empty() { key.clone() } else { format!("{name}.{key}") }))
            .collect(),
    }
}

#[test]
fn every_value_has_an_effect() {
    let values = fs::read_to_string(chart().join("values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let effects: Vec<Effect> = controller_effects().chain(agent_effects()).chain(other_effects()).collect();
    let tested: BTreeSet<String> = effects.iter().map(|it| it.value.to_owned()).collect();
    assert_eq!(tested, names(&values, ""), "a value without an effect, or an effect without a value");

    let (default, with_agent) = (helm_template(&[]), helm_template(&["--set", WITH_AGENT]));
    for effect in effects {
        let mut set = format!("{}{}", effect.value, effect.set);
        let field = format!("{set}: {} of {}", effect.pointer, effect.object);
        let before = if effect.object == DAEMON_SET {
            set = format!("{set},{WITH_AGENT}");
            &with_agent
        } else {
            &default
        };
        assert_ne!(effect.actual(before), &effect.expected, "{field} has this value by default");
        assert_eq!(effect.actual(&helm_template(&["--set", &set])), &effect.expected, "{field}");
    }
}

#[test]
fn invalid_values_are_rejected_by_name() {
    for (set, expected) in [
        ("controller.logFormat=xml", "/controller/logFormat"),
        ("controller.ports.metrics=70000", "/controller/ports/metrics"),
        ("controller.ports.health=8080", "controller.ports.metrics and controller.ports.health are both 8080"),
        ("controller.image.digest=latest", "/controller/image/digest"),
        ("controller.networkPolicy.apiServerPorts={}", "/controller/networkPolicy/apiServerPorts"),
        ("controller.requireKubeConfig=true", "requireKubeConfig"),
        ("controller.workloadAccess.namespaces={team-a}", "set controller.workloadAccess.clusterWide=false"),
        (r"controller.podLabels.app\.kubernetes\.io/name=a", "/controller/podLabels/app.kubernetes.io~1name"),
        (r"controller.podLabels.app\.kubernetes\.io/component=a", "/controller/podLabels/app.kubernetes.io~1component"),
        (
            r"controller.podAnnotations.kubectl\.kubernetes\.io/default-container=a",
            "/controller/podAnnotations/kubectl",
        ),
        ("nodeAgent.enabled=maybe", "/nodeAgent/enabled"),
        ("nodeAgent.detector=none", "/nodeAgent/detector"),
        ("nodeAgent.pollInterval=5ms", "/nodeAgent/pollInterval"),
        ("nodeAgent.pollInterval=6s", "/nodeAgent/pollInterval"),
        ("nodeAgent.pollInterval=1m", "/nodeAgent/pollInterval"),
        (
            "nodeAgent.enabled=true,nodeAgent.detector=netlink,nodeAgent.pollInterval=1s",
            "set nodeAgent.detector to auto or poll",
        ),
        ("nodeAgent.image.digest=latest", "/nodeAgent/image/digest"),
        (r"nodeAgent.podLabels.app\.kubernetes\.io/component=a", "/nodeAgent/podLabels/app.kubernetes.io~1component"),
        ("monitoring.labels.release=1", "/monitoring/labels/release"),
        ("admissionPolicy.validationActions={Reject}", "/admissionPolicy/validationActions"),
    ] {
        let error = failed(helm_template_in("5spot-system", &["--set", set]));
        assert!(error.contains(expected), "{set}: {error}");
    }
    let error = failed(helm_template_in("5spot-system", &["--set-json", "controller.networkPolicy.dnsPorts=[]"]));
    assert!(error.contains("/controller/networkPolicy/dnsPorts"), "{error}");
}
