//! Hostile input: the policy reports exactly the rules that the offline validator reports.

use fivespot_validation::validate::EnforcedBy;
use serde_json::{Value, json};

use crate::env::{env, offline_violations};
use crate::requests::dry_run;

const NAMES: &[&str] = &[
    "", "a", "A-b_c.d", "-a", "a-", "a b", "a\n", "\na", "é", "a/b", "ａ", ".", "_", "0", "a\u{0}b", "a'b", "a\\b",
    "$", "^a$",
];
const DURATIONS: &[&str] = &[
    "5m",
    "0m",
    "05m",
    "5",
    "m",
    "5 m",
    "5m ",
    "5m\n",
    "24h",
    "25h",
    "1440m",
    "1441m",
    "86400s",
    "86401s",
    "999999h",
    "99999h",
    "9999999999999999999999h",
    "1h30m",
    "1.5h",
    "-5m",
    "+5m",
    "5M",
    "5d",
    "٣m",
    "5ms",
    "1e3s",
];
const DAYS: &[&str] = &[
    "mon",
    "mon-fri",
    "fri-mon",
    "mon-wed,fri",
    "Mon",
    "monday",
    "mon-",
    "-mon",
    "mon,,tue",
    "mon,",
    ",mon",
    "mon tue",
    "mon\n",
    "mon-wed-fri",
    "1",
    "",
    "monn",
    "mo",
    "mon-fri,sat-sun,tue",
    "mon–fri",
];
const HOURS: &[&str] = &[
    "9",
    "9-17",
    "22-6",
    "0-9,18-23",
    "24",
    "9-25",
    "99",
    "100",
    "009",
    "9-",
    "-9",
    "9,,10",
    "9,",
    "9am",
    "9:30",
    "",
    " 9",
    "9\n",
    "9-17-20",
    "٣",
    "00",
    "+9",
];
const CRONS: &[&str] = &[
    "0 9-17 * * 1-5",
    "*/15 * * * *",
    "0 9 * *",
    "0 0 9 * * *",
    "@daily",
    "TZ=UTC 0 9 * * *",
    "60 9 * * *",
    "5/15 * * * *",
    "0 22-6 * * *",
    "0 0 * jan-MAR,Dec mon-Fri",
    "\t0  9 * * *\n",
    "0\u{b}9 * * *",
    "0\u{a0}9 * * *",
    "0 9 * * fry",
    "0 9 * * fry5",
    "60,x 9 * * *",
    "** * * * *",
    "*-5 * * * *",
    "1-2-3 * * * *",
    "1,,2 * * * *",
    "*/ * * * *",
    "*/0 * * * *",
    "*/100 * * * *",
    "0 0 L * *",
    "0 0 15W * *",
    "0 0 * * 5#3",
    "? * * * *",
    "",
    " ",
    "000 * * * *",
    "* * * * *,",
    "*/15/2 * * * *",
    "0 9 * * monday",
    "*5 * * * *",
    "٣ * * * *",
    "0,30 8-18/2 1,15 */3 mon,wed-fri",
];
const MOMENTS: &[&str] = &[
    "2026-12-24",
    "2026-12-24T18:00:00Z",
    "2026-12-24T18:00:00.5+01:00",
    "2026-02-30",
    "2026-13-01",
    "tomorrow",
    "",
    "2026-1-01",
    "20260101",
    "2026-01-01 00:00:00Z",
    "2026-01-01t00:00:00Z",
    "2026-01-01T",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01T00:00:00.Z",
    "2026-01-01T00:00:00z",
    "2026-01-01T00:00:60Z",
    "2026-01-01T00:00:00+0100",
    "2026-01-01T00:00:00+24:00",
    "2026-01-01T00:00:00Z\n",
    "٢026-01-01",
    "9999-12-31",
    "0000-01-01",
    "2026-01-01T00:00:00.000000000000000000001Z",
    "-2026-01-01",
];
const API_VERSIONS: &[&str] = &[
    "k0smotron.io/v1beta1",
    "bootstrap.cluster.x-k8s.io/v1",
    "infrastructure.cluster.x-k8s.io/v1alpha2",
    "v1",
    "",
    "/v1",
    "k0smotron.io/",
    "k0smotron.io",
    "k0smotron.io/v1/x",
    "k0smotron.io/v1beta1/clusters",
    "K0smotron.io/v1",
    "k0smotronXio/v1",
    "a.k0smotron.io/v1",
    "k0smotron.io.example.com/v1",
    "apps/v1",
    "k0smotron.io/v",
    "k0smotron.io/1",
    "k0smotron.io/v1beta",
    "k0smotron.io/v1gamma1",
    "k0smotron.io/v1alpha1beta1",
    "k0smotron.io/v1\n",
    "k0smotron.io//v1",
    "k0smotron.io/../../v1",
    "k0smotron.io/v01",
    "k0smotron.io/v٣",
];
const KINDS: &[&str] = &[
    "RemoteMachine",
    "",
    "RemoteCluster",
    "Cluster",
    "RemoteMachineTemplate",
    "Template",
    "JoinTokenRequest",
    "JoinTokenRequests",
    "RemoteClusters",
    "template",
    "RemoteCluster ",
    "a/b",
];
const VERSIONS: &[&str] = &[
    "v1.33.2",
    "1.33.2",
    "v1.30.0+k0s.0",
    "v1.30.0-rc.1",
    "v1",
    "v1.33",
    "v01.3.2",
    "v1.03.2",
    "v1.3.02",
    "latest",
    "v1.33.2 ",
    "v1.33.x",
    "v0.0.0",
    "vv1.2.3",
    "v1.2.3.4",
    "v1.2.3_4",
    "v1.2.3/4",
    "v1.2.3é",
    "V1.2.3",
    "v1..3",
    "v1.2.3\n",
];
const KEYS: &[&str] = &[
    "a",
    "example.com/a",
    "",
    "/a",
    "a/",
    "a/b/c",
    "two words",
    "Example.com/a",
    "example..com/a",
    "-example.com/a",
    "kubernetes.io/a",
    "node.kubernetes.io/a",
    "a.kubernetes.io/b",
    "notkubernetes.io/a",
    "kubernetes.io",
    "kubernetes.io/",
    "kubernetes.io/two words",
    "cluster.x-k8s.io/a",
    "node.cluster.x-k8s.io/a",
    "a.node.cluster.x-k8s.io/a",
    "xnode.cluster.x-k8s.io/a",
    "5spot.finos.org/a",
    "a.5spot.finos.org/a",
    "5spot-finos.org/a",
    ".kubernetes.io/a",
    "kubernetes.io/a\n",
    "é/a",
    "Kubernetes.io/a",
    "node-role.kubernetes.io/control-plane",
    "sigs.k8s.io/a",
    "node.cluster.x-k8s.io/two words",
    "a\u{0}",
    "5SPOT.finos.org/a",
];

