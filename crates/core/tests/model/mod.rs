//! One object, its children, a Node with a pod, and everybody who acts on them one request at a time.
//!
//! The controller sees the object, the Machine and the Node through caches that lag behind, carries out a plan request by
//! request, and can die between any two. Time is three instants: a shutdown that begins at one is past its drain at the
//! next and past all of its time at the one after.

use std::sync::OnceLock;

use fivespot_api::{Phase, ReclaimStatus};
use fivespot_core::decide::{Situation, decide};
use fivespot_core::drain::Verdict;
use fivespot_core::intent::Intent;
use fivespot_core::observed::{
    Cluster, Cordon, Health, Machine, Marks, Node, NodePod, Observed, OurNode, Pods, ProviderChild, ReclaimRequest,
    Ref, Refs, Slot, Stored, Wanted,
};
use fivespot_core::plan::{Action, Decision, Look, Plan, Role, Standing};
use fivespot_core::validate::{Standard, ValidSpec, validate};
use jiff::{SignedDuration, Timestamp};

/// What all children are made from.
const FINGERPRINT: &str = "f";

pub(crate) const LAST_INSTANT: u8 = 2;

/// What a `decide` that is wrong would do: planted, to show that it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mistake {
    /// Acts before it is stored that it will.
    ForgetsToStore,
    /// Leaves a machine cordoned and marked that it takes back.
    ForgetsToTakeBack,
    /// Lets a machine come back that its owner wanted.
    ForgetsToDisable,
    /// Lets the object go while children are there.
    LeavesChildrenBehind,
    /// Never lets the object go.
    KeepsTheFinalizer,
}

impl Mistake {
    fn plant(self, plan: &mut Plan) {
        let drop = |plan: &mut Plan, wrong: fn(&Action) -> bool| plan.actions.retain(|it| !wrong(it));
        match self {
            Mistake::ForgetsToStore => drop(plan, |it| matches!(it, Action::Store(_))),
            Mistake::ForgetsToTakeBack => drop(plan, |it| matches!(it, Action::Uncordon | Action::Unmark)),
            Mistake::ForgetsToDisable => drop(plan, |it| matches!(it, Action::DisableSchedule)),
            Mistake::LeavesChildrenBehind => {
                for action in &mut plan.actions {
                    if matches!(action, Action::DeleteProvider { .. }) {
                        *action = Action::RemoveFinalizer;
                    }
                }
            }
            Mistake::KeepsTheFinalizer => drop(plan, |it| matches!(it, Action::RemoveFinalizer)),
        }
    }
}

/// What people ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub(crate) struct Asked {
    pub(crate) deleted: bool,
    pub(crate) killed: bool,
    pub(crate) enabled: bool,
}

/// The ScheduledMachine as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) asked: Asked,
    pub(crate) finalizer: bool,
    pub(crate) phase: Option<Phase>,
    pub(crate) refs: bool,
    pub(crate) shutdown: Option<u8>,
    /// The Machine that was reclaimed, and whether the schedule was disabled for it.
    pub(crate) reclaim: Option<(u8, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MachineState {
    pub(crate) uid: u8,
    pub(crate) deleting: bool,
    pub(crate) marks: Marks,
    pub(crate) joined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeState {
    pub(crate) cordon: Cordon,
    pub(crate) request: bool,
}

/// A bootstrap or infrastructure object: which Machine has adopted it.
pub(crate) type Provided = Option<Option<u8>>;

/// What the controller has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caches {
    pub(crate) object: Option<Object>,
    pub(crate) machine: Option<MachineState>,
    pub(crate) node: Option<NodeState>,
}

/// What a pass was decided from; its plan follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) caches: Caches,
    /// What is really there, for whoever looks closer.
    pub(crate) machine: Option<MachineState>,
    pub(crate) node: Option<NodeState>,
    pub(crate) bootstrap: Provided,
    pub(crate) infrastructure: Provided,
    pub(crate) pod: Option<Verdict>,
    pub(crate) window: bool,
    pub(crate) instant: u8,
    pub(crate) mistake: Option<Mistake>,
}

/// A plan that is being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pass {
    /// What it was decided from.
    view: View,
    /// The version of the object that the next write of it names: the one seen, or the one that this pass wrote itself.
    known: Option<Object>,
    /// How many of its requests were sent.
    sent: u8,
}

