//! Seeing to it that the Node has the taints of the spec.

use fivespot_api::NodeTaint;
use fivespot_api::conditions::NodeTainted;

use super::Situation;
use crate::observed::Node;
use crate::plan::{Action, Tainted};
use crate::taints::{self, diff};

/// What is done about the taints of a Node that stays, and how it stands with them then.
pub(super) fn plan(situation: &Situation<'_>) -> (Option<Action>, Option<Tainted>) {
    let Ok(spec) = situation.spec else { return (None, None) };
    let wanted = &spec.node_taints;
    let told = |reason: NodeTainted, sentence: String| (!wanted.is_empty()).then_some((reason, sentence));
    match &situation.seen.node {
        Node::Ours(node) if node.ready => {
            let ours = node.our_taints(&situation.seen.stored);
            let diff = diff(wanted, &node.taints, &ours);
            // A record that is missing on the Node is written anew.
            let unrecorded = node.recorded_taints.as_deref().unwrap_or_default() != diff.applied;
            let write = diff.is_news || (unrecorded && !diff.applied.is_empty());
            let action = write.then(|| Action::Taint { wanted: wanted.clone(), told: ours });
            (action, Some(taints::standing(wanted, &diff)))
        }
        Node::Ours(node) => {
            let applied = node.our_taints(&situation.seen.stored);
            let waiting = format!("Node {} is not Ready", node.name);
            (None, Some(Tainted { told: about(wanted, &applied, NodeTainted::NodeNotReady, waiting), applied }))
        }
        Node::None | Node::NotSeen => {
            let told = told(NodeTainted::NoNodeYet, taints::NO_NODE.to_owned());
            (None, Some(Tainted { applied: Vec::new(), told }))
        }
        Node::Sought | Node::Unreachable(_) => (None, None),
    }
}

/// There is something to tell where taints are wanted, or are still there.
fn about(
    wanted: &[NodeTaint],
    applied: &[NodeTaint],
    reason: NodeTainted,
    sentence: String,
) -> Option<(NodeTainted, String)> {
    (!wanted.is_empty() || !applied.is_empty()).then_some((reason, sentence))
}
