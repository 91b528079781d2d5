//! All messages in context, for review: what `kubectl describe` shows over the life of a machine.

use std::fmt::Write as _;

use fivespot_api::{NodeTaint, Override, ScheduledMachineStatus, TaintEffect};
use fivespot_planner::drain::DrainAction;
use fivespot_planner::observed::{
    Absence, Child, Cluster, Cordon, Exclusions, Machine, MachineHealth, ManagedNode, Node, NodePod, Pods,
    ProviderChild, ReclaimRequest,
};
use fivespot_planner::status::{CreatedMachine, Purpose, RejectedPod, Rejection};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::fixtures::{Desk, deleting_machine, machine, node, running_machine};

/// Records what each reconcile changes in the status, and its events.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    fn line(&mut self, line: &str) {
        writeln!(self.0, "{line}").unwrap();
    }

    fn title(&mut self, title: &str) {
        self.line(&format!("\n## {title}"));
    }

    fn reconcile(&mut self, situation: &str, desk: &mut Desk) {
        self.line(&format!("\n{situation}"));
        let mut before = desk.status();
        let reconciled = desk.reconcile();
        for status in &reconciled.written {
            if (before.phase, &before.message) != (status.phase, &status.message) {
                let (phase, message) = (status.phase.unwrap(), status.message.as_deref().unwrap_or_default());
                self.line(&format!("  {phase}: {message}"));
            }
            let shown: Vec<String> = before.conditions.iter().map(|it| condition(it, &before)).collect();
            let changed = status.conditions.iter().map(|it| condition(it, status)).filter(|it| !shown.contains(it));
            changed.for_each(|it| self.line(&format!("    {it}")));
            before = status.clone();
        }
        for event in reconciled.events {
            self.line(&format!("  {:?} {}: {}", event.reason.event_type(), event.reason.as_str(), event.note));
        }
    }
}

/// The message of condition Ready is usually that of the status and not repeated.
fn condition(condition: &Condition, status: &ScheduledMachineStatus) -> String {
    let Condition { type_, status: value, reason, message, .. } = condition;
    let repeated = type_ == "Ready" && Some(message) == status.message.as_ref();
    if repeated { format!("{type_}={value} {reason}") } else { format!("{type_}={value} {reason}: {message}") }
}

fn at(desk: &mut Desk, time: &str) {
    desk.now = time.parse().unwrap();
}

fn on_node(desk: &mut Desk, machine: Machine, node: ManagedNode) {
    desk.observed.machine = Child::Managed(machine);
    desk.observed.node = Node::Managed(node);
}

/// A machine that runs as a Node.
fn running() -> Desk {
    let mut desk = Desk::new();
    desk.reconcile();
    on_node(&mut desk, running_machine(), node());
    desk.reconcile();
    desk
}

fn cordoned() -> ManagedNode {
    ManagedNode { cordon: Cordon::ByController, ..node() }
}

pub(crate) fn pods(remaining: usize) -> Pods {
    let pod = |index: usize| NodePod {
        namespace: "shop".to_owned(),
        name: format!("web-{index}"),
        uid: format!("web-{index}"),
        drain: DrainAction::Evict,
        force_delete: true,
    };
    Pods::Read((0..remaining).map(pod).collect())
}

fn rejected(name: &str, cause: Rejection) -> RejectedPod {
    RejectedPod { namespace: "shop".to_owned(), name: name.to_owned(), cause }
}

