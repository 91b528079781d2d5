//! Making children and taking them away. What is deleted or marked is named by its uid; what is created may be there
//! already.

use fivespot_planner::observed::{Cluster, Exclusions};

use super::super::pass::Pass;
use super::super::rules::Rule;
use super::super::state::{MachineState, ProviderState, There, Whose, World};
use super::Answer;

type Place = fn(&mut There) -> &mut Option<ProviderState>;

impl World {
    fn is_it_stored_first(&mut self) {
        if !self.object.is_some_and(|it| it.finalizer && it.refs) {
            self.break_rule(Rule::ChildrenAreStoredFirst);
        }
    }

    pub(super) fn create_provider(&mut self, place: Place) -> Answer {
        self.is_it_stored_first();
        let child = place(&mut self.there);
        match child {
            None => {
                *child = Some(ProviderState::new(Whose::Ours));
                Answer::Done
            }
            Some(child) if child.whose != Whose::Ours => Answer::Taken,
            Some(child) if child.deleting => Answer::Outdated,
            // There already, and ours: an answer was lost on its way back, or the cache lags behind.
            Some(_) => Answer::Done,
        }
    }

    pub(super) fn create_machine(&mut self, pass: &Pass) -> Answer {
        self.is_it_stored_first();
        match self.there.machine {
            None => {
                if !self.wanted_again {
                    self.break_rule(Rule::ReclaimedStaysAway);
                }
                if pass.view.there.cluster != Cluster::Present || pass.view.waits {
                    self.break_rule(Rule::NothingIsMadeInVain);
                }
                let fresh = ProviderState::new(Whose::Ours);
                if [self.there.bootstrap, self.there.infrastructure] != [Some(fresh); 2] {
                    self.break_rule(Rule::OneOfEachChild);
                }
                self.made += 1;
                self.there.machine = Some(MachineState::new(self.made, Whose::Ours));
                Answer::Done
            }
            Some(machine) if !machine.is_ours() => Answer::Taken,
            Some(machine) if machine.deleting => Answer::Outdated,
            Some(_) => Answer::Done,
        }
    }

    pub(super) fn annotate_machine(&mut self, pass: &Pass, uid: &str, exclusions: Option<Exclusions>) -> Answer {
        self.change_machine(pass, uid, |machine| {
            machine.exclusions = exclusions.map_or(Exclusions::default(), |exclusions| Exclusions {
                node_drain: machine.exclusions.node_drain || exclusions.node_drain,
                volume_detach: machine.exclusions.volume_detach || exclusions.volume_detach,
            });
        })
    }

    pub(super) fn delete_machine(&mut self, pass: &Pass, uid: &str) -> Answer {
        self.change_machine(pass, uid, |machine| machine.deleting = true)
    }

    fn change_machine(&mut self, pass: &Pass, uid: &str, change: impl FnOnce(&mut MachineState)) -> Answer {
        match self.there.machine {
            None => Answer::Done,
            Some(machine) if machine.uid.to_string() != uid => Answer::Outdated,
            Some(mut machine) => {
                self.touch_machine(pass, machine);
                change(&mut machine);
                self.there.machine = Some(machine);
                Answer::Done
            }
        }
    }

    pub(super) fn delete_provider(&mut self, pass: &Pass, place: Place, uid: &str) -> Answer {
        match *place(&mut self.there) {
            None => Answer::Done,
            Some(child) if child.uid() != uid => Answer::Outdated,
            Some(child) => {
                self.touch_provider(pass, *place(&mut pass.view.there.clone()));
                *place(&mut self.there) = Some(ProviderState { deleting: true, ..child });
                Answer::Done
            }
        }
    }
}
