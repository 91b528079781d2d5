//! What the provider is told to do with an object, and by whom: a test's script, or an annotation on the object.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::ResourceExt;
use kube::api::DynamicObject;

/// An annotation by which a person makes one object misbehave: `fail`, `never-ready` or `never-gone`.
pub const BEHAVIOUR: &str = "testbed.5spot.finos.org/behaviour";

/// How a step towards readiness goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It succeeds, so long after its prerequisites are there.
    After(Duration),
    /// It never ends.
    Never,
    /// It fails for good, as the contract has it: `status.failureReason` and `status.failureMessage`.
    Fail {
        /// A word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
    },
}

/// How a machine is taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Node and machine go, so long after the deletion was asked for.
    After(Duration),
    /// The machine goes as late, and leaves its Node for Cluster API to delete.
    LeavingNodeAfter(Duration),
    /// It never goes.
    Never,
}

/// Who makes a machine a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// The provider registers the Node, and KWOK keeps it alive.
    Simulated,
    /// A kubelet does, which the test starts: a [`crate::RealNode`] with the name and the providerID that
    /// [`super::node_name`] and [`super::provider_id`] give.
    ByKubelet,
}

/// How the provider treats an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Of a `K0sWorkerConfig`: making the bootstrap data.
    pub bootstrap: Step,
    /// Of a `RemoteMachine`: provisioning it.
    pub infrastructure: Step,
    /// Of a `RemoteMachine`: becoming a Node.
    pub joining: Joining,
    /// Of a `RemoteMachine`: taking it away.
    pub removal: Removal,
}

impl Default for Behaviour {
    /// Everything succeeds at once.
    fn default() -> Self {
        Self {
            bootstrap: Step::After(Duration::ZERO),
            infrastructure: Step::After(Duration::ZERO),
            joining: Joining::Simulated,
            removal: Removal::After(Duration::ZERO),
        }
    }
}

/// All that was said about behaviour; the most specific word counts.
#[derive(Debug, Default)]
pub(super) struct Script {
    rules: Mutex<Rules>,
    listeners: Mutex<Vec<UnboundedSender<()>>>,
}

#[derive(Debug, Default)]
struct Rules {
    default: Behaviour,
    namespaces: HashMap<String, Behaviour>,
    objects: HashMap<(String, String), Behaviour>,
}

impl Script {
    pub(super) fn set_default(&self, behaviour: Behaviour) {
        self.rules().default = behaviour;
        self.tell();
    }

    pub(super) fn set_namespace(&self, namespace: &str, behaviour: Behaviour) {
        self.rules().namespaces.insert(namespace.to_owned(), behaviour);
        self.tell();
    }

    pub(super) fn set_object(&self, namespace: &str, name: &str, behaviour: Behaviour) {
        self.rules().objects.insert((namespace.to_owned(), name.to_owned()), behaviour);
        self.tell();
    }

    pub(super) fn behaviour_of(&self, object: &DynamicObject) -> Behaviour {
        let rules = self.rules();
        let namespace = object.namespace().unwrap_or_default();
        let behaviour = rules
            .objects
            .get(&(namespace.clone(), object.name_any()))
            .or_else(|| rules.namespaces.get(&namespace))
            .unwrap_or(&rules.default)
            .clone();
        match object.annotations().get(BEHAVIOUR).map(String::as_str) {
            Some("fail") => {
                let failure =
                    Step::Fail { reason: "Simulated".to_owned(), message: "an annotation asked for it".to_owned() };
                Behaviour { bootstrap: failure.clone(), infrastructure: failure, ..behaviour }
            }
            Some("never-ready") => Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..behaviour },
            Some("never-gone") => Behaviour { removal: Removal::Never, ..behaviour },
            Some(_) | None => behaviour,
        }
    }

    /// A signal for each change of the script.
    pub(super) fn rewritten(&self) -> UnboundedReceiver<()> {
        let (teller, listener) = unbounded();
        self.listeners.lock().expect("no holder panics").push(teller);
        listener
    }

    fn tell(&self) {
        self.listeners.lock().expect("no holder panics").retain(|listener| listener.unbounded_send(()).is_ok());
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::kinds::REMOTE_MACHINE;

    fn never() -> Behaviour {
        Behaviour { infrastructure: Step::Never, ..Behaviour::default() }
    }

    fn hanging() -> Behaviour {
        Behaviour { removal: Removal::Never, ..Behaviour::default() }
    }

    #[test]
    fn the_most_specific_word_counts() {
        let script = Script::default();
        let machine = DynamicObject::new("m", &REMOTE_MACHINE.api_resource()).within("n");
        assert_eq!(script.behaviour_of(&machine), Behaviour::default());
        script.set_namespace("n", never());
        assert_eq!(script.behaviour_of(&machine), never());
        script.set_object("n", "m", hanging());
        assert_eq!(script.behaviour_of(&machine), hanging());
        let mut annotated = machine;
        annotated.annotations_mut().insert(BEHAVIOUR.to_owned(), "never-ready".to_owned());
        assert_eq!(script.behaviour_of(&annotated).infrastructure, Step::Never);
        assert_eq!(script.behaviour_of(&annotated).removal, Removal::Never);
    }
}
