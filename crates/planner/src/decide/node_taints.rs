//! Taints of a Node that stays.

use fivespot_api::NodeTaint;
use fivespot_api::conditions::NodeTainted;

use crate::input::DecisionInput;
use crate::observed::{Absence, Node};
use crate::plan::{Step, TaintStatus};
use crate::taints::{self, diff};

/// The step that applies the taints, if one is needed, and the state of the taints after it.
pub(super) fn plan(input: &DecisionInput<'_>) -> (Option<Step>, Option<TaintStatus>) {
    let Ok(spec) = input.spec else { return (None, None) };
    let desired = &spec.node_taints;
    match &input.observed.node {
        Node::Managed(node) if node.ready => {
            let applied = node.applied_taints(&input.observed.stored);
            let diff = diff(desired, &node.taints, &applied);
            // Restores a record that is missing on the Node.
            let unrecorded = node.recorded_taints.as_deref().unwrap_or_default() != diff.applied;
            let write = diff.is_changed || (unrecorded && !diff.applied.is_empty());
            let step = write.then(|| Step::ApplyTaints { desired: desired.clone(), applied });
            (step, Some(taints::status(desired, &diff)))
        }
        Node::Managed(node) => {
            let applied = node.applied_taints(&input.observed.stored);
            let message = format!("Waiting for Node {} to become Ready", node.name);
            let condition = waiting(desired, &applied).then_some((NodeTainted::NodeNotReady, message));
            (None, Some(TaintStatus { applied, condition }))
        }
        // What was applied is unknown until the Node can be read again.
        Node::Connecting
        | Node::Unreachable(_)
        | Node::NotCached(Absence::NoKubeconfig { .. })
        | Node::Unidentified(Absence::NoKubeconfig { .. }) => (None, None),
        Node::Absent(_) | Node::NotCached(_) | Node::Unidentified(_) => (None, Some(taints::no_node(desired))),
    }
}

/// Whether taints have to be applied, or removed, once the Node is Ready.
fn waiting(desired: &[NodeTaint], applied: &[NodeTaint]) -> bool {
    !desired.is_empty() || !applied.is_empty()
}
