//! Taints on a Node: which are ours, which are wanted, and what to write.
//!
//! A taint is one by its key and effect; its value can change. Ours are those that we recorded when we wrote them. Whatever
//! else is on the Node is somebody else's, even if it looks the same, and is neither changed nor removed. The list on a
//! Node can only be written whole, so what is here says the whole list, for a write that names the version it was made from.

use std::fmt;

use fivespot_api::conditions::NodeTainted;
use fivespot_api::{NodeTaint, TaintEffect};
use k8s_openapi::api::core::v1::Taint;

use crate::plan::Tainted;

/// What to write on a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// All taints that the Node has then, in the order in which it has them.
    pub taints: Vec<Taint>,
    /// Those of them that are ours, and those of ours that somebody changed.
    pub applied: Vec<NodeTaint>,
    /// Taints of others where ours should be, or where ours were, as the Node has them.
    pub conflicts: Vec<Conflict>,
    /// Whether that is something else than what the Node has.
    pub is_news: bool,
}

/// A taint of somebody else's that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The taint, as it is on the Node.
    pub taint: NodeTaint,
    /// Whether it was ours before somebody changed its value.
    pub was_ours: bool,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeTaint { key, value, effect } = &self.taint;
        let value = value.as_deref().map_or_else(String::new, |it| format!("={it}"));
        let whose = if self.was_ours { "was changed by somebody else" } else { "is somebody else's" };
        write!(f, "taint {key}{value}:{} {whose}", effect_name(*effect))
    }
}

/// From what is wanted, what is on the Node and what was recorded as ours to what the Node should have.
pub fn diff(wanted: &[NodeTaint], on_node: &[Taint], recorded: &[NodeTaint]) -> Diff {
    let mut diff = Diff { taints: Vec::new(), applied: Vec::new(), conflicts: Vec::new(), is_news: false };
    for taint in on_node {
        let (wanted, ours) = (of(wanted, taint), of(recorded, taint));
        match (wanted, ours) {
            (None, None) => diff.taints.push(taint.clone()),
            (Some(_), None) => diff.keep_theirs(taint, None),
            (_, Some(ours)) if value(ours) != taint.value.as_deref().unwrap_or_default() => {
                diff.keep_theirs(taint, Some(ours));
            }
            (Some(wanted), Some(_)) => diff.keep_ours(taint, wanted),
            (None, Some(_)) => diff.is_news = true,
        }
    }
    for wanted in wanted.iter().filter(|it| !on_node.iter().any(|taint| is_of(it, taint))) {
        diff.taints.push(written(wanted));
        diff.applied.push(wanted.clone());
        diff.is_news = true;
    }
    diff.is_news |= !same(&diff.applied, recorded);
    diff
}

impl Diff {
    fn keep_theirs(&mut self, taint: &Taint, was: Option<&NodeTaint>) {
        self.taints.push(taint.clone());
        // What was ours stays on record: if its value comes back, it is ours again.
        self.applied.extend(was.cloned());
        self.conflicts.extend(read(taint).map(|taint| Conflict { taint, was_ours: was.is_some() }));
    }

    fn keep_ours(&mut self, taint: &Taint, wanted: &NodeTaint) {
        self.applied.push(wanted.clone());
        if value(wanted) == taint.value.as_deref().unwrap_or_default() {
            self.taints.push(taint.clone());
        } else {
            self.taints.push(Taint { value: wanted.value.clone(), ..taint.clone() });
            self.is_news = true;
        }
    }
}

/// What is told of a Node that does not exist.
pub(crate) const NO_NODE: &str = "there is no Node yet that could have taints";

/// How it stands with the taints of a Node once a diff has been written.
pub fn standing(wanted: &[NodeTaint], diff: &Diff) -> Tainted {
    let told = match (diff.conflicts.as_slice(), wanted.len()) {
        ([], 0) => None,
        ([], 1) => Some((NodeTainted::Applied, "the taint is on the Node".to_owned())),
        ([], count) => Some((NodeTainted::Applied, format!("all {count} taints are on the Node"))),
        (conflicts, _) => Some((NodeTainted::TaintOwnershipConflict, in_the_way(conflicts))),
    };
    Tainted { applied: diff.applied.clone(), told }
}

fn in_the_way(conflicts: &[Conflict]) -> String {
    let named: Vec<String> = conflicts.iter().map(ToString::to_string).collect();
    format!("{}: take it off the Node, or out of spec.nodeTaints", named.join(", "))
}

/// The record of what is ours, for the annotation on the Node; `None` if there is nothing to record.
pub fn record(applied: &[NodeTaint]) -> Option<String> {
    (!applied.is_empty()).then(|| serde_json::to_string(applied).unwrap_or_default())
}

/// Reads the annotation on the Node. What nobody can read records nothing.
pub fn recorded(annotation: &str) -> Option<Vec<NodeTaint>> {
    serde_json::from_str(annotation).ok()
}

fn of<'a>(taints: &'a [NodeTaint], taint: &Taint) -> Option<&'a NodeTaint> {
    taints.iter().find(|it| is_of(it, taint))
}

fn is_of(taint: &NodeTaint, on_node: &Taint) -> bool {
    taint.key == on_node.key && effect_name(taint.effect) == on_node.effect
}

/// No value and an empty one are the same to Kubernetes.
fn value(taint: &NodeTaint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

fn same(a: &[NodeTaint], b: &[NodeTaint]) -> bool {
    let sorted = |it: &[NodeTaint]| {
        let mut it: Vec<_> = it.iter().map(|it| (it.key.clone(), it.effect, value(it).to_owned())).collect();
        it.sort();
        it
    };
    sorted(a) == sorted(b)
}

fn written(taint: &NodeTaint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: effect_name(taint.effect).to_owned(),
        time_added: None,
    }
}

fn read(taint: &Taint) -> Option<NodeTaint> {
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