impl Pass {
    /// The pass that begins with what is seen now, if there is anything to do.
    pub(crate) fn begin(world: &World) -> Option<Self> {
        let view = world.view();
        (!view.requests().is_empty()).then_some(Pass { view, known: view.caches.object, sent: 0 })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) object: Option<Object>,
    pub(crate) machine: Option<MachineState>,
    pub(crate) bootstrap: Provided,
    pub(crate) infrastructure: Provided,
    pub(crate) node: Option<NodeState>,
    pub(crate) pod: Option<Verdict>,
    pub(crate) window: bool,
    pub(crate) instant: u8,
    pub(crate) made: u8,
    pub(crate) caches: Caches,
    /// The pass under way.
    pub(crate) pass: Option<Pass>,
    /// How much may still happen that nobody has to answer for.
    pub(crate) edits: u8,
    pub(crate) crashes: u8,
    /// Whether a person has enabled the schedule since the last reclaim.
    pub(crate) wanted_again: bool,
    pub(crate) mistake: Option<Mistake>,
    /// Something that must never happen has happened.
    pub(crate) broken: Option<&'static str>,
}

/// One request of a plan.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Act(Action),
    CreateBootstrap,
    CreateInfrastructure,
    CreateMachine,
    Report(Box<Standing>),
}

fn instant(index: u8) -> Timestamp {
    let start: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
    start + SignedDuration::from_mins([0, 3, 10][usize::from(index)])
}

fn index(at: Timestamp) -> u8 {
    (0..=LAST_INSTANT).find(|it| instant(*it) == at).expect("a time of the model")
}

fn refs() -> Refs {
    let child =
        |kind: &str, name: &str| Ref { api_version: "x/v1".to_owned(), kind: kind.to_owned(), name: name.to_owned() };
    Refs { bootstrap: child("Boot", "a-bootstrap"), infrastructure: child("Infra", "a-infra") }
}

fn spec(window: bool) -> &'static ValidSpec {
    static SPECS: OnceLock<[ValidSpec; 2]> = OnceLock::new();
    let make = |cron: &str| {
        let text = format!(
            r#"{{"schedule": {{"cron": "{cron}"}}, "clusterName": "c",
                "bootstrapSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "B", "spec": {{}}}},
                "infrastructureSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "I", "spec": {{}}}}}}"#
        );
        validate(&serde_json::from_str(&text).unwrap(), "default", Standard::Admission).unwrap()
    };
    &SPECS.get_or_init(|| [make("0 0 30 2 *"), make("* * * * *")])[usize::from(window)]
}

impl World {
    pub(crate) fn new(mistake: Option<Mistake>) -> Self {
        let asked = Asked { deleted: false, killed: false, enabled: true };
        let object = Object { asked, finalizer: false, phase: None, refs: false, shutdown: None, reclaim: None };
        World {
            object: Some(object),
            machine: None,
            bootstrap: None,
            infrastructure: None,
            node: None,
            pod: None,
            window: true,
            instant: 0,
            made: 0,
            caches: Caches { object: Some(object), machine: None, node: None },
            pass: None,
            edits: 3,
            crashes: 1,
            wanted_again: true,
            mistake,
            broken: None,
        }
    }

    pub(crate) fn view(&self) -> View {
        View {
            caches: self.caches,
            machine: self.machine,
            node: self.node,
            bootstrap: self.bootstrap,
            infrastructure: self.infrastructure,
            pod: self.pod,
            window: self.window,
            instant: self.instant,
            mistake: self.mistake,
        }
    }

    pub(crate) fn catch_up(&mut self) {
        self.caches = Caches { object: self.object, machine: self.machine, node: self.node };
    }

    /// Sends the next request of the pass; a request that is refused ends it.
    pub(crate) fn send(&mut self) {
        let Some(pass) = self.pass else { return };
        let requests = pass.view.requests();
        let Some(request) = requests.get(usize::from(pass.sent)) else { return };
        let accepted = self.receive(&pass, request);
        let mut known = pass.known;
        if accepted {
            // The answer to a write is newer than the cache, and is looked at in its place.
            match subject(request) {
                Some(Subject::Object) => (self.caches.object, known) = (self.object, self.object),
                Some(Subject::Machine) => self.caches.machine = self.machine,
                Some(Subject::Node) => self.caches.node = self.node,
                None => {}
            }
        }
        let sent = pass.sent + 1;
        self.pass = (accepted && usize::from(sent) < requests.len()).then_some(Pass { known, sent, ..pass });
    }

