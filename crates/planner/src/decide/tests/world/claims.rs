//! What a status says of the world, and whether it is so.

use fivespot_api::{Phase, ScheduledMachineStatus};

use super::World;
use crate::children::MachineVersion;
use crate::observed::MachineHealth;
use crate::plan::{Plan, Step};
use crate::status::{CreatedMachine, Outcome, StatusContext, compute};

impl World {
    /// The world after all acts of a plan, and what the status then says.
    pub(in super::super) fn after(&self, plan: &Plan) -> (World, ScheduledMachineStatus) {
        let (intent, (seen, _)) = (self.intent(), self.look());
        let mut after = self.clone();
        after.carry_out(&plan.steps);
        let made = plan.steps.contains(&Step::CreateChildren);
        let done = Outcome {
            machine: made
                .then(|| CreatedMachine { uid: after.machine.managed().unwrap().uid.clone(), created_at: None }),
            ..Outcome::default()
        };
        let before = ScheduledMachineStatus::default();
        let subject = StatusContext {
            name: "a",
            namespace: "default",
            generation: Some(1),
            machine_version: MachineVersion::V1Beta2,
            previous: &before,
        };
        let status = compute(subject, &self.situation(&intent, &seen), &plan.status, &done);
        (after, status)
    }

    /// What a status claims that is not so in this world.
    pub(in super::super) fn false_claims(&self, status: &ScheduledMachineStatus) -> Vec<&'static str> {
        let uid = self.machine.managed().map(|it| it.uid.clone());
        let running = self.machine.managed().is_some_and(|it| it.health == MachineHealth::Running);
        let everything = uid.is_some() && self.bootstrap.is_some() && self.infrastructure.is_some();
        let is_true = |wanted: &str| status.conditions.iter().any(|it| it.type_ == wanted && it.status == "True");
        let over = matches!(status.phase, Some(Phase::Inactive | Phase::Terminated));
        let unnamed_infrastructure = status.infrastructure_ref.is_none() && self.is_ours(self.infrastructure.as_ref());
        [
            (status.machine_ref.as_ref().is_some_and(|it| it.uid != uid), "a Machine that is not there"),
            (status.node_ref.is_some() && self.node.is_none(), "a Node that is not there"),
            (status.phase == Some(Phase::Active) && !everything, "Active without all children"),
            (over && !self.nothing_of_ours(), "nothing is left, and something is"),
            (is_true("Ready") && !(running && self.node.is_some()), "Ready without a Node"),
            (is_true("MachineReady") && !running, "a Machine that runs"),
            (status.bootstrap_ref.is_none() && self.is_ours(self.bootstrap.as_ref()), "no bootstrap object"),
            (unnamed_infrastructure, "no infrastructure object"),
        ]
        .into_iter()
        .filter_map(|(claimed, what)| claimed.then_some(what))
        .collect()
    }
}
