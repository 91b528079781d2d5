//! Taking a machine out, gracefully or at once.
//!
//! The Machine goes first: Cluster API removes its infrastructure and bootstrap objects itself. What is still there when
//! the Machine is gone, we delete, by the kinds that were stored when it was made.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::{SignedDuration, Timestamp};

use super::aim::{Because, Removal, Speed};
use super::reclaim::{self, Schedule};
use super::{Situation, standing};
use crate::drain::Verdict;
use crate::observed::{Cluster, Cordon, Machine, Marks, Node, NodePod, Observed, Pods, ProviderChild, Slot};
use crate::plan::{Action, Plan, PodKey, Role, Standing};

/// How soon to look again at what nothing tells us about: pods that leave, provider objects that go.
pub(super) const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(2);

pub(super) fn plan(situation: &Situation<'_>, removal: Removal) -> Plan {
    if is_gone(situation.seen) {
        return finished(situation, removal.because);
    }
    match removal.speed {
        Speed::Eject => eject(situation, removal.because),
        Speed::Graceful => graceful(situation, removal.because),
    }
}

/// Whether nothing of ours is left. What is not ours is none of our business.
pub(super) fn is_gone(seen: &Observed) -> bool {
    let no_provider = |slot: &Slot<ProviderChild>| matches!(slot, Slot::Absent | Slot::Foreign);
    seen.machine.ours().is_none()
        && (seen.stored.refs.is_none() || (no_provider(&seen.bootstrap) && no_provider(&seen.infrastructure)))
}

fn finished(situation: &Situation<'_>, because: Because) -> Plan {
    let empty = |phase, ready, message: &str| standing::empty(situation, phase, ready, message);
    match because {
        Because::Deleted => Plan {
            actions: if situation.seen.finalizer { vec![Action::RemoveFinalizer] } else { Vec::new() },
            standing: empty(Phase::ShuttingDown, Ready::ShuttingDown, "nothing is left of the machine"),
            wake_at: None,
        },
        Because::Reclaimed => reclaim::finished(situation),
        Because::Killed => Plan {
            actions: Vec::new(),
            standing: empty(
                Phase::Terminated,
                Ready::KillSwitchActive,
                "removed by the kill switch; set killSwitch to false to return to the schedule",
            ),
            wake_at: None,
        },
        Because::Closed => Plan {
            actions: Vec::new(),
            standing: empty(Phase::Inactive, Ready::ScheduleInactive, "outside the schedule"),
            wake_at: None,
        },
    }
}

/// Everything at once, and none waits for another.
fn eject(situation: &Situation<'_>, because: Because) -> Plan {
    let seen = situation.seen;
    let mut actions = Vec::new();
    let standing = match because {
        Because::Reclaimed => reclaim::standing(situation, Schedule::Disabled),
        Because::Deleted | Because::Killed | Because::Closed => {
            let ready = if situation.intent.killed { Ready::KillSwitchActive } else { Ready::ShuttingDown };
            standing::keeping(situation, Phase::ShuttingDown, ready, "the machine is taken out at once")
        }
    };
    if because == Because::Reclaimed && !seen.stored.reclaiming {
        actions.push(Action::Store(Box::new(reclaim::standing(situation, Schedule::NotYetDisabled))));
    }
    match &seen.machine {
        Slot::Ours(machine) => actions.extend(together(vec![
            mark_and_delete(machine, Marks::ALL),
            cordon(&seen.node),
            end_pods(&seen.pods),
        ])),
        Slot::NotRead | Slot::Absent | Slot::Foreign => actions.extend(delete_leftovers(seen)),
    }
    if because == Because::Reclaimed {
        actions.extend(reclaim::aftermath(situation));
    }
    // The Machine is watched, so its end is an event; pods and provider objects are not.
    let unwatched = seen.machine.ours().is_none() || !keys(&seen.pods, |pod| pod.ejected).is_empty();
    Plan { actions, standing, wake_at: unwatched.then(|| later(situation.now, LOOK_AGAIN)) }
}

fn together(lists: Vec<Vec<Action>>) -> Option<Action> {
    let lists: Vec<_> = lists.into_iter().filter(|it| !it.is_empty()).collect();
    (!lists.is_empty()).then_some(Action::Together(lists))
}

fn mark_and_delete(machine: &Machine, marks: Marks) -> Vec<Action> {
    let missing = (marks.no_drain && !machine.marks.no_drain) || (marks.no_volumes && !machine.marks.no_volumes);
    let mark = missing.then_some(Action::Mark(marks));
    let delete = (!machine.deleting).then(|| Action::DeleteMachine { uid: machine.uid.clone() });
    mark.into_iter().chain(delete).collect()
}

fn cordon(node: &Node) -> Vec<Action> {
    match node {
        Node::Ours(node) if node.cordon == Cordon::Open => vec![Action::Cordon],
        Node::Ours(_) | Node::None | Node::Unreachable(_) => Vec::new(),
    }
}

fn end_pods(pods: &Pods) -> Vec<Action> {
    let ended = keys(pods, |pod| pod.ejected);
    if ended.is_empty() { Vec::new() } else { vec![Action::EndPods(ended)] }
}

fn keys(pods: &Pods, wanted: impl Fn(&NodePod) -> bool) -> Vec<PodKey> {
    let Pods::Read(pods) = pods else { return Vec::new() };
    let key = |pod: &NodePod| PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() };
    pods.iter().filter(|pod| wanted(pod)).map(key).collect()
}