    /// The API servers: whether they do what is asked.
    fn receive(&mut self, pass: &Pass, request: &Request) -> bool {
        match request {
            Request::Report(standing) => self.store(pass, standing),
            Request::CreateBootstrap => self.provide(|world| &mut world.bootstrap),
            Request::CreateInfrastructure => self.provide(|world| &mut world.infrastructure),
            Request::CreateMachine => self.create_machine(),
            Request::Act(action) => self.act(pass, action),
        }
    }

    fn provide(&mut self, slot: fn(&mut World) -> &mut Provided) -> bool {
        let Some(object) = self.object else { return false };
        if !object.finalizer || !object.refs {
            self.broken = Some("a child is made before it is stored that it will be");
        }
        slot(self).get_or_insert(None);
        true
    }

    fn create_machine(&mut self) -> bool {
        match self.machine {
            None => {
                if !self.wanted_again {
                    self.broken = Some("a machine comes back that its owner wanted");
                }
                self.made += 1;
                self.machine =
                    Some(MachineState { uid: self.made, deleting: false, marks: Marks::default(), joined: false });
                true
            }
            // There already, and ours: the create was lost on its way back, or the cache lags behind.
            Some(machine) => !machine.deleting,
        }
    }

    /// A write of the status names the version it was made from, so one made from an old version is refused.
    fn store(&mut self, pass: &Pass, standing: &Standing) -> bool {
        if self.object != pass.known {
            return false;
        }
        let Some(object) = &mut self.object else { return false };
        object.refs = standing.refs.is_some();
        object.shutdown = standing.shutdown_started_at.map(index);
        self.wanted_again &= standing.phase != Phase::EmergencyRemove || object.phase == Some(Phase::EmergencyRemove);
        object.phase = Some(standing.phase);
        object.reclaim = standing.reclaim.as_ref().map(|it| (it.machine_uid.parse().unwrap(), it.schedule_disabled));
        true
    }

    /// What must never be sent, by what the pass could have known.
    fn judge(&mut self, pass: &Pass, action: &Action) {
        let (Some(seen), Some(object)) = (pass.view.caches.object, self.object) else { return };
        let requested = [pass.view.caches.node, pass.view.node].into_iter().flatten().any(|it| it.request);
        let ejected = seen.asked.killed || seen.phase == Some(Phase::EmergencyRemove) || requested;
        let takes = matches!(
            action,
            Action::DeleteMachine { .. } | Action::Cordon | Action::Evict(_) | Action::EndPods(_) | Action::EndAllPods
        );
        if ejected || !takes {
            return;
        }
        if !seen.asked.enabled && !seen.asked.deleted {
            self.broken = Some("something is taken from a machine whose schedule is disabled");
        }
        if object.shutdown.is_none() {
            self.broken = Some("a shutdown begins before it is stored that it does");
        }
        let joined = pass.view.machine.is_some_and(|it| it.joined) && self.node.is_some();
        let in_time = object.shutdown == Some(pass.view.instant);
        if matches!(action, Action::DeleteMachine { .. }) && joined && in_time && self.pod == Some(Verdict::Evict) {
            self.broken = Some("a machine goes before its pods were asked to leave");
        }
    }

