//! The status, folded from what it said before, what was seen and what was done: it never claims anything else.

mod diff;
mod told;

use fivespot_api::conditions::{NewCondition, NodeTainted, Ready, Reason as _, ReferencesValid, set};
use fivespot_api::{NodeReference, ObjectReference, Phase, ReclaimStatus, ScheduledMachineStatus, keys};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::children::{ChildNames, MachineVersion};
use crate::decide::Situation;
use crate::observed::{Health, Machine, Node, Ref, Refs};
use crate::plan::{Standing, Tainted};

pub use diff::merge_patch;

/// The object that a status is of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The version of Cluster API in which its Machine is written.
    pub machine_version: MachineVersion,
    /// What its status says so far.
    pub before: &'a ScheduledMachineStatus,
}

/// What came of the acts of a pass, so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The Machine, if this pass created it.
    pub machine: Option<Made>,
    /// The uid of the bootstrap object, if this pass created or met it.
    pub bootstrap: Option<String>,
    /// The uid of the infrastructure object, if this pass created or met it.
    pub infrastructure: Option<String>,
    /// Pods that may not leave yet, each with what holds it.
    pub blocked: Vec<Blocked>,
    /// How it stands with the taints of the Node, if this pass wrote them.
    pub tainted: Option<Tainted>,
    /// Whether this pass disabled the schedule for a reclaim.
    pub schedule_disabled: bool,
    /// Why the taints of the Node could not be written, if that is so. Nothing else waits for them.
    pub untainted: Option<String>,
    /// Why the reclaim agent could not be had on the Node, if that is so. Nothing else waits for it.
    pub unprojected: Option<String>,
    /// What went wrong, and ended the pass.
    pub failure: Option<Failure>,
}

impl Done {
    fn is_all(&self) -> bool {
        self.untainted.is_none() && self.unprojected.is_none() && self.failure.is_none()
    }
}

/// A Machine that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its uid.
    pub uid: String,
    /// When the API server made it.
    pub at: Option<Timestamp>,
}

/// A pod that may not leave yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocked {
    /// Namespace of the pod.
    pub namespace: String,
    /// What holds it: the name of a `PodDisruptionBudget`, where the API server gave one.
    pub budget: Option<String>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// While doing what.
    pub doing: Doing,
    /// Why, in a sentence.
    pub why: String,
    /// What that means for the condition `ReferencesValid`, if it is about a reference.
    pub references: Option<ReferencesValid>,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// Making a machine.
    Creating,
    /// Taking one out.
    Removing,
    /// Neither.
    Keeping,
}

