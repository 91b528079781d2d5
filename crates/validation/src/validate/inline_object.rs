//! `spec.bootstrapSpec` and `spec.infrastructureSpec`.

use fivespot_api::InlineObject;
use serde_json::{Map, Value};

use super::{Findings, rules::InlineRules};

/// A provider's object that may be created: its group is allowed, its kind is one of a machine's own.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderObject {
    /// API group.
    pub group: String,
    /// API version within the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// The provider's spec, passed on as it is.
    pub spec: Map<String, Value>,
}

pub(super) fn check(
    rules: &InlineRules,
    object: &InlineObject,
    namespace: &str,
    findings: &mut Findings,
) -> Option<ProviderObject> {
    let mark = findings.mark();
    let field = |name: &str| format!("{}.{name}", rules.field);

    let parts = object.api_version.split_once('/');
    match parts {
        None => findings.add(field("apiVersion"), rules.group_present, Some(format!("{:?}", object.api_version))),
        Some((group, version)) if !rules.groups.contains(&group) || !is_version(version) => {
            findings.add(field("apiVersion"), rules.group_allowed, Some(format!("{:?}", object.api_version)));
        }
        Some(_) => {}
    }
    if object.kind.is_empty() {
        findings.add(field("kind"), rules.kind_present, None);
    } else if is_foreign_kind(&object.kind) {
        findings.add(field("kind"), rules.kind_allowed, Some(format!("{:?}", object.kind)));
    }
    match object.namespace.as_deref() {
        None | Some("") => {}
        Some(own) if own == namespace => {}
        Some(other) => {
            findings.add(field("namespace"), rules.namespace, Some(format!("{other:?} is not {namespace:?}")));
        }
    }
    if object.spec.contains_key("providerID") {
        findings.add(field("spec.providerID"), rules.provider_id, None);
    }

    let (group, version) = parts.filter(|_| findings.none_since(mark))?;
    Some(ProviderObject {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object.kind.clone(),
        spec: object.spec.clone(),
    })
}

/// Kinds that are shared between machines, or that hand out credentials.
fn is_foreign_kind(kind: &str) -> bool {
    kind.ends_with("Template") || kind.ends_with("Cluster") || kind == "JoinTokenRequest"
}

/// `v1`, `v1beta2`: what can stand behind the slash of an apiVersion without being a path of its own.
fn is_version(text: &str) -> bool {
    let is_number = |it: &str| !it.is_empty() && it.chars().all(|c| c.is_ascii_digit());
    text.strip_prefix('v').is_some_and(|rest| {
        ["alpha", "beta"]
            .iter()
            .find_map(|stage| rest.split_once(stage))
            .map_or_else(|| is_number(rest), |(major, minor)| is_number(major) && is_number(minor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_version_and_never_a_path() {
        for good in ["v1", "v1beta1", "v2alpha10"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "1", "v", "vbeta1", "v1beta", "v1/clusterroles", "v1beta1/x", "v1gamma1"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
