//! `spec.machineTemplate`: what a user may put on the Machine without taking it out of our hands.

use fivespot_api::{MachineTemplate, keys};

use super::{Findings, rules};
use crate::names;

pub(super) fn check(template: Option<&MachineTemplate>, findings: &mut Findings) -> Option<MachineTemplate> {
    let Some(template) = template else { return Some(MachineTemplate::default()) };
    let mark = findings.mark();
    for (key, value) in &template.labels {
        check_key("labels", key, findings);
        if !names::is_label_value(value) {
            findings.add(
                format!("spec.machineTemplate.labels[{key}]"),
                rules::TEMPLATE_FORM,
                Some(format!("labels[{key}]: {value:?}")),
            );
        }
    }
    for key in template.annotations.keys() {
        check_key("annotations", key, findings);
    }
    if let Some(version) = template.version.as_deref().filter(|it| !is_version(it)) {
        findings.add("spec.machineTemplate.version", rules::TEMPLATE_VERSION, Some(format!("{version:?}")));
    }
    findings.none_since(mark).then(|| template.clone())
}

fn check_key(list: &str, key: &str, findings: &mut Findings) {
    let allowed_below = list == "labels" && names::belongs_to(key, keys::NODE_LABEL_PREFIX);
    let is_reserved = !allowed_below && keys::RESERVED_PREFIXES.iter().any(|owner| names::belongs_to(key, owner));
    let broken = [(!names::is_qualified_name(key), rules::TEMPLATE_FORM), (is_reserved, rules::TEMPLATE_RESERVED)];
    for (_, rule) in broken.into_iter().filter(|(is_broken, _)| *is_broken) {
        findings.add(format!("spec.machineTemplate.{list}[{key}]"), rule, Some(format!("{list}[{key}]")));
    }
}

/// `v1.33.2`, with or without the `v`, and whatever a distribution appends (`v1.30.0+k0s.0`).
fn is_version(text: &str) -> bool {
    let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
    let is_number =
        |it: &str| !it.is_empty() && it.chars().all(|c| c.is_ascii_digit()) && (it == "0" || !it.starts_with('0'));
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let (patch, suffix) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    is_number(major)
        && is_number(minor)
        && is_number(patch)
        && suffix.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_what_cluster_api_takes() {
        for good in ["v1.33.2", "1.33.2", "v1.30.0+k0s.0", "v1.30.0-rc.1"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "v1", "v1.33", "v01.3.2", "latest", "v1.33.2 ", "v1.33.x"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
