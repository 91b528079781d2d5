//! The conditions of a ScheduledMachine: which there are, which reasons each has, and which status a reason means.
//!
//! A reason decides its status, so nobody can report `Ready=True` because of a shutdown.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A reason of one condition, with the status it stands for.
pub trait Reason: Copy {
    /// Type of the condition on the wire.
    const CONDITION: &'static str;

    /// The reason on the wire.
    fn as_str(self) -> &'static str;

    /// The status that goes with the reason.
    fn status(self) -> ConditionStatus;
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It cannot be said.
    Unknown,
}

impl ConditionStatus {
    /// The status on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident { $($status:ident: $($reason:ident),+;)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[allow(missing_docs, reason = "the names are the documentation, and the reference lists them")]
            pub enum $name { $($($reason,)+)+ }

            impl $name {
                /// All reasons of this condition.
                pub const ALL: &'static [$name] = &[$($($name::$reason,)+)+];
            }

            impl Reason for $name {
                const CONDITION: &'static str = stringify!($name);

                fn as_str(self) -> &'static str {
                    match self { $($($name::$reason => stringify!($reason),)+)+ }
                }

                fn status(self) -> ConditionStatus {
                    match self { $($($name::$reason => ConditionStatus::$status,)+)+ }
                }
            }
        )+

        /// Every condition with its reasons, as (condition, status, reason): what the reference prints.
        pub fn table() -> Vec<(&'static str, ConditionStatus, &'static str)> {
            let mut rows = Vec::new();
            $(rows.extend($name::ALL.iter().map(|it| ($name::CONDITION, it.status(), it.as_str())));)+
            rows
        }
    };
}

conditions! {
    /// Whether the machine does what the spec asks for right now.
    Ready {
        True: MachineRunning;
        False: Provisioning, ScheduleInactive, ScheduleDisabled, ShuttingDown, KillSwitchActive, EmergencyReclaim,
            InvalidSpec, Error;
    }

    /// Whether the schedule is open.
    Scheduled {
        True: ScheduleActive;
        False: ScheduleInactive, ScheduleDisabled, EmergencyReclaimDisabledSchedule, InvalidSchedule;
    }

    /// What Cluster API says of the Machine.
    MachineReady {
        True: MachineReady;
        False: MachineNotReady, MachineFailed, NoMachine;
        Unknown: WorkloadClusterUnreachable;
    }

    /// Whether what the spec names exists and may be used.
    ReferencesValid {
        True: Valid, ValidNextWindow;
        False: InvalidSpec, GroupNotAllowed, KindNotFound, NamespaceNotAllowed, NameConflict, ClusterNotFound,
            ClusterDeleting, ClusterPaused;
    }

    /// Whether the taints of the spec are on the Node.
    NodeTainted {
        True: Applied;
        False: NodeNotReady, PatchFailed, TaintOwnershipConflict;
        Unknown: NoNodeYet;
    }
}

/// Sets one condition: the only place that moves `lastTransitionTime`, and it does so only when the status changes.
pub fn set(conditions: &mut Vec<Condition>, new: NewCondition, now: Timestamp) {
    let transition = |previous: Option<&Condition>| match previous {
        Some(previous) if previous.status == new.status.as_str() => previous.last_transition_time.clone(),
        Some(_) | None => Time(now),
    };
    let position = conditions.iter().position(|it| it.type_ == new.condition);
    let condition = Condition {
        last_transition_time: transition(position.map(|at| &conditions[at])),
        message: new.message,
        observed_generation: new.observed_generation,
        reason: new.reason.to_owned(),
        status: new.status.as_str().to_owned(),
        type_: new.condition.to_owned(),
    };
    match position {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// A condition before it has a transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    condition: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
    observed_generation: Option<i64>,
}

impl NewCondition {
    /// A condition whose status follows from its reason.
    pub fn new<R: Reason>(reason: R, message: impl Into<String>, observed_generation: Option<i64>) -> Self {
        NewCondition {
            condition: R::CONDITION,
            status: reason.status(),
            reason: reason.as_str(),
            message: message.into(),
            observed_generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, NewCondition::new(Ready::Provisioning, "a", Some(1)), at("2026-01-01T00:00:00Z"));
        set(&mut conditions, NewCondition::new(Ready::ShuttingDown, "b", Some(2)), at("2026-01-01T01:00:00Z"));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].reason, "ShuttingDown");
        assert_eq!(conditions[0].message, "b");
        assert_eq!(conditions[0].observed_generation, Some(2));
        assert_eq!(conditions[0].last_transition_time.0, at("2026-01-01T00:00:00Z"));

        set(&mut conditions, NewCondition::new(Ready::MachineRunning, "c", Some(2)), at("2026-01-01T02:00:00Z"));
        assert_eq!(conditions[0].status, "True");
        assert_eq!(conditions[0].last_transition_time.0, at("2026-01-01T02:00:00Z"));
    }

    #[test]
    fn conditions_of_different_types_live_side_by_side() {
        let mut conditions = Vec::new();
        set(&mut conditions, NewCondition::new(Ready::Error, "", None), at("2026-01-01T00:00:00Z"));
        set(&mut conditions, NewCondition::new(NodeTainted::NoNodeYet, "", None), at("2026-01-01T00:00:00Z"));
        let seen: Vec<_> = conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        assert_eq!(seen, [("Ready", "False"), ("NodeTainted", "Unknown")]);
    }

    /// The API server refuses a condition whose reason is not of this form.
    #[test]
    fn every_reason_is_one_the_api_server_takes() {
        for (_, _, reason) in table() {
            assert!(reason.chars().all(|it| it.is_ascii_alphanumeric()), "{reason}");
        }
    }
}