#[test]
fn day_of_a_machine() {
    let mut transcript = Transcript::default();
    let mut desk = Desk::new();
    transcript.title("Window opens");
    transcript.reconcile("The children are created", &mut desk);
    desk.observed.machine = Child::Managed(machine());
    transcript.reconcile("Cluster API provisions the Machine", &mut desk);
    desk.observed.machine = Child::Managed(running_machine());
    desk.observed.node = Node::Connecting;
    transcript.reconcile("The workload cluster is being connected", &mut desk);
    on_node(&mut desk, running_machine(), ManagedNode { ready: false, ..node() });
    transcript.reconcile("The Node joins", &mut desk);
    on_node(&mut desk, running_machine(), node());
    transcript.reconcile("The Node is Ready", &mut desk);

    transcript.title("Window closes");
    at(&mut desk, "2026-11-16T17:00:00Z");
    desk.observed.pods = pods(4);
    transcript.reconcile("The drain starts", &mut desk);
    on_node(&mut desk, running_machine(), cordoned());
    desk.observed.pods = pods(3);
    desk.outcome.rejected_pods = vec![
        rejected("web-0", Rejection::Blocked { budget: Some("db".to_owned()) }),
        rejected("web-1", Rejection::Blocked { budget: Some("db".to_owned()) }),
        rejected("web-2", Rejection::Blocked { budget: None }),
    ];
    at(&mut desk, "2026-11-16T17:00:07Z");
    transcript.reconcile("Evictions are blocked", &mut desk);
    desk.outcome.rejected_pods = vec![
        rejected("web-0", Rejection::Blocked { budget: Some("db".to_owned()) }),
        rejected("web-1", Rejection::NamespaceTerminating),
        rejected("web-2", Rejection::Eviction { code: Some(403) }),
    ];
    transcript.reconcile("Evictions are rejected for several reasons", &mut desk);
    desk.observed.pods = pods(0);
    at(&mut desk, "2026-11-16T17:01:00Z");
    transcript.reconcile("No pod is left", &mut desk);
    on_node(&mut desk, deleting_machine(), cordoned());
    transcript.reconcile("The Machine is being deleted", &mut desk);
    (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
    transcript.reconcile("Everything is deleted", &mut desk);
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn shutdowns() {
    let mut transcript = Transcript::default();
    let shutting_down = || {
        let mut desk = running();
        at(&mut desk, "2026-11-16T17:00:00Z");
        desk.observed.pods = pods(2);
        desk.reconcile();
        on_node(&mut desk, running_machine(), cordoned());
        desk
    };
    transcript.title("Drain times out");
    let mut desk = shutting_down();
    at(&mut desk, "2026-11-16T17:05:00Z");
    transcript.reconcile("Two pods are left", &mut desk);

    transcript.title("Window reopens");
    let mut desk = shutting_down();
    desk.edit(|it| it.spec.schedule.hours_of_day = vec!["9-18".to_owned()]);
    transcript.reconcile("The schedule is extended", &mut desk);

    transcript.title("Workload cluster is unreachable");
    let mut desk = shutting_down();
    desk.observed.node = Node::Unreachable("cannot read Secret team/edge-kubeconfig: forbidden".to_owned());
    transcript.reconcile("During the drain", &mut desk);
    at(&mut desk, "2026-11-16T17:05:00Z");
    transcript.reconcile("When the drain times out", &mut desk);

    transcript.title("Workload cluster is being connected");
    let mut desk = shutting_down();
    desk.observed.node = Node::Connecting;
    transcript.reconcile("During the drain", &mut desk);
    at(&mut desk, "2026-11-16T17:05:00Z");
    transcript.reconcile("When the drain times out", &mut desk);

    transcript.title("Node cannot be identified");
    let mut desk = shutting_down();
    let claimed = Absence::ClaimedTwice { name: "desk-01".to_owned(), provider_id: "remote://10.0.0.8".to_owned() };
    desk.observed.node = Node::Unidentified(claimed);
    transcript.reconcile("During the drain", &mut desk);
    let secret = "team/edge-kubeconfig".to_owned();
    desk.observed.node = Node::Unidentified(Absence::NoKubeconfig { name: "desk-01".to_owned(), secret });
    transcript.reconcile("The kubeconfig is missing", &mut desk);
    at(&mut desk, "2026-11-16T17:05:00Z");
    transcript.reconcile("When the drain times out", &mut desk);

    transcript.title("Machine without Node");
    let mut desk = running();
    at(&mut desk, "2026-11-16T17:00:00Z");
    desk.observed.machine = Child::Managed(machine());
    desk.observed.node = Node::Absent(Absence::NotJoined);
    transcript.reconcile("The window closes", &mut desk);

    transcript.title("Cluster is paused");
    let mut desk = shutting_down();
    desk.observed.cluster = Cluster::Paused;
    transcript.reconcile("During the drain", &mut desk);

    transcript.title("Object is deleted");
    let mut desk = running();
    desk.object.metadata.deletion_timestamp = Some(Time(desk.now));
    desk.observed.pods = pods(1);
    transcript.reconcile("A pod is left", &mut desk);
    (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
    transcript.reconcile("The Machine is deleted", &mut desk);
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn switches_and_reclaim() {
    let mut transcript = Transcript::default();
    transcript.title("Schedule is disabled");
    let mut desk = running();
    desk.edit(|it| it.spec.schedule.enabled = false);
    transcript.reconcile("A user disables it", &mut desk);
    desk.edit(|it| it.spec.schedule.enabled = true);
    transcript.reconcile("A user enables it", &mut desk);

    transcript.title("Kill switch");
    desk.edit(|it| it.spec.kill_switch = true);
    desk.observed.pods = pods(1);
    transcript.reconcile("A user sets it", &mut desk);
    (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
    transcript.reconcile("Everything is deleted", &mut desk);
    desk.edit(|it| it.spec.kill_switch = false);
    transcript.reconcile("A user resets it", &mut desk);
    let mut desk = Desk::new();
    at(&mut desk, "2026-11-16T18:00:00Z");
    desk.reconcile();
    desk.edit(|it| it.spec.kill_switch = true);
    transcript.reconcile("A user sets it outside the window", &mut desk);

    transcript.title("Emergency reclaim");
    let mut desk = running();
    let request = ReclaimRequest { reason: Some("process-match: idea".to_owned()), at: Some(desk.now) };
    on_node(&mut desk, running_machine(), ManagedNode { reclaim_request: Some(request), ..node() });
    desk.outcome.schedule_disabled = true;
    transcript.reconcile("The owner starts the program", &mut desk);
    desk.object.spec.schedule.enabled = false;
    (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
    transcript.reconcile("Everything is deleted", &mut desk);
    desk.edit(|it| it.spec.schedule.enabled = true);
    desk.outcome.machine = Some(CreatedMachine { uid: "m2".to_owned(), created_at: None });
    transcript.reconcile("A user enables the schedule", &mut desk);
    let request = ReclaimRequest {
        reason: Some("process-match: idea".to_owned()),
        at: Some(desk.now + jiff::SignedDuration::from_mins(4)),
    };
    let second = Machine { uid: "m2".to_owned(), ..running_machine() };
    on_node(&mut desk, second, ManagedNode { reclaim_request: Some(request), ..node() });
    transcript.reconcile("The program is still running", &mut desk);
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn overrides() {
    let mut transcript = Transcript::default();
    transcript.title("Overrides");
    let set = |desk: &mut Desk, from: &str, active: bool| {
        desk.object.spec.schedule.overrides = vec![Override {
            from: from.to_owned(),
            until: "2026-11-22".to_owned(),
            active,
            reason: Some("release".to_owned()),
        }];
    };
    let mut desk = Desk::new();
    at(&mut desk, "2026-11-21T10:00:00Z");
    set(&mut desk, "2026-11-21", true);
    transcript.reconcile("Saturday is lent", &mut desk);
    let mut desk = Desk::new();
    set(&mut desk, "2026-11-16", false);
    transcript.reconcile("The week is not lent", &mut desk);
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn problems() {
    let mut transcript = Transcript::default();
    transcript.title("Cluster");
    for cluster in [Cluster::Missing, Cluster::Deleting, Cluster::Paused] {
        let mut desk = Desk::new();
        desk.observed.cluster = cluster;
        transcript.reconcile(&format!("{cluster:?}"), &mut desk);
    }

    transcript.title("Names are taken");
    let mut desk = Desk::new();
    desk.observed.machine = Child::Unmanaged("other".to_owned());
    transcript.reconcile("Machine", &mut desk);
    let mut desk = Desk::new();
    desk.fail(Purpose::Create, "cannot create Boot desk-01-bootstrap: forbidden");
    transcript.reconcile("The creation fails", &mut desk);
    desk.observed.infrastructure = Child::Unmanaged("other".to_owned());
    transcript.reconcile("Infrastructure object", &mut desk);

    transcript.title("Machine fails");
    let failed = MachineHealth::Failed("InsufficientResources: no capacity".to_owned());
    let mut desk = running();
    desk.observed.pods = pods(1);
    on_node(&mut desk, Machine { health: failed, ..running_machine() }, node());
    transcript.reconcile("It is replaced", &mut desk);
    (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
    transcript.reconcile("The next one has to wait", &mut desk);

    transcript.title("Node");
    let mut desk = running();
    let absences = [
        Absence::NotFound { name: "desk-01".to_owned() },
        Absence::ProviderIdMismatch {
            name: "desk-01".to_owned(),
            found: Some("remote://10.0.0.7".to_owned()),
            expected: Some("remote://10.0.0.8".to_owned()),
        },
        Absence::ClaimedTwice { name: "desk-01".to_owned(), provider_id: "remote://10.0.0.8".to_owned() },
        Absence::NoKubeconfig { name: "desk-01".to_owned(), secret: "team/edge-kubeconfig".to_owned() },
    ];
    for absence in absences {
        desk.observed.node = Node::NotCached(absence);
        transcript.reconcile("No Node", &mut desk);
    }
    desk.observed.node = Node::Unreachable("connection refused (os error 111)".to_owned());
    transcript.reconcile("Unreachable", &mut desk);
    desk.observed.node = Node::Managed(node());
    desk.outcome.agent_error = Some("cannot patch Node desk-01: forbidden".to_owned());
    transcript.reconcile("The agent cannot be rolled out", &mut desk);

    transcript.title("Invalid spec");
    let mut desk = running();
    desk.edit(|it| it.spec.schedule.hours_of_day = vec!["9-25".to_owned()]);
    transcript.reconcile("The schedule does not parse", &mut desk);
    let mut desk = running();
    desk.edit(|it| it.spec.infrastructure_spec.api_version = "apps/v1".to_owned());
    transcript.reconcile("The group is not allowed", &mut desk);

    transcript.title("Failures");
    let mut desk = running();
    at(&mut desk, "2026-11-16T17:00:00Z");
    desk.observed.pods = pods(1);
    desk.fail(Purpose::Remove, "cannot patch Node desk-01: timed out after 30 s");
    transcript.reconcile("A removal fails", &mut desk);
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn taints() {
    let mut transcript = Transcript::default();
    let taint = |value: &str| NodeTaint {
        key: "example.com/lent".to_owned(),
        value: Some(value.to_owned()),
        effect: TaintEffect::NoSchedule,
    };
    let on_node_taint = |value: &str| Taint {
        key: "example.com/lent".to_owned(),
        value: Some(value.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    transcript.title("Taints");
    let mut desk = Desk::new();
    desk.object.spec.node_taints = vec![taint("1")];
    transcript.reconcile("No Node", &mut desk);
    on_node(&mut desk, running_machine(), ManagedNode { ready: false, ..node() });
    transcript.reconcile("The Node is not Ready", &mut desk);
    on_node(&mut desk, running_machine(), node());
    transcript.reconcile("The Node is Ready", &mut desk);
    desk.outcome.taint_error = Some("cannot patch Node desk-01: forbidden".to_owned());
    transcript.reconcile("The patch fails", &mut desk);
    let changed = ManagedNode { taints: vec![on_node_taint("2")], recorded_taints: Some(vec![taint("1")]), ..node() };
    on_node(&mut desk, running_machine(), changed);
    transcript.reconcile("Another client changes the value", &mut desk);
    let added = ManagedNode { taints: vec![on_node_taint("2")], recorded_taints: Some(Vec::new()), ..node() };
    on_node(&mut desk, running_machine(), added);
    transcript.reconcile("The taint was applied by another client", &mut desk);
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn leftovers() {
    let mut transcript = Transcript::default();
    transcript.title("Leftovers");
    let leftover = || {
        Child::Managed(ProviderChild {
            uid: "i1".to_owned(),
            deleting: false,
            adopted_by: Some("m1".to_owned()),
            fingerprint: None,
        })
    };
    for kill_switch in [false, true] {
        let mut desk = running();
        desk.edit(|it| it.spec.kill_switch = kill_switch);
        on_node(&mut desk, Machine { exclusions: Exclusions::ALL, ..deleting_machine() }, cordoned());
        at(&mut desk, "2026-11-16T17:00:00Z");
        desk.reconcile();
        (desk.observed.machine, desk.observed.node) = (Child::Absent, Node::Absent(Absence::NotJoined));
        desk.observed.infrastructure = leftover();
        transcript.reconcile(&format!("Kill switch {kill_switch}"), &mut desk);
    }
    insta::assert_snapshot!(transcript.0);
}
