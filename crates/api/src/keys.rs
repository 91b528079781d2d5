//! Every name on the wire: labels, annotations, finalizer, field manager. Each is written once, here.

/// API group of [`ScheduledMachine`](crate::ScheduledMachine).
pub const GROUP: &str = "5spot.finos.org";
/// API version of [`ScheduledMachine`](crate::ScheduledMachine).
pub const VERSION: &str = "v1alpha1";

/// Finalizer on a ScheduledMachine: it goes when nothing of it is left behind.
pub const FINALIZER: &str = "5spot.finos.org/scheduledmachine";
/// Label on every child, with the (possibly shortened) name of its ScheduledMachine.
pub const SCHEDULED_MACHINE_LABEL: &str = "5spot.finos.org/scheduled-machine";
/// Annotation on every child: the uid of its ScheduledMachine, which survives an ownerRef that was stripped.
pub const OWNER_UID_ANNOTATION: &str = "5spot.finos.org/owner-uid";
/// Annotation on every child: a hash of the spec that it was made from, which tells when that has been edited since.
pub const MADE_FROM_ANNOTATION: &str = "5spot.finos.org/made-from";

/// Node label that lets the reclaim agent's DaemonSet land on a Node.
pub const RECLAIM_AGENT_LABEL: &str = "5spot.finos.org/reclaim-agent";
/// The only value of [`RECLAIM_AGENT_LABEL`] that counts.
pub const RECLAIM_AGENT_ENABLED: &str = "enabled";
/// Node annotation: the owner wants the machine back. Only the literal `true` counts.
pub const RECLAIM_REQUESTED_ANNOTATION: &str = "5spot.finos.org/reclaim-requested";
/// The only value of [`RECLAIM_REQUESTED_ANNOTATION`] that counts.
pub const RECLAIM_REQUESTED: &str = "true";
/// Node annotation: why the machine is wanted back.
pub const RECLAIM_REASON_ANNOTATION: &str = "5spot.finos.org/reclaim-reason";
/// Node annotation: when the machine was asked for.
pub const RECLAIM_REQUESTED_AT_ANNOTATION: &str = "5spot.finos.org/reclaim-requested-at";
/// Node annotation: the taints that are ours.
pub const APPLIED_TAINTS_ANNOTATION: &str = "5spot.finos.org/applied-taints";
/// Node annotation: who cordoned it, so that we uncordon only what we cordoned.
pub const CORDONED_BY_ANNOTATION: &str = "5spot.finos.org/cordoned-by";

/// Field manager of every write of the controller.
pub const FIELD_MANAGER: &str = "5spot-controller";

/// Key of the agent's configuration in its ConfigMap.
pub const RECLAIM_CONFIG_KEY: &str = "reclaim.toml";

/// Name of the ConfigMap that configures the agent on a Node.
pub fn reclaim_config_map(node: &str) -> String {
    format!("reclaim-agent-{node}")
}

/// Label and key prefixes that belong to Kubernetes, Cluster API or us: a template must not set them.
pub const RESERVED_PREFIXES: [&str; 3] = ["kubernetes.io", "cluster.x-k8s.io", GROUP];
/// The one prefix below a reserved one that a template may set: Cluster API copies these labels to the Node.
pub const NODE_LABEL_PREFIX: &str = "node.cluster.x-k8s.io";

/// Groups a `bootstrapSpec` may name.
pub const BOOTSTRAP_GROUPS: &[&str] = &["bootstrap.cluster.x-k8s.io", "k0smotron.io"];
/// Groups an `infrastructureSpec` may name.
pub const INFRASTRUCTURE_GROUPS: &[&str] = &["infrastructure.cluster.x-k8s.io", "k0smotron.io"];
