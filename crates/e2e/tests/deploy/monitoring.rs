//! Alerts and dashboard: promtool parses them, the Prometheus operator's CRDs accept them, and each alert fires when it
//! should. The controller's own tests check that every metric in them exists.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use fivespot_e2e::{read_repo_file, repo_root};
use fivespot_testbed::artifacts::ProgressPrinter;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use serde_json::Value;

use crate::render::{artifacts, kustomize, succeeded};

fn promtool() -> Command {
    let mut printer = ProgressPrinter::new();
    Command::new(artifacts().promtool(&mut |step| printer.show(&step)).unwrap())
}

/// `PrometheusRule` specs by name: for the controller's cluster, and for clusters with agents.
fn rules() -> [(&'static str, Value); 2] {
    let spec = |directory: &str, name: &str| {
        kustomize(directory)[&format!("PrometheusRule 5spot-system/{name}")]["spec"].clone()
    };
    [
        ("5spot", spec("deploy/monitoring", "5spot")),
        ("5spot-agent", spec("deploy/monitoring/node-agent", "5spot-agent")),
    ]
}

fn alerts(rules: &Value) -> BTreeSet<&str> {
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|it| it["rules"].as_array().unwrap());
    rules.filter_map(|it| it["alert"].as_str()).collect()
}

/// Prometheus in a workload cluster does not scrape the controller, so an alert on its absence would always fire.
#[test]
fn alerts_use_only_metrics_of_their_cluster() {
    let [(_, controller), (_, agent)] = rules();
    assert!(controller.to_string().contains("fivespot_") && !controller.to_string().contains("kube_"));
    assert!(agent.to_string().contains("kube_") && !agent.to_string().contains("fivespot_"));
    assert_eq!(alerts(&agent), ["FiveSpotAgentNotArmed"].into());
}

#[test]
fn each_alert_fires_only_when_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let rules = rules();
    for (name, rules) in &rules {
        let file = at(&format!("{name}.yaml"));
        fs::write(&file, rules.to_string()).unwrap();
        succeeded(promtool().args(["check", "rules", "--lint-fatal"]).arg(&file).output().unwrap());
    }
    fs::copy(repo_root().join("testdata/monitoring/alerts.yaml"), at("alerts.yaml")).unwrap();
    let output = promtool().args(["test", "rules"]).arg(at("alerts.yaml")).output().unwrap();
    let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));

    let tests: Value = serde_saphyr::from_str(&fs::read_to_string(at("alerts.yaml")).unwrap()).unwrap();
    let checks = tests["tests"].as_array().unwrap().iter().flat_map(|it| it["alert_rule_test"].as_array().unwrap());
    let fired: BTreeSet<&str> = checks
        .filter(|it| it["exp_alerts"].as_array().is_some_and(|it| !it.is_empty()))
        .filter_map(|it| it["alertname"].as_str())
        .collect();
    let alerts: BTreeSet<&str> = rules.iter().flat_map(|(_, it)| alerts(it)).collect();
    assert_eq!(fired, alerts, "an alert without a test, or a test without an alert");
}

#[test]
fn dashboard_queries_are_valid() {
    let dashboard = read_repo_file("deploy/monitoring/dashboard.json");
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8);
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            succeeded(promtool().args(["--experimental", "promql", "format"]).arg(&query).output().unwrap());
        }
    }
}

/// Installs the published CRDs of the Prometheus operator.
pub(crate) async fn install_operator_crds(plane: &ControlPlane) {
    let mut printer = ProgressPrinter::new();
    let promtool = plane.artifacts().promtool(&mut |step| printer.show(&step)).unwrap();
    let crds = promtool.parent().unwrap().join("crds");
    plane.apply(&crds.join("prometheusrules.yaml")).await.unwrap();
    plane.apply(&crds.join("servicemonitors.yaml")).await.unwrap();
}

#[tokio::test]
async fn prometheus_operator_crds_accept_the_rules() {
    let options = ControlPlaneOptions::named("monitoring").without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    install_operator_crds(&plane).await;
    plane.apply(&repo_root().join("deploy/controller/namespace.yaml")).await.unwrap();
    plane.apply(&repo_root().join("deploy/monitoring")).await.unwrap();
    plane.apply(&repo_root().join("deploy/monitoring/node-agent")).await.unwrap();
}

#[test]
fn service_monitor_matches_the_service() {
    let (monitoring, controller) = (kustomize("deploy/monitoring"), kustomize("deploy/controller"));
    let monitor = &monitoring["ServiceMonitor 5spot-system/5spot-controller"]["spec"];
    let service = &controller["Service 5spot-system/fivespot-controller-metrics"];
    assert_eq!(monitor["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
}
