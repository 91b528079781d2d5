//! What a world is put together from.

use std::sync::LazyLock;

use fivespot_api::ReclaimStatus;

use super::Schedule;
use crate::drain::Verdict;
use crate::observed::{Agent, Health, Machine, Marks, NodePod, Orders, ProviderChild, Ref, Refs, Slot};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};

/// What all children are made from.
pub(super) const FINGERPRINT: &str = "f";

type Spec = Result<ValidSpec, SpecErrors>;

/// The spec that asks for a schedule. Each is parsed once: it is asked for millions of times.
pub(super) fn spec(schedule: Schedule) -> &'static Spec {
    static OPEN: LazyLock<Spec> = LazyLock::new(|| parse("* * * * *"));
    static CLOSED: LazyLock<Spec> = LazyLock::new(|| parse("0 0 30 2 *"));
    static INVALID: LazyLock<Spec> = LazyLock::new(|| parse("whenever"));
    match schedule {
        Schedule::Open => &OPEN,
        Schedule::Closed => &CLOSED,
        Schedule::Invalid => &INVALID,
    }
}

/// One whose window opens and closes every day.
pub(super) fn changing_spec() -> &'static ValidSpec {
    static DAILY: LazyLock<Spec> = LazyLock::new(|| parse("0 12 * * *"));
    DAILY.as_ref().unwrap()
}

fn parse(cron: &str) -> Spec {
    let text = format!(
        r#"{{"schedule": {{"cron": "{cron}"}}, "clusterName": "c",
            "bootstrapSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "B", "spec": {{}}}},
            "infrastructureSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "I", "spec": {{}}}}}}"#
    );
    validate(&serde_json::from_str(&text).unwrap(), "default", Standard::Admission)
}

pub(super) fn refs() -> Refs {
    let child =
        |kind: &str, name: &str| Ref { api_version: "x/v1".to_owned(), kind: kind.to_owned(), name: name.to_owned() };
    Refs { bootstrap: child("Boot", "a-bootstrap"), infrastructure: child("Infra", "a-infra") }
}

pub(super) fn pod(verdict: Verdict) -> NodePod {
    NodePod { namespace: "team".to_owned(), name: "p".to_owned(), uid: "p".to_owned(), verdict, to_end: true }
}

pub(super) fn child(uid: &str) -> ProviderChild {
    ProviderChild { uid: uid.to_owned(), deleting: false, adopted_by: None, fingerprint: Some(FINGERPRINT.to_owned()) }
}

pub(super) fn machine(uid: &str, health: Health) -> Machine {
    Machine {
        uid: uid.to_owned(),
        deleting: false,
        marks: Marks::default(),
        node: (health == Health::Running).then(|| "n".to_owned()),
        health,
        provider_id: None,
        fingerprint: Some(FINGERPRINT.to_owned()),
        created_at: None,
        confirmed: true,
    }
}

/// Nothing of the agent is there.
pub(super) const NO_AGENT: Agent = Agent { labelled: false, orders: Orders::None };

/// The agent, with these orders.
pub(super) fn agent(orders: Orders) -> Agent {
    Agent { labelled: true, orders }
}

/// A part that Machine `m` has adopted.
pub(super) fn adopted(uid: &str) -> ProviderChild {
    ProviderChild { adopted_by: Some("m".to_owned()), ..child(uid) }
}

/// A Machine that became a Node, and failed.
pub(super) fn failed() -> Slot<Machine> {
    Slot::Ours(Machine { node: Some("n".to_owned()), ..broken() })
}

pub(super) fn broken() -> Machine {
    machine("m", Health::Failed("it broke".to_owned()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    NotYet,
    Deleted,
}

/// A Machine that Cluster API was told not to drain.
pub(super) fn marked(leaving: Leaving) -> Slot<Machine> {
    let marks = Marks { no_drain: true, no_volumes: false };
    Slot::Ours(Machine { marks, deleting: leaving == Leaving::Deleted, ..machine("m", Health::Running) })
}

/// A Machine that was deleted without a word to Cluster API.
pub(super) fn deleted_by_others() -> Slot<Machine> {
    Slot::Ours(Machine { deleting: true, ..machine("m", Health::Running) })
}

/// The memory of a reclaim of the Machine of this uid.
pub(super) fn reclaim(uid: &str) -> ReclaimStatus {
    ReclaimStatus {
        machine_uid: uid.to_owned(),
        reason: None,
        requested_at: None,
        schedule_disabled: false,
        in_progress: false,
        count: 1,
    }
}
