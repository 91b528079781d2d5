//! The largest objects that the schema accepts: no rule comes near the CEL cost limits of the API server, and invalid objects
//! are rejected for their violation, not for cost.

use fivespot_e2e::TIMEOUT;
use fivespot_testbed::wait::eventually;
use fivespot_validation::admission;
use fivespot_validation::rules;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use crate::env::{env, example};
use crate::requests::{Response, create, dry_run, dry_run_spec};

/// How often the cost test evaluates a rule in one expression: the cost limit applies to the whole expression.
const REPETITIONS: usize = 4;

/// A unique key of the given length.
fn key(length: usize, index: usize) -> String {
    let prefix = length - 1 - 63;
    let labels = vec!["p"; prefix.div_ceil(2)].join(".");
    // The cut may end in a dot, which is not allowed.
    let prefix = format!("{}{}", &labels[..prefix - 3], "xyz");
    format!("{prefix}/{index:0>63}")
}

fn map(value: &str) -> Value {
    Value::Object((0..64).map(|index| (key(317, index), value.into())).collect::<Map<_, _>>())
}

/// A valid object with every list and string at its limit.
fn largest() -> Value {
    let moment = format!("2026-01-01T00:00:00.{:0>43}Z", 1);
    let later = format!("2026-01-02T00:00:00.{:0>43}Z", 1);
    let taint = |index| json!({ "key": key(253, index), "value": "v".repeat(63), "effect": "NoSchedule" });
    let inline = |group: &str, kind: &str| json!({ "apiVersion": format!("{group}/v1beta{:0>36}", 1), "kind": format!("{kind:x<63}"), "spec": {} });
    json!({
        "apiVersion": "5spot.finos.org/v1alpha1",
        "kind": "ScheduledMachine",
        "metadata": { "name": "largest" },
        "spec": {
            "schedule": {
                "daysOfWeek": vec![vec!["mon-fri"; 16].join(","); 32],
                "hoursOfDay": vec![vec!["10-17"; 21].join(","); 32],
                "overrides": vec![json!({ "from": moment, "until": later, "active": true, "reason": "r".repeat(256) }); 256],
            },
            "clusterName": "c".repeat(63),
            "gracefulShutdownTimeout": "86400s",
            "nodeDrainTimeout": "86400s",
            "killIfCommands": vec!["k".repeat(256); 100],
            "bootstrapSpec": inline("bootstrap.cluster.x-k8s.io", "K0sWorkerConfig"),
            "infrastructureSpec": inline("infrastructure.cluster.x-k8s.io", "RemoteMachine"),
            "machineTemplate": {
                "labels": map(&"v".repeat(63)),
                "annotations": map(&"anything ".repeat(100)),
                "version": format!("{:x<256}", "v1.33.2"),
            },
            "nodeTaints": (0..32).map(taint).collect::<Vec<_>>(),
        },
    })
}

/// [`largest`] with the longest cron expression instead of days and hours.
fn largest_cron() -> Value {
    let mut manifest = largest();
    let minutes = vec!["10-59/15"; 27].join(",");
    manifest["metadata"]["name"] = "largest-cron".into();
    manifest["spec"]["schedule"] = json!({ "cron": format!("{minutes} 9 * * *"), "duration": "86400s" });
    manifest
}

#[test]
fn largest_object_reaches_the_schema_limits() {
    let manifest = largest();
    assert_eq!((key(317, 0).len(), key(253, 0).len()), (317, 253));
    assert_eq!(manifest["spec"]["schedule"]["overrides"][0]["from"].as_str().unwrap().len(), 64);
    assert_eq!(manifest["spec"]["machineTemplate"]["version"].as_str().unwrap().len(), 256);
    assert!(largest_cron()["spec"]["schedule"]["cron"].as_str().unwrap().len() > 245);
}

#[tokio::test]
async fn largest_objects_are_accepted() {
    let test = env().await.testbed.namespace("largest objects").await;
    for manifest in [largest(), largest_cron()] {
        let stored = create(&test, &manifest).await.accepted("the largest object");
        let mut edited = manifest["spec"].clone();
        edited["priority"] = 7.into();
        dry_run_spec(&test, &stored, &edited).await.accepted("an edit of the largest object");
    }
    test.close().await;
}

