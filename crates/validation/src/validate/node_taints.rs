//! `spec.nodeTaints`.

use std::collections::BTreeSet;

use fivespot_api::NodeTaint;

use super::ErrorList;
use crate::{names, rules};

pub(super) fn check(taints: &[NodeTaint], errors: &mut ErrorList) -> Option<Vec<NodeTaint>> {
    let checkpoint = errors.checkpoint();
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = |part: &str| format!("spec.nodeTaints[{index}]{part}");
        let detail = |text: &str| Some(format!("nodeTaints[{index}]: {text:?}"));
        if !names::is_qualified_name(&taint.key) {
            errors.add(at(".key"), rules::TAINT_KEY_FORMAT, detail(&taint.key));
        }
        let is_reserved = |(prefix, _): (&str, _)| rules::RESERVED_TAINT_PREFIXES.contains(&prefix);
        if taint.key.split_once('/').is_some_and(is_reserved) {
            errors.add(at(".key"), rules::TAINT_KEY_RESERVED, detail(&taint.key));
        }
        if let Some(value) = taint.value.as_deref().filter(|it| !names::is_label_value(it)) {
            errors.add(at(".value"), rules::TAINT_VALUE_FORMAT, detail(value));
        }
        if !seen.insert((&taint.key, taint.effect)) {
            errors.add(at(""), rules::TAINT_UNIQUE, detail(&taint.key));
        }
    }
    errors.none_since(checkpoint).then(|| taints.to_vec())
}
