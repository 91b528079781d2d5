//! `spec.clusterName`.

use super::{Findings, rules};
use crate::names;

pub(super) fn check(name: &str, findings: &mut Findings) -> Option<String> {
    if name.is_empty() {
        findings.add("spec.clusterName", rules::CLUSTER_NAME_EMPTY, None);
        return None;
    }
    if !names::is_label_value(name) {
        findings.add("spec.clusterName", rules::CLUSTER_NAME_FORM, Some(format!("{name:?}")));
        return None;
    }
    Some(name.to_owned())
}