/// The entry at an index modulo the length.
fn at<'a>(values: &[&'a str], index: usize) -> &'a str {
    values[index % values.len()]
}

/// A manifest with a value of each list. The lists have different lengths, so each index gives another combination.
fn manifest(index: usize) -> Value {
    let mut schedule = json!({
        "overrides": [{ "from": at(MOMENTS, index), "until": at(MOMENTS, index * 3 + 1), "active": true }],
    });
    match index % 4 {
        0 => schedule["cron"] = at(CRONS, index / 4).into(),
        1 => {
            schedule["cron"] = at(CRONS, index / 4).into();
            schedule["duration"] = at(DURATIONS, index / 4).into();
        }
        2 => schedule["daysOfWeek"] = json!([at(DAYS, index / 4)]),
        _ => {
            schedule["daysOfWeek"] = json!(["mon", at(DAYS, index / 4)]);
            schedule["hoursOfDay"] = json!([at(HOURS, index / 4), "9"]);
        }
    }
    let inline = |step: usize| {
        json!({
            "apiVersion": at(API_VERSIONS, index + step),
            "kind": at(KINDS, index + step),
            "namespace": at(&["", "kube-system"], index / 3 + step),
            "spec": if (index + step).is_multiple_of(5) { json!({ "providerID": null }) } else { json!({}) },
        })
    };
    json!({
        "apiVersion": "5spot.finos.org/v1alpha1",
        "kind": "ScheduledMachine",
        "metadata": { "name": "hostile" },
        "spec": {
            "schedule": schedule,
            "clusterName": at(NAMES, index),
            "gracefulShutdownTimeout": at(DURATIONS, index),
            "nodeDrainTimeout": at(DURATIONS, index + 7),
            "bootstrapSpec": inline(0),
            "infrastructureSpec": inline(1),
            "machineTemplate": {
                "labels": { at(KEYS, index): at(NAMES, index + 3) },
                "annotations": { at(KEYS, index + 5): at(NAMES, index) },
                "version": at(VERSIONS, index),
            },
            "nodeTaints": [
                { "key": at(KEYS, index + 11), "value": at(NAMES, index + 1), "effect": "NoSchedule" },
                { "key": at(KEYS, index * 2), "effect": at(&["NoSchedule", "NoExecute"], index) },
            ],
        },
    })
}

#[tokio::test]
async fn policy_and_offline_validator_agree_on_hostile_input() {
    let test = env().await.testbed.namespace("hostile input").await;
    // Long enough for every entry of the schedule lists in every shape that uses it.
    for index in 0..4 * CRONS.len() {
        let manifest = manifest(index);
        let offline = offline_violations(&test, &manifest, EnforcedBy::Policy);
        let response = dry_run(&test, &manifest).await;
        assert_eq!(response.warnings, offline, "{manifest:#}");
        assert_eq!(response.rejected("a hostile object").rule(), Some(offline[0].as_str()), "{manifest:#}");
    }
    test.close().await;
}
