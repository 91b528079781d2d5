//! The status of a ScheduledMachine: the observed state, written by the controller.
#![allow(clippy::doc_markdown, reason = "doc comments become CRD descriptions, which kubectl prints as plain text")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NodeTaint;

/// ScheduledMachineStatus defines the observed state of a ScheduledMachine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledMachineStatus {
    /// phase is the current phase of the lifecycle of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// message describes the phase: what is happening, and what the controller waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// inSchedule is true while the schedule is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_schedule: Option<bool>,

    /// conditions represent the current state of the machine. Known condition types are Ready, Stalled, Scheduled,
    /// MachineReady, ReferencesValid and NodeTainted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// machineRef refers to the Cluster API Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_ref: Option<ObjectReference>,

    /// bootstrapRef refers to the bootstrap object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_ref: Option<ObjectReference>,

    /// infrastructureRef refers to the infrastructure object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectReference>,

    /// nodeRef refers to the Node in the workload cluster, once the machine has joined it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeReference>,

    /// providerID is the ID of the machine at its infrastructure provider, copied from the Machine.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,

    /// appliedNodeTaints are the taints that the controller applied to the Node. Only these are changed or removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_node_taints: Vec<NodeTaint>,

    /// lastScheduledTime is the time at which the Machine was last created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled_time: Option<Time>,

    /// nextActivation is the time at which the schedule opens next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_activation: Option<Time>,

    /// nextCleanup is the time at which the current window closes. It is not set while the schedule is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cleanup: Option<Time>,

    /// shutdownStartedAt is the time at which the shutdown in progress started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_started_at: Option<Time>,

    /// initialPods is the number of pods that had to leave the Node when the drain of the shutdown in progress started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub initial_pods: Option<i64>,

    /// machineFailure describes the last Machine that failed. It is removed once a Machine has joined the cluster as a
    /// Ready Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_failure: Option<MachineFailure>,

    /// reclaim describes the last emergency reclaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<ReclaimStatus>,

    /// observedGeneration is the generation of the ScheduledMachine that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// observedIntent is the number in the last annotation 5spot.finos.org/children that this status includes. An annotation
    /// with another number names objects that the controller was about to create and that this status may lack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_intent: Option<i64>,
}

/// Phase of the lifecycle of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
// The description of an optional enum is the one of the enum, not of the field.
#[schemars(description = "phase is the current phase of the lifecycle of the machine.")]
pub enum Phase {
    /// The controller has not created the machine yet: the Cluster is paused, or an earlier machine was just removed.
    Pending,
    /// The schedule is open, and the Machine, bootstrap and infrastructure objects exist.
    Active,
    /// The machine is being drained or removed.
    ShuttingDown,
    /// The schedule is closed, and the machine is removed.
    Inactive,
    /// The schedule is disabled.
    Disabled,
    /// The kill switch is active, and the machine is removed.
    Terminated,
    /// The owner requested the machine back, and it is being removed without draining.
    EmergencyRemove,
    /// The controller cannot proceed; the conditions report the cause.
    Error,
}

impl Phase {
    /// All phases, in the order of the lifecycle.
    pub const ALL: [Phase; 8] = [
        Phase::Pending,
        Phase::Active,
        Phase::ShuttingDown,
        Phase::Inactive,
        Phase::Disabled,
        Phase::Terminated,
        Phase::EmergencyRemove,
        Phase::Error,
    ];

    /// The name of the phase in the status, in metrics and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Active => "Active",
            Phase::ShuttingDown => "ShuttingDown",
            Phase::Inactive => "Inactive",
            Phase::Disabled => "Disabled",
            Phase::Terminated => "Terminated",
            Phase::EmergencyRemove => "EmergencyRemove",
            Phase::Error => "Error",
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// ObjectReference refers to an object in the namespace of the ScheduledMachine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// apiVersion is the API group and version of the object.
    pub api_version: String,
    /// kind is the kind of the object.
    pub kind: String,
    /// name is the name of the object.
    pub name: String,
    /// namespace is the namespace of the object.
    pub namespace: String,
    /// uid is the uid of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// NodeReference refers to a Node in the workload cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReference {
    /// apiVersion is always v1.
    pub api_version: String,
    /// kind is always Node.
    pub kind: String,
    /// name is the name of the Node.
    pub name: String,
    /// uid is the uid of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// MachineFailure describes the last Machine that failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineFailure {
    /// machineUID is the uid of the Machine that failed.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// reason is the reason that Cluster API reported.
    #[serde(default)]
    pub reason: String,
    /// count is the number of Machines that failed since one was last Ready.
    #[serde(default)]
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub count: i64,
    /// retryAt is the time before which no other Machine is created. The controller waits for at most 5 minutes: a time
    /// that is further away counts as now.
    pub retry_at: Time,
}

/// ReclaimStatus describes the last emergency reclaim.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimStatus {
    /// machineUID is the uid of the Machine that was reclaimed. A Machine is reclaimed at most once.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// reason is the reason that the reclaim agent reported, such as process-match: java.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// requestedAt is the time at which the reclaim agent requested the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Time>,
    /// scheduleDisabled is true once the controller has set spec.schedule.enabled to false for this reclaim. The controller
    /// does so once per reclaim, so that users can enable the schedule again.
    #[serde(default)]
    pub schedule_disabled: bool,
    /// inProgress is true while the controller removes the machine for this reclaim. The controller stores it before it
    /// deletes anything, so that the reclaim is completed even if the controller restarts or the Node disappears.
    #[serde(default)]
    pub in_progress: bool,
    /// count is the number of emergency reclaims of this ScheduledMachine.
    #[serde(default)]
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub count: i64,
}
