//! `spec.bootstrapSpec` and `spec.infrastructureSpec`.

use fivespot_api::InlineObject;

use super::ErrorList;
use crate::inline_spec::{Digest, InlineSpecSummary, MAX_DEPTH, MAX_ENTRIES, MAX_SIZE};
use crate::names::is_version;
use crate::rules::InlineRules;

/// A bootstrap or infrastructure object of an allowed group and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderObject {
    pub group: String,
    pub version: String,
    pub kind: String,
    /// Identifies the spec, which is read when the object is created.
    pub spec_digest: Digest,
}

pub(super) fn check(
    rules: &InlineRules,
    (object, spec): (&InlineObject, &InlineSpecSummary),
    namespace: &str,
    errors: &mut ErrorList,
) -> Option<ProviderObject> {
    let checkpoint = errors.checkpoint();
    let field = |name: &str| format!("{}.{name}", rules.field);

    let parts = object.api_version.split_once('/');
    match parts {
        None => errors.add(field("apiVersion"), rules.group_present, Some(format!("{:?}", object.api_version))),
        Some((group, version)) if !rules.groups.contains(&group) || !is_version(version) => {
            errors.add(field("apiVersion"), rules.group_allowed, Some(format!("{:?}", object.api_version)));
        }
        Some(_) => {}
    }
    if object.kind.is_empty() {
        errors.add(field("kind"), rules.kind_present, None);
    } else if is_forbidden_kind(&object.kind) {
        errors.add(field("kind"), rules.kind_allowed, Some(format!("{:?}", object.kind)));
    }
    match object.namespace.as_deref() {
        None | Some("") => {}
        Some(own) if own == namespace => {}
        Some(other) => {
            errors.add(field("namespace"), rules.namespace, Some(format!("found {other:?}, expected {namespace:?}")));
        }
    }
    if spec.sets_provider_id {
        errors.add(field("spec.providerID"), rules.provider_id, None);
    }
    if spec.depth > MAX_DEPTH {
        errors.add(field("spec"), rules.shape, Some(format!("found {} levels", spec.depth)));
    } else if spec.entries > MAX_ENTRIES {
        errors.add(field("spec"), rules.shape, Some(format!("found {} entries", spec.entries)));
    } else if spec.size > MAX_SIZE {
        let size = format!("found {} bytes", spec.size);
        if spec.size_in_policy > MAX_SIZE {
            errors.add(field("spec"), rules.size, Some(size));
        } else {
            errors.add_for_controller(field("spec"), rules.size, size);
        }
    }

    let (group, version) = parts.filter(|_| errors.none_since(checkpoint))?;
    Some(ProviderObject {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object.kind.clone(),
        spec_digest: spec.digest,
    })
}

/// Whether objects of the kind are shared between machines or contain credentials.
fn is_forbidden_kind(kind: &str) -> bool {
    ["Template", "Cluster", "Identity"].iter().any(|suffix| kind.ends_with(suffix)) || kind == "JoinTokenRequest"
}
