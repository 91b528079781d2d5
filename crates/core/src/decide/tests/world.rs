//! One object, its children, a Node with a pod, and a Cluster API that finishes what it is asked: enough to carry out
//! decisions to their end, and small enough to start from everywhere.

use fivespot_api::{Phase, ReclaimStatus, ScheduledMachineStatus};
use jiff::{SignedDuration, Timestamp};

use crate::children::MachineVersion;
use crate::decide::{Situation, decide};
use crate::drain::Verdict;
use crate::intent::Intent;
use crate::observed::{
    Cluster, Cordon, Health, Machine, Marks, Node, NodePod, Observed, OurNode, Pods, ProviderChild, ReclaimRequest,
    Ref, Refs, Slot, Stored, Wanted,
};
use crate::plan::{Action, Decision, Look, Plan, Role, Standing};
use crate::status::{Done, Made, Subject, fold};
use crate::validate::{Standard, ValidSpec, validate};

/// What all children are made from.
const FINGERPRINT: &str = "f";
/// More passes than any way to an end needs.
const BOUND: usize = 60;

/// What people ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub(super) struct Asked {
    pub(super) deleted: bool,
    pub(super) killed: bool,
    pub(super) enabled: bool,
    pub(super) window: bool,
    pub(super) reclaim: bool,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) asked: Asked,
    pub(super) cluster: Cluster,
    pub(super) finalizer: bool,
    pub(super) phase: Option<Phase>,
    pub(super) stored: Stored,
    machine: Slot<Machine>,
    bootstrap: Option<ProviderChild>,
    infrastructure: Option<ProviderChild>,
    node: Option<Cordon>,
    pod: Option<Verdict>,
    object_gone: bool,
    now: Timestamp,
    made: u32,
}

pub(super) fn refs() -> Refs {
    let child =
        |kind: &str, name: &str| Ref { api_version: "x/v1".to_owned(), kind: kind.to_owned(), name: name.to_owned() };
    Refs { bootstrap: child("Boot", "a-bootstrap"), infrastructure: child("Infra", "a-infra") }
}

fn spec(window: bool) -> ValidSpec {
    let cron = if window { "* * * * *" } else { "0 0 30 2 *" };
    let text = format!(
        r#"{{"schedule": {{"cron": "{cron}"}}, "clusterName": "c",
            "bootstrapSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "B", "spec": {{}}}},
            "infrastructureSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "I", "spec": {{}}}}}}"#
    );
    validate(&serde_json::from_str(&text).unwrap(), "default", Standard::Admission).unwrap()
}

impl World {
    pub(super) fn machine_is_foreign(&self) -> bool {
        self.machine == Slot::Foreign
    }

    pub(super) fn machine_is_alive(&self) -> bool {
        self.machine.ours().is_some_and(|it| !it.deleting)
    }

    pub(super) fn reclaim_is_due(&self) -> bool {
        let alive = self.machine.ours().is_some() && self.node.is_some();
        let before = self
            .machine
            .ours()
            .is_some_and(|machine| self.stored.reclaim.as_ref().is_some_and(|it| it.machine_uid == machine.uid));
        self.stored.reclaiming || (self.asked.reclaim && alive && !before)
    }

    pub(super) fn nothing_is_left(&self) -> bool {
        let forgotten = self.stored.refs.is_none() && self.stored.shutdown_started_at.is_none();
        self.nothing_of_ours() && (self.object_gone || forgotten)
    }

    fn nothing_of_ours(&self) -> bool {
        let left = [&self.bootstrap, &self.infrastructure].into_iter().any(|it| self.is_ours(it.as_ref()));
        self.machine.ours().is_none() && !left
    }

    /// Whether a child is there that is not somebody else's by now: what a Machine has adopted goes with it.
    fn is_ours(&self, child: Option<&ProviderChild>) -> bool {
        child.is_some_and(|it| !(self.machine_is_foreign() && it.adopted_by.is_some()))
    }

    pub(super) fn has_one_of_each(&self) -> bool {
        let alive = self.machine.ours().is_some_and(|it| !it.deleting && it.marks == Marks::default());
        alive
            && self.bootstrap.is_some()
            && self.infrastructure.is_some()
            && self.node != Some(Cordon::Ours)
            && self.stored.shutdown_started_at.is_none()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.object_gone
    }

