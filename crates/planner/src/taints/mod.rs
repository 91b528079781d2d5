//! Taints of a Node: which ones the controller applied, which ones the spec asks for, and what to write.
//!
//! Key and effect identify a taint; its value can change. The controller owns the taints that it recorded when it applied
//! them. Every other taint belongs to another client, even if it looks the same, and is neither changed nor removed.
//! `Node.spec.taints` is an atomic list, so [`diff`] returns the whole list, for a write guarded by `resourceVersion`.

use std::fmt;

use fivespot_api::conditions::NodeTainted;
use fivespot_api::{NodeTaint, TaintEffect};
use k8s_openapi::api::core::v1::Taint;

use crate::plan::TaintStatus;

/// What to write to a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// All taints of the Node after the write, in their order on the Node.
    pub taints: Vec<Taint>,
    /// The taints that the controller owns, including those whose value another client changed.
    pub applied: Vec<NodeTaint>,
    /// Taints of other clients in the place of desired or applied ones.
    pub conflicts: Vec<Conflict>,
    /// Whether the Node or the record has to be written.
    pub is_changed: bool,
}

/// A taint of another client that conflicts with a desired or applied one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub taint: NodeTaint,
    /// Whether the controller applied it and another client changed its value.
    pub was_applied: bool,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeTaint { key, value, effect } = &self.taint;
        let value = value.as_deref().map_or_else(String::new, |it| format!("={it}"));
        let conflict = if self.was_applied { "was changed by another client" } else { "was applied by another client" };
        write!(f, "taint {key}{value}:{} {conflict}", effect_name(*effect))
    }
}

/// Computes what to write from the desired taints, those on the Node and those that the controller applied.
pub fn diff(desired: &[NodeTaint], on_node: &[Taint], applied: &[NodeTaint]) -> Diff {
    let mut diff = Diff { taints: Vec::new(), applied: Vec::new(), conflicts: Vec::new(), is_changed: false };
    for taint in on_node {
        match (find(desired, taint), find(applied, taint)) {
            (None, None) => diff.taints.push(taint.clone()),
            (Some(_), None) => diff.keep_conflicting(taint, None),
            (_, Some(applied)) if value(applied) != taint.value.as_deref().unwrap_or_default() => {
                diff.keep_conflicting(taint, Some(applied));
            }
            (Some(desired), Some(_)) => diff.update(taint, desired),
            (None, Some(_)) => diff.is_changed = true,
        }
    }
    for missing in desired.iter().filter(|it| !on_node.iter().any(|taint| is_same(it, taint))) {
        diff.taints.push(to_taint(missing));
        diff.applied.push(missing.clone());
        diff.is_changed = true;
    }
    diff.is_changed |= !is_equal_set(&diff.applied, applied);
    diff
}

impl Diff {
    fn keep_conflicting(&mut self, taint: &Taint, applied: Option<&NodeTaint>) {
        self.taints.push(taint.clone());
        // An applied taint stays on record: if its value is restored, the controller owns it again.
        self.applied.extend(applied.cloned());
        self.conflicts.extend(from_taint(taint).map(|taint| Conflict { taint, was_applied: applied.is_some() }));
    }

    fn update(&mut self, taint: &Taint, desired: &NodeTaint) {
        self.applied.push(desired.clone());
        if value(desired) == taint.value.as_deref().unwrap_or_default() {
            self.taints.push(taint.clone());
        } else {
            self.taints.push(Taint { value: desired.value.clone(), ..taint.clone() });
            self.is_changed = true;
        }
    }
}

/// State of the taints while there is no Node.
pub(crate) fn no_node(desired: &[NodeTaint]) -> TaintStatus {
    let condition =
        (NodeTainted::NoNodeYet, "No Node exists; taints are applied once the machine has joined".to_owned());
    TaintStatus { applied: Vec::new(), condition: (!desired.is_empty()).then_some(condition) }
}

/// State of the taints once a diff has been written.
pub fn status(desired: &[NodeTaint], diff: &Diff) -> TaintStatus {
    let condition = match (diff.conflicts.as_slice(), desired.len()) {
        ([], 0) => None,
        ([], 1) => Some((NodeTainted::Applied, "1 taint is applied to the Node".to_owned())),
        ([], count) => Some((NodeTainted::Applied, format!("{count} taints are applied to the Node"))),
        (conflicts, _) => Some((NodeTainted::TaintOwnershipConflict, conflict_message(conflicts))),
    };
    TaintStatus { applied: diff.applied.clone(), condition }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    let conflicts: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
    format!("Conflict: {}; remove it from the Node or from spec.nodeTaints", conflicts.join(", "))
}

/// Value of the annotation on the Node that records the applied taints; `None` if there are none.
pub fn record(applied: &[NodeTaint]) -> Option<String> {
    (!applied.is_empty()).then(|| serde_json::to_string(applied).unwrap_or_default())
}

/// Reads the annotation on the Node. An unreadable one records nothing.
pub fn recorded(annotation: &str) -> Option<Vec<NodeTaint>> {
    serde_json::from_str(annotation).ok()
}

fn find<'a>(taints: &'a [NodeTaint], taint: &Taint) -> Option<&'a NodeTaint> {
    taints.iter().find(|it| is_same(it, taint))
}

fn is_same(taint: &NodeTaint, on_node: &Taint) -> bool {
    taint.key == on_node.key && effect_name(taint.effect) == on_node.effect
}

/// To Kubernetes, an empty value and no value are the same.
fn value(taint: &NodeTaint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

fn is_equal_set(a: &[NodeTaint], b: &[NodeTaint]) -> bool {
    let sorted = |it: &[NodeTaint]| {
        let mut it: Vec<_> = it.iter().map(|it| (it.key.clone(), it.effect, value(it).to_owned())).collect();
        it.sort();
        it
    };
    sorted(a) == sorted(b)
}

fn to_taint(taint: &NodeTaint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: effect_name(taint.effect).to_owned(),
        time_added: None,
    }
}

fn from_taint(taint: &Taint) -> Option<NodeTaint> {
    let effect = match taint.effect.as_str() {
        "NoSchedule" => TaintEffect::NoSchedule,
        "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
        "NoExecute" => TaintEffect::NoExecute,
        _ => return None,
    };
    Some(NodeTaint { key: taint.key.clone(), value: taint.value.clone(), effect })
}

fn effect_name(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

#[cfg(test)]
mod tests;
