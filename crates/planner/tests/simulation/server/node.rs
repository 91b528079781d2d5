//! The Node and its pod, in the workload cluster. A write is computed from the current Node, so it overwrites no change
//! of another client.

use fivespot_planner::observed::Cordon;

use super::super::reconcile::Reconcile;
use super::super::request::NodeRequest;
use super::super::state::{AgentState, Connection, PodState, World};
use super::Response;

impl World {
    pub(super) fn change_node(&mut self, reconcile: &Reconcile, request: NodeRequest) -> Response {
        if self.servers.connection != Connection::Connected {
            return Response::Unreachable;
        }
        let Some(mut node) = self.servers.node else { return Response::Unchanged };
        if let Some(machine) = self.servers.machine.filter(|it| it.uid == node.machine) {
            self.check_machine_is_managed(reconcile, machine);
        }
        match (request, node.cordon) {
            (NodeRequest::Cordon, Cordon::Schedulable | Cordon::Reverted) => node.cordon = Cordon::ByController,
            (NodeRequest::Uncordon, Cordon::ByController | Cordon::Reverted) => node.cordon = Cordon::Schedulable,
            (NodeRequest::Cordon, Cordon::ByController | Cordon::ByOther)
            | (NodeRequest::Uncordon, Cordon::Schedulable | Cordon::ByOther) => {}
            (NodeRequest::ClearReclaimRequest, _) => node.reclaim_requested = false,
            (NodeRequest::RollOutAgent, _) => {
                node.reclaim_requested &= node.agent.for_machine;
                node.agent = AgentState::ROLLED_OUT;
            }
            (NodeRequest::WithdrawAgent, _) => {
                let may_be_requested =
                    self.object.is_some_and(|it| it.requested.reclaimable && !it.reclaim_in_progress());
                let for_machine = node.agent.for_machine && may_be_requested;
                node.agent = AgentState { for_machine, ..AgentState::NONE };
            }
            (NodeRequest::EvictPods, _) => {
                self.servers.pod = self.servers.pod.map(|pod| match pod {
                    PodState::Evictable | PodState::Terminating => PodState::Terminating,
                    PodState::Blocked => PodState::Blocked,
                });
                return Response::Done;
            }
            // Pods are deleted without a list of them, so there may be none.
            (NodeRequest::DeletePods, _) => {
                self.servers.pod = None;
                return Response::Done;
            }
        }
        let changed = self.servers.node != Some(node);
        self.servers.node = Some(node);
        Response::of_change(changed)
    }
}
