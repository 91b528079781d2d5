//! What a person asks for that always parses.
//!
//! A spec with a mistake in its cron expression must not stop anybody from deleting the object, pulling the machine out
//! or disabling the schedule, so these are read apart from the rest of the spec.

use fivespot_api::ScheduledMachine;
use fivespot_schedule::parse_duration;
use jiff::{SignedDuration, Timestamp};

use crate::agent::orders;

/// What holds where a timeout does not parse: the default of the field.
const DEFAULT_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// The switches of an object, and its timeouts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch that a person sets by itself")]
pub struct Intent {
    /// The object is being deleted.
    pub deleted: bool,
    /// `killSwitch` is on.
    pub killed: bool,
    /// The schedule is enabled.
    pub enabled: bool,
    /// What the reclaim agent is told to look for, if `killIfCommands` names programs: only then a request of its counts.
    pub orders: Option<String>,
    /// How long a shutdown may take in all.
    pub graceful_shutdown_timeout: SignedDuration,
    /// How long pods may take to leave.
    pub node_drain_timeout: SignedDuration,
}

impl Intent {
    /// Reads the switches of an object.
    pub fn of(object: &ScheduledMachine) -> Self {
        let spec = &object.spec;
        let timeout = |text: &str| parse_duration(text).unwrap_or(DEFAULT_TIMEOUT);
        Intent {
            deleted: object.metadata.deletion_timestamp.is_some(),
            killed: spec.kill_switch,
            enabled: spec.schedule.enabled,
            orders: orders(spec.kill_if_commands.as_deref().unwrap_or_default()),
            graceful_shutdown_timeout: timeout(&spec.graceful_shutdown_timeout),
            node_drain_timeout: timeout(&spec.node_drain_timeout),
        }
    }

    /// How long pods may take to leave, which is never longer than all of the shutdown.
    pub fn drain_timeout(&self) -> SignedDuration {
        self.node_drain_timeout.min(self.graceful_shutdown_timeout)
    }

    /// Whether a shutdown that began then should have been over.
    pub fn is_overdue(&self, began: Timestamp, now: Timestamp) -> bool {
        now.duration_since(began) > self.graceful_shutdown_timeout
    }
}