/// Folds a status.
pub fn fold(
    subject: Subject<'_>,
    situation: &Situation<'_>,
    standing: &Standing,
    done: &Done,
) -> ScheduledMachineStatus {
    let seen = situation.seen;
    let before = subject.before;
    let standing = &with_failure(standing, done, subject, situation);
    let schedule = situation.spec.ok().map(|it| &it.schedule);
    let node_stands = is_being_connected(situation, before);
    let health_stands = node_stands && [before.phase, Some(standing.phase)] == [Some(Phase::Active); 2];
    let node_ref = node_ref(situation, before);
    let tainted = done.tainted.clone().or_else(|| standing.taints.clone());
    let tainted = tainted.or_else(|| node_ref.is_none().then(|| told::no_node_to_taint(situation)));
    let mut status = ScheduledMachineStatus {
        phase: Some(standing.phase),
        message: before.message.clone().filter(|_| health_stands).or_else(|| Some(told::message(standing, done))),
        in_schedule: schedule.map(|it| it.is_open(situation.now)),
        conditions: before.conditions.clone(),
        machine_ref: machine_ref(subject, situation, done),
        bootstrap_ref: standing.refs.as_ref().map(|refs| {
            reference(
                subject,
                &refs.bootstrap,
                done.bootstrap.as_ref().or(seen.bootstrap.ours().map(|it| &it.uid)),
                before.bootstrap_ref.as_ref(),
            )
        }),
        infrastructure_ref: standing.refs.as_ref().map(|refs| {
            reference(
                subject,
                &refs.infrastructure,
                done.infrastructure.as_ref().or(seen.infrastructure.ours().map(|it| &it.uid)),
                before.infrastructure_ref.as_ref(),
            )
        }),
        node_ref,
        provider_id: seen.machine.ours().and_then(|it| it.provider_id.clone()),
        applied_node_taints: tainted
            .as_ref()
            .map_or_else(|| before.applied_node_taints.clone(), |it| it.applied.clone()),
        last_scheduled_time: made_at(situation, done).map(time).or(before.last_scheduled_time.clone()),
        next_activation: schedule.and_then(|it| it.next_opening(situation.now)).map(time),
        next_cleanup: schedule.and_then(|it| it.current_close(situation.now)).map(time),
        shutdown_started_at: standing.shutdown_started_at.map(time),
        reclaim: standing.reclaim.clone(),
        // What failed has not been looked at to its end.
        observed_generation: if done.is_all() { subject.generation } else { before.observed_generation },
    };
    let mut condition = |new: NewCondition| set(&mut status.conditions, new, situation.now);
    if !health_stands {
        condition(NewCondition::new(standing.ready, told::message(standing, done), subject.generation));
    }
    let (scheduled, message) = told::scheduled(situation, standing);
    condition(NewCondition::new(scheduled, message, subject.generation));
    let (machine_ready, message) = told::machine_ready(seen, done);
    if !node_stands {
        condition(NewCondition::new(machine_ready, message, subject.generation));
    }
    let message = told::references(standing, situation, done);
    condition(NewCondition::new(standing.references, message, subject.generation));
    match tainted.map(|it| it.told) {
        Some(Some((reason, message))) => condition(NewCondition::new(reason, message, subject.generation)),
        Some(None) => status.conditions.retain(|it| it.type_ != NodeTainted::CONDITION),
        None => {}
    }
    status
}

/// Whether it will be known in a moment how a machine is of which something has been told before: a controller that has
/// just been started is connecting to its cluster. What was told stands until then, so that a restart is no news.
fn is_being_connected(situation: &Situation<'_>, before: &ScheduledMachineStatus) -> bool {
    let told_of = before.machine_ref.as_ref().and_then(|it| it.uid.as_ref());
    let same = |it: &Machine| it.health == Health::Running && told_of == Some(&it.uid);
    situation.seen.node == Node::Sought && situation.seen.machine.ours().is_some_and(same)
}

/// Where a machine stands whose acts failed: what the status remembers stays, since nobody got further.
fn with_failure(standing: &Standing, done: &Done, subject: Subject<'_>, situation: &Situation<'_>) -> Standing {
    let before = subject.before;
    let standing = &without_what_nothing_waits_for(standing, done, before);
    let Some(failure) = &done.failure else { return standing.clone() };
    // A reclaim is remembered by its phase, and goes on whatever fails meanwhile.
    let reclaiming = before.phase == Some(Phase::EmergencyRemove);
    let (phase, ready) =
        if reclaiming { (Phase::EmergencyRemove, Ready::EmergencyReclaim) } else { (Phase::Error, Ready::Error) };
    // The schedule is disabled once: what failed after it is no reason to undo what a person does about it.
    let disabled = reclaiming
        && (done.schedule_disabled || !situation.intent.enabled)
        && standing.reclaim.as_ref().is_some_and(|it| it.schedule_disabled);
    let as_far = |it: ReclaimStatus| ReclaimStatus { schedule_disabled: it.schedule_disabled || disabled, ..it };
    Standing {
        phase,
        ready,
        references: failure.references.unwrap_or(standing.references),
        message: failure.why.clone(),
        refs: stored_refs(subject.name, before),
        shutdown_started_at: before.shutdown_started_at.as_ref().map(|it| it.0),
        reclaim: before.reclaim.clone().map(as_far),
        taints: None,
    }
}

