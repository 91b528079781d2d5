//! Rollout of the reclaim agent: the Node's label and the agent's ConfigMap exist while the owner may reclaim the machine.

use super::reclaim_request;
use crate::input::DecisionInput;
use crate::observed::AgentConfig;
use crate::plan::{Action, Step};

/// Rolls out the agent on the Node of a machine that may run pods, and withdraws it otherwise.
///
/// `steps` are those of the same plan that come first.
pub(super) fn plan(input: &DecisionInput<'_>, steps: &[Step]) -> Option<Step> {
    let machine = input.observed.machine.managed()?;
    // Without the exclusion, Cluster API drains the Node of a Machine that is being deleted, for up to a day.
    let is_excluded = machine.exclusions.node_drain || steps.iter().any(excludes_drain);
    let may_run_pods = !machine.deleting || !is_excluded;
    let is_reclaimable = may_run_pods && !reclaim_request::was_reclaimed(input) && !reclaim_request::in_progress(input);
    match &input.requested.agent_config {
        Some(config) if is_reclaimable => roll_out(input, config),
        // `killIfCommands` may be what is invalid.
        None if is_reclaimable && input.spec.is_err() => None,
        Some(_) | None => withdraw(input),
    }
}

/// Whether a step makes Cluster API skip the drain.
fn excludes_drain(step: &Step) -> bool {
    let excludes = |action: &Action| matches!(action, Action::SetExclusions(exclusions) if exclusions.node_drain);
    match step {
        Step::Run(action) => excludes(action),
        Step::ForceRemove(removal) => removal.machine.iter().any(excludes),
        _ => false,
    }
}

/// An invalid spec does not change the configuration of the last valid one. The owner of a machine that exists can reclaim
/// it nevertheless.
fn roll_out(input: &DecisionInput<'_>, config: &str) -> Option<Step> {
    let node = input.observed.node.managed()?;
    let (config, is_current) = match &node.agent.config {
        // Label and annotation need not wait for the configuration: from then on the owner's request counts.
        AgentConfig::Unknown => (config, true),
        AgentConfig::Present(text) if input.spec.is_err() => (text.as_str(), true),
        AgentConfig::Present(text) => (config, text == config),
        AgentConfig::Absent | AgentConfig::Unusable => (config, false),
    };
    let is_rolled_out = is_current && node.agent.labelled && reclaim_request::is_rolled_out(input);
    (!is_rolled_out).then(|| Step::RollOutAgent { config: config.to_owned() })
}

pub(super) fn withdraw(input: &DecisionInput<'_>) -> Option<Step> {
    let agent = &input.observed.node.managed()?.agent;
    let has_config = match agent.config {
        AgentConfig::Present(_) | AgentConfig::Unusable => true,
        AgentConfig::Unknown | AgentConfig::Absent => false,
    };
    (agent.labelled || has_config).then_some(Step::Run(Action::WithdrawAgent))
}
