//! What the controller reports.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NodeTaint;

/// What has been seen and done, as of `observedGeneration`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledMachineStatus {
    /// Where the machine is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// The same in a sentence: what is happening, what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Whether the schedule is open now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_schedule: Option<bool>,

    /// Ready, Scheduled, MachineReady, ReferencesValid and NodeTainted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// The Cluster API Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_ref: Option<ObjectReference>,

    /// The bootstrap object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_ref: Option<ObjectReference>,

    /// The infrastructure object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectReference>,

    /// The Node, in the workload cluster, once the machine has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeReference>,

    /// The provider's identifier of the machine.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,

    /// The taints on the Node that are ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_node_taints: Vec<NodeTaint>,

    /// When a machine was last created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scheduled_time: Option<Time>,

    /// The next opening of the schedule after now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_activation: Option<Time>,

    /// The close of the window that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cleanup: Option<Time>,

    /// When the shutdown that is under way began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_started_at: Option<Time>,

    /// The last emergency reclaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<ReclaimStatus>,

    /// The generation of the spec that all of this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Where a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum Phase {
    /// Not yet decided, or on its way to Active.
    Pending,
    /// The window is open and the machine's objects exist.
    Active,
    /// The machine is on its way out.
    ShuttingDown,
    /// The window is closed and nothing of the machine is left.
    Inactive,
    /// The schedule is disabled.
    Disabled,
    /// The kill switch is on and nothing of the machine is left.
    Terminated,
    /// The owner wants the machine back; it is on its way out.
    EmergencyRemove,
    /// Something is wrong; the conditions say what.
    Error,
}

impl Phase {
    /// All of them, in the order of a life.
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

    /// The name on the wire, in metrics and in logs.
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

/// An object in the namespace of the ScheduledMachine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A Node, in the workload cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReference {
    /// Always `v1`.
    pub api_version: String,
    /// Always `Node`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The last emergency reclaim.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimStatus {
    /// Uid of the Machine that was reclaimed: each is reclaimed once.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// Why, as the agent said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the agent asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Time>,
    /// Whether the schedule was disabled for it already: that happens once, so that a later edit by a person wins.
    #[serde(default)]
    pub schedule_disabled: bool,
    /// Whether the Machine is still being removed for this reclaim.
    #[serde(default)]
    pub in_progress: bool,
    /// How many there have been.
    #[serde(default)]
    #[schemars(range(min = 0), extend("format" = "int64"))]
    pub count: i64,
}
