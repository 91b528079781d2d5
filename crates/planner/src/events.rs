//! Kubernetes events: one for each transition, never one for each reconcile.

use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub reason: Reason,
    pub note: String,
    /// When it happened, if that follows from the cluster's state; otherwise when it was decided. An event with the same
    /// time and reason is the same event, whichever process publishes it.
    pub at: Option<Timestamp>,
}

impl Event {
    pub fn new(reason: Reason, note: impl Into<String>) -> Self {
        Event { reason, note: note.into(), at: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

macro_rules! reasons {
    ($($type:ident: $($(#[$doc:meta])* $reason:ident),+;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($($(#[$doc])* $reason,)+)+ }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$($(Reason::$reason,)+)+];

            /// The reason on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $($(Reason::$reason => stringify!($reason),)+)+ }
            }

            pub fn event_type(self) -> EventType {
                match self { $($(Reason::$reason => EventType::$type,)+)+ }
            }
        }
    };
}

reasons! {
    Normal:
        MachineCreated,
        MachineDeleted,
        /// The window opened and the children exist.
        ScheduleActivated,
        /// The window closed and the shutdown started.
        ScheduleDeactivated,
        ScheduleDisabled,
        KillSwitchReset,
        /// The window reopened before the Machine was deleted.
        ShutdownCancelled;
    Warning:
        KillSwitchActivated,
        EmergencyReclaim,
        /// The controller disabled the schedule because of an emergency reclaim.
        EmergencyReclaimDisabledSchedule,
        DrainTimedOut,
        CreationFailed,
        DeletionFailed,
        InvalidSpec,
        /// Another client's taint has the key and effect of a desired one.
        TaintOwnershipConflict;
}
