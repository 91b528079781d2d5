//! Condition types of a ScheduledMachine, with their reasons.
//!
//! Every condition type is an enum of its reasons, and a reason implies the status of the condition: `Ready=True` with the
//! reason `ShuttingDown` cannot be expressed. [`set`] is the only function that changes a list of conditions, and
//! `lastTransitionTime` changes only when the status does.
//!
//! ```
//! use fivespot_api::conditions::{NewCondition, Ready, set};
//!
//! let mut conditions = Vec::new();
//! set(&mut conditions, NewCondition::new(Ready::Provisioning, "Waiting for the Node", Some(1)), "2026-01-01T09:00:00Z".parse()?);
//! assert_eq!(conditions[0].status, "False");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A reason of a condition type.
pub trait Reason: Copy {
    /// The condition type, as it appears in the status.
    const CONDITION: &'static str;

    /// What the condition type indicates, for the API reference.
    const DESCRIPTION: &'static str;

    /// The reason, as it appears in the status.
    fn as_str(self) -> &'static str;

    /// The condition status that the reason implies.
    fn status(self) -> ConditionStatus;
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// The condition applies.
    True,
    /// The condition does not apply.
    False,
    /// The controller cannot determine whether the condition applies.
    Unknown,
}

impl ConditionStatus {
    /// The status, as it appears in the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

macro_rules! conditions {
    ($($(#[doc = $doc:literal])+ $name:ident { $($status:ident: $($reason:ident),+;)+ })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            #[allow(missing_docs, reason = "the API reference lists the reasons, the troubleshooting guide explains them")]
            pub enum $name { $($($reason,)+)+ }

            impl $name {
                /// All reasons of this condition.
                pub const ALL: &'static [$name] = &[$($($name::$reason,)+)+];
            }

            impl Reason for $name {
                const CONDITION: &'static str = stringify!($name);
                const DESCRIPTION: &'static str = concat!($($doc),+).trim_ascii();

                fn as_str(self) -> &'static str {
                    match self { $($($name::$reason => stringify!($reason),)+)+ }
                }

                fn status(self) -> ConditionStatus {
                    match self { $($($name::$reason => ConditionStatus::$status,)+)+ }
                }
            }
        )+

        /// Returns every condition type with its description.
        pub fn descriptions() -> Vec<(&'static str, &'static str)> {
            vec![$(($name::CONDITION, $name::DESCRIPTION)),+]
        }

        /// Returns every reason of every condition type, as (condition type, status, reason).
        pub fn table() -> Vec<(&'static str, ConditionStatus, &'static str)> {
            let mut rows = Vec::new();
            $(rows.extend($name::ALL.iter().map(|reason| ($name::CONDITION, reason.status(), reason.as_str())));)+
            rows
        }
    };
}

conditions! {
    /// Ready indicates that the machine is part of the cluster and healthy.
    Ready {
        True: MachineRunning;
        False: Provisioning, ScheduleInactive, ScheduleDisabled, ShuttingDown, KillSwitchActive, EmergencyReclaim,
            InvalidSpec, Error;
    }

    /// Stalled indicates that only an edit of the spec lets the controller proceed. The condition is absent otherwise.
    Stalled {
        True: InvalidSpec;
    }

    /// Scheduled indicates that the schedule is enabled and open.
    Scheduled {
        True: ScheduleActive;
        False: ScheduleInactive, ScheduleDisabled, EmergencyReclaimDisabledSchedule, InvalidSchedule;
    }

    /// MachineReady indicates that the Machine is running and its Node is Ready.
    MachineReady {
        True: MachineReady;
        False: MachineNotReady, MachineFailed, NoMachine;
        Unknown: WorkloadClusterUnreachable;
    }

    /// ReferencesValid indicates that everything the spec refers to exists and may be used.
    ReferencesValid {
        True: Valid, ValidNextWindow;
        False: InvalidSpec, GroupNotAllowed, KindNotFound, NamespaceNotAllowed, NameConflict, ClusterNotFound,
            ClusterDeleting, ClusterPaused;
    }

    /// NodeTainted indicates that the taints in spec.nodeTaints are applied to the Node.
    NodeTainted {
        True: Applied;
        False: NodeNotReady, PatchFailed, TaintOwnershipConflict;
        Unknown: NoNodeYet;
    }
}

/// Adds a condition, or replaces the condition of the same type.
///
/// `lastTransitionTime` becomes `now` if the condition is new or its status differs, and is kept otherwise.
pub fn set(conditions: &mut Vec<Condition>, new: NewCondition, now: Timestamp) {
    let transition = |previous: Option<&Condition>| match previous {
        Some(previous) if previous.status == new.status.as_str() => previous.last_transition_time.clone(),
        Some(_) | None => Time(now),
    };
    let position = conditions.iter().position(|condition| condition.type_ == new.condition);
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

/// A condition without its transition time, which [`set`] determines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition {
    condition: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
    observed_generation: Option<i64>,
}

impl NewCondition {
    /// Creates a condition with the status that `reason` implies.
    pub fn new<R: Reason>(reason: R, message: impl Into<String>, observed_generation: Option<i64>) -> Self {
        NewCondition {
            condition: R::CONDITION,
            status: reason.status(),
            reason: reason.as_str(),
            message: bounded(message.into()),
            observed_generation,
        }
    }
}

/// Limit of a message, in bytes. Some messages quote texts of users and of servers.
const MAX_MESSAGE_LEN: usize = 4096;

/// Shortens a message that is too long for a status.
pub fn bounded(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_LEN {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_LEN));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn transition_time_changes_only_with_status() {
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
    fn long_message_is_shortened() {
        let mut conditions = Vec::new();
        let message = "é".repeat(MAX_MESSAGE_LEN);
        set(&mut conditions, NewCondition::new(Ready::Error, message, None), at("2026-01-01T00:00:00Z"));
        assert!(
            conditions[0].message.len() <= MAX_MESSAGE_LEN + '…'.len_utf8() && conditions[0].message.ends_with("é…")
        );
        assert_eq!(bounded("short".to_owned()), "short");
    }

    #[test]
    fn condition_types_are_independent() {
        let mut conditions = Vec::new();
        set(&mut conditions, NewCondition::new(Ready::Error, "", None), at("2026-01-01T00:00:00Z"));
        set(&mut conditions, NewCondition::new(NodeTainted::NoNodeYet, "", None), at("2026-01-01T00:00:00Z"));
        let seen: Vec<_> = conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        assert_eq!(seen, [("Ready", "False"), ("NodeTainted", "Unknown")]);
    }

    /// The API server rejects reasons with other characters.
    #[test]
    fn reasons_are_alphanumeric() {
        for (_, _, reason) in table() {
            assert!(reason.chars().all(|c| c.is_ascii_alphanumeric()), "{reason}");
        }
    }
}
