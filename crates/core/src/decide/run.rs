//! Seeing to it that there is a machine.

use fivespot_api::Phase;
use fivespot_api::conditions::Ready;

use super::aim::Because;
use super::{Situation, hold, removal, standing};
use crate::observed::{Cluster, Health, Machine, Observed, ProviderChild, Refs, Slot};
use crate::plan::{Action, Plan, Standing};

pub(super) fn plan(situation: &Situation<'_>) -> Plan {
    match &situation.seen.machine {
        Slot::Foreign => wrong(situation, "a Machine of the name is there already, and it is not ours"),
        Slot::Ours(machine) if machine.deleting => removal::graceful(situation, Because::Closed),
        Slot::Ours(machine) => keep(situation, machine),
        Slot::NotRead | Slot::Absent => make(situation),
    }
}

/// The machine is there: it is taken back if it was on its way out, and made anew if it failed.
fn keep(situation: &Situation<'_>, machine: &Machine) -> Plan {
    let (ready, message) = match &machine.health {
        Health::Failed(why) => {
            let removal = removal::graceful(situation, Because::Closed);
            let message = format!("the machine failed and is made anew: {why}");
            let standing = Standing { phase: Phase::Error, ready: Ready::Error, message, ..removal.standing };
            return Plan { standing, ..removal };
        }
        Health::Running => (Ready::MachineRunning, "the machine runs"),
        Health::Provisioning => (Ready::Provisioning, "the machine is on its way"),
    };
    Plan {
        actions: hold::undo_shutdown(situation.seen),
        standing: Standing { shutdown_started_at: None, ..standing::keeping(situation, Phase::Active, ready, message) },
        wake_at: None,
    }
}

/// The machine is not there: what an earlier one left is removed first, then it is made.
fn make(situation: &Situation<'_>) -> Plan {
    let seen = situation.seen;
    let Some(wanted) = seen.wanted.clone() else {
        return wrong(situation, "the spec does not say which objects to create");
    };
    if has_leftovers(seen, &wanted) {
        return removal::graceful(situation, Because::Closed);
    }
    if [&seen.bootstrap, &seen.infrastructure].iter().any(|it| matches!(it, Slot::Foreign)) {
        return wrong(situation, "an object of a child's name is there already, and it is not ours");
    }
    match seen.cluster {
        Cluster::Missing => return wrong(situation, "the Cluster does not exist"),
        Cluster::Deleting => return wrong(situation, "the Cluster is being deleted"),
        Cluster::Paused => {
            let message = "the Cluster is paused: the machine is made when it is resumed";
            let standing = standing::empty(situation, Phase::Pending, Ready::Provisioning, message);
            return Plan { actions: Vec::new(), standing, wake_at: None };
        }
        Cluster::Present => {}
    }
    let standing = |phase, message: &str| Standing {
        refs: Some(wanted.clone()),
        ..standing::empty(situation, phase, Ready::Provisioning, message)
    };
    let finalizer = (!seen.finalizer).then_some(Action::AddFinalizer);
    let store = (seen.stored.refs.as_ref() != Some(&wanted) || seen.stored.shutdown_started_at.is_some())
        .then(|| Action::Store(Box::new(standing(Phase::Pending, "the machine is being made"))));
    Plan {
        actions: finalizer.into_iter().chain(store).chain([Action::CreateChildren]).collect(),
        standing: standing(Phase::Active, "the machine is on its way"),
        wake_at: None,
    }
}

/// Whether there are objects of an earlier machine: of a shutdown that is not finished, of other kinds than are wanted
/// now, or adopted by a Machine that is gone.
fn has_leftovers(seen: &Observed, wanted: &Refs) -> bool {
    let children: Vec<&ProviderChild> =
        [&seen.bootstrap, &seen.infrastructure].into_iter().filter_map(Slot::ours).collect();
    let of_another = |child: &&ProviderChild| child.deleting || child.adopted_by.is_some();
    !children.is_empty()
        && (seen.stored.shutdown_started_at.is_some()
            || seen.stored.refs.as_ref() != Some(wanted)
            || children.iter().any(of_another))
}

/// Something that a person, or time, has to put right; a watch tells when it has.
fn wrong(situation: &Situation<'_>, message: &str) -> Plan {
    Plan {
        actions: Vec::new(),
        standing: standing::keeping(situation, Phase::Error, Ready::Error, message),
        wake_at: None,
    }
}
