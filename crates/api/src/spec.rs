//! What a user writes.

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ScheduledMachineStatus, values};

/// Puts a machine into a Cluster API cluster while its schedule is open, and takes it out gracefully when it closes.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[allow(clippy::duplicated_attributes, reason = "each column is an attribute of its own, and many are strings")]
#[kube(
    group = "5spot.finos.org",
    version = "v1alpha1",
    kind = "ScheduledMachine",
    plural = "scheduledmachines",
    singular = "scheduledmachine",
    shortname = "sm",
    category = "cluster-api",
    namespaced,
    status = "ScheduledMachineStatus",
    derive = "PartialEq",
    doc = "Puts a machine into a Cluster API cluster while its schedule is open, and takes it out gracefully when it closes.",
    crates(kube_core = "::kube_core"),
    // kubectl prints a `date` in the future as <invalid>, so the two boundaries are strings.
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "In-Schedule", type_ = "boolean", json_path = ".status.inSchedule"),
    printcolumn(name = "Enabled", type_ = "boolean", json_path = ".spec.schedule.enabled"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeRef.name"),
    printcolumn(name = "Opens", type_ = "string", json_path = ".status.nextActivation"),
    printcolumn(name = "Closes", type_ = "string", json_path = ".status.nextCleanup"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledMachineSpec {
    /// When the machine is in the cluster.
    pub schedule: ScheduleSpec,

    /// The bootstrap object to create when the window opens, written inline.
    pub bootstrap_spec: InlineObject,

    /// The infrastructure object to create when the window opens, written inline.
    pub infrastructure_spec: InlineObject,

    /// Name of the Cluster API Cluster, in the same namespace, that the machine joins.
    #[schemars(length(max = 253))]
    pub cluster_name: String,

    /// What to put on the Cluster API Machine besides what 5-Spot sets itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_template: Option<MachineTemplate>,

    /// Who goes first when many windows open at once: 0 to 255, higher is more important.
    #[serde(default = "values::priority")]
    #[schemars(range(min = 0, max = 255), extend("format" = "int32"))]
    pub priority: u8,

    /// How long a shutdown may take in all, such as `5m`, `30s` or `1h`; at most 24h.
    #[serde(default = "values::five_minutes")]
    #[schemars(length(max = 64))]
    pub graceful_shutdown_timeout: String,

    /// How long pods may take to leave the Node, such as `5m`, `30s` or `1h`; at most 24h.
    #[serde(default = "values::five_minutes")]
    #[schemars(length(max = 64))]
    pub node_drain_timeout: String,

    /// Take the machine out at once, with no drain and no grace. Set it back to false to return to the schedule.
    #[serde(default)]
    pub kill_switch: bool,

    /// Give the machine back to its owner the moment one of these programs starts on it: the exact name of a process,
    /// or a part of its command line. The schedule is then disabled until somebody enables it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub kill_if_commands: Option<Vec<String>>,

    /// Taints that the Node carries once it is Ready. Taints of others are never touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_taints: Vec<NodeTaint>,
}

/// When the machine is in the cluster: days and hours, or a cron expression; and exceptions to it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// Days on which the machine is in the cluster: `mon`, `mon-fri`, `mon-wed,fri`, `fri-mon`. A day is the local one of
    /// the time zone. Goes with hoursOfDay; both are required unless cron is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)))]
    pub days_of_week: Vec<String>,

    /// Hours during which the machine is in the cluster, both ends included: `9-17` is 09:00:00 to 17:59:59. `22-6`
    /// wraps around midnight. Goes with daysOfWeek; both are required unless cron is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)))]
    pub hours_of_day: Vec<String>,

    /// Five fields of cron, in place of daysOfWeek and hoursOfDay. Without a duration each hour in which it fires is
    /// open; with one, each firing opens a window of that length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cron: Option<String>,

    /// How long the window stays open that each firing of cron opens, such as `90m` or `9h`; at most 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub duration: Option<String>,

    /// IANA time zone in which the schedule is read, such as `America/New_York`.
    #[serde(default = "values::utc")]
    #[schemars(length(max = 64))]
    pub timezone: String,

    /// Whether the schedule acts. While false nothing is created, removed, cordoned or drained.
    #[serde(default = "values::yes")]
    pub enabled: bool,

    /// Exceptions: holidays, one-off days, two hours more, not today. Later entries win over earlier ones and over the
    /// schedule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub overrides: Vec<Override>,
}

/// One exception to the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// When it begins: an RFC 3339 instant (`2026-12-24T12:00:00Z`) or a local date (`2026-12-24`), included.
    #[schemars(length(max = 64))]
    pub from: String,

    /// When it ends: an RFC 3339 instant or a local date, not included.
    #[schemars(length(max = 64))]
    pub until: String,

    /// Whether the machine is in the cluster during it.
    pub active: bool,

    /// Why, for those who read it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// An object of a provider, written inline. Its spec is passed on as it is: review what your provider does with it
/// before you let others create these.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineObject {
    /// Group and version of the object: of `bootstrap.cluster.x-k8s.io` or `infrastructure.cluster.x-k8s.io`, by what it
    /// is, or of `k0smotron.io`.
    #[schemars(length(max = 317))]
    pub api_version: String,

    /// Kind of the object, such as `K0sWorkerConfig` or `RemoteMachine`.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// Namespace of the object: empty, or that of the ScheduledMachine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub namespace: Option<String>,

    /// The provider's own spec.
    #[schemars(schema_with = "crate::crd::any_object")]
    pub spec: Map<String, Value>,
}

/// What to put on the Cluster API Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplate {
    /// Labels of the Machine. Keys of Kubernetes, Cluster API and 5-Spot are refused, but for `node.cluster.x-k8s.io`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the Machine. Keys of Kubernetes, Cluster API and 5-Spot are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,

    /// Kubernetes version of the Machine, such as `v1.33.2`; kubeadm workers need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub version: Option<String>,

    /// Failure domain of the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
}

/// A taint on the Node. Key and effect say which taint it is; its value can be changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaint {
    /// Qualified name, such as `workload` or `example.com/dedicated`.
    #[schemars(length(max = 253))]
    pub key: String,

    /// Value, at most 63 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,

    /// What happens to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What happens to pods that do not tolerate a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods are not scheduled.
    NoSchedule,
    /// New pods are scheduled only where nothing else is free.
    PreferNoSchedule,
    /// New pods are not scheduled, running ones are evicted.
    NoExecute,
}
