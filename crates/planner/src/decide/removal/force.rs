//! Force removal: Machine, Node and pods at the same time, without drain and timeouts.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::SignedDuration;

use super::super::reclaim::{self, ScheduleRecord};
use super::super::{desired_status, reclaim_request};
use super::{after_pods, cordon, delete_leftovers, exclude_and_delete, poll_at};
use crate::input::DecisionInput;
use crate::observed::{Child, Exclusions, Machine, Node, Observed, Pods};
use crate::plan::{Action, DesiredStatus, ForceRemoval, NeedsRead, Plan, PodKey, Step};

const MAX_POLL_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn plan(input: &DecisionInput<'_>) -> Result<Plan, NeedsRead> {
    let observed = input.observed;
    let started = input.shutdown_started_at().unwrap_or(input.now);
    // The Machine is watched; pods and provider objects are polled.
    let poll_at = poll_at(started, input.now, MAX_POLL_INTERVAL);
    let (removal, wake_at) = match &observed.machine {
        Child::Managed(machine) => {
            let removal = force_removal(observed, machine)?;
            let wake_at = (!removal.pods.is_empty()).then(|| poll_at.max(after_pods(input.now, pod_count(&removal))));
            let is_empty = removal.concurrent_lists().next().is_none();
            (if is_empty { Vec::new() } else { vec![Step::ForceRemove(removal)] }, wake_at)
        }
        Child::NotRead | Child::Absent | Child::Unmanaged(_) => (delete_leftovers(observed), Some(poll_at)),
    };
    let mut steps = Vec::new();
    if reclaim_request::starts(input) {
        steps.push(Step::StoreStatus(Box::new(reclaim::status(input, ScheduleRecord::NotYetDisabled))));
    }
    steps.extend(removal);
    // A reclaim of an object that is being deleted is stored as well: it keeps the removal fast after a restart.
    let status = if reclaim_request::in_progress(input) {
        steps.extend(reclaim::cleanup_steps(input));
        reclaim::status(input, ScheduleRecord::Disabled)
    } else {
        let machine = observed.machine.managed().map(|machine| machine.name.as_str());
        let message = match machine {
            Some(name) => format!("Kill switch is on; removing Machine {name} without draining"),
            None => "Kill switch is on; waiting for the bootstrap and infrastructure objects to be deleted".to_owned(),
        };
        desired_status::keeping(input, Phase::ShuttingDown, Ready::KillSwitchActive, message)
    };
    Ok(Plan {
        steps,
        status: DesiredStatus { shutdown_started_at: Some(started), ..status },
        events: Vec::new(),
        wake_at,
    })
}

fn pod_count(removal: &ForceRemoval) -> usize {
    removal.pods.iter().map(|action| if let Action::DeletePods(pods) = action { pods.len() } else { 0 }).sum()
}

fn force_removal(observed: &Observed, machine: &Machine) -> Result<ForceRemoval, NeedsRead> {
    let pods = match (&observed.node, &observed.pods) {
        (Node::Absent(_) | Node::Connecting | Node::NotCached(_) | Node::Unreachable(_) | Node::Unidentified(_), _) => {
            Vec::new()
        }
        // The Machine delete does not wait for a list of pods.
        (Node::Managed(_), Pods::NotRead) if !machine.deleting => vec![Action::DeleteAllPods],
        (Node::Managed(_), Pods::NotRead) => return Err(NeedsRead::Pods),
        (Node::Managed(_), Pods::Read(pods)) => {
            let remaining: Vec<PodKey> = pods.iter().filter(|pod| pod.force_delete).map(PodKey::of).collect();
            if remaining.is_empty() { Vec::new() } else { vec![Action::DeletePods(remaining)] }
        }
    };
    Ok(ForceRemoval { machine: exclude_and_delete(machine, Exclusions::ALL), node: cordon(&observed.node), pods })
}
