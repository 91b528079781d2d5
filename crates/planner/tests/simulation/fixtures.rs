//! Names, specs and references that all simulated objects share.

use std::sync::LazyLock;

use fivespot_planner::input::RequestedState;
use fivespot_planner::observed::{DesiredChildren, Ref, Refs};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};

use super::state::Requested;
use super::time::{DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT};

pub(crate) const NAME: &str = "desk";
pub(crate) const NAMESPACE: &str = "default";
pub(super) const MACHINE_NAME: &str = "desk-machine";
/// A machine that is recreated gets a Node of the same name.
pub(super) const NODE_NAME: &str = "desk-node";
/// Fingerprint of all children.
pub(super) const FINGERPRINT: &str = "fingerprint";
pub(super) const AGENT_CONFIG: &str = "match_commands = [\"java\"]";
pub(super) const FAILURE: &str = "InstanceTerminated";

/// Uid of a Machine that exists in an initial state. The controller's own are numbered from 1.
pub(crate) const EXISTING_MACHINE: u8 = 100;
/// Uid of a Machine that another client creates.
pub(crate) const OTHER_MACHINE: u8 = 99;
/// Uid of a Machine that existed before.
pub(crate) const PREVIOUS_MACHINE: u8 = 98;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Schedule {
    Open,
    Closed,
    /// It does not parse.
    Invalid,
    /// Opens and closes once a day.
    Daily,
}

/// The parsed spec with this schedule.
pub(crate) fn spec(schedule: Schedule) -> &'static Result<ValidSpec, SpecErrors> {
    type Spec = LazyLock<Result<ValidSpec, SpecErrors>>;
    static OPEN: Spec = LazyLock::new(|| parse("* * * * *"));
    static CLOSED: Spec = LazyLock::new(|| parse("0 0 30 2 *"));
    static INVALID: Spec = LazyLock::new(|| parse("every now and then"));
    static DAILY: Spec = LazyLock::new(|| parse("0 12 * * *"));
    match schedule {
        Schedule::Open => &OPEN,
        Schedule::Closed => &CLOSED,
        Schedule::Invalid => &INVALID,
        Schedule::Daily => &DAILY,
    }
}

fn parse(cron: &str) -> Result<ValidSpec, SpecErrors> {
    let text = format!(
        r#"{{"schedule": {{"cron": "{cron}"}}, "clusterName": "edge",
            "bootstrapSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "Boot", "spec": {{}}}},
            "infrastructureSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "Infra", "spec": {{}}}}}}"#
    );
    validate(&serde_json::from_str(&text).unwrap(), NAMESPACE, Standard::Admission)
}

pub(super) fn requested_state(requested: Requested) -> RequestedState {
    RequestedState {
        deleted: requested.deleted,
        kill_switch: requested.kill_switch,
        enabled: requested.enabled,
        agent_config: requested.reclaimable.then(|| AGENT_CONFIG.to_owned()),
        graceful_shutdown_timeout: SHUTDOWN_TIMEOUT,
        node_drain_timeout: DRAIN_TIMEOUT,
        schedule: String::new(),
    }
}

pub(super) fn refs() -> Refs {
    let child = |kind: &str, name: &str| Ref {
        api_version: "k0smotron.io/v1beta1".to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    Refs { bootstrap: child("Boot", "desk-bootstrap"), infrastructure: child("Infra", "desk-infra") }
}

pub(super) fn desired_children() -> DesiredChildren {
    DesiredChildren { machine: MACHINE_NAME.to_owned(), refs: refs(), fingerprint: FINGERPRINT.to_owned() }
}
