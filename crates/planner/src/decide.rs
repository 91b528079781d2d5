//! From what is asked for and what is there to what is done: one pure function that never fails and never waits.
//!
//! Who is asked decides the end: a deletion comes before an emergency reclaim under way, that before the kill switch, that
//! before a disabled schedule, and that before the schedule. How fast the machine goes is the fastest that anybody asks
//! for. What cannot be read of a spec stops none of the first four.

mod aim;
mod hold;
mod projection;
mod reclaim;
mod removal;
mod run;
mod standing;
mod tainting;

#[cfg(test)]
mod tests;

use jiff::Timestamp;

use crate::intent::Intent;
use crate::observed::Observed;
use crate::plan::{Decision, Look, Plan, Standing};
use fivespot_validation::validate::{SpecErrors, ValidSpec};

use aim::Aim;

/// What can be said, or what has to be read before it can.
type Sight<T> = Result<T, Look>;

/// Everything a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// What a person asks for that always parses.
    pub intent: &'a Intent,
    /// The rest of the spec, if it parses.
    pub spec: Result<&'a ValidSpec, &'a SpecErrors>,
    /// What is there.
    pub seen: &'a Observed,
    /// What time it is.
    pub now: Timestamp,
}

impl Situation<'_> {
    /// When the schedule changes next.
    pub fn boundary(&self) -> Option<Timestamp> {
        self.spec.ok().and_then(|spec| spec.schedule.next_change(self.now))
    }
}

/// Where an object stands of which nobody could find out what to do.
pub fn unknown(situation: &Situation<'_>) -> Standing {
    Standing { references: standing::references(situation), ..Standing::unknown() }
}

/// Decides what one pass does, or what it has to look at first. Each look is asked for once: what has been read is not
/// asked for again.
pub fn decide(situation: Situation<'_>) -> Decision {
    let plan = match Aim::of(&situation) {
        Aim::Remove(removal) => removal::plan(&situation, removal),
        Aim::Hold => hold::plan(&situation),
        Aim::Run => run::plan(&situation),
        Aim::LeaveAlone(errors) => hold::leave_alone(&situation, errors),
    };
    match plan {
        Ok(plan) => {
            // Whatever else it waits for: when the schedule changes, there is something to say.
            let wake_at = plan.wake_at.into_iter().chain(situation.boundary()).min();
            let mut actions = plan.actions;
            // A reclaim does the same in its own order.
            if !reclaim::is_under_way(&situation) {
                actions.extend(projection::plan(&situation));
                actions.extend(reclaim::clear(&situation));
            }
            Decision::Do(Box::new(Plan { actions, wake_at, ..plan }))
        }
        Err(look) => Decision::Look(look),
    }
}
