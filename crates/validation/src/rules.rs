//! The message of every rule. The API server, the conditions of the controller and `kubectl 5spot lint` use the same message.
//!
//! "Rule 1" to "Rule 13" are the rules of the documented admission policy, whose messages are fixed. Every message names the
//! field by its path.

use fivespot_api::keys;

/// Rule 1.
pub const CLUSTER_NAME_EMPTY: &str = "spec.clusterName must not be empty";
/// The name becomes the value of the cluster name label of Cluster API.
pub const CLUSTER_NAME_FORMAT: &str = "spec.clusterName must be a valid label value: at most 63 letters, digits, '-', '_' \
                                     or '.', beginning and ending with a letter or digit";

/// The rules of a duration field.
#[derive(Debug)]
pub struct DurationRules {
    pub field: &'static str,
    pub format: &'static str,
    pub bound: &'static str,
}

/// Rule 2.
pub const GRACEFUL_SHUTDOWN_TIMEOUT: DurationRules = DurationRules {
    field: "spec.gracefulShutdownTimeout",
    format: "spec.gracefulShutdownTimeout must be a duration string such as '5m', '30s', or '1h'",
    bound: "spec.gracefulShutdownTimeout must be at most 24h",
};
/// Rule 3.
pub const NODE_DRAIN_TIMEOUT: DurationRules = DurationRules {
    field: "spec.nodeDrainTimeout",
    format: "spec.nodeDrainTimeout must be a duration string such as '5m', '30s', or '1h'",
    bound: "spec.nodeDrainTimeout must be at most 24h",
};

/// Rule 4.
pub const CRON_OR_WINDOW: &str = "spec.schedule: cron is mutually exclusive with daysOfWeek and hoursOfDay";
/// Rule 5.
pub const WINDOW_COMPLETE: &str = "spec.schedule: both daysOfWeek and hoursOfDay must be non-empty";
/// Rule 6.
pub const DAYS_FORMAT: &str =
    "spec.schedule.daysOfWeek must be day names or ranges (e.g. 'mon', 'mon-fri', 'mon-wed,fri-sun')";
/// Rule 7.
pub const HOURS_FORMAT: &str = "spec.schedule.hoursOfDay must be hours or ranges (e.g. '9', '9-17', '0-9,18-23')";
pub const CRON_FORMAT: &str = "spec.schedule.cron must be a cron expression of five fields (e.g. '0 9-17 * * 1-5')";
pub const WINDOW_DURATION: &str = "spec.schedule.duration must be a duration string such as '90m' or '9h', at most 24h, \
                                   and requires cron";
pub const TIMEZONE: &str = "spec.schedule.timezone must be an IANA time zone (e.g. 'America/New_York', 'UTC')";
pub const OVERRIDES: &str = "spec.schedule.overrides must have RFC 3339 timestamps or local dates (e.g. \
                             '2026-12-24T12:00:00Z', '2026-12-24') as from and until, and until must be later than from";

/// The rules of an inline object.
#[derive(Debug)]
pub struct InlineRules {
    pub field: &'static str,
    /// API groups that the object may use.
    pub groups: &'static [&'static str],
    /// Rules 8 and 11.
    pub group_present: &'static str,
    /// Rules 9 and 12.
    pub group_allowed: &'static str,
    /// Rules 10 and 13.
    pub kind_present: &'static str,
    /// Kinds that are shared between machines or contain credentials.
    pub kind_allowed: &'static str,
    pub namespace: &'static str,
    /// The provider assigns the ID; setting it would claim another machine.
    pub provider_id: &'static str,
    pub size: &'static str,
    pub shape: &'static str,
}

