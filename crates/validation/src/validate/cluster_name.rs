//! `spec.clusterName`.

use super::ErrorList;
use crate::{names, rules};

pub(super) fn check(name: &str, errors: &mut ErrorList) -> Option<String> {
    if name.is_empty() {
        errors.add("spec.clusterName", rules::CLUSTER_NAME_EMPTY, None);
        return None;
    }
    if !names::is_label_value(name) {
        errors.add("spec.clusterName", rules::CLUSTER_NAME_FORMAT, Some(format!("{name:?}")));
        return None;
    }
    Some(name.to_owned())
}
