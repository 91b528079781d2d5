//! One ScheduledMachine over several reconciles: decided, computed and reported as the controller does it.

use std::mem;

use fivespot_api::{ScheduledMachine, ScheduledMachineStatus, keys};
use fivespot_planner::children::{self, MachineVersion};
use fivespot_planner::decide::{decide, undecided};
use fivespot_planner::events::{Event, Reason};
use fivespot_planner::input::{DecisionInput, RequestedState};
use fivespot_planner::intent::{Intent, stored_refs};
use fivespot_planner::observed::{
    Absence, AgentConfig, AgentRollout, Child, Cluster, Cordon, Exclusions, Machine, MachineHealth, ManagedNode, Node,
    Observed, Pods, Refs, Stored,
};
use fivespot_planner::plan::{Decision, DesiredStatus, Plan, Step};
use fivespot_planner::status::{CreatedMachine, Failure, Outcome, Purpose, StatusContext, compute, transitions};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) const NAME: &str = "desk-01";
const NAMESPACE: &str = "team";
pub(crate) const MACHINE: &str = "desk-01-machine";

/// A ScheduledMachine, and what its next reconcile observes and achieves.
pub(crate) struct Desk {
    pub(crate) object: ScheduledMachine,
    pub(crate) observed: Observed,
    pub(crate) now: Timestamp,
    pub(crate) outcome: Outcome,
}

/// What one reconcile decided and reported.
pub(crate) struct Reconciled {
    pub(crate) plan: Plan,
    /// The status after each write, the last one at the end.
    pub(crate) written: Vec<ScheduledMachineStatus>,
    pub(crate) events: Vec<Event>,
}

impl Reconciled {
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        self.events.iter().map(|event| event.reason).collect()
    }
}

impl Desk {
    /// An object whose window is open from Monday to Friday, 9:00 to 18:00 in Berlin. It is Monday, 9:00.
    pub(crate) fn new() -> Self {
        Desk::with_status(&json!({}))
    }

