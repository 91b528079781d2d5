//! The Node and its pod, in the workload cluster. A write is computed anew from the Node as it is, so that nothing of
//! somebody else's is overwritten.

use fivespot_planner::drain::DrainAction;
use fivespot_planner::observed::Cordon;
use fivespot_planner::plan::{Action, Step};

use super::super::pass::Pass;
use super::super::state::{Reach, World};
use super::Answer;

impl World {
    pub(super) fn act_on_node(&mut self, pass: &Pass, step: &Step) -> Answer {
        if self.there.reach != Reach::Connected {
            return Answer::Silence;
        }
        let Some(mut node) = self.there.node else { return Answer::Done };
        if let Some(machine) = self.there.machine.filter(|it| it.uid == node.of) {
            self.touch_machine(pass, machine);
        }
        match (step, node.cordon) {
            (Step::Run(Action::Cordon), Cordon::Schedulable | Cordon::Reverted) => node.cordon = Cordon::ByController,
            (Step::Run(Action::Uncordon), Cordon::ByController | Cordon::Reverted) => node.cordon = Cordon::Schedulable,
            (Step::Run(Action::ClearReclaimRequest), _) => node.request = false,
            (Step::RollOutAgent { .. }, _) => node.agent = true,
            (Step::Run(Action::WithdrawAgent), _) => node.agent = false,
            (Step::EvictPods(_), _) => self.there.pod = self.there.pod.map(|_| DrainAction::Wait),
            (Step::Run(Action::DeletePods(_) | Action::DeleteAllPods), _) => self.there.pod = None,
            _ => {}
        }
        self.there.node = Some(node);
        Answer::Done
    }
}
