//! Alerts and the dashboard: Prometheus understands them, its operator admits them, and each alert fires when it should.
//! That every metric they name is counted is tested with the controller, which counts them.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use fivespot_testbed::artifacts::ProgressPrinter;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};
use serde_json::Value;

use crate::rendered::{artifacts, kustomize, root, succeeded};

fn promtool() -> Command {
    let mut printer = ProgressPrinter::new();
    Command::new(artifacts().promtool(&mut |step| printer.show(&step)).unwrap())
}

fn rules() -> Value {
    kustomize("deploy/monitoring")["PrometheusRule 5spot-system/5spot"]["spec"].clone()
}

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("rules.yaml"), rules().to_string()).unwrap();
    fs::copy(root().join("testdata/monitoring/alerts.yaml"), at("alerts.yaml")).unwrap();
    succeeded(promtool().args(["check", "rules", "--lint-fatal"]).arg(at("rules.yaml")).output().unwrap());
    let output = promtool().args(["test", "rules"]).arg(at("alerts.yaml")).output().unwrap();
    let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));

    let tests: Value = serde_saphyr::from_str(&fs::read_to_string(at("alerts.yaml")).unwrap()).unwrap();
    let checks = tests["tests"].as_array().unwrap().iter().flat_map(|it| it["alert_rule_test"].as_array().unwrap());
    let fired: BTreeSet<&str> = checks
        .filter(|it| it["exp_alerts"].as_array().is_some_and(|it| !it.is_empty()))
        .filter_map(|it| it["alertname"].as_str())
        .collect();
    let rules = rules();
    let alerts = rules["groups"].as_array().unwrap().iter().flat_map(|it| it["rules"].as_array().unwrap());
    let alerts: BTreeSet<&str> = alerts.filter_map(|it| it["alert"].as_str()).collect();
    assert_eq!(fired, alerts, "an alert without a test, or a test without an alert");
}

#[test]
fn prometheus_understands_every_query_of_the_dashboard() {
    let dashboard = fs::read_to_string(root().join("deploy/monitoring/dashboard.json")).unwrap();
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

/// The kinds of the Prometheus operator, as it publishes them.
pub(crate) async fn install_operator_kinds(plane: &ControlPlane) {
    let mut printer = ProgressPrinter::new();
    let promtool = plane.artifacts().promtool(&mut |step| printer.show(&step)).unwrap();
    let crds = promtool.parent().unwrap().join("crds");
    plane.apply(&crds.join("prometheusrules.yaml")).await.unwrap();
    plane.apply(&crds.join("servicemonitors.yaml")).await.unwrap();
}

#[tokio::test]
async fn the_prometheus_operator_admits_them() {
    let options = ControlPlaneOptions::named("monitoring").without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    install_operator_kinds(&plane).await;
    plane.apply(&root().join("deploy/controller/namespace.yaml")).await.unwrap();
    plane.apply(&root().join("deploy/monitoring")).await.unwrap();
}

#[test]
fn what_is_scraped_is_the_port_of_the_service() {
    let (monitoring, controller) = (kustomize("deploy/monitoring"), kustomize("deploy/controller"));
    let monitor = &monitoring["ServiceMonitor 5spot-system/5spot-controller"]["spec"];
    let service = &controller["Service 5spot-system/fivespot-controller-metrics"];
    assert_eq!(monitor["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
}