/// Where a machine stands of which all was done but what nothing else waits for.
fn without_what_nothing_waits_for(standing: &Standing, done: &Done, before: &ScheduledMachineStatus) -> Standing {
    let mut standing = standing.clone();
    if let Some(why) = &done.untainted {
        let told = Some((NodeTainted::PatchFailed, why.clone()));
        standing.taints = Some(Tainted { applied: before.applied_node_taints.clone(), told });
    }
    // One that is on its way out, or held, is not Ready anyway, and has something else to say first.
    if let Some(no_agent) = told::no_agent(done)
        && standing.phase == Phase::Active
    {
        (standing.ready, standing.message) = (Ready::Error, no_agent);
    }
    standing
}

/// The children that a status names, if they can be ours: whoever can write the status must not get us to read or delete
/// anything else by it.
pub fn stored_refs(name: &str, status: &ScheduledMachineStatus) -> Option<Refs> {
    let read = |it: &ObjectReference, expected: &str, groups: &[&str]| {
        let group = it.api_version.split_once('/').map(|(group, _)| group)?;
        (it.name == expected && groups.contains(&group)).then(|| Ref {
            api_version: it.api_version.clone(),
            kind: it.kind.clone(),
            name: it.name.clone(),
        })
    };
    let names = ChildNames::of(name);
    Some(Refs {
        bootstrap: read(status.bootstrap_ref.as_ref()?, &names.bootstrap, keys::BOOTSTRAP_GROUPS)?,
        infrastructure: read(status.infrastructure_ref.as_ref()?, &names.infrastructure, keys::INFRASTRUCTURE_GROUPS)?,
    })
}

fn machine_ref(subject: Subject<'_>, situation: &Situation<'_>, done: &Done) -> Option<ObjectReference> {
    let made = done.machine.as_ref().map(|it| it.uid.clone());
    let uid = made.or_else(|| situation.seen.machine.ours().map(|it| it.uid.clone()))?;
    Some(ObjectReference {
        api_version: subject.machine_version.api_version(),
        kind: "Machine".to_owned(),
        name: ChildNames::of(subject.name).machine,
        namespace: subject.namespace.to_owned(),
        uid: Some(uid),
    })
}

/// When the Machine that is there was made.
fn made_at(situation: &Situation<'_>, done: &Done) -> Option<Timestamp> {
    let made = done.machine.as_ref().and_then(|it| it.at);
    made.or_else(|| situation.seen.machine.ours().and_then(|it| it.created_at))
}

fn reference(
    subject: Subject<'_>,
    to: &Ref,
    uid: Option<&String>,
    before: Option<&ObjectReference>,
) -> ObjectReference {
    let is_the_same =
        |it: &&ObjectReference| (&it.api_version, &it.kind, &it.name) == (&to.api_version, &to.kind, &to.name);
    ObjectReference {
        api_version: to.api_version.clone(),
        kind: to.kind.clone(),
        name: to.name.clone(),
        namespace: subject.namespace.to_owned(),
        uid: uid.cloned().or_else(|| before.filter(is_the_same).and_then(|it| it.uid.clone())),
    }
}

/// The Node that is there, or, where nobody can look, the one that was there when the Machine was the same.
fn node_ref(situation: &Situation<'_>, before: &ScheduledMachineStatus) -> Option<NodeReference> {
    let machine = situation.seen.machine.ours()?;
    match &situation.seen.node {
        Node::Ours(node) => Some(NodeReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: node.name.clone(),
            uid: Some(node.uid.clone()),
        }),
        Node::Unreachable(_) | Node::Sought => {
            before.node_ref.clone().filter(|it| machine.node.as_ref() == Some(&it.name))
        }
        Node::None | Node::NotSeen => None,
    }
}

fn time(at: Timestamp) -> Time {
    Time(at)
}
