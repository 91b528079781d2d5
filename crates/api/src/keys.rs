//! Names on the wire: API group, labels, annotations, finalizer, field manager. Each is defined only here.

/// API group of [`ScheduledMachine`](crate::ScheduledMachine).
pub const GROUP: &str = "5spot.finos.org";
/// API version of [`ScheduledMachine`](crate::ScheduledMachine).
pub const VERSION: &str = "v1alpha1";

/// Finalizer of a ScheduledMachine. The controller removes it when the Machine, bootstrap and infrastructure objects no
/// longer exist.
pub const FINALIZER: &str = "5spot.finos.org/scheduledmachine";
/// Annotation of a ScheduledMachine: the provider objects that the controller is about to create. It is written together
/// with the finalizer, and counts until the status includes it.
pub const CHILDREN_ANNOTATION: &str = "5spot.finos.org/children";
/// Label of every child: the name of its ScheduledMachine, shortened if it exceeds the length of a label value.
pub const SCHEDULED_MACHINE_LABEL: &str = "5spot.finos.org/scheduled-machine";
/// Annotation of every child: the uid of its ScheduledMachine. It identifies the owner even if the ownerReference was removed.
pub const OWNER_UID_ANNOTATION: &str = "5spot.finos.org/owner-uid";
/// Annotation of every child: a hash of the spec that the child was created from. It differs if the spec was edited since.
pub const SPEC_HASH_ANNOTATION: &str = "5spot.finos.org/spec-hash";

/// Node label that selects the Node for the DaemonSet of the reclaim agent.
pub const RECLAIM_AGENT_LABEL: &str = "5spot.finos.org/reclaim-agent";
/// Value of [`RECLAIM_AGENT_LABEL`] that enables the agent; other values do not.
pub const RECLAIM_AGENT_ENABLED: &str = "enabled";
/// Node annotation: uid of the Machine that the agent was rolled out for. A reclaim request that was on the Node before is
/// left over from an earlier Machine.
pub const RECLAIM_AGENT_MACHINE_ANNOTATION: &str = "5spot.finos.org/reclaim-agent-machine";
/// Node annotation: the owner of the machine requests it back.
pub const RECLAIM_REQUESTED_ANNOTATION: &str = "5spot.finos.org/reclaim-requested";
/// Value of [`RECLAIM_REQUESTED_ANNOTATION`] that requests a reclaim; other values are ignored.
pub const RECLAIM_REQUESTED: &str = "true";
/// Node annotation: why the reclaim was requested.
pub const RECLAIM_REASON_ANNOTATION: &str = "5spot.finos.org/reclaim-reason";
/// Node annotation: when the reclaim was requested.
pub const RECLAIM_REQUESTED_AT_ANNOTATION: &str = "5spot.finos.org/reclaim-requested-at";
/// Node annotation: the taints that the controller applied.
pub const APPLIED_TAINTS_ANNOTATION: &str = "5spot.finos.org/applied-taints";
/// Node annotation: the controller cordoned the Node, and may therefore uncordon it.
pub const CORDONED_BY_ANNOTATION: &str = "5spot.finos.org/cordoned-by";

/// Lease annotation: the number of shards that its holder divides the objects into.
pub const INSTANCE_COUNT_ANNOTATION: &str = "5spot.finos.org/instance-count";
/// Lease annotation: the namespace that its holder watches; all if empty.
pub const WATCHED_NAMESPACE_ANNOTATION: &str = "5spot.finos.org/watched-namespace";
/// Lease annotation: the instance that prefers this shard requests it from its holder.
pub const REQUESTED_BY_ANNOTATION: &str = "5spot.finos.org/requested-by";

/// Annotation of every event: the reconcile that published it. The log lines of that reconcile have the same id.
pub const RECONCILE_ID_ANNOTATION: &str = "5spot.finos.org/reconcile-id";

/// Field manager of every write of the controller.
pub const FIELD_MANAGER: &str = "5spot-controller";

/// Key of the agent configuration in its ConfigMap.
pub const RECLAIM_CONFIG_KEY: &str = "reclaim.toml";

/// Returns the name of the ConfigMap with the agent configuration of a Node.
pub fn reclaim_config_map(node: &str) -> String {
    format!("reclaim-agent-{node}")
}

/// Label and annotation prefixes that belong to Kubernetes, Cluster API or 5-Spot. A machine template must not use them or
/// their subdomains.
pub const RESERVED_PREFIXES: [&str; 3] = ["kubernetes.io", "cluster.x-k8s.io", GROUP];
/// The subdomain of a reserved prefix that labels of a machine template may use: Cluster API copies these labels to the
/// Node.
pub const NODE_LABEL_PREFIX: &str = "node.cluster.x-k8s.io";

/// API groups that `bootstrapSpec` may use.
pub const BOOTSTRAP_GROUPS: &[&str] = &["bootstrap.cluster.x-k8s.io", "k0smotron.io"];
/// API groups that `infrastructureSpec` may use.
pub const INFRASTRUCTURE_GROUPS: &[&str] = &["infrastructure.cluster.x-k8s.io", "k0smotron.io"];