/// The violation is in the last entry of each list, so that rules evaluate the whole list.
#[tokio::test]
async fn largest_invalid_objects_are_rejected_for_their_violation() {
    let test = env().await.testbed.namespace("largest invalid objects").await;
    let small = create(&test, &example("valid", "minimal").manifest).await.accepted("minimal");
    let long_prefix = format!("{}/n", "p".repeat(315));
    let violations: &[(&str, Value, &str)] = &[
        ("/spec/clusterName", json!("c".repeat(253)), rules::CLUSTER_NAME_FORMAT),
        ("/spec/nodeDrainTimeout", json!(format!("{}m", "9".repeat(63))), rules::NODE_DRAIN_TIMEOUT.bound),
        ("/spec/schedule/daysOfWeek/31", json!("mon,".repeat(32)), rules::DAYS_FORMAT),
        ("/spec/schedule/hoursOfDay/31", json!("9,".repeat(64)), rules::HOURS_FORMAT),
        ("/spec/schedule/overrides/255/until", json!("2".repeat(64)), rules::OVERRIDES),
        ("/spec/bootstrapSpec/apiVersion", json!("/".repeat(317)), rules::BOOTSTRAP.group_allowed),
        ("/spec/machineTemplate/version", json!("1".repeat(256)), rules::TEMPLATE_VERSION),
        (
            &format!("/spec/machineTemplate/labels/{}", key(317, 63).replace('/', "~1")),
            json!("v".repeat(1_000_000)),
            rules::TEMPLATE_FORMAT,
        ),
        ("/spec/machineTemplate/annotations", json!({ long_prefix: "" }), rules::TEMPLATE_FORMAT),
        ("/spec/machineTemplate/annotations", json!({ "k".repeat(1_000_000): "" }), rules::TEMPLATE_FORMAT),
        ("/spec/bootstrapSpec/spec", json!({ "a": "x".repeat(1_000_000) }), rules::BOOTSTRAP.size),
        ("/spec/infrastructureSpec/spec", nested(1000), rules::INFRASTRUCTURE.shape),
        ("/spec/infrastructureSpec/spec", json!({ "a": vec![0; 500_000] }), rules::INFRASTRUCTURE.shape),
        ("/spec/nodeTaints/31/key", json!("-".repeat(253)), rules::TAINT_KEY_FORMAT),
        ("/spec/nodeTaints/31/key", json!(key(253, 30)), rules::TAINT_UNIQUE),
    ];
    for (pointer, value, rule) in violations {
        let mut manifest = largest();
        *manifest.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value.clone();
        dry_run(&test, &manifest).await.rejected_for(rule, pointer);
        dry_run_spec(&test, &small, &manifest["spec"]).await.rejected_for(rule, pointer);
    }
    let mut manifest = largest_cron();
    manifest["spec"]["schedule"]["cron"] = "*".repeat(256).into();
    dry_run(&test, &manifest).await.rejected_for(rules::CRON_FORMAT, "a long cron");
    test.close().await;
}

/// A value of this many levels.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }))
}

/// Inline specs of exactly 64 KiB that consist of as many values as possible. What is larger may be rejected for its cost.
#[tokio::test]
async fn inline_specs_of_the_costliest_shapes_are_accepted() {
    let test = env().await.testbed.namespace("costly inline specs").await;
    let lists = |count: usize, item: Value| json!(vec![vec![item; 1000]; count]);
    let fields: Map<String, Value> = (0..1000).map(|index| (format!("{index:x}"), json!(0))).collect();
    let shapes = [
        ("numbers", json!({ "a": lists(32, json!(0)), "b": vec![0; 700] })),
        ("lists", json!({ "a": lists(21, json!([])), "b": vec![json!([]); 800] })),
        ("objects", json!({ "a": lists(9, json!({ "": 0 })), "b": vec![json!({ "": 0 }); 350] })),
        ("fields", json!({ "a": vec![fields; 8], "b": vec![0; 600] })),
        ("levels", json!({ "a": vec![nested(30); 370] })),
    ];
    for (name, spec) in shapes {
        let size = spec.to_string().len();
        assert!((63_000..=65_536).contains(&size), "{name} has {size} bytes");
        let mut manifest = example("valid", "minimal").manifest;
        manifest["metadata"]["name"] = name.into();
        manifest["spec"]["bootstrapSpec"]["spec"] = spec.clone();
        manifest["spec"]["infrastructureSpec"]["spec"] = spec;
        let stored = create(&test, &manifest).await.accepted(name);
        let mut edited = manifest["spec"].clone();
        edited["bootstrapSpec"]["spec"]["a"] = "edited".into();
        dry_run_spec(&test, &stored, &edited).await.accepted(name);
    }
    test.close().await;
}

