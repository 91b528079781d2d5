//! A status reports nothing that is not true.

use fivespot_api::{Phase, ScheduledMachineStatus};
use fivespot_planner::children::MachineVersion;
use fivespot_planner::intent::Intent;
use fivespot_planner::plan::Step;
use fivespot_planner::status::{CreatedMachine, Failure, Outcome, Purpose, StatusContext, compute};

use crate::plan_rules::{after, every_plan};
use crate::simulation::{Decided, NAME, NAMESPACE, Response, World};

/// The status after all steps of a plan have succeeded, or after one has failed.
fn status(decided: &Decided, after: &World, response: Response) -> ScheduledMachineStatus {
    let created = decided.plan.steps.contains(&Step::CreateChildren);
    let machine = after.servers.managed_machine().filter(|_| created);
    let failure = Failure { purpose: Purpose::Create, message: "rejected".to_owned(), references: None };
    let outcome = Outcome {
        failure: (!response.is_success()).then_some(failure),
        machine: machine.map(|it| CreatedMachine { uid: it.uid.to_string(), created_at: None }),
        ..Outcome::default()
    };
    let mut previous = ScheduledMachineStatus::default();
    let mut intent = None;
    for step in &decided.plan.steps {
        match step {
            Step::StoreStatus(status) => {
                previous = compute(context(&previous, None), &decided.input(), status, &Outcome::default());
            }
            Step::RecordIntent(refs) => intent = Some(Intent::next(&previous, refs.clone())),
            _ => {}
        }
    }
    // A reconcile before this one may have recorded it.
    let recorded = || decided.observed.stored.refs.clone().map(|refs| Intent::next(&previous, refs));
    let intent = intent.or_else(recorded);
    compute(context(&previous, intent.as_ref()), &decided.input(), &decided.plan.status, &outcome)
}

fn context<'a>(previous: &'a ScheduledMachineStatus, unobserved_intent: Option<&'a Intent>) -> StatusContext<'a> {
    StatusContext {
        name: NAME,
        namespace: NAMESPACE,
        generation: Some(1),
        machine_version: MachineVersion::V1Beta2,
        previous,
        unobserved_intent,
    }
}

fn untrue(status: &ScheduledMachineStatus, world: &World) -> Vec<&'static str> {
    let servers = &world.servers;
    let machine = servers.managed_machine();
    let uid = machine.map(|it| it.uid.to_string());
    let running = machine.is_some_and(|it| it.joined && !it.failed);
    let complete = machine.is_some() && servers.bootstrap.is_some() && servers.infrastructure.is_some();
    let is_true = |condition: &str| status.conditions.iter().any(|it| it.type_ == condition && it.status == "True");
    let finished = matches!(status.phase, Some(Phase::Inactive | Phase::Terminated));
    let [bootstrap, infrastructure] = servers.providers().map(|it| it.is_some_and(|it| servers.is_managed(it)));
    [
        (status.machine_ref.as_ref().is_some_and(|it| it.uid != uid), "a Machine that does not exist"),
        (status.node_ref.is_some() && servers.node.is_none(), "a Node that does not exist"),
        (status.phase == Some(Phase::Active) && !complete, "Active without all children"),
        (finished && !servers.nothing_managed(), "removed while a child exists"),
        (is_true("Ready") && !(running && servers.node.is_some()), "Ready without a Node"),
        (is_true("MachineReady") && !running, "a running Machine"),
        (status.bootstrap_ref.is_none() && bootstrap, "no bootstrap object"),
        (status.infrastructure_ref.is_none() && infrastructure, "no infrastructure object"),
    ]
    .into_iter()
    .filter_map(|(reported, what)| reported.then_some(what))
    .collect()
}

#[test]
fn status_reports_only_what_was_observed_or_done() {
    every_plan(|world, decided| {
        let (after, response) = after(world, decided);
        let status = status(decided, &after, response);
        let untrue = untrue(&status, &after);
        assert!(
            untrue.is_empty() || after.object.is_none(),
            "{untrue:?}\n{world:#?}\n{:#?}\n{status:#?}",
            decided.plan
        );
    });
}
