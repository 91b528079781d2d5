//! Consistency and permissions of the manifests.

use std::collections::BTreeSet;

use fivespot_e2e::read_repo_file;
use serde_json::{Value, json};

use crate::render::{Objects, helm_template, kustomize};

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

/// Both may be installed in one cluster, and uninstalling one must not affect the other.
#[test]
fn controller_and_agent_share_no_object() {
    let (controller, agent) = (kustomize("deploy/controller"), kustomize("deploy/node-agent"));
    let shared: Vec<&String> = controller.keys().filter(|it| agent.contains_key(*it)).collect();
    assert!(shared.is_empty(), "{shared:?}");

    let mut agent_only = kustomize("deploy/overlays/workload-cluster");
    let namespace = agent_only.remove("Namespace /5spot-system").unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
    assert_eq!(agent_only, agent);
}

fn rules(objects: &Objects) -> Vec<(&str, &Value)> {
    let roles = objects.iter().filter(|(_, it)| it["kind"] == "ClusterRole" || it["kind"] == "Role");
    roles
        .flat_map(|(key, role)| role["rules"].as_array().unwrap().iter().map(move |rule| (key.as_str(), rule)))
        .collect()
}

fn strings(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn no_wildcards_and_secrets_only_get_in_a_separate_role() {
    let mut roles_with_secrets = BTreeSet::new();
    for (directory, objects) in everything() {
        for (role, rule) in rules(&objects) {
            assert!(!strings(&rule["verbs"]).contains("*"), "{directory}: {role}: {rule}");
            assert!(!strings(&rule["apiGroups"]).contains("*"), "{directory}: {role}: {rule}");
            if strings(&rule["resources"]).contains("secrets") {
                assert_eq!(strings(&rule["verbs"]), ["get"].into(), "{directory}: {role}");
                roles_with_secrets.insert(role.to_owned());
            }
            for dangerous in ["escalate", "bind", "impersonate", "deletecollection"] {
                assert!(!strings(&rule["verbs"]).contains(dangerous), "{directory}: {role}: {rule}");
            }
        }
    }
    assert_eq!(roles_with_secrets, ["ClusterRole /5spot-workload-access".to_owned()].into());
}

#[test]
fn selectors_and_ports_match_the_pod() {
    let objects = kustomize("deploy/controller");
    let of = |key: &str| &objects[key];
    let pod = &of("StatefulSet 5spot-system/5spot-controller")["spec"]["template"];
    let labels = pod["metadata"]["labels"].as_object().unwrap();
    let selectors = [
        &of("StatefulSet 5spot-system/5spot-controller")["spec"]["selector"]["matchLabels"],
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
    let ports: BTreeSet<&str> =
        container["ports"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    let policy = &of("NetworkPolicy 5spot-system/5spot-controller")["spec"];
    let allowed: BTreeSet<&str> =
        policy["ingress"][0]["ports"].as_array().unwrap().iter().filter_map(|it| it["port"].as_str()).collect();
    assert_eq!(allowed, ["metrics"].into());
    assert!(ports.is_superset(&allowed));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert!(ports.contains(container[probe]["httpGet"]["port"].as_str().unwrap()), "{probe}");
    }
    assert_eq!(of("PriorityClass /5spot-controller")["metadata"]["name"], pod["spec"]["priorityClassName"]);
}

/// A tenant chooses the server of a kubeconfig, and clients in other namespaces are not trusted.
#[test]
fn network_policy_keeps_out_link_local_addresses_and_other_namespaces() {
    for objects in [kustomize("deploy/controller"), kustomize("deploy/overlays/hardened"), helm_template(&[])] {
        let policy = &objects["NetworkPolicy 5spot-system/5spot-controller"]["spec"];
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
        // Probes of the kubelet need no rule, so the health port has none.
        let monitoring = json!({ "matchLabels": { "kubernetes.io/metadata.name": "monitoring" } });
        let metrics = json!([{ "port": "metrics", "protocol": "TCP" }]);
        assert_eq!(policy["ingress"], json!([{ "from": [{ "namespaceSelector": monitoring }], "ports": metrics }]));
        // Every rule that is not for DNS excludes these addresses.
        for rule in policy["egress"].as_array().unwrap() {
            if rule["ports"].as_array().unwrap().iter().all(|it| it["port"] == 53) {
                continue;
            }
            let to = rule["to"].as_array().unwrap_or_else(|| panic!("a rule without destinations: {rule}"));
            for (cidr, excluded) in [("0.0.0.0/0", "169.254.0.0/16"), ("::/0", "fe80::/10")] {
                let block = to.iter().map(|it| &it["ipBlock"]).find(|it| it["cidr"] == cidr).unwrap();
                assert!(strings(&block["except"]).contains(excluded), "{block}");
            }
        }
    }
}

/// What runs in CI, and what images are built from, changes only with a commit.
#[test]
fn workflows_use_no_unpinned_action_and_images_no_unpinned_base() {
    let workflow = read_repo_file(".github/workflows/ci.yaml");
    for action in workflow.lines().filter_map(|line| line.split_once("uses:").map(|it| it.1.trim())) {
        let digest = action.split_once('@').map_or("", |it| it.1).split(' ').next().unwrap();
        assert!(digest.len() == 40 && digest.bytes().all(|it| it.is_ascii_hexdigit()), "{action}");
    }
    let dockerfile = read_repo_file("Dockerfile");
    let bases: Vec<&str> = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    let unpinned: Vec<&&str> =
        bases.iter().filter(|it| !it.starts_with("scratch ") && !it.contains("@sha256:")).collect();
    assert!(unpinned.is_empty(), "{unpinned:?}");
    // An image as well: the one that parses the Dockerfile.
    assert!(!dockerfile.contains("# syntax="), "the frontend of the Dockerfile is not pinned");
}

const AGENT: &str = "DaemonSet 5spot-system/5spot-reclaim-agent";

/// The agent gets only the host access that it needs, and runs only where the controller sets the label.
#[test]
fn agent_has_one_capability_and_one_host_file() {
    let agent = &kustomize("deploy/node-agent")[AGENT]["spec"];
    let pod = &agent["template"]["spec"];
    assert_eq!(agent["selector"]["matchLabels"], agent["template"]["metadata"]["labels"]);
    let (label, value) = (fivespot_api::keys::RECLAIM_AGENT_LABEL, fivespot_api::keys::RECLAIM_AGENT_ENABLED);
    assert_eq!(pod["nodeSelector"], json!({ label: value }));
    let container = &pod["containers"][0];
    let security_context = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] },
    });
    assert_eq!(container["securityContext"], security_context);
    let host_paths: Vec<&Value> =
        pod["volumes"].as_array().unwrap().iter().map(|it| &it["hostPath"]).filter(|it| !it.is_null()).collect();
    assert_eq!(host_paths, [&json!({ "path": "/etc/machine-id", "type": "File" })]);
    assert!(
        container["volumeMounts"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| { it["mountPath"] == "/host/etc/machine-id" && it["readOnly"] == true })
    );
}

/// The alert selects the DaemonSet by name, with any prefix or suffix.
#[test]
fn agent_alert_selects_the_daemon_set() {
    let rules = &kustomize("deploy/monitoring/node-agent")["PrometheusRule 5spot-system/5spot-agent"];
    let rule = rules["spec"]["groups"][0]["rules"][0]["expr"].as_str().unwrap();
    let name = AGENT.rsplit('/').next().unwrap();
    assert_eq!(rule.matches(&format!("{{daemonset=~\".*{name}.*\"}}")).count(), 2, "{rule}");
    assert!(kustomize("deploy/node-agent").contains_key(AGENT));
}

#[test]
fn image_tags_match_the_crate_version() {
    for (directory, object) in
        [("deploy/controller", "StatefulSet 5spot-system/5spot-controller"), ("deploy/node-agent", AGENT)]
    {
        let image = &kustomize(directory)[object]["spec"]["template"]["spec"]["containers"][0]["image"];
        assert!(image.as_str().unwrap().ends_with(&format!(":{}", env!("CARGO_PKG_VERSION"))), "{image}");
    }
    let chart: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(crate::render::chart().join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
}