/// What the Machine left behind, the infrastructure first: that is the order in which Cluster API takes them.
pub(super) fn delete_leftovers(seen: &Observed) -> Vec<Action> {
    [(Role::Infrastructure, &seen.infrastructure), (Role::Bootstrap, &seen.bootstrap)]
        .into_iter()
        .filter_map(|(role, slot)| slot.ours().map(|child| (role, child)))
        .filter(|(_, child)| !child.deleting)
        .map(|(role, child)| Action::DeleteProvider { role, uid: child.uid.clone() })
        .collect()
}

/// The deadlines of a shutdown.
struct Deadlines {
    /// From here on nobody waits for pods.
    drain: Timestamp,
    /// From here on nobody waits for volumes either.
    all: Timestamp,
}

/// Cordon, ask pods to leave, delete when they have left or when their time is up.
pub(super) fn graceful(situation: &Situation<'_>, because: Because) -> Plan {
    let Situation { intent, seen, now, .. } = *situation;
    let alive = seen.machine.ours().filter(|it| !it.deleting);
    if alive.is_some() && seen.cluster == Cluster::Paused {
        let message = "the Cluster is paused: the machine goes when it is resumed";
        let standing = standing::keeping(situation, Phase::ShuttingDown, Ready::ShuttingDown, message);
        return Plan { actions: Vec::new(), standing, wake_at: None };
    }
    let started = seen.stored.shutdown_started_at.unwrap_or(now);
    let deadlines = Deadlines {
        drain: later(started, intent.drain_timeout()),
        all: later(started, intent.graceful_shutdown_timeout),
    };
    let step = match (&seen.machine, alive) {
        (_, Some(machine)) => drain(seen, machine, &deadlines, now),
        (Slot::Ours(leaving), None) => wait_for(leaving, &deadlines, now),
        (Slot::NotRead | Slot::Absent | Slot::Foreign, None) => Step {
            actions: delete_leftovers(seen),
            message: "the Machine is gone, what it left behind is removed".to_owned(),
            wake_at: Some(later(now, LOOK_AGAIN)),
        },
    };
    let standing = Standing {
        shutdown_started_at: Some(started),
        ..standing::keeping(situation, Phase::ShuttingDown, Ready::ShuttingDown, told(because, &step.message))
    };
    let store = seen.stored.shutdown_started_at.is_none().then(|| Action::Store(Box::new(standing.clone())));
    Plan { actions: store.into_iter().chain(step.actions).collect(), standing, wake_at: step.wake_at }
}

fn told(because: Because, message: &str) -> String {
    match because {
        Because::Deleted => format!("being deleted: {message}"),
        Because::Reclaimed | Because::Killed | Because::Closed => message.to_owned(),
    }
}

struct Step {
    actions: Vec<Action>,
    message: String,
    wake_at: Option<Timestamp>,
}

fn drain(seen: &Observed, machine: &Machine, deadlines: &Deadlines, now: Timestamp) -> Step {
    let delete = |why: &str| Step {
        actions: mark_and_delete(machine, Marks { no_drain: true, no_volumes: now >= deadlines.all }),
        message: why.to_owned(),
        wake_at: Some(deadlines.all),
    };
    if now >= deadlines.drain {
        return delete("pods had their time: the Machine is deleted");
    }
    let wait = |actions: Vec<Action>, message: String| Step {
        actions,
        message,
        wake_at: Some(later(now, LOOK_AGAIN).min(deadlines.drain)),
    };
    match (&seen.node, &seen.pods) {
        (Node::None, _) => delete("there is no Node to drain: the Machine is deleted"),
        (Node::Unreachable(why), _) => wait(Vec::new(), format!("the workload cluster does not answer: {why}")),
        // Drained is a Node that takes no new pods and has none left: both have to be seen together.
        (Node::Ours(node), Pods::Read(pods)) if node.cordon != Cordon::Open && is_drained(pods) => {
            delete("drained: the Machine is deleted")
        }
        (Node::Ours(_), Pods::Read(pods)) => {
            let evicted = keys(&seen.pods, |pod| pod.verdict == Verdict::Evict);
            let evict = if evicted.is_empty() { Vec::new() } else { vec![Action::Evict(evicted)] };
            let left = pods.iter().filter(|pod| !matches!(pod.verdict, Verdict::Leave(_))).count();
            wait([cordon(&seen.node), evict].concat(), format!("draining: {left} of {} pods left", pods.len()))
        }
        (Node::Ours(_), Pods::NotRead) => wait(cordon(&seen.node), "draining".to_owned()),
    }
}

fn is_drained(pods: &[NodePod]) -> bool {
    pods.iter().all(|pod| matches!(pod.verdict, Verdict::Leave(_)))
}

fn wait_for(leaving: &Machine, deadlines: &Deadlines, now: Timestamp) -> Step {
    let overdue = now >= deadlines.all;
    let mark = overdue && !leaving.marks.no_volumes;
    Step {
        actions: if mark { vec![Action::Mark(Marks::ALL)] } else { Vec::new() },
        message: "Cluster API removes the machine".to_owned(),
        wake_at: (!overdue).then_some(deadlines.all),
    }
}

/// An instant later than another, or the last there is.
pub(super) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
