//! Rollout of the reclaim agent: the Node's label and the agent's ConfigMap exist while the owner may reclaim the machine.

use super::reclaim_request;
use crate::input::DecisionInput;
use crate::observed::AgentConfig;
use crate::plan::{Action, Step};

/// Rolls out the agent on the Node of a machine that stays, and withdraws it otherwise.
pub(super) fn plan(input: &DecisionInput<'_>) -> Option<Step> {
    let machine = input.observed.machine.managed()?;
    let stays = !machine.deleting && !reclaim_request::was_reclaimed(input) && !reclaim_request::in_progress(input);
    match &input.requested.agent_config {
        Some(config) if stays => roll_out(input, config),
        // `killIfCommands` may be what is invalid.
        None if stays && input.spec.is_err() => None,
        Some(_) | None => withdraw(input),
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
