//! All there is at one moment, small enough to be compared and counted.

use fivespot_api::Phase;
use fivespot_planner::drain::DrainAction;
use fivespot_planner::observed::{Cluster, Cordon, Exclusions};

use super::mistake::Mistake;
use super::pass::Pass;
use super::rules::Rule;

pub(crate) const LAST_INSTANT: u8 = 2;

/// What people ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub(crate) struct Asked {
    pub(crate) deleted: bool,
    pub(crate) killed: bool,
    pub(crate) enabled: bool,
    /// Whether the rest of the spec parses.
    pub(crate) readable: bool,
}

impl Asked {
    /// All that is asked for is a machine while the window is open.
    pub(crate) const MACHINE: Asked = Asked { deleted: false, killed: false, enabled: true, readable: true };
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
    pub(crate) reclaim: Option<Reclaim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reclaim {
    pub(crate) machine: u8,
    pub(crate) schedule_disabled: bool,
    pub(crate) in_progress: bool,
}

impl Object {
    pub(crate) fn is_reclaiming(self) -> bool {
        self.reclaim.is_some_and(|it| it.in_progress)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Ours,
    /// It was ours until another controller took it, uid and all.
    TakenOver,
    /// It has our name, and was never ours.
    Strangers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MachineState {
    pub(crate) uid: u8,
    pub(crate) whose: Whose,
    pub(crate) deleting: bool,
    pub(crate) exclusions: Exclusions,
    pub(crate) joined: bool,
    pub(crate) failed: bool,
}

impl MachineState {
    pub(crate) fn new(uid: u8, whose: Whose) -> Self {
        MachineState { uid, whose, deleting: false, exclusions: Exclusions::default(), joined: false, failed: false }
    }

    pub(crate) fn is_ours(self) -> bool {
        self.whose == Whose::Ours
    }
}

/// A bootstrap or infrastructure object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProviderState {
    pub(crate) whose: Whose,
    pub(crate) deleting: bool,
    /// The Machine that has adopted it.
    pub(crate) adopted_by: Option<u8>,
}

impl ProviderState {
    pub(crate) fn new(whose: Whose) -> Self {
        ProviderState { whose, deleting: false, adopted_by: None }
    }

    pub(crate) fn uid(self) -> &'static str {
        if self.whose == Whose::Strangers { "a stranger's" } else { "ours" }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeState {
    /// The Machine whose Node it is. All of them have the same name.
    pub(crate) of: u8,
    pub(crate) cordon: Cordon,
    pub(crate) request: bool,
    /// Whether the agent looks after it.
    pub(crate) agent: bool,
}

/// How it stands with the cluster in which the Node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reach {
    Connected,
    Sought,
    Unreachable,
}

/// What the API servers hold besides the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct There {
    pub(crate) machine: Option<MachineState>,
    pub(crate) bootstrap: Option<ProviderState>,
    pub(crate) infrastructure: Option<ProviderState>,
    pub(crate) node: Option<NodeState>,
    pub(crate) pod: Option<DrainAction>,
    pub(crate) cluster: Cluster,
    pub(crate) reach: Reach,
}

impl There {
    const NOTHING: There = There {
        machine: None,
        bootstrap: None,
        infrastructure: None,
        node: None,
        pod: None,
        cluster: Cluster::Present,
        reach: Reach::Connected,
    };

    /// Our Machine, if it is there.
    pub(crate) fn our_machine(&self) -> Option<MachineState> {
        self.machine.filter(|it| it.is_ours())
    }

    /// Whether a provider object belongs to somebody else, by itself or because its Machine was taken over.
    pub(crate) fn is_foreign(&self, child: ProviderState) -> bool {
        let taken_over = |it: MachineState| it.whose == Whose::TakenOver && child.adopted_by == Some(it.uid);
        child.whose != Whose::Ours || self.machine.is_some_and(taken_over)
    }

    /// Whether nothing of ours is left.
    pub(crate) fn nothing_of_ours(&self) -> bool {
        let providers = [self.bootstrap, self.infrastructure];
        self.our_machine().is_none() && providers.into_iter().flatten().all(|it| self.is_foreign(it))
    }
}

/// What the controller has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caches {
    pub(crate) object: Option<Object>,
    pub(crate) machine: Option<MachineState>,
    pub(crate) node: Option<NodeState>,
}

/// The last Machine that the controller has seen failed, and whether it still waits before it makes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lost {
    pub(crate) uid: u8,
    pub(crate) waits: bool,
}

/// How much may still happen that nobody has to answer for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// What people do.
    pub(crate) edits: u8,
    /// The end of the process.
    pub(crate) crashes: u8,
    /// What goes wrong around it.
    pub(crate) troubles: u8,
    /// Requests whose answer is lost.
    pub(crate) losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) object: Option<Object>,
    pub(crate) there: There,
    pub(crate) window: bool,
    pub(crate) instant: u8,
    /// How many Machines of ours there have been.
    pub(crate) made: u8,
    pub(crate) caches: Caches,
    pub(crate) lost: Option<Lost>,
    /// The pass under way.
    pub(crate) pass: Option<Pass>,
    pub(crate) budget: Budget,
    /// Whether a person has enabled the schedule since the last reclaim.
    pub(crate) wanted_again: bool,
    pub(crate) mistake: Option<Mistake>,
    /// The first rule that was broken.
    pub(crate) broken: Option<Rule>,
}

impl World {
    pub(crate) fn new(mistake: Option<Mistake>, budget: Budget) -> Self {
        let object =
            Object { asked: Asked::MACHINE, finalizer: false, phase: None, refs: false, shutdown: None, reclaim: None };
        World {
            object: Some(object),
            there: There::NOTHING,
            window: true,
            instant: 0,
            made: 0,
            caches: Caches { object: Some(object), machine: None, node: None },
            lost: None,
            pass: None,
            budget,
            wanted_again: true,
            mistake,
            broken: None,
        }
    }

    pub(crate) fn catch_up(&mut self) {
        self.caches = Caches { object: self.object, machine: self.there.machine, node: self.there.node };
    }
}