/// Rules 8 to 10.
pub const BOOTSTRAP: InlineRules = InlineRules {
    field: "spec.bootstrapSpec",
    groups: keys::BOOTSTRAP_GROUPS,
    group_present: "spec.bootstrapSpec.apiVersion must use a namespaced API group",
    group_allowed: "spec.bootstrapSpec.apiVersion must be from an allowed group: bootstrap.cluster.x-k8s.io or \
                    k0smotron.io, with a version such as 'v1beta1'",
    kind_present: "spec.bootstrapSpec.kind must not be empty",
    kind_allowed: "spec.bootstrapSpec.kind must not end in 'Template', 'Cluster' or 'Identity' and must not be \
                   'JoinTokenRequest'",
    namespace: "spec.bootstrapSpec.namespace must be empty or the namespace of the ScheduledMachine",
    provider_id: "spec.bootstrapSpec.spec must not set providerID",
    size: "spec.bootstrapSpec.spec must be at most 64 KiB of JSON",
    shape: "spec.bootstrapSpec.spec must be nested at most 32 levels deep, with at most 1000 entries in each list or object",
};
/// Rules 11 to 13.
pub const INFRASTRUCTURE: InlineRules = InlineRules {
    field: "spec.infrastructureSpec",
    groups: keys::INFRASTRUCTURE_GROUPS,
    group_present: "spec.infrastructureSpec.apiVersion must use a namespaced API group",
    group_allowed: "spec.infrastructureSpec.apiVersion must be from an allowed group: infrastructure.cluster.x-k8s.io or \
                    k0smotron.io, with a version such as 'v1beta1'",
    kind_present: "spec.infrastructureSpec.kind must not be empty",
    kind_allowed: "spec.infrastructureSpec.kind must not end in 'Template', 'Cluster' or 'Identity' and must not be \
                   'JoinTokenRequest'",
    namespace: "spec.infrastructureSpec.namespace must be empty or the namespace of the ScheduledMachine",
    provider_id: "spec.infrastructureSpec.spec must not set providerID",
    size: "spec.infrastructureSpec.spec must be at most 64 KiB of JSON",
    shape: "spec.infrastructureSpec.spec must be nested at most 32 levels deep, with at most 1000 entries in each list or object",
};

pub const TEMPLATE_RESERVED: &str = "spec.machineTemplate must not use label or annotation keys of kubernetes.io, \
                                     cluster.x-k8s.io or 5spot.finos.org, except labels of node.cluster.x-k8s.io";
pub const TEMPLATE_FORMAT: &str = "spec.machineTemplate must use qualified names as label and annotation keys, and valid \
                                 label values";
pub const TEMPLATE_VERSION: &str = "spec.machineTemplate.version must be a Kubernetes version such as 'v1.33.2'";

/// Nearly every command line contains a blank, and none contains a NUL.
pub const COMMAND_FORMAT: &str =
    "spec.killIfCommands must not contain entries that are blank or contain a NUL character";

pub const TAINT_KEY_FORMAT: &str = "spec.nodeTaints must use qualified names as keys: an optional DNS prefix and '/', then \
                                  at most 63 letters, digits, '-', '_' or '.'";
/// Prefixes of taints that Kubernetes or 5-Spot set.
pub const RESERVED_TAINT_PREFIXES: [&str; 4] =
    [keys::GROUP, "kubernetes.io", "node.kubernetes.io", "node-role.kubernetes.io"];
pub const TAINT_KEY_RESERVED: &str = "spec.nodeTaints must not use the reserved prefixes 5spot.finos.org/, \
                                      kubernetes.io/, node.kubernetes.io/ or node-role.kubernetes.io/";
pub const TAINT_VALUE_FORMAT: &str = "spec.nodeTaints must use valid label values as values: at most 63 letters, digits, \
                                    '-', '_' or '.', beginning and ending with a letter or digit";
pub const TAINT_UNIQUE: &str = "spec.nodeTaints must not contain the same key and effect more than once";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_list_allowed_groups_and_reserved_prefixes() {
        for rules in [BOOTSTRAP, INFRASTRUCTURE] {
            assert!(rules.groups.iter().all(|it| rules.group_allowed.contains(it)), "{}", rules.group_allowed);
        }
        assert!(RESERVED_TAINT_PREFIXES.iter().all(|it| TAINT_KEY_RESERVED.contains(&format!(" {it}/"))));
        assert!(keys::RESERVED_PREFIXES.iter().all(|it| TEMPLATE_RESERVED.contains(it)));
        assert!(TEMPLATE_RESERVED.contains(keys::NODE_LABEL_PREFIX));
    }

    #[test]
    fn controller_role_covers_allowed_groups() {
        let roles = include_str!("../../../deploy/controller/rbac.yaml");
        for group in BOOTSTRAP.groups.iter().chain(INFRASTRUCTURE.groups) {
            assert!(roles.contains(&format!("\"{group}\"")), "deploy/controller/rbac.yaml does not contain {group}");
        }
    }
}
