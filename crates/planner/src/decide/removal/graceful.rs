//! Cordon, ask pods to leave, delete when they have left or when their time is up.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;
use jiff::{SignedDuration, Timestamp};

use super::super::aim::Because;
use super::super::{Sight, Situation, standing};
use super::{cordon, delete_leftovers, is_open, later, look_again, mark_and_delete};
use crate::drain::Verdict;
use crate::event::{Event, Reason};
use crate::observed::{Cluster, Health, Machine, Marks, Node, NodePod, Observed, OurNode, Pods, Slot};
use crate::plan::{Action, Look, Plan, PodKey, Standing};

/// The longest between two looks at pods that leave.
const LOOK_AT_PODS: SignedDuration = SignedDuration::from_secs(5);
/// The longest between two looks at provider objects that go.
const LOOK_AT_LEFTOVERS: SignedDuration = SignedDuration::from_mins(1);

/// The times of one shutdown.
struct Times {
    now: Timestamp,
    /// When it began.
    started: Timestamp,
    /// From here on nobody waits for pods.
    drain: Timestamp,
    /// From here on nobody waits for volumes either.
    all: Timestamp,
}

/// What is next.
struct Step {
    actions: Vec<Action>,
    message: String,
    event: Option<Event>,
    wake_at: Option<Timestamp>,
}

impl Step {
    fn new(actions: Vec<Action>, message: impl Into<String>, wake_at: Option<Timestamp>) -> Self {
        Step { actions, message: message.into(), event: None, wake_at }
    }
}

pub(in super::super) fn plan(situation: &Situation<'_>, because: Because) -> Sight<Plan> {
    let Situation { intent, seen, now, .. } = *situation;
    let alive = seen.machine.ours().filter(|it| !it.deleting);
    if alive.is_some() && seen.cluster == Cluster::Paused {
        let message = "the Cluster is paused: the machine goes when it is resumed";
        let held = standing::keeping(situation, Phase::ShuttingDown, Ready::ShuttingDown, message);
        // Nobody asks pods to leave meanwhile, so their time begins anew when it is resumed.
        let standing = Standing { shutdown_started_at: None, ..held };
        let actions = standing::finalizer_of_a_machine(situation).into_iter().collect();
        return Ok(Plan { actions, standing, events: Vec::new(), wake_at: None });
    }
    let started = seen.stored.shutdown_started_at.unwrap_or(now);
    let times = Times {
        now,
        started,
        drain: later(started, intent.drain_timeout()),
        all: later(started, intent.graceful_shutdown_timeout),
    };
    let step = match (&seen.machine, alive) {
        (_, Some(machine)) => drain(seen, machine, &times)?,
        (Slot::Ours(leaving), None) => wait_for(leaving, &times),
        (Slot::NotRead | Slot::Absent | Slot::Foreign(_), None) => Step::new(
            delete_leftovers(seen),
            "the Machine is gone, what it left behind is removed",
            Some(look_again(started, now, LOOK_AT_LEFTOVERS)),
        ),
    };
    let standing = Standing { shutdown_started_at: Some(started), ..told(situation, because, &step.message) };
    let finalizer = standing::missing_finalizer(situation);
    let store = seen.stored.shutdown_started_at.is_none().then(|| Action::Store(Box::new(standing.clone())));
    Ok(Plan {
        actions: finalizer.into_iter().chain(store).chain(step.actions).collect(),
        standing,
        events: step.event.into_iter().collect(),
        wake_at: step.wake_at,
    })
}

fn told(situation: &Situation<'_>, because: Because, message: &str) -> Standing {
    let leaving = |message: String| standing::keeping(situation, Phase::ShuttingDown, Ready::ShuttingDown, message);
    match because {
        Because::Deleted => leaving(format!("being deleted: {message}")),
        Because::Failed => {
            let why = match situation.seen.machine.ours().map(|it| &it.health) {
                Some(Health::Failed(why)) => why,
                Some(Health::Provisioning | Health::Running) | None => "it is of no use",
            };
            let message = format!("the machine failed and is made anew: {why}; {message}");
            standing::keeping(situation, Phase::Error, Ready::Error, message)
        }
        Because::Reclaimed | Because::Killed | Because::Closed => leaving(message.to_owned()),
    }
}

fn drain(seen: &Observed, machine: &Machine, times: &Times) -> Sight<Step> {
    let delete = |why: &str| {
        let marks = Marks { no_drain: true, no_volumes: times.now >= times.all };
        Step::new(mark_and_delete(machine, marks), why, (times.now < times.all).then_some(times.all))
    };
    let wait = |actions: Vec<Action>, message: String| {
        Step::new(actions, message, Some(look_again(times.started, times.now, LOOK_AT_PODS).min(times.drain)))
    };
    let time_is_up = times.now >= times.drain;
    let timed_out = |what: String| Step {
        event: Some(Event::new(Reason::DrainTimedOut, format!("{what}: the Machine is deleted all the same"))),
        ..delete("pods had their time: the Machine is deleted")
    };
    Ok(match (&seen.node, &seen.pods) {
        // A Machine that has just become a Node must not lose it undrained because a cache does not know yet.
        (Node::None, _) if machine.node.is_none() && !machine.confirmed => return Err(Look::Machine),
        (Node::None, _) => delete("there is no Node to drain: the Machine is deleted"),
        (Node::NotSeen, _) => return Err(Look::Node),
        (Node::Ours(_), Pods::NotRead) => return Err(Look::Pods),
        (Node::Sought, _) if time_is_up => timed_out("the workload cluster was not reached in time".to_owned()),
        (Node::Sought, _) => wait(Vec::new(), "the workload cluster is being connected".to_owned()),
        (Node::Unreachable(why), _) if time_is_up => timed_out(format!("the workload cluster does not answer: {why}")),
        (Node::Unreachable(why), _) => wait(Vec::new(), format!("the workload cluster does not answer: {why}")),
        // Drained is a Node that takes no new pods and has none left: both have to be seen together.
        (Node::Ours(node), Pods::Read { now, .. }) if !is_open(node.cordon) && left(now) == 0 => {
            delete("drained: the Machine is deleted")
        }
        (Node::Ours(node), Pods::Read { now, .. }) if time_is_up => {
            timed_out(format!("{} had not left Node {} in time", pods(left(now)), node.name))
        }
        (Node::Ours(node), Pods::Read { now, at_first }) => {
            let message = match left(now) {
                0 => "draining: no pod has to leave".to_owned(),
                left => format!("draining: {left} of {} left", pods((*at_first).max(left))),
            };
            wait(ask_to_leave(node, now), message)
        }
    })
}

fn ask_to_leave(node: &OurNode, pods: &[NodePod]) -> Vec<Action> {
    let evicted: Vec<PodKey> = pods.iter().filter(|pod| pod.verdict == Verdict::Evict).map(PodKey::of).collect();
    let evict = if evicted.is_empty() { Vec::new() } else { vec![Action::Evict(evicted)] };
    [cordon(&Node::Ours(node.clone())), evict].concat()
}

/// How many pods have still to leave.
fn left(pods: &[NodePod]) -> usize {
    pods.iter().filter(|pod| pod.has_to_leave()).count()
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".to_owned() } else { format!("{count} pods") }
}

fn wait_for(leaving: &Machine, times: &Times) -> Step {
    let overdue = times.now >= times.all;
    let mark = overdue && !leaving.marks.no_volumes;
    Step::new(
        if mark { vec![Action::Mark(Marks::ALL)] } else { Vec::new() },
        "Cluster API removes the machine",
        (!overdue).then_some(times.all),
    )
}