    pub(crate) fn with_status(status: &Value) -> Self {
        let object = serde_json::from_value(json!({
            "metadata": { "name": NAME, "namespace": NAMESPACE, "generation": 1 },
            "spec": {
                "schedule": { "daysOfWeek": ["mon-fri"], "hoursOfDay": ["9-17"], "timezone": "Europe/Berlin" },
                "clusterName": "edge",
                "bootstrapSpec": { "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "Boot", "spec": {} },
                "infrastructureSpec": { "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Infra", "spec": {} },
                "killIfCommands": ["idea"],
            },
            "status": status,
        }))
        .unwrap();
        let observed = Observed {
            has_finalizer: true,
            stored: Stored::default(),
            desired: None,
            cluster: Cluster::Present,
            machine: Child::Absent,
            bootstrap: Child::Absent,
            infrastructure: Child::Absent,
            node: Node::Absent(Absence::NotJoined),
            pods: Pods::Read(Vec::new()),
        };
        Desk { object, observed, now: "2026-11-16T08:00:00Z".parse().unwrap(), outcome: Outcome::default() }
    }

    pub(crate) fn status(&self) -> ScheduledMachineStatus {
        self.object.status.clone().unwrap_or_default()
    }

    fn unobserved_intent(&self) -> Option<Intent> {
        let annotation = self.object.metadata.annotations.as_ref()?.get(keys::CHILDREN_ANNOTATION)?;
        Intent::unobserved(NAME, annotation, &self.status())
    }

    /// Edits the spec.
    pub(crate) fn edit(&mut self, edit: impl FnOnce(&mut ScheduledMachine)) {
        edit(&mut self.object);
        self.object.metadata.generation = self.object.metadata.generation.map(|it| it + 1);
    }

    /// Fails the next reconcile.
    pub(crate) fn fail(&mut self, purpose: Purpose, message: &str) {
        self.outcome.failure = Some(Failure { purpose, message: message.to_owned(), references: None });
    }

    fn with_input<T>(&self, f: impl FnOnce(&DecisionInput<'_>) -> T) -> T {
        let spec: Result<ValidSpec, SpecErrors> = validate(&self.object.spec, NAMESPACE, Standard::Stored);
        let status = self.status();
        let observed = Observed {
            stored: Stored {
                refs: stored_refs(NAME, &status, self.unobserved_intent().as_ref()),
                has_child_uids: true,
                shutdown_started_at: status.shutdown_started_at.as_ref().map(|it| it.0),
                initial_pods: status.initial_pods,
                machine_failure: status.machine_failure,
                node_uid: status.node_ref.as_ref().and_then(|it| it.uid.clone()),
                applied_taints: status.applied_node_taints,
                reclaim: status.reclaim,
            },
            desired: spec.as_ref().ok().map(|spec| children::desired(NAME, spec)),
            ..self.observed.clone()
        };
        let requested = RequestedState::of(&self.object.metadata, &self.object.spec);
        f(&DecisionInput { requested: &requested, spec: spec.as_ref(), observed: &observed, now: self.now })
    }

    pub(crate) fn plan(&self) -> Plan {
        self.with_input(|input| match decide(input) {
            Decision::Execute(plan) => *plan,
            Decision::NeedsRead(read) => panic!("{read:?} was not read"),
        })
    }

    /// The status of a reconcile that failed before a decision was made.
    pub(crate) fn undecided(&self) -> DesiredStatus {
        self.with_input(undecided)
    }

    pub(crate) fn compute(&self, desired: &DesiredStatus, outcome: &Outcome) -> ScheduledMachineStatus {
        let (previous, unobserved_intent) = (self.status(), self.unobserved_intent());
        let context = StatusContext {
            name: NAME,
            namespace: NAMESPACE,
            generation: self.object.metadata.generation,
            machine_version: MachineVersion::V1Beta2,
            previous: &previous,
            unobserved_intent: unobserved_intent.as_ref(),
        };
        self.with_input(|input| compute(context, input, desired, outcome))
    }

    pub(crate) fn events(&self, after: &ScheduledMachineStatus, outcome: &Outcome) -> Vec<Event> {
        self.with_input(|input| transitions(&self.status(), after, outcome, input))
    }

    /// Reconciles once: stores status and intent where the plan says so, and the status at the end.
    pub(crate) fn reconcile(&mut self) -> Reconciled {
        let plan = self.plan();
        let mut reconciled = Reconciled { written: Vec::new(), events: plan.events.clone(), plan: plan.clone() };
        let mut outcome = mem::take(&mut self.outcome);
        if plan.steps.contains(&Step::CreateChildren) && outcome.failure.is_none() {
            outcome.machine.get_or_insert(CreatedMachine { uid: machine().uid, created_at: None });
        }
        for step in &plan.steps {
            match step {
                Step::StoreStatus(status) => self.write_status(&mut reconciled, status, &Outcome::default()),
                Step::RecordIntent(refs) => self.record_intent(refs.clone()),
                _ => {}
            }
        }
        self.write_status(&mut reconciled, &plan.status, &outcome);
        reconciled
    }

    fn write_status(&mut self, reconciled: &mut Reconciled, desired: &DesiredStatus, outcome: &Outcome) {
        let status = self.compute(desired, outcome);
        reconciled.events.extend(self.events(&status, outcome));
        self.object.status = Some(status.clone());
        reconciled.written.push(status);
    }

    pub(crate) fn record_intent(&mut self, refs: Refs) {
        let annotation = Intent::next(&self.status(), refs).annotation();
        let annotations = self.object.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::CHILDREN_ANNOTATION.to_owned(), annotation);
    }
}

pub(crate) fn machine() -> Machine {
    Machine {
        name: MACHINE.to_owned(),
        uid: "m1".to_owned(),
        deleting: false,
        exclusions: Exclusions::default(),
        health: MachineHealth::Provisioning,
        node: None,
        provider_id: None,
        fingerprint: None,
        created_at: None,
        live: true,
    }
}

pub(crate) fn running_machine() -> Machine {
    Machine { health: MachineHealth::Running, node: Some(NAME.to_owned()), ..machine() }
}

pub(crate) fn deleting_machine() -> Machine {
    Machine { deleting: true, exclusions: Exclusions::ALL, ..running_machine() }
}

pub(crate) fn node() -> ManagedNode {
    ManagedNode {
        name: NAME.to_owned(),
        uid: "n1".to_owned(),
        ready: true,
        cordon: Cordon::Schedulable,
        reclaim_request: None,
        agent: AgentRollout { labelled: true, config: AgentConfig::Unknown, machine_uid: Some(machine().uid) },
        taints: Vec::new(),
        recorded_taints: None,
    }
}
