//! What is counted, and that alerts and the dashboard ask for nothing else.

use fivespot_api::Phase;
use fivespot_testbed::provider::{Behaviour, Removal};
use fivespot_testbed::wait::eventually;
use serde_json::json;

use crate::fixtures::{Desk, SOON, a_cluster, always, never, root, testbed};
use crate::process::get;

#[tokio::test]
async fn it_says_how_it_is_and_counts_what_it_does() {
    let (test, controller) = a_cluster("metrics").await;
    let (health, metrics) = (controller.port("health").await, controller.port("metrics").await);
    eventually("it is ready", SOON, async || get(health, "/ready").await.0.contains("200")).await;
    for path in ["/health", "/healthz", "/readyz"] {
        assert!(get(health, path).await.0.contains("200"), "{path}");
    }
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({})).await;
    desk.runs().await;
    desk.edit(&json!({ "spec": { "killSwitch": true } })).await;
    desk.reaches(Phase::Terminated).await;
    let page = eventually("it is counted", SOON, async || {
        let page = get(metrics, "/metrics").await.1;
        let counted = [
            "fivespot_machines_by_phase{phase=\"Terminated\"} 1",
            "fivespot_machines_by_phase{phase=\"Active\"} 0",
            "fivespot_kill_switch_activations_total 1",
            "fivespot_api_requests_total{verb=\"create\",resource=\"machines\",code=\"201\"} 1",
            "fivespot_build_info{version=",
            "fivespot_reconciliations_total{phase=\"Terminated\",result=\"done\"}",
            "fivespot_reconciliation_duration_seconds_count",
            "fivespot_schedule_evaluations_total{result=\"ok\"}",
            "fivespot_boundary_lateness_seconds_count",
        ];
        let missing: Vec<&str> = counted.into_iter().filter(|it| !page.contains(it)).collect();
        if missing.is_empty() { Ok(page) } else { Err(format!("{missing:?} in\n{page}")) }
    })
    .await;
    for file in ["deploy/monitoring/prometheusrule.yaml", "deploy/monitoring/dashboard.json"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let unknown = series_named_in(&text).into_iter().find(|it| !it.is_on(&page));
        assert!(unknown.is_none(), "{file}: {unknown:?} is not counted:\n{page}");
    }
    test.close().await;
}

/// What a query asks for: a series, and labels that it has to have.
#[derive(Debug)]
struct Series {
    name: String,
    labels: Vec<String>,
}

impl Series {
    /// Whether the page of the controller has such a series.
    fn is_on(&self, page: &str) -> bool {
        page.lines().filter(|it| !it.starts_with('#')).any(|line| {
            let name = line.split(['{', ' ']).next();
            name == Some(self.name.as_str()) && self.labels.iter().all(|it| line.contains(it.as_str()))
        })
    }
}

/// Everything of ours that the queries of a file ask for.
fn series_named_in(text: &str) -> Vec<Series> {
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
async fn a_machine_that_does_not_go_is_counted_as_overdue() {
    let (test, controller) = a_cluster("overdue").await;
    let stays = Behaviour { removal: Removal::Never, ..Behaviour::default() };
    testbed().await.fleet().await.provider.behave_in(&test.name, stays);
    let desk = Desk::new(&test, "desk-01");
    desk.create(&always(), &json!({ "gracefulShutdownTimeout": "1s" })).await;
    desk.runs().await;
    let metrics = controller.port("metrics").await;
    let overdue = async |count: u8| {
        let line = format!("fivespot_overdue_shutdowns {count}");
        eventually(&line, SOON, async || get(metrics, "/metrics").await.1.lines().any(|it| it == line)).await;
    };
    overdue(0).await;
    desk.reschedule(&never()).await;
    overdue(1).await;
    testbed().await.fleet().await.provider.behave_in(&test.name, Behaviour::default());
    desk.reaches(Phase::Inactive).await;
    overdue(0).await;
    test.close().await;
}
