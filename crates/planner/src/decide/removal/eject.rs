//! At once: Machine, Node and pods, and none waits for another.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::SignedDuration;

use super::super::reclaim::{self, Schedule};
use super::super::{Sight, Situation, standing};
use super::{cordon, delete_leftovers, look_again, mark_and_delete};
use crate::observed::{Machine, Marks, Node, Observed, Pods, Slot};
use crate::plan::{Action, Look, Plan, PodKey, Standing};

/// The longest between two looks at what is left.
const LOOK_AT_LEAST: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn plan(situation: &Situation<'_>) -> Sight<Plan> {
    let seen = situation.seen;
    let started = seen.stored.shutdown_started_at.unwrap_or(situation.now);
    let (at_once, unwatched) = match &seen.machine {
        Slot::Ours(machine) => machine_and_pods(seen, machine)?,
        Slot::NotRead | Slot::Absent | Slot::Foreign(_) => (delete_leftovers(seen), true),
    };
    let mut actions = Vec::new();
    if reclaim::begins(situation) {
        actions.push(Action::Store(Box::new(reclaim::standing(situation, Schedule::NotYetDisabled))));
    }
    actions.extend(at_once);
    // Its phase is how a reclaim is remembered, and with it how fast the machine goes, also where the object goes too.
    let standing = if reclaim::is_under_way(situation) {
        actions.extend(reclaim::aftermath(situation));
        reclaim::standing(situation, Schedule::Disabled)
    } else {
        let message = "the machine is taken out at once";
        standing::keeping(situation, Phase::ShuttingDown, Ready::KillSwitchActive, message)
    };
    Ok(Plan {
        actions,
        standing: Standing { shutdown_started_at: Some(started), ..standing },
        events: Vec::new(),
        // The Machine is watched, so its end is an event; pods and provider objects are not.
        wake_at: unwatched.then(|| look_again(started, situation.now, LOOK_AT_LEAST)),
    })
}

/// What ends a machine, and whether it leaves something behind that nobody tells us about.
fn machine_and_pods(seen: &Observed, machine: &Machine) -> Sight<(Vec<Action>, bool)> {
    let pods = match (&seen.node, &seen.pods) {
        (Node::None | Node::Sought | Node::NotSeen | Node::Unreachable(_), _) => Vec::new(),
        // Nothing waits for a list of pods: whoever ends them lists them.
        (Node::Ours(_), Pods::NotRead) if !machine.deleting => vec![Action::EndAllPods],
        (Node::Ours(_), Pods::NotRead) => return Err(Look::Pods),
        (Node::Ours(_), Pods::Read { now, .. }) => {
            let left: Vec<PodKey> = now.iter().filter(|pod| pod.to_end).map(PodKey::of).collect();
            if left.is_empty() { Vec::new() } else { vec![Action::EndPods(left)] }
        }
    };
    let unwatched = !pods.is_empty();
    let lists = vec![mark_and_delete(machine, Marks::ALL), cordon(&seen.node), pods];
    let lists: Vec<_> = lists.into_iter().filter(|it| !it.is_empty()).collect();
    let together = (!lists.is_empty()).then_some(Action::Together(lists));
    Ok((together.into_iter().collect(), unwatched))
}