    fn act(&mut self, pass: &Pass, action: &Action) -> bool {
        self.judge(pass, action);
        let seen_uid = pass.view.caches.machine.map(|it| it.uid);
        let ours = self.machine.as_mut().filter(|it| Some(it.uid) == seen_uid);
        match action {
            Action::AddFinalizer => match &mut self.object {
                Some(object) if Some(*object) == pass.known && !object.asked.deleted => {
                    object.finalizer = true;
                    true
                }
                _ => false,
            },
            Action::RemoveFinalizer if self.object != pass.known => false,
            Action::RemoveFinalizer => {
                if self.machine.is_some() || self.bootstrap.is_some() || self.infrastructure.is_some() {
                    self.broken = Some("the object goes and leaves something behind");
                }
                self.object = self.object.filter(|it| !it.asked.deleted);
                true
            }
            Action::Store(standing) => self.store(pass, standing),
            Action::Mark(marks) => ours.is_some_and(|machine| {
                machine.marks.no_drain |= marks.no_drain;
                machine.marks.no_volumes |= marks.no_volumes;
                true
            }),
            Action::Unmark => ours.is_some_and(|machine| {
                machine.marks = Marks::default();
                true
            }),
            Action::DeleteMachine { uid } => match &mut self.machine {
                Some(machine) if machine.uid.to_string() == *uid => {
                    machine.deleting = true;
                    true
                }
                Some(_) => false,
                None => true,
            },
            Action::DeleteProvider { role: Role::Bootstrap, .. } => {
                self.bootstrap = None;
                true
            }
            Action::DeleteProvider { role: Role::Infrastructure, .. } => {
                self.infrastructure = None;
                true
            }
            Action::Cordon | Action::Uncordon => match &mut self.node {
                Some(node) if node.cordon != Cordon::Others => {
                    node.cordon = if matches!(action, Action::Cordon) { Cordon::Ours } else { Cordon::Open };
                    true
                }
                Some(_) | None => true,
            },
            Action::Evict(_) => {
                self.pod = self.pod.map(|_| Verdict::Await);
                true
            }
            Action::EndPods(_) | Action::EndAllPods => {
                self.pod = None;
                true
            }
            Action::DisableSchedule => {
                if let Some(object) = &mut self.object {
                    object.asked.enabled = false;
                }
                true
            }
            Action::Unproject => true,
            Action::ClearRequest => {
                if let Some(node) = &mut self.node {
                    node.request = false;
                }
                true
            }
            Action::CreateChildren | Action::Together(_) => panic!("taken apart before"),
        }
    }

    /// Cluster API and the kubelet finish what they can.
    pub(crate) fn others_finish(&mut self) {
        if self.pod == Some(Verdict::Await) {
            self.pod = None;
        }
        match self.machine {
            Some(machine) if machine.deleting => {
                (self.machine, self.bootstrap, self.infrastructure, self.node, self.pod) =
                    (None, None, None, None, None);
            }
            Some(machine) if !machine.joined => {
                self.machine = Some(MachineState { joined: true, ..machine });
                self.bootstrap = self.bootstrap.map(|_| Some(machine.uid));
                self.infrastructure = self.infrastructure.map(|_| Some(machine.uid));
                self.node = Some(NodeState { cordon: Cordon::Open, request: false });
                self.pod = Some(Verdict::Evict);
            }
            Some(_) | None => {}
        }
    }
}

impl View {
    pub(crate) fn plan(&self) -> Option<Plan> {
        let object = self.caches.object?;
        let intent = Intent {
            deleted: object.asked.deleted,
            killed: object.asked.killed,
            enabled: object.asked.enabled,
            reclaimable: true,
            graceful_shutdown_timeout: SignedDuration::from_mins(5),
            node_drain_timeout: SignedDuration::from_mins(2),
        };
        let mut looks = Vec::new();
        let mut plan = loop {
            let seen = self.observed(&object, &looks);
            let situation =
                Situation { intent: &intent, spec: Ok(spec(self.window)), seen: &seen, now: instant(self.instant) };
            match decide(situation) {
                Decision::Do(plan) => break *plan,
                Decision::Look(look) => looks.push(look),
            }
        };
        if let Some(mistake) = self.mistake {
            mistake.plant(&mut plan);
        }
        Some(plan)
    }

