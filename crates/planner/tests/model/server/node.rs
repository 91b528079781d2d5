//! The Node and its pod, in the workload cluster. A write is computed anew from the Node as it is, so that nothing of
//! somebody else's is overwritten.

use fivespot_planner::drain::Verdict;
use fivespot_planner::observed::Cordon;
use fivespot_planner::plan::Action;

use super::super::pass::Pass;
use super::super::state::{Reach, World};
use super::Answer;

impl World {
    pub(super) fn act_on_node(&mut self, pass: &Pass, action: &Action) -> Answer {
        if self.there.reach != Reach::Connected {
            return Answer::Silence;
        }
        let Some(mut node) = self.there.node else { return Answer::Done };
        if let Some(machine) = self.there.machine.filter(|it| it.uid == node.of) {
            self.touch_machine(pass, machine);
        }
        match (action, node.cordon) {
            (Action::Cordon, Cordon::Open | Cordon::Reopened) => node.cordon = Cordon::Ours,
            (Action::Uncordon, Cordon::Ours | Cordon::Reopened) => node.cordon = Cordon::Open,
            (Action::ClearRequest, _) => node.request = false,
            (Action::Project { .. }, _) => node.agent = true,
            (Action::Unproject, _) => node.agent = false,
            (Action::Evict(_), _) => self.there.pod = self.there.pod.map(|_| Verdict::Await),
            (Action::EndPods(_) | Action::EndAllPods, _) => self.there.pod = None,
            _ => {}
        }
        self.there.node = Some(node);
        Answer::Done
    }
}
