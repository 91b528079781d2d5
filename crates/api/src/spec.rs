//! The spec of a ScheduledMachine: the desired state, written by users.
#![allow(clippy::doc_markdown, reason = "doc comments become CRD descriptions, which kubectl prints as plain text")]

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ScheduledMachineStatus, defaults};

/// ScheduledMachineSpec defines the desired state of a ScheduledMachine.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[allow(clippy::duplicated_attributes, reason = "every printer column is an attribute, and many of them are strings")]
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
    doc = "ScheduledMachine adds a machine to a Cluster API cluster while its schedule is open, and removes it gracefully when the schedule closes.",
    crates(kube_core = "::kube_core"),
    // kubectl prints a `date` in the future as <invalid>, so Opens and Closes are strings.
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
    /// schedule defines when the machine is part of the cluster.
    pub schedule: ScheduleSpec,

    /// bootstrapSpec defines the bootstrap object of the machine, such as a K0sWorkerConfig. The controller creates the
    /// object when a window opens and deletes it when the window closes.
    pub bootstrap_spec: InlineObject,

    /// infrastructureSpec defines the infrastructure object of the machine, such as a RemoteMachine. The controller creates
    /// the object when a window opens and deletes it when the window closes.
    pub infrastructure_spec: InlineObject,

    /// clusterName is the name of the Cluster API Cluster that the machine joins. The Cluster must be in the namespace of
    /// the ScheduledMachine.
    #[schemars(length(max = 253))]
    pub cluster_name: String,

    /// machineTemplate defines additional labels, annotations and fields of the Cluster API Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_template: Option<MachineTemplate>,

    /// priority determines which machines the controller handles first when many are due at the same time, from 0 to 255.
    /// Higher is more important.
    #[serde(default = "defaults::priority")]
    #[schemars(range(min = 0, max = 255), extend("format" = "int32"))]
    pub priority: u8,

    /// gracefulShutdownTimeout limits the whole shutdown of the machine, which drains its Node and detaches its volumes. When
    /// it expires, the machine is removed without waiting any longer. It is a duration such as 5m, 30s or 1h, at most 24h.
    #[serde(default = "defaults::timeout")]
    #[schemars(length(max = 64))]
    pub graceful_shutdown_timeout: String,

    /// nodeDrainTimeout limits the time for evicting pods from the Node. When it expires, the machine is removed with the
    /// pods that remain. It is a duration such as 5m, 30s or 1h, at most 24h.
    #[serde(default = "defaults::timeout")]
    #[schemars(length(max = 64))]
    pub node_drain_timeout: String,

    /// killSwitch removes the machine immediately, without draining its Node. Set it back to false to return the machine to
    /// its schedule.
    #[serde(default)]
    pub kill_switch: bool,

    /// killIfCommands lists programs whose start returns the machine to its owner. The reclaim agent on the Node compares
    /// each entry with the name of every process (exact match) and with its command line (substring match). A match removes
    /// the machine immediately, without draining its Node, and sets schedule.enabled to false; set it back to true to use
    /// the machine again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub kill_if_commands: Option<Vec<String>>,

    /// nodeTaints are the taints that the controller applies to the Node once it is Ready. Taints that were added by others
    /// are never changed or removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_taints: Vec<NodeTaint>,
}