    /// The requests of the plan in their order, and the report unless it would change nothing.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let (Some(plan), Some(object)) = (self.plan(), self.caches.object) else { return Vec::new() };
        let mut requests: Vec<Request> = plan.actions.iter().flat_map(apart).collect();
        let removed = plan.actions.contains(&Action::RemoveFinalizer);
        let standing = plan.standing;
        let after = Object {
            phase: Some(standing.phase),
            refs: standing.refs.is_some(),
            shutdown: standing.shutdown_started_at.map(index),
            reclaim: standing.reclaim.as_ref().map(|it| (it.machine_uid.parse().unwrap(), it.schedule_disabled)),
            ..object
        };
        let stored = requests.iter().any(|it| matches!(it, Request::Act(Action::Store(it)) if **it == standing));
        if after != object && !removed && !stored {
            requests.push(Request::Report(Box::new(standing)));
        }
        requests
    }

    /// What the caches show, and what each closer look, which goes to the API server itself, adds to it.
    fn observed(&self, object: &Object, looks: &[Look]) -> Observed {
        let looked = |look: Look| looks.contains(&look);
        let provider = |slot: &Provided, uid: &str| match slot {
            _ if !looked(Look::Children) => Slot::NotRead,
            Some(adopted) => Slot::Ours(ProviderChild {
                uid: uid.to_owned(),
                deleting: false,
                adopted_by: adopted.map(|it| it.to_string()),
                fingerprint: Some(FINGERPRINT.to_owned()),
            }),
            None => Slot::Absent,
        };
        let reclaim = object.reclaim.map(|(uid, schedule_disabled)| ReclaimStatus {
            machine_uid: uid.to_string(),
            reason: None,
            requested_at: None,
            schedule_disabled,
            count: 0,
        });
        let asked = looked(Look::Children) || looked(Look::Machine);
        let machine = if asked { self.machine } else { self.caches.machine };
        let node = if looked(Look::Node) { self.node } else { self.caches.node };
        Observed {
            finalizer: object.finalizer,
            stored: Stored {
                refs: object.refs.then(refs),
                shutdown_started_at: object.shutdown.map(instant),
                reclaim,
                reclaiming: object.phase == Some(Phase::EmergencyRemove),
                uids_known: true,
            },
            wanted: Some(Wanted { machine: "a-machine".to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() }),
            cluster: Cluster::Present,
            machine: match machine {
                Some(it) => Slot::Ours(Machine {
                    uid: it.uid.to_string(),
                    deleting: it.deleting,
                    marks: it.marks,
                    health: if it.joined { Health::Running } else { Health::Provisioning },
                    node: it.joined.then(|| "n".to_owned()),
                    provider_id: None,
                    fingerprint: Some(FINGERPRINT.to_owned()),
                    created_at: None,
                    confirmed: asked,
                }),
                None if object.refs && !looked(Look::Children) => Slot::NotRead,
                None => Slot::Absent,
            },
            bootstrap: provider(&self.bootstrap, "b"),
            infrastructure: provider(&self.infrastructure, "i"),
            node: match (machine, node) {
                (Some(machine), Some(node)) if machine.joined => Node::Ours(OurNode {
                    name: "n".to_owned(),
                    uid: "n".to_owned(),
                    ready: true,
                    cordon: node.cordon,
                    reclaim: node.request.then_some(ReclaimRequest { reason: None, at: None }),
                }),
                (Some(machine), None) if machine.joined && !looked(Look::Node) => Node::NotSeen,
                _ => Node::None,
            },
            pods: if looked(Look::Pods) {
                Pods::Read { now: self.pod.iter().map(|verdict| pod(*verdict)).collect(), at_first: 1 }
            } else {
                Pods::NotRead
            },
            held_off: None,
        }
    }
}

/// What a request writes, and so what its answer shows.
enum Subject {
    Object,
    Machine,
    Node,
}

fn subject(request: &Request) -> Option<Subject> {
    match request {
        Request::Report(_) => Some(Subject::Object),
        Request::CreateMachine => Some(Subject::Machine),
        Request::CreateBootstrap | Request::CreateInfrastructure => None,
        Request::Act(action) => match action {
            Action::AddFinalizer | Action::RemoveFinalizer | Action::Store(_) | Action::DisableSchedule => {
                Some(Subject::Object)
            }
            Action::Mark(_) | Action::Unmark | Action::DeleteMachine { .. } => Some(Subject::Machine),
            Action::Cordon | Action::Uncordon | Action::Unproject | Action::ClearRequest => Some(Subject::Node),
            Action::CreateChildren
            | Action::DeleteProvider { .. }
            | Action::Evict(_)
            | Action::EndPods(_)
            | Action::EndAllPods
            | Action::Together(_) => None,
        },
    }
}

fn pod(verdict: Verdict) -> NodePod {
    NodePod { namespace: "team".to_owned(), name: "p".to_owned(), uid: "p".to_owned(), verdict, ejected: true }
}

fn apart(action: &Action) -> Vec<Request> {
    match action {
        Action::CreateChildren => vec![Request::CreateBootstrap, Request::CreateInfrastructure, Request::CreateMachine],
        Action::Together(lists) => lists.iter().flatten().flat_map(apart).collect(),
        other => vec![Request::Act(other.clone())],
    }
}
