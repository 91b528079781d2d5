//! Writes of the ScheduledMachine. Each names the version that it was made from, and one made from an old version is
//! refused.

use fivespot_api::Phase;
use fivespot_planner::plan::DesiredStatus;

use super::super::pass::Pass;
use super::super::rules::Rule;
use super::super::state::{Object, Reclaim, World};
use super::super::view::index;
use super::Answer;

impl Object {
    /// The object when its status tells of this standing.
    pub(in super::super) fn with(self, standing: &DesiredStatus) -> Self {
        Object {
            phase: Some(standing.phase),
            refs: standing.refs.is_some(),
            shutdown: standing.shutdown_started_at.map(index),
            reclaim: standing.reclaim.as_ref().map(|it| Reclaim {
                machine: it.machine_uid.parse().unwrap(),
                schedule_disabled: it.schedule_disabled,
                in_progress: it.in_progress,
            }),
            ..self
        }
    }
}

impl World {
    fn write(&mut self, pass: &Pass, edit: impl FnOnce(&mut Object)) -> Answer {
        match &mut self.object {
            Some(object) if Some(*object) == pass.known => {
                edit(object);
                Answer::Done
            }
            Some(_) | None => Answer::Outdated,
        }
    }

    pub(super) fn store(&mut self, pass: &Pass, standing: &DesiredStatus) -> Answer {
        let reclaiming = |world: &World| world.object.is_some_and(Object::is_reclaiming);
        let before = reclaiming(self);
        let answer = self.write(pass, |object| *object = object.with(standing));
        if answer == Answer::Done && !before && reclaiming(self) {
            self.wanted_again = false;
        }
        answer
    }

    /// A reclaim is remembered by its phase, and goes on whatever fails meanwhile.
    pub(super) fn store_failure(&mut self, pass: &Pass) -> Answer {
        self.write(pass, |object| {
            object.phase = Some(if object.is_reclaiming() { Phase::EmergencyRemove } else { Phase::Error });
        })
    }

    pub(super) fn add_finalizer(&mut self, pass: &Pass) -> Answer {
        if self.object.is_some_and(|it| it.asked.deleted) {
            return Answer::Outdated;
        }
        self.write(pass, |object| object.finalizer = true)
    }

    pub(super) fn remove_finalizer(&mut self, pass: &Pass) -> Answer {
        let answer = self.write(pass, |object| object.finalizer = false);
        if answer == Answer::Done && !self.there.nothing_of_ours() {
            self.break_rule(Rule::NothingIsLeftBehind);
        }
        self.object = self.object.filter(|it| it.finalizer || !it.asked.deleted);
        answer
    }

    pub(super) fn disable_schedule(&mut self, pass: &Pass) -> Answer {
        self.write(pass, |object| object.asked.enabled = false)
    }
}
