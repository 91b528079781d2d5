//! Where a world can begin: everything that a life can lead to, times everything that can be asked for.

use jiff::{SignedDuration, Timestamp};

use super::eyes::ORDERS;
use super::others::HOLD_OFF;
use super::parts::{
    Leaving, NO_AGENT, adopted, agent, broken, child, deleted_by_others, failed, machine, marked, reclaim, reclaiming,
    refs,
};
use super::{Asked, Pod, Reach, Schedule, World};
use crate::observed::{AgentConfig, AgentRollout, Child, Cluster, Cordon, MachineHealth, ProviderChild, Stored};

/// Every world that a life can lead to, times everything that can be asked for.
pub(in super::super) fn every_start() -> impl Iterator<Item = World> {
    let clusters = [Cluster::Present, Cluster::Missing, Cluster::Deleting, Cluster::Paused];
    let schedules = [Schedule::Open, Schedule::Closed, Schedule::Invalid];
    (0..16_u8).flat_map(move |bits| {
        let bit = |at: u8| bits & (1 << at) != 0;
        let (deleted, killed, enabled, reclaim) = (bit(0), bit(1), bit(2), bit(3));
        let asked = schedules.map(|schedule| Asked { deleted, killed, enabled, schedule, reclaim, orders: true });
        let begin = move |asked| clusters.map(|cluster| Beginning::new(asked, cluster));
        asked.into_iter().flat_map(begin).flat_map(|it| it.every_life())
    })
}

/// What the lives of one object have in common.
struct Beginning {
    /// Nobody has looked at it yet.
    new: World,
    /// A machine is about to be made.
    begun: World,
    /// It is on its way.
    joining: World,
    /// It runs.
    alive: World,
    /// It runs, and is on its way out.
    draining: World,
}

impl Beginning {
    fn new(asked: Asked, cluster: Cluster) -> Self {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let new = World {
            asked,
            cluster,
            finalizer: false,
            phase: None,
            stored: Stored::default(),
            machine: Child::Absent,
            bootstrap: None,
            infrastructure: None,
            node: None,
            agent: NO_AGENT,
            reach: Reach::Answers,
            pod: None,
            recreate_backoff: None,
            object_gone: false,
            now,
            made: 0,
        };
        let stored = Stored { refs: Some(refs()), ..Stored::default() };
        let begun = World { finalizer: true, stored, ..new.clone() };
        let known = Stored { has_child_uids: true, ..begun.stored.clone() };
        let joining = World {
            stored: known.clone(),
            machine: Child::Managed(machine("m", MachineHealth::Provisioning)),
            bootstrap: Some(child("b")),
            infrastructure: Some(child("i")),
            ..begun.clone()
        };
        let alive = World {
            machine: Child::Managed(machine("m", MachineHealth::Running)),
            bootstrap: Some(adopted("b")),
            infrastructure: Some(adopted("i")),
            node: Some(Cordon::Schedulable),
            pod: Some(Pod::Willing),
            ..joining.clone()
        };
        let started = Stored { shutdown_started_at: Some(now), ..known };
        let draining = World { stored: started, node: Some(Cordon::ByController), ..alive.clone() };
        Beginning { new, begun, joining, alive, draining }
    }

    fn every_life(&self) -> Vec<World> {
        let lives = [self.made(), self.lived(), self.left(), self.failed(), self.given_back(), self.taken()];
        let mut all = [lives.concat(), self.apart(), self.looked_after()].concat();
        // A deleted object that nothing holds is gone already, so nobody would see it. Where a deletion is in the
        // foreground, the Machine holds it too.
        all.retain(|it| it.finalizer || it.machine.managed().is_some() || !it.asked.deleted);
        // What nobody can read, neither in the status nor in the spec, nobody knows.
        let unknown = |it: &World| it.stored.refs.is_none() && it.asked.schedule == Schedule::Invalid;
        all.retain(|it| it.machine.managed().is_none() || !unknown(it));
        all
    }

    /// There is no machine yet.
    fn made(&self) -> Vec<World> {
        let Beginning { new, begun, joining, .. } = self;
        vec![
            new.clone(),
            begun.clone(),
            World { bootstrap: Some(child("b")), ..begun.clone() },
            World { bootstrap: Some(ProviderChild { deleting: true, ..child("b") }), ..begun.clone() },
            World { machine: Child::Absent, stored: begun.stored.clone(), ..joining.clone() },
            joining.clone(),
            World { stored: begun.stored.clone(), ..joining.clone() },
        ]
    }

    /// The machine runs.
    fn lived(&self) -> Vec<World> {
        let alive = &self.alive;
        vec![
            alive.clone(),
            World { node: Some(Cordon::ByOther), ..alive.clone() },
            World { node: Some(Cordon::Reverted), ..alive.clone() },
            World { node: None, pod: None, ..alive.clone() },
            World { pod: None, ..alive.clone() },
            World { pod: Some(Pod::Stubborn), ..alive.clone() },
            World { stored: self.begun.stored.clone(), ..alive.clone() },
            World { finalizer: false, ..alive.clone() },
            // Somebody has emptied its status.
            World { stored: Stored::default(), ..alive.clone() },
        ]
    }

