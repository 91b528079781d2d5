//! ScheduledMachines as the controller reads them.
//!
//! Every list, watch event, read and write response is decoded here, each object by itself and field by field: a field that
//! cannot be decoded is reported with the object and affects no other field and no other object. Of an inline spec only a
//! summary is kept, and of everything else a bounded part, so that the cache stays small whatever tenants store.

mod decode;
pub(crate) mod fields;

use std::borrow::Cow;

use fivespot_api::conditions::Ready;
use fivespot_api::{Phase, ScheduledMachine, ScheduledMachineSpec, ScheduledMachineStatus};
use fivespot_planner::children::InlineSpecs;
use fivespot_planner::input::RequestedState;
use fivespot_planner::intent::Intent;
use fivespot_validation::inline_spec::InlineSpecSummaries;
use fivespot_validation::validate::{SpecErrors, StoredSpec, UnreadableField, ValidSpec, validate_stored};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// What is kept of a ScheduledMachine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredObject {
    /// Names, versions, and whether the object is being deleted; finalizers unless there are very many.
    pub(crate) metadata: ObjectMeta,
    /// Without the specs of the inline objects. A field that cannot be read has its default.
    pub(crate) spec: ScheduledMachineSpec,
    pub(crate) inline: InlineSpecSummaries,
    /// Fields of the spec that cannot be read.
    pub(crate) unreadable: Vec<UnreadableField>,
    /// The status as JSON, which needs half of the memory of the decoded one.
    status: Box<str>,
    phase: Option<Phase>,
    not_ready: Option<Ready>,
    reclaim_in_progress: bool,
    /// Names of the fields of the status that cannot be read.
    pub(crate) unreadable_status: Vec<String>,
    pub(crate) has_all_finalizers: bool,
    /// The recorded intent, unless the status includes it.
    pub(crate) unobserved_intent: Option<Box<Intent>>,
}

impl StoredObject {
    pub(crate) fn validate(&self, namespace: &str) -> Result<ValidSpec, SpecErrors> {
        let stored = StoredSpec { spec: &self.spec, inline: &self.inline, unreadable: &self.unreadable };
        validate_stored(stored, namespace)
    }

    pub(crate) fn requested(&self) -> RequestedState {
        RequestedState::of(&self.metadata, &self.spec)
    }

    /// The status without the fields that cannot be read.
    pub(crate) fn status(&self) -> ScheduledMachineStatus {
        serde_json::from_str(&self.status).unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// Why condition `Ready` is False; `None` if it is not.
    pub(crate) fn not_ready(&self) -> Option<Ready> {
        self.not_ready
    }

    pub(crate) fn is_reclaim_in_progress(&self) -> bool {
        self.reclaim_in_progress
    }
}

/// A ScheduledMachine as the API server sends it: also what is not kept.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedObject {
    pub(crate) stored: StoredObject,
    /// `None` if one of them is invalid.
    pub(crate) inline_specs: Option<InlineSpecs>,
    pub(crate) finalizers: Vec<String>,
}

impl<'de> Deserialize<'de> for ReceivedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        decode::decode(json.get()).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for StoredObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ReceivedObject::deserialize(deserializer).map(|received| received.stored)
    }
}

macro_rules! resource {
    ($type:ty, $($metadata:ident).+) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                ScheduledMachine::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                ScheduledMachine::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                ScheduledMachine::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                ScheduledMachine::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.$($metadata).+
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.$($metadata).+
            }
        }
    };
}

resource!(StoredObject, metadata);
resource!(ReceivedObject, stored.metadata);

#[cfg(test)]
mod tests;