    /// What a first look sees, and what each closer look adds to it.
    fn observe(&self, looks: &[Look]) -> Observed {
        let looked = |look: Look| looks.contains(&look);
        let provider = |child: &Option<ProviderChild>| match child {
            _ if !looked(Look::Children) => Slot::NotRead,
            Some(child) => Slot::Ours(child.clone()),
            None => Slot::Absent,
        };
        let request = ReclaimRequest { reason: Some("process-match: java".to_owned()), at: None };
        Observed {
            finalizer: self.finalizer,
            stored: self.stored.clone(),
            wanted: Some(Wanted { machine: "a-machine".to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() }),
            cluster: self.cluster,
            machine: match &self.machine {
                Slot::Absent if self.stored.refs.is_some() && !looked(Look::Children) => Slot::NotRead,
                Slot::Ours(machine) => {
                    let confirmed = looked(Look::Children) || looked(Look::Machine);
                    Slot::Ours(Machine { confirmed, ..machine.clone() })
                }
                machine => machine.clone(),
            },
            bootstrap: provider(&self.bootstrap),
            infrastructure: provider(&self.infrastructure),
            node: match (self.machine.ours(), self.node) {
                (Some(_), Some(cordon)) => Node::Ours(OurNode {
                    name: "n".to_owned(),
                    uid: "n".to_owned(),
                    ready: true,
                    cordon,
                    reclaim: self.asked.reclaim.then_some(request),
                }),
                (Some(machine), None) if machine.node.is_some() && !looked(Look::Node) => Node::NotSeen,
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

    pub(super) fn decide(&self) -> Plan {
        let spec = spec(self.asked.window);
        let intent = self.intent();
        let seen = self.seen();
        match decide(Situation { intent: &intent, spec: Ok(&spec), seen: &seen, now: self.now }) {
            Decision::Do(plan) => *plan,
            Decision::Look(look) => panic!("{look:?} is asked for twice: {self:#?}"),
        }
    }

    /// What is seen, with all that a decision asks to look at.
    fn seen(&self) -> Observed {
        let spec = spec(self.asked.window);
        let intent = self.intent();
        let mut looks = Vec::new();
        loop {
            let seen = self.observe(&looks);
            match decide(Situation { intent: &intent, spec: Ok(&spec), seen: &seen, now: self.now }) {
                Decision::Do(_) => return seen,
                Decision::Look(look) => {
                    assert!(!looks.contains(&look), "{look:?} is asked for twice: {self:#?}");
                    looks.push(look);
                }
            }
        }
    }

    fn intent(&self) -> Intent {
        Intent {
            deleted: self.asked.deleted,
            killed: self.asked.killed,
            enabled: self.asked.enabled,
            reclaimable: true,
            graceful_shutdown_timeout: SignedDuration::from_mins(5),
            node_drain_timeout: SignedDuration::from_mins(2),
        }
    }

    /// The world after all acts of a plan, and what the status then says.
    pub(super) fn after(&self, plan: &Plan) -> (World, ScheduledMachineStatus) {
        let (spec, intent, seen) = (spec(self.asked.window), self.intent(), self.seen());
        let mut after = self.clone();
        after.carry_out(plan);
        let made = |it: &Action| *it == Action::CreateChildren;
        let done = Done {
            machine: plan
                .actions
                .iter()
                .any(made)
                .then(|| Made { uid: after.machine.ours().unwrap().uid.clone(), at: None }),
            ..Done::default()
        };
        let before = ScheduledMachineStatus::default();
        let subject = Subject {
            name: "a",
            namespace: "default",
            generation: Some(1),
            machine_version: MachineVersion::V1Beta2,
            before: &before,
        };
        let situation = Situation { intent: &intent, spec: Ok(&spec), seen: &seen, now: self.now };
        let status = fold(subject, &situation, &plan.standing, &done);
        (after, status)
    }

    /// What a status claims that is not so in this world.
    pub(super) fn false_claims(&self, status: &ScheduledMachineStatus) -> Vec<&'static str> {
        let uid = self.machine.ours().map(|it| it.uid.clone());
        let running = self.machine.ours().is_some_and(|it| it.health == Health::Running);
        let everything = uid.is_some() && self.bootstrap.is_some() && self.infrastructure.is_some();
        let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
        let machine_ready = status.conditions.iter().find(|it| it.type_ == "MachineReady").unwrap();
        let over = matches!(status.phase, Some(Phase::Inactive | Phase::Terminated));
        [
            (status.machine_ref.as_ref().is_some_and(|it| it.uid != uid), "a Machine that is not there"),
            (status.node_ref.is_some() && self.node.is_none(), "a Node that is not there"),
            (status.phase == Some(Phase::Active) && !everything, "Active without all children"),
            (over && !self.nothing_of_ours(), "nothing is left, and something is"),
            (ready.status == "True" && !(running && self.node.is_some()), "Ready without a Node"),
            (machine_ready.status == "True" && !running, "a Machine that runs"),
            (status.bootstrap_ref.is_none() && self.is_ours(self.bootstrap.as_ref()), "no bootstrap object"),
            (
                status.infrastructure_ref.is_none() && self.is_ours(self.infrastructure.as_ref()),
                "no infrastructure object",
            ),
        ]
        .into_iter()
        .filter_map(|(claimed, what)| claimed.then_some(what))
        .collect()
    }

    /// Whether nothing but the clock has moved, and nothing but the names of machines that were made.
    pub(super) fn is_like(&self, other: &World) -> bool {
        same(&World { made: 0, ..self.clone() }, &World { made: 0, ..other.clone() })
    }

    /// Carries out all acts of a plan.
    pub(super) fn carry_out(&mut self, plan: &Plan) {
        plan.actions.iter().for_each(|it| self.act(it));
    }

    /// Carries out the first acts of a plan, then dies.
    pub(super) fn pass_until_crash(&mut self, acts: usize) {
        for action in self.decide().actions.iter().take(acts) {
            self.act(action);
        }
    }

    /// Passes, and what the rest of the world does between them, until nothing changes any more.
    pub(super) fn settle(mut self) -> World {
        for _ in 0..BOUND {
            if self.object_gone {
                return self;
            }
            let before = self.clone();
            let plan = self.decide();
            for action in &plan.actions {
                self.act(action);
            }
            if !self.object_gone {
                self.store(&plan.standing);
            }
            self.others_act();
            if same(&before, &self) {
                assert_eq!(plan.actions, Vec::new(), "a world at rest is left alone: {self:#?}");
                return self;
            }
        }
        panic!("no rest after {BOUND} passes: {self:#?}");
    }

    fn store(&mut self, standing: &Standing) {
        self.phase = Some(standing.phase);
        self.stored = Stored {
            refs: standing.refs.clone(),
            shutdown_started_at: standing.shutdown_started_at,
            reclaim: standing.reclaim.clone(),
            reclaiming: standing.phase == Phase::EmergencyRemove,
            uids_known: true,
        };
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::AddFinalizer => self.finalizer = true,
            Action::RemoveFinalizer => {
                self.finalizer = false;
                self.object_gone = self.asked.deleted;
            }
            Action::Store(standing) => self.store(standing),
            Action::CreateChildren => self.create(),
            Action::Mark(marks) => self.with_machine(|machine| {
                machine.marks.no_drain |= marks.no_drain;
                machine.marks.no_volumes |= marks.no_volumes;
            }),
            Action::Unmark => self.with_machine(|machine| machine.marks = Marks::default()),
            Action::DeleteMachine { uid } => {
                assert_eq!(self.machine.ours().map(|it| &it.uid), Some(uid));
                self.with_machine(|machine| machine.deleting = true);
            }
            Action::DeleteProvider { role: Role::Bootstrap, .. } => self.bootstrap = None,
            Action::DeleteProvider { role: Role::Infrastructure, .. } => self.infrastructure = None,
            Action::Cordon => self.node = Some(Cordon::Ours),
            Action::Uncordon => self.node = Some(Cordon::Open),
            Action::Evict(_) => self.pod = Some(Verdict::Await),
            Action::EndPods(_) | Action::EndAllPods => self.pod = None,
            Action::DisableSchedule => self.asked.enabled = false,
            Action::Unproject => {}
            Action::ClearRequest => self.asked.reclaim = false,
            Action::Together(lists) => lists.iter().flatten().for_each(|it| self.act(it)),
        }
    }

    fn with_machine(&mut self, change: impl FnOnce(&mut Machine)) {
        if let Slot::Ours(machine) = &mut self.machine {
            change(machine);
        }
    }

    fn create(&mut self) {
        assert_eq!(self.cluster, Cluster::Present);
        self.made += 1;
        self.bootstrap.get_or_insert_with(|| child("b"));
        self.infrastructure.get_or_insert_with(|| child("i"));
        if self.machine == Slot::Absent {
            self.machine = Slot::Ours(machine(&format!("made-{}", self.made), Health::Provisioning));
        }
    }

    /// Cluster API, the kubelet and the clock.
    fn others_act(&mut self) {
        self.now += SignedDuration::from_secs(30);
        if self.pod == Some(Verdict::Await) {
            self.pod = None;
        }
        match &mut self.machine {
            Slot::Ours(machine) if machine.deleting => {
                (self.machine, self.bootstrap, self.infrastructure, self.node) = (Slot::Absent, None, None, None);
            }
            Slot::Ours(machine) if machine.health == Health::Provisioning => {
                machine.health = Health::Running;
                machine.node = Some("n".to_owned());
                for child in [&mut self.bootstrap, &mut self.infrastructure].into_iter().flatten() {
                    child.adopted_by = Some(machine.uid.clone());
                }
                self.node.get_or_insert(Cordon::Open);
            }
            Slot::Ours(_) | Slot::Absent | Slot::Foreign | Slot::NotRead => {}
        }
    }
}

/// Whether nothing but the clock has moved.
fn same(a: &World, b: &World) -> bool {
    let still = |world: &World| format!("{:?}", World { now: Timestamp::UNIX_EPOCH, ..world.clone() });
    still(a) == still(b)
}

fn pod(verdict: Verdict) -> NodePod {
    NodePod { namespace: "team".to_owned(), name: "p".to_owned(), uid: "p".to_owned(), verdict, ejected: true }
}

fn child(uid: &str) -> ProviderChild {
    ProviderChild { uid: uid.to_owned(), deleting: false, adopted_by: None, fingerprint: Some(FINGERPRINT.to_owned()) }
}

fn machine(uid: &str, health: Health) -> Machine {
    Machine {
        uid: uid.to_owned(),
        deleting: false,
        marks: Marks::default(),
        node: (health == Health::Running).then(|| "n".to_owned()),
        health,
        provider_id: None,
        fingerprint: Some(FINGERPRINT.to_owned()),
        created_at: None,
        confirmed: true,
    }
}

/// Every world that a life can lead to, times everything that can be asked for.
pub(super) fn every_start() -> impl Iterator<Item = World> {
    let clusters = [Cluster::Present, Cluster::Missing, Cluster::Deleting, Cluster::Paused];
    (0..32_u8).flat_map(move |bits| {
        let bit = |at: u8| bits & (1 << at) != 0;
        let asked = Asked { deleted: bit(0), killed: bit(1), enabled: bit(2), window: bit(3), reclaim: bit(4) };
        clusters.into_iter().flat_map(move |cluster| lives(asked, cluster))
    })
}

fn lives(asked: Asked, cluster: Cluster) -> Vec<World> {
    let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
    let new = World {
        asked,
        cluster,
        finalizer: false,
        phase: None,
        stored: Stored::default(),
        machine: Slot::Absent,
        bootstrap: None,
        infrastructure: None,
        node: None,
        pod: None,
        object_gone: false,
        now,
        made: 0,
    };
    // A deleted object without our finalizer is gone already, so nobody would see it.
    let begun = World {
        finalizer: true,
        stored: Stored { refs: Some(refs()), uids_known: true, ..Stored::default() },
        ..new.clone()
    };
    let half_made = World { bootstrap: Some(child("b")), ..begun.clone() };
    let adopted = |uid: &str| Some(ProviderChild { adopted_by: Some("m".to_owned()), ..child(uid) });
    let alive = World {
        machine: Slot::Ours(machine("m", Health::Running)),
        bootstrap: adopted("b"),
        infrastructure: adopted("i"),
        node: Some(Cordon::Open),
        pod: Some(Verdict::Evict),
        ..begun.clone()
    };
    let joining = World {
        machine: Slot::Ours(machine("m", Health::Provisioning)),
        bootstrap: Some(child("b")),
        infrastructure: Some(child("i")),
        ..begun.clone()
    };
    let started = Stored { shutdown_started_at: Some(now), ..begun.stored.clone() };
    let draining = World { stored: started.clone(), node: Some(Cordon::Ours), ..alive.clone() };
    let marked = |deleting| {
        Slot::Ours(Machine {
            marks: Marks { no_drain: true, no_volumes: false },
            deleting,
            ..machine("m", Health::Running)
        })
    };
    let reclaim = ReclaimStatus {
        machine_uid: "m".to_owned(),
        reason: None,
        requested_at: None,
        schedule_disabled: false,
        count: 1,
    };
    let reclaiming = Stored { reclaim: Some(reclaim), reclaiming: true, ..begun.stored.clone() };
    let mut all = vec![
        begun.clone(),
        half_made,
        joining,
        World { node: Some(Cordon::Others), ..alive.clone() },
        World { machine: marked(false), ..draining.clone() },
        World { machine: marked(true), pod: None, ..draining.clone() },
        World { stored: started.clone(), infrastructure: adopted("i"), ..begun.clone() },
        World { infrastructure: adopted("i"), ..begun.clone() },
        World { stored: reclaiming.clone(), ..alive.clone() },
        World { stored: reclaiming.clone(), infrastructure: adopted("i"), ..begun.clone() },
        World { stored: reclaiming, ..begun.clone() },
        World {
            machine: Slot::Foreign,
            bootstrap: adopted("b"),
            infrastructure: adopted("i"),
            node: Some(Cordon::Open),
            ..begun.clone()
        },
        World { machine: Slot::Foreign, ..begun },
        alive,
        draining,
    ];
    if !asked.deleted {
        all.push(World { machine: Slot::Foreign, ..new.clone() });
        all.push(new);
    }
    all
}