    /// The agent looks after the machine, or did, or is only half there.
    fn looked_after(&self) -> Vec<World> {
        let Beginning { alive, draining, .. } = self;
        let reclaiming = Stored { reclaim: Some(reclaiming("m")), ..alive.stored.clone() };
        let unasked = |world: World| World { asked: Asked { orders: false, ..world.asked }, ..world };
        let agents = [
            agent(AgentConfig::Present(ORDERS.to_owned())),
            agent(AgentConfig::Absent),
            AgentRollout { labelled: false, ..agent(AgentConfig::Unusable) },
        ];
        let lives = [
            alive.clone(),
            draining.clone(),
            self.deleting(),
            World { stored: reclaiming, ..alive.clone() },
            unasked(alive.clone()),
            unasked(draining.clone()),
        ];
        let looked_after = |it: World| agents.clone().map(|agent| World { agent, ..it.clone() });
        lives.into_iter().flat_map(looked_after).chain([unasked(alive.clone())]).collect()
    }

    /// The machine is on its way out.
    fn left(&self) -> Vec<World> {
        let Beginning { begun, draining, .. } = self;
        let started = &draining.stored;
        let long_ago = started.shutdown_started_at.map(|it| it - SignedDuration::from_mins(10));
        let overdue = Stored { shutdown_started_at: long_ago, ..started.clone() };
        vec![
            draining.clone(),
            World { node: Some(Cordon::Schedulable), pod: None, ..draining.clone() },
            World { node: Some(Cordon::ByOther), pod: Some(Pod::Leaving), ..draining.clone() },
            World { node: Some(Cordon::Reverted), ..draining.clone() },
            World { pod: Some(Pod::Stubborn), stored: overdue.clone(), ..draining.clone() },
            World { machine: marked(Leaving::NotYet), ..draining.clone() },
            World { finalizer: false, ..draining.clone() },
            World { pod: None, ..self.deleting() },
            World { stored: overdue, ..self.deleting() },
            World { node: Some(Cordon::Reverted), ..self.deleting() },
            World { machine: deleted_by_others(), ..self.alive.clone() },
            World { stored: started.clone(), infrastructure: Some(adopted("i")), ..begun.clone() },
            World { infrastructure: Some(adopted("i")), ..begun.clone() },
            World { machine: Child::Absent, node: None, pod: None, ..draining.clone() },
        ]
    }

    fn deleting(&self) -> World {
        World { machine: marked(Leaving::Deleted), ..self.draining.clone() }
    }

    /// The machine is of no use, or was, and the next one has to wait.
    fn failed(&self) -> Vec<World> {
        let Beginning { begun, alive, draining, joining, .. } = self;
        let recreate_backoff = Some(begun.now + HOLD_OFF);
        vec![
            World { machine: failed(), ..alive.clone() },
            World { machine: Child::Managed(broken()), ..joining.clone() },
            World { machine: failed(), ..draining.clone() },
            World { recreate_backoff, stored: Stored::default(), ..begun.clone() },
            World {
                recreate_backoff,
                stored: draining.stored.clone(),
                infrastructure: Some(adopted("i")),
                ..begun.clone()
            },
            World { recreate_backoff, ..alive.clone() },
        ]
    }

    /// The owner has asked for the machine, or for one before.
    fn given_back(&self) -> Vec<World> {
        let Beginning { begun, alive, .. } = self;
        let before = |uid: &str| Stored { reclaim: Some(reclaim(uid)), ..alive.stored.clone() };
        let now = Stored { reclaim: Some(reclaiming("m")), ..before("m") };
        vec![
            World { stored: now.clone(), ..alive.clone() },
            World { stored: now.clone(), ..self.deleting() },
            World { stored: now.clone(), infrastructure: Some(adopted("i")), ..begun.clone() },
            World { stored: now, ..begun.clone() },
            World { stored: before("m"), ..alive.clone() },
            World { stored: before("another"), ..alive.clone() },
        ]
    }

    /// Somebody else's Machine has the name.
    fn taken(&self) -> Vec<World> {
        let Beginning { new, begun, alive, .. } = self;
        let theirs = || Child::Unmanaged("theirs".to_owned());
        vec![
            World { machine: theirs(), ..new.clone() },
            World { machine: theirs(), ..begun.clone() },
            // What an earlier machine of ours left behind is still ours.
            World { machine: theirs(), infrastructure: Some(adopted("i")), ..begun.clone() },
            // Ours until they took it over, with all that it has.
            World { machine: Child::Unmanaged("m".to_owned()), pod: None, ..alive.clone() },
        ]
    }

    /// The cluster of the Node is being connected, or does not answer, for a while or for good.
    fn apart(&self) -> Vec<World> {
        let Beginning { joining, alive, draining, .. } = self;
        let reclaiming = Stored { reclaim: Some(reclaiming("m")), ..alive.stored.clone() };
        let lives = [
            joining.clone(),
            alive.clone(),
            draining.clone(),
            self.deleting(),
            World { machine: failed(), ..alive.clone() },
            World { stored: reclaiming, ..alive.clone() },
        ];
        let apart =
            |it: World| [Reach::Sought(2), Reach::Silent(2), Reach::Never].map(|reach| World { reach, ..it.clone() });
        lives.into_iter().flat_map(apart).collect()
    }
}
