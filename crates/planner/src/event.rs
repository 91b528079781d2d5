//! What is told to people as Kubernetes Events: one for each transition, never one for each pass.

mod transition;

pub use transition::transitions;

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it is.
    pub reason: Reason,
    /// The same in a sentence.
    pub note: String,
}

impl Event {
    /// An event with its sentence.
    pub fn new(reason: Reason, note: impl Into<String>) -> Self {
        Event { reason, note: note.into() }
    }
}

/// Whether an event tells of something that somebody should look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    /// It went as asked.
    Normal,
    /// It did not.
    Warning,
}

macro_rules! reasons {
    ($($weight:ident: $($(#[$doc:meta])* $reason:ident),+;)+) => {
        /// What an event tells.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($($(#[$doc])* $reason,)+)+ }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Reason] = &[$($(Reason::$reason,)+)+];

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $($(Reason::$reason => stringify!($reason),)+)+ }
            }

            /// Whether somebody should look at it.
            pub fn weight(self) -> Weight {
                match self { $($(Reason::$reason => Weight::$weight,)+)+ }
            }
        }
    };
}

reasons! {
    Normal:
        /// The Machine was created.
        MachineCreated,
        /// The Machine is gone.
        MachineDeleted,
        /// The window is open and the machine's objects exist.
        ScheduleActivated,
        /// The window has closed and the machine is on its way out.
        ScheduleDeactivated,
        /// Somebody disabled the schedule.
        ScheduleDisabled,
        /// Somebody turned the kill switch off.
        KillSwitchReset,
        /// The window reopened in time, and the machine stays.
        TakenBack;
    Warning:
        /// Somebody turned the kill switch on.
        KillSwitchActivated,
        /// The owner wants the machine back.
        EmergencyReclaim,
        /// The schedule was disabled, so that the machine does not come back by itself.
        EmergencyReclaimDisabledSchedule,
        /// Pods had their time and did not leave.
        DrainTimedOut,
        /// A child could not be created.
        CreationFailed,
        /// Something could not be removed.
        DeletionFailed,
        /// The spec does not say what is wanted.
        InvalidSpec,
        /// Somebody else's taint is where ours should be.
        TaintOwnershipConflict;
}