/// Changes the last entry of every list and the end of every string, with equal length: comparing old and new values is as
/// expensive as possible, and then all rules are evaluated.
fn changed_at_the_end(manifest: &Value) -> Value {
    let last = key(317, 63).replace('/', "~1");
    let (label, annotation) =
        (format!("/machineTemplate/labels/{last}"), format!("/machineTemplate/annotations/{last}"));
    let schedule: &[(&str, &str)] = if manifest["spec"]["schedule"]["cron"].is_null() {
        &[("/schedule/daysOfWeek/31", "sat"), ("/schedule/hoursOfDay/31", "8"), ("/schedule/overrides/255/until", "2Z")]
    } else {
        &[("/schedule/cron", "1"), ("/schedule/duration", "399s")]
    };
    let others: &[(&str, &str)] = &[
        ("/clusterName", "d"),
        ("/gracefulShutdownTimeout", "399s"),
        ("/nodeDrainTimeout", "399s"),
        ("/killIfCommands/99", "l"),
        ("/bootstrapSpec/apiVersion", "2"),
        ("/bootstrapSpec/kind", "y"),
        ("/infrastructureSpec/apiVersion", "2"),
        ("/infrastructureSpec/kind", "y"),
        ("/machineTemplate/version", "y"),
        (&label, "w"),
        (&annotation, "!"),
        ("/nodeTaints/31/value", "w"),
    ];
    let mut spec = manifest["spec"].clone();
    for (pointer, end) in schedule.iter().chain(others) {
        let field = spec.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}"));
        let before = field.as_str().unwrap();
        let after = format!("{}{end}", &before[..before.len() - end.len()]);
        assert_ne!(before, after, "{pointer}");
        *field = after.into();
    }
    spec
}

/// If a rule cost more than a quarter of the limit, four evaluations would exceed it.
#[tokio::test]
async fn every_rule_costs_at_most_a_quarter_of_the_limit() {
    let testbed = env().await.testbed;
    let (within, beyond) = (testbed.namespace("four times").await, testbed.namespace("a thousand times").await);
    bind(testbed.client(), "four-times", REPETITIONS, &within.name).await;
    // Verifies that the test can detect an exceeded limit.
    bind(testbed.client(), "a-thousand-times", 1_000, &beyond.name).await;
    let probe = example("invalid/policy", "cluster-name-empty").manifest;
    for (test, policy) in [(&within, "four-times"), (&beyond, "a-thousand-times")] {
        let warning = format!("ValidatingAdmissionPolicy '{policy}'");
        eventually("the policy is in force", TIMEOUT, async || {
            dry_run(test, &probe).await.headers.iter().any(|it| it.contains(&warning))
        })
        .await;
    }
    for manifest in [largest(), largest_cron()] {
        let Response { object: stored, rejection, headers, .. } = create(&within, &manifest).await;
        assert!(rejection.is_none() && headers.is_empty(), "{rejection:?} {headers:?}");
        let Response { rejection, headers, .. } = dry_run_spec(&within, &stored, &changed_at_the_end(&manifest)).await;
        assert!(rejection.is_none() && headers.is_empty(), "an edit: {rejection:?} {headers:?}");
    }
    let Response { object: stored, headers, .. } = create(&beyond, &largest()).await;
    assert!(headers.concat().contains("cost"), "{headers:?}");
    let headers = dry_run_spec(&beyond, &stored, &changed_at_the_end(&largest())).await.headers;
    assert!(headers.concat().contains("cost"), "an edit: {headers:?}");
    within.close().await;
    beyond.close().await;
}

/// Installs a copy of the policy that evaluates every rule several times, and warns in one namespace.
async fn bind(client: kube::Client, name: &str, times: usize, namespace: &str) {
    let mut policy = admission::policy();
    policy.metadata.name = Some(name.to_owned());
    for validation in policy.spec.iter_mut().flat_map(|it| it.validations.iter_mut().flatten()) {
        let list = vec!["0"; times].join(",");
        validation.expression = format!("[{list}].all(unused, {})", validation.expression);
    }
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.create(&PostParams::default(), &policy).await.unwrap();

    let mut binding = serde_json::to_value(admission::binding()).unwrap();
    binding["metadata"]["name"] = name.into();
    binding["spec"]["policyName"] = name.into();
    binding["spec"]["validationActions"] = json!(["Warn"]);
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    binding["spec"]["matchResources"] = json!({ "namespaceSelector": selector });
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}
