//! `spec.machineTemplate`.

use fivespot_api::{MachineTemplate, keys};

use super::ErrorList;
use crate::{names, rules};

pub(super) fn check(template: Option<&MachineTemplate>, errors: &mut ErrorList) -> Option<MachineTemplate> {
    let Some(template) = template else { return Some(MachineTemplate::default()) };
    let checkpoint = errors.checkpoint();
    for (key, value) in &template.labels {
        check_key("labels", key, errors);
        if !names::is_label_value(value) {
            errors.add(
                format!("spec.machineTemplate.labels[{key}]"),
                rules::TEMPLATE_FORMAT,
                Some(format!("labels[{key}]: {value:?}")),
            );
        }
    }
    for key in template.annotations.keys() {
        check_key("annotations", key, errors);
    }
    if let Some(version) = template.version.as_deref().filter(|it| !is_version(it)) {
        errors.add("spec.machineTemplate.version", rules::TEMPLATE_VERSION, Some(format!("{version:?}")));
    }
    errors.none_since(checkpoint).then(|| template.clone())
}

fn check_key(map: &str, key: &str, errors: &mut ErrorList) {
    let is_copied_to_node = map == "labels" && names::belongs_to(key, keys::NODE_LABEL_PREFIX);
    let is_reserved = keys::RESERVED_PREFIXES.iter().any(|domain| names::belongs_to(key, domain));
    let mut reject =
        |rule: &str| errors.add(format!("spec.machineTemplate.{map}[{key}]"), rule, Some(format!("{map}[{key}]")));
    if !names::is_qualified_name(key) {
        reject(rules::TEMPLATE_FORMAT);
    }
    if is_reserved && !is_copied_to_node {
        reject(rules::TEMPLATE_RESERVED);
    }
}

/// Whether the text is a version such as `v1.33.2` or `1.33.2`, with an optional suffix (`v1.30.0+k0s.0`).
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
    fn versions() {
        for good in ["v1.33.2", "1.33.2", "v1.30.0+k0s.0", "v1.30.0-rc.1"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "v1", "v1.33", "v01.3.2", "latest", "v1.33.2 ", "v1.33.x"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
