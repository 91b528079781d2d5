//! The metrics endpoint, and that alerts and the dashboard query only series that exist.

use fivespot_api::Phase;
use serde_json::json;

use crate::fixtures::{Endpoint, never, repo_path, scheduled_machine, setup, wait_for, window};

#[tokio::test]
async fn endpoints_serve_health_and_every_queried_series() {
    let (ns, controller) = setup("metrics").await;
    controller.wait_until_ready().await;
    for path in ["/health", "/healthz", "/ready", "/readyz"] {
        assert_eq!(controller.get(Endpoint::Health, path).await.code, 200, "{path}");
    }
    let sm = scheduled_machine(&ns, "desk-01").create_running().await;
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    let page = wait_for("the metrics are updated", async || {
        let page = controller.metrics().await;
        let expected = [
            "fivespot_machines_by_phase{phase=\"Terminated\"} 1",
            "fivespot_machines_by_phase{phase=\"Active\"} 0",
            "fivespot_machines_not_ready{reason=\"Provisioning\"} 0",
            "fivespot_kill_switch_activations_total 1",
            "fivespot_api_requests_total{verb=\"create\",resource=\"machines\",code=\"201\"} 1",
            "fivespot_build_info{version=",
            "fivespot_reconciliations_total{phase=\"Terminated\",result=\"done\"}",
            "fivespot_reconciliation_duration_seconds_count",
            "fivespot_schedule_evaluations_total{result=\"ok\"}",
            "fivespot_boundary_lateness_seconds_count",
        ];
        let missing: Vec<&str> = expected.into_iter().filter(|it| !page.contains(it)).collect();
        if missing.is_empty() { Ok(page) } else { Err(format!("{missing:?} in\n{page}")) }
    })
    .await;
    for file in ["deploy/monitoring/prometheusrule.yaml", "deploy/monitoring/dashboard.json"] {
        let text = std::fs::read_to_string(repo_path(file)).unwrap();
        let unknown = queried_series(&text).into_iter().find(|series| !series.exists_in(&page));
        assert!(unknown.is_none(), "{file}: {unknown:?} does not exist:\n{page}");
    }
    ns.close().await;
}

/// A series that a query selects.
#[derive(Debug)]
struct Series {
    name: String,
    labels: Vec<String>,
}

impl Series {
    fn exists_in(&self, page: &str) -> bool {
        page.lines().filter(|line| !line.starts_with('#')).any(|line| {
            let name = line.split(['{', ' ']).next();
            name == Some(self.name.as_str()) && self.labels.iter().all(|label| line.contains(label.as_str()))
        })
    }
}

/// All series of 5-Spot that are selected anywhere in a file.
fn queried_series(text: &str) -> Vec<Series> {
    let text = text.replace("\\\"", "\"");
    let starts: Vec<usize> = text.match_indices("fivespot_").map(|(at, _)| at).collect();
    assert!(starts.len() > 5, "{starts:?}");
    let series = |at: usize| {
        let rest = &text[at..];
        let end = rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap();
        let labels = rest[end..].strip_prefix('{').and_then(|it| it.split_once('}'));
        let labels = labels.map_or_else(Vec::new, |(it, _)| it.split(',').map(|it| it.trim().to_owned()).collect());
        Series { name: rest[..end].to_owned(), labels }
    };
    starts.into_iter().map(series).collect()
}

#[tokio::test]
async fn overdue_shutdown_is_counted() {
    let (ns, controller) = setup("overdue").await;
    let sm = scheduled_machine(&ns, "desk-01").graceful_shutdown_timeout("1s").create_running().await;
    sm.block_removal().await;
    let wait_for_overdue = async |count: u8| {
        let line = format!("fivespot_overdue_shutdowns {count}");
        wait_for(&line, async || controller.metrics().await.lines().any(|it| it == line)).await;
    };
    wait_for_overdue(0).await;
    sm.set_schedule(&never()).await;
    wait_for_overdue(1).await;
    sm.unblock_removal().await;
    sm.wait_for_phase(Phase::Inactive).await;
    wait_for_overdue(0).await;
    ns.close().await;
}

#[tokio::test]
async fn forged_boundary_is_not_counted_as_late() {
    let (ns, controller) = setup("lateness").await;
    let sm = scheduled_machine(&ns, "desk-01").schedule(window(5, 3600)).create().await;
    let count = async || {
        let page = controller.metrics().await;
        let line = page.lines().find_map(|it| it.strip_prefix("fivespot_boundary_lateness_seconds_count "));
        line.unwrap_or_default().to_owned()
    };
    sm.wait_until_running().await;
    wait_for("the opening is counted", async || count().await == "1").await;
    sm.patch_status(&json!({ "status": { "inSchedule": false, "nextActivation": "2001-01-01T00:00:00Z" } })).await;
    sm.wait_until("the status is corrected", |status| status.in_schedule == Some(true)).await;
    sm.set_kill_switch(true).await;
    sm.wait_for_phase(Phase::Terminated).await;
    assert_eq!(count().await, "1");
    ns.close().await;
}
