//! Which provider objects a ScheduledMachine has or is about to have.
//!
//! The status names those that were created. Before they are created, they are recorded in an annotation, because the
//! finalizer can be added in the same write. Every write of the status includes the annotation and stores its number: from
//! then on only the status counts, so an old annotation never brings back objects of an earlier machine.

use fivespot_api::{ObjectReference, ScheduledMachineStatus, keys};
use fivespot_validation::names::{is_dns_label, is_kind, is_version};

use crate::children::ChildNames;
use crate::observed::{Ref, Refs};

/// More than the longest intent that the controller records. Tenants can write the annotation.
pub const MAX_ANNOTATION: usize = 512;

/// The provider objects that the controller is about to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Differs from that of the intent before.
    pub number: i64,
    pub refs: Refs,
}

impl Intent {
    /// The intent that follows the one that the status includes.
    pub fn next(status: &ScheduledMachineStatus, refs: Refs) -> Self {
        Intent { number: status.observed_intent.unwrap_or_default().wrapping_add(1), refs }
    }

    /// The intent in the annotation of the ScheduledMachine `name`, unless the status includes it. Anything that the
    /// controller cannot have written counts as absent.
    pub fn unobserved(name: &str, annotation: &str, status: &ScheduledMachineStatus) -> Option<Self> {
        if annotation.len() > MAX_ANNOTATION {
            return None;
        }
        let mut parts = annotation.split(' ');
        let (number, bootstrap, infrastructure) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let names = ChildNames::of(name);
        let child = |text: &str, name: String, groups: &[&str]| {
            let (api_version, kind) = text.rsplit_once('/')?;
            is_provider_kind(api_version, kind, groups).then(|| Ref {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                name,
            })
        };
        let refs = Refs {
            bootstrap: child(bootstrap, names.bootstrap, keys::BOOTSTRAP_GROUPS)?,
            infrastructure: child(infrastructure, names.infrastructure, keys::INFRASTRUCTURE_GROUPS)?,
        };
        let is_unobserved = parts.next().is_none() && status.observed_intent != Some(number);
        is_unobserved.then_some(Intent { number, refs })
    }

    /// Value of the annotation. Names are left out: they follow from that of the ScheduledMachine.
    pub fn annotation(&self) -> String {
        let kind = |to: &Ref| format!("{}/{}", to.api_version, to.kind);
        format!("{} {} {}", self.number, kind(&self.refs.bootstrap), kind(&self.refs.infrastructure))
    }
}

/// The provider objects that the status names, or else the intent, if they can be children of this object: forged ones must
/// not make the controller read or delete any other object, and version and kind become part of requests.
pub fn stored_refs(name: &str, status: &ScheduledMachineStatus, unobserved: Option<&Intent>) -> Option<Refs> {
    let read = |reference: Option<&ObjectReference>, expected: &str, groups: &[&str]| {
        let reference = reference.filter(|it| it.name == expected)?;
        is_provider_kind(&reference.api_version, &reference.kind, groups).then(|| Ref {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
        })
    };
    let names = ChildNames::of(name);
    let bootstrap = read(status.bootstrap_ref.as_ref(), &names.bootstrap, keys::BOOTSTRAP_GROUPS);
    let infrastructure = read(status.infrastructure_ref.as_ref(), &names.infrastructure, keys::INFRASTRUCTURE_GROUPS);
    let in_status = bootstrap.zip(infrastructure).map(|(bootstrap, infrastructure)| Refs { bootstrap, infrastructure });
    in_status.or_else(|| unobserved.map(|intent| intent.refs.clone()))
}

