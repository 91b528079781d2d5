//! What must never happen, judged where requests arrive.

use fivespot_planner::drain::DrainAction;
use fivespot_planner::observed::Cluster;
use fivespot_planner::plan::{Action, Step};

use super::pass::Pass;
use super::state::{MachineState, ProviderState, Whose, World};

/// What holds always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    ChildrenAreStoredFirst,
    ShutdownIsStoredFirst,
    ReclaimIsStoredFirst,
    HeldIsLeftAlone,
    PodsAreAskedFirst,
    ForeignIsNotTouched,
    ReclaimedStaysAway,
    NothingIsLeftBehind,
    OneOfEachChild,
    NothingIsMadeInVain,
    PausedIsLeftAlone,
}

/// Whether a request takes something from a machine, or from those who use it.
fn takes(step: &Step) -> bool {
    matches!(
        step,
        Step::EvictPods(_)
            | Step::Run(Action::DeleteMachine { .. } | Action::Cordon | Action::DeletePods(_) | Action::DeleteAllPods)
    )
}

impl World {
    pub(crate) fn break_rule(&mut self, rule: Rule) {
        self.broken = self.broken.or(Some(rule));
    }

    /// What takes something from a machine has its reason, by what the pass saw, and its reason is stored.
    pub(crate) fn judge(&mut self, pass: &Pass, step: &Step) {
        let (Some(asked), Some(object)) = (pass.view.caches.object.map(|it| it.asked), self.object) else { return };
        if !takes(step) || self.is_not_ours_to_judge(step) || asked.killed {
            return;
        }
        if pass.view.is_reclaimed() {
            if !object.is_reclaiming() {
                self.break_rule(Rule::ReclaimIsStoredFirst);
            }
            return;
        }
        let held = !asked.enabled || !asked.readable;
        if held && !asked.deleted {
            self.break_rule(Rule::HeldIsLeftAlone);
        }
        if pass.view.there.cluster == Cluster::Paused {
            self.break_rule(Rule::PausedIsLeftAlone);
        }
        if object.shutdown.is_none() {
            self.break_rule(Rule::ShutdownIsStoredFirst);
        }
        if matches!(step, Step::Run(Action::DeleteMachine { .. })) && self.is_undrained(pass) {
            self.break_rule(Rule::PodsAreAskedFirst);
        }
    }

    /// Whether a delete is meant for another Machine than ours, so that nothing comes of it or something worse does.
    fn is_not_ours_to_judge(&self, step: &Step) -> bool {
        let is_ours = |uid: &str| self.there.our_machine().is_some_and(|it| it.uid.to_string() == uid);
        matches!(step, Step::Run(Action::DeleteMachine { uid }) if !is_ours(uid))
    }

    /// Whether a pod that nobody asked is on the Node, though its time to leave is not up.
    fn is_undrained(&self, pass: &Pass) -> bool {
        let joined = pass.view.there.machine.is_some_and(|it| it.joined) && self.there.node.is_some();
        let in_time = self.object.is_some_and(|it| it.shutdown == Some(pass.view.instant));
        joined && in_time && self.there.pod == Some(DrainAction::Evict)
    }

    /// A request changes or deletes this Machine, or its Node, or a pod on it. A Machine keeps its uid when it is taken
    /// over, so a request that is under way then, or made from a cache that has not heard of it, cannot be stopped by it.
    pub(crate) fn touch_machine(&mut self, pass: &Pass, machine: MachineState) {
        let unheard = machine.whose == Whose::TakenOver && pass.view.sees_as_ours(machine.uid);
        if machine.whose != Whose::Ours && !unheard {
            self.break_rule(Rule::ForeignIsNotTouched);
        }
    }

    /// A request deletes a provider object, which was foreign when it was looked at or was not.
    pub(crate) fn touch_provider(&mut self, pass: &Pass, seen: Option<ProviderState>) {
        if seen.is_none_or(|it| pass.view.there.is_foreign(it)) {
            self.break_rule(Rule::ForeignIsNotTouched);
        }
    }
}
