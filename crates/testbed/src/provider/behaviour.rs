//! How the provider behaves for an object: set by a test, or by an annotation on the object.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::ResourceExt;
use kube::api::DynamicObject;

/// An annotation that makes one object misbehave: `fail`, `never-ready` or `never-gone`.
pub const BEHAVIOUR_ANNOTATION: &str = "testbed.5spot.finos.org/behaviour";

/// The outcome of provisioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Succeeds this long after its prerequisites are met.
    After(Duration),
    /// Never completes.
    Never,
    /// Fails permanently: sets `status.failureReason` and `status.failureMessage`.
    Fail { reason: String, message: String },
}

/// The outcome of deleting a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Removes Node and machine this long after the delete request.
    After(Duration),
    /// Removes the machine this long after the delete request, and leaves its Node for Cluster API to delete.
    LeavingNodeAfter(Duration),
    /// Never completes: keeps the finalizer.
    Never,
}

/// Which component registers the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// The provider, and KWOK simulates the kubelet.
    Simulated,
    /// A [`crate::RealNode`] that the test starts with the name of [`super::node_name`] and the providerID of
    /// [`super::provider_id`].
    ByKubelet,
}

/// How the provider treats an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// Of a `K0sWorkerConfig`: creating the bootstrap data.
    pub bootstrap: Step,
    /// Of a `RemoteMachine`: provisioning.
    pub infrastructure: Step,
    /// Of a `RemoteMachine`: registering the Node.
    pub joining: Joining,
    /// Of a `RemoteMachine`: deletion.
    pub removal: Removal,
}

impl Default for Behaviour {
    /// Everything succeeds immediately.
    fn default() -> Self {
        Self {
            bootstrap: Step::After(Duration::ZERO),
            infrastructure: Step::After(Duration::ZERO),
            joining: Joining::Simulated,
            removal: Removal::After(Duration::ZERO),
        }
    }
}

/// The behaviour of all objects; the most specific rule applies.
#[derive(Debug, Default)]
pub(super) struct BehaviourRules {
    rules: Mutex<Rules>,
    listeners: Mutex<Vec<UnboundedSender<()>>>,
}

#[derive(Debug, Default)]
struct Rules {
    default: Behaviour,
    namespaces: HashMap<String, Behaviour>,
    objects: HashMap<(String, String), Behaviour>,
}

impl BehaviourRules {
    pub(super) fn set_default(&self, behaviour: Behaviour) {
        self.rules().default = behaviour;
        self.notify();
    }

    pub(super) fn set_namespace(&self, namespace: &str, behaviour: Behaviour) {
        self.rules().namespaces.insert(namespace.to_owned(), behaviour);
        self.notify();
    }

    pub(super) fn set_object(&self, namespace: &str, name: &str, behaviour: Behaviour) {
        self.rules().objects.insert((namespace.to_owned(), name.to_owned()), behaviour);
        self.notify();
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
        match object.annotations().get(BEHAVIOUR_ANNOTATION).map(String::as_str) {
            Some("fail") => {
                let failure =
                    Step::Fail { reason: "Simulated".to_owned(), message: "requested by annotation".to_owned() };
                Behaviour { bootstrap: failure.clone(), infrastructure: failure, ..behaviour }
            }
            Some("never-ready") => Behaviour { bootstrap: Step::Never, infrastructure: Step::Never, ..behaviour },
            Some("never-gone") => Behaviour { removal: Removal::Never, ..behaviour },
            Some(_) | None => behaviour,
        }
    }

    /// Receives a message for each change of the rules.
    pub(super) fn changes(&self) -> UnboundedReceiver<()> {
        let (sender, receiver) = unbounded();
        self.listeners.lock().expect("no thread panics while holding the lock").push(sender);
        receiver
    }

    fn notify(&self) {
        self.listeners
            .lock()
            .expect("no thread panics while holding the lock")
            .retain(|listener| listener.unbounded_send(()).is_ok());
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().expect("no thread panics while holding the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::kinds::REMOTE_MACHINE;

    fn never_provisioned() -> Behaviour {
        Behaviour { infrastructure: Step::Never, ..Behaviour::default() }
    }

    fn never_removed() -> Behaviour {
        Behaviour { removal: Removal::Never, ..Behaviour::default() }
    }

    #[test]
    fn most_specific_rule_applies() {
        let rules = BehaviourRules::default();
        let machine = DynamicObject::new("m", &REMOTE_MACHINE.api_resource()).within("n");
        assert_eq!(rules.behaviour_of(&machine), Behaviour::default());
        rules.set_namespace("n", never_provisioned());
        assert_eq!(rules.behaviour_of(&machine), never_provisioned());
        rules.set_object("n", "m", never_removed());
        assert_eq!(rules.behaviour_of(&machine), never_removed());
        let mut annotated = machine;
        annotated.annotations_mut().insert(BEHAVIOUR_ANNOTATION.to_owned(), "never-ready".to_owned());
        assert_eq!(rules.behaviour_of(&annotated).infrastructure, Step::Never);
        assert_eq!(rules.behaviour_of(&annotated).removal, Removal::Never);
    }
}