fn is_provider_kind(api_version: &str, kind: &str, groups: &[&str]) -> bool {
    api_version.split_once('/').is_some_and(|(group, version)| {
        groups.contains(&group) && is_dns_label(version) && is_version(version) && is_kind(kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io/v1beta1/Boot";
    const INFRASTRUCTURE: &str = "k0smotron.io/v1beta1/Infra";

    fn observed(number: Option<i64>) -> ScheduledMachineStatus {
        ScheduledMachineStatus { observed_intent: number, ..ScheduledMachineStatus::default() }
    }

    fn unobserved(annotation: &str) -> Option<Intent> {
        Intent::unobserved("desk-01", annotation, &observed(None))
    }

    #[test]
    fn intent_is_read_as_it_was_recorded() {
        let text = format!("1 {BOOTSTRAP} {INFRASTRUCTURE}");
        let intent = unobserved(&text).unwrap();
        assert_eq!(intent.annotation(), text);
        assert_eq!(intent.refs.bootstrap.name, "desk-01-bootstrap");
        assert_eq!(
            (intent.refs.infrastructure.kind.as_str(), intent.refs.infrastructure.name.as_str()),
            ("Infra", "desk-01-infra")
        );
        assert_eq!(Intent::next(&observed(None), intent.refs.clone()), intent);
    }

    #[test]
    fn longest_intent_fits() {
        let group = |groups: &[&'static str]| groups.iter().copied().max_by_key(|it| it.len()).unwrap();
        let (version, kind) = (format!("v{}", "1".repeat(62)), "K".repeat(63));
        let child = |groups: &[&'static str]| format!("{}/{version}/{kind}", group(groups));
        let text = format!("{} {} {}", i64::MIN, child(keys::BOOTSTRAP_GROUPS), child(keys::INFRASTRUCTURE_GROUPS));
        assert_eq!(unobserved(&text).unwrap().annotation(), text);
    }

    #[test]
    fn intent_counts_until_the_status_includes_it() {
        let text = format!("7 {BOOTSTRAP} {INFRASTRUCTURE}");
        for number in [None, Some(6), Some(8)] {
            assert!(Intent::unobserved("desk-01", &text, &observed(number)).is_some(), "{number:?}");
        }
        assert_eq!(Intent::unobserved("desk-01", &text, &observed(Some(7))), None);
        // Forged numbers.
        let refs = unobserved(&text).unwrap().refs;
        for number in [i64::MAX, i64::MIN, -1, 0] {
            let next = Intent::next(&observed(Some(number)), refs.clone());
            assert!(Intent::unobserved("desk-01", &next.annotation(), &observed(Some(number))).is_some(), "{number}");
        }
    }

    #[test]
    fn forged_annotation_counts_as_absent() {
        let long = "x".repeat(1_000_000);
        let forged = [
            String::new(),
            "nonsense".to_owned(),
            long.clone(),
            format!("{long} {BOOTSTRAP} {INFRASTRUCTURE}"),
            format!("{} {BOOTSTRAP} {INFRASTRUCTURE}", "9".repeat(40)),
            format!("1 {BOOTSTRAP}"),
            format!("1 {BOOTSTRAP} {INFRASTRUCTURE} more"),
            format!("1  {BOOTSTRAP} {INFRASTRUCTURE}"),
            // The groups of the other role, and one that is not allowed.
            format!("1 infrastructure.cluster.x-k8s.io/v1beta1/Infra {INFRASTRUCTURE}"),
            format!("1 {BOOTSTRAP} cluster.x-k8s.io/v1beta1/Cluster"),
            format!("1 {BOOTSTRAP} v1/Secret"),
            // Parts of a request path.
            format!("1 {BOOTSTRAP} k0smotron.io/v1beta1/namespaces/victim/Infra"),
            format!("1 {BOOTSTRAP} k0smotron.io/v1?watch=true/Infra"),
            format!("1 {BOOTSTRAP} k0smotron.io/v1beta1/Infra?watch=true"),
            format!("1 {BOOTSTRAP} k0smotron.io/v1beta1/"),
        ];
        for text in forged {
            assert_eq!(unobserved(&text), None, "{text:.80}");
        }
    }
}