/// ScheduleSpec defines when the machine is part of the cluster: either daysOfWeek and hoursOfDay or a cron expression, and
/// exceptions to them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// daysOfWeek lists the days on which the schedule is open: days (mon), ranges (mon-fri, fri-mon) or both
    /// (mon-wed,fri), in the local time of timezone. daysOfWeek and hoursOfDay are required unless cron is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)))]
    pub days_of_week: Vec<String>,

    /// hoursOfDay lists the hours during which the schedule is open: hours (9), ranges (9-17, 22-6) or both (0-9,18-23), in
    /// the local time of timezone. Ranges include both ends: 9-17 is 09:00:00 to 17:59:59. daysOfWeek and hoursOfDay are
    /// required unless cron is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)))]
    pub hours_of_day: Vec<String>,

    /// cron is a cron expression of five fields, instead of daysOfWeek and hoursOfDay. Without duration, the schedule is open
    /// during every hour in which the expression fires. With duration, each firing opens a window of that length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cron: Option<String>,

    /// duration is the length of the window that each firing of cron opens, such as 90m or 9h, at most 24h. It requires
    /// cron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub duration: Option<String>,

    /// timezone is the IANA time zone in which the schedule is evaluated, such as America/New_York.
    #[serde(default = "defaults::timezone")]
    #[schemars(length(max = 64))]
    pub timezone: String,

    /// enabled determines whether the controller follows the schedule. While it is false, the controller does not create,
    /// remove, cordon or drain the machine; killSwitch, killIfCommands and deleting the ScheduledMachine still take effect.
    #[serde(default = "defaults::enabled")]
    pub enabled: bool,

    /// overrides are exceptions to the schedule, such as holidays or additional hours. Later entries take precedence over
    /// earlier ones and over the rest of the schedule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub overrides: Vec<Override>,
}

/// Override opens or closes the schedule for a period of time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// from is the start of the override, inclusive: an RFC 3339 timestamp (2026-12-24T12:00:00Z) or a local date
    /// (2026-12-24).
    #[schemars(length(max = 64))]
    pub from: String,

    /// until is the end of the override, exclusive: an RFC 3339 timestamp (2026-12-24T12:00:00Z) or a local date
    /// (2026-12-24).
    #[schemars(length(max = 64))]
    pub until: String,

    /// active determines whether the schedule is open or closed during the override.
    pub active: bool,

    /// reason is a note for people who read the schedule, such as the name of a holiday.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

/// InlineObject defines an object of a Cluster API provider. Its spec is passed to the provider unchanged: before allowing
/// others to create ScheduledMachines, review what the provider lets them do.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineObject {
    /// apiVersion is the API group and version of the object. The group must be k0smotron.io, bootstrap.cluster.x-k8s.io (in
    /// bootstrapSpec) or infrastructure.cluster.x-k8s.io (in infrastructureSpec).
    #[schemars(length(max = 317))]
    pub api_version: String,

    /// kind is the kind of the object, such as K0sWorkerConfig or RemoteMachine.
    #[schemars(length(max = 63))]
    pub kind: String,

    /// namespace is the namespace of the object. It must be empty or the namespace of the ScheduledMachine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub namespace: Option<String>,

    /// spec is the spec of the object, as defined by the provider. It must not set providerID, must be at most 64 KiB of JSON
    /// and must be nested at most 32 levels deep, with at most 1000 entries in each list or object.
    #[schemars(schema_with = "crate::crd::any_object")]
    pub spec: Map<String, Value>,
}

/// MachineTemplate defines additional labels, annotations and fields of the Cluster API Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplate {
    /// labels are the labels of the Machine. Keys of Kubernetes, Cluster API and 5-Spot are rejected, except for the prefix
    /// node.cluster.x-k8s.io, whose labels Cluster API copies to the Node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,

    /// annotations are the annotations of the Machine. Keys of Kubernetes, Cluster API and 5-Spot are rejected.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = { "type": "string", "maxLength": 4096 }))]
    pub annotations: BTreeMap<String, String>,

    /// version is the Kubernetes version of the Machine, such as v1.33.2. The kubeadm bootstrap provider requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub version: Option<String>,

    /// failureDomain is the failure domain in which the provider creates the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
}

/// NodeTaint defines a taint of the Node. Key and effect identify the taint; its value can be changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTaint {
    /// key is the key of the taint, a qualified name such as workload or example.com/dedicated.
    #[schemars(length(max = 253))]
    pub key: String,

    /// value is the value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,

    /// effect is the effect of the taint on pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// TaintEffect is the effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
pub enum TaintEffect {
    /// New pods are not scheduled onto the Node.
    NoSchedule,
    /// New pods are scheduled onto the Node only if no other Node fits.
    PreferNoSchedule,
    /// New pods are not scheduled onto the Node, and running pods are evicted.
    NoExecute,
}
