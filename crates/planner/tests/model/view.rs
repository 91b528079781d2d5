//! What a pass decides from, and what the shipped `decide` makes of it.

use std::sync::OnceLock;

use fivespot_planner::decide::decide;
use fivespot_planner::input::{DecisionInput, RequestedState};
use fivespot_planner::observed::{Node, Observed};
use fivespot_planner::plan::{Decision, Plan, Step};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};
use jiff::{SignedDuration, Timestamp};

use super::mistake::Mistake;
use super::request::Request;
use super::state::{Asked, Caches, LAST_INSTANT, Object, There, World};

/// What a pass was decided from; its plan follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) caches: Caches,
    /// What is really there, for whoever looks closer.
    pub(crate) there: There,
    pub(crate) window: bool,
    pub(crate) instant: u8,
    /// Whether a machine failed, and the next has to wait.
    pub(crate) waits: bool,
    pub(crate) mistake: Option<Mistake>,
}

pub(crate) fn instant(index: u8) -> Timestamp {
    let start: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
    start + SignedDuration::from_mins([0, 3, 10][usize::from(index)])
}

pub(crate) fn index(at: Timestamp) -> u8 {
    (0..=LAST_INSTANT).find(|it| instant(*it) == at).expect("a time of the model")
}

type Spec = Result<ValidSpec, SpecErrors>;

fn spec(cron: &str) -> Spec {
    let text = format!(
        r#"{{"schedule": {{"cron": "{cron}"}}, "clusterName": "c",
            "bootstrapSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "B", "spec": {{}}}},
            "infrastructureSpec": {{"apiVersion": "k0smotron.io/v1beta1", "kind": "I", "spec": {{}}}}}}"#
    );
    validate(&serde_json::from_str(&text).unwrap(), "default", Standard::Admission)
}

/// Schedules whose window is closed, whose window is open, and that nobody can read.
fn specs() -> &'static [Spec; 3] {
    static SPECS: OnceLock<[Spec; 3]> = OnceLock::new();
    SPECS.get_or_init(|| ["0 0 30 2 *", "* * * * *", "every now and then"].map(spec))
}

impl View {
    pub(crate) fn of(world: &World) -> Self {
        View {
            caches: world.caches,
            there: world.there,
            window: world.window,
            instant: world.instant,
            waits: world.lost.is_some_and(|it| it.waits),
            mistake: world.mistake,
        }
    }

    /// What was seen when no closer look was needed any more, and what is done about it.
    fn plan(&self) -> Option<(Observed, Plan)> {
        let object = self.caches.object?;
        let intent = RequestedState {
            deleted: object.asked.deleted,
            kill_switch: object.asked.killed,
            enabled: object.asked.enabled,
            agent_config: Some(super::observation::ORDERS.to_owned()),
            graceful_shutdown_timeout: SignedDuration::from_mins(5),
            node_drain_timeout: SignedDuration::from_mins(2),
            schedule: String::new(),
        };
        let spec = &specs()[if object.asked.readable { usize::from(self.window) } else { 2 }];
        let mut looks = Vec::new();
        loop {
            let mut seen = self.observed(&object, &looks);
            if let Some(mistake) = self.mistake {
                mistake.blind(&mut seen);
            }
            let situation =
                DecisionInput { requested: &intent, spec: spec.as_ref(), observed: &seen, now: instant(self.instant) };
            match decide(&situation) {
                Decision::Execute(mut plan) => {
                    if let Some(mistake) = self.mistake {
                        mistake.plant(self, &mut plan);
                    }
                    return Some((seen, *plan));
                }
                Decision::NeedsRead(look) => {
                    assert!(!looks.contains(&look), "{look:?} is asked for again");
                    looks.push(look);
                }
            }
        }
    }

    /// Whether the spec asks for a machine, and nobody for anything else.
    pub(crate) fn is_wanted(&self) -> bool {
        let by = |it: Object| it.asked == Asked::MACHINE && !it.is_reclaiming();
        self.window && self.caches.object.is_some_and(by)
    }

    /// Whether the Machine of this uid was seen, and as ours.
    pub(crate) fn sees_as_ours(&self, uid: u8) -> bool {
        self.plan().is_some_and(|(seen, _)| seen.machine.managed().is_some_and(|it| it.uid == uid.to_string()))
    }

    /// Whether a reclaim was seen to be under way, or a request for one that is new.
    pub(crate) fn is_reclaimed(&self) -> bool {
        let Some((seen, _)) = self.plan() else { return false };
        let machine = seen.machine.managed().map(|it| &it.uid);
        let requested = matches!(&seen.node, Node::Managed(node) if node.reclaim_request.is_some());
        let done_before = seen.stored.reclaim.as_ref().is_some_and(|it| Some(&it.machine_uid) == machine);
        seen.stored.reclaim_in_progress() || (requested && !done_before)
    }

    /// The requests of the plan in their order, and the report unless it would change nothing.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let (Some((seen, plan)), Some(object)) = (self.plan(), self.caches.object) else { return Vec::new() };
        let mut requests: Vec<Request> = plan.steps.iter().flat_map(|it| Request::of(it, &seen)).collect();
        let removed = plan.steps.contains(&Step::RemoveFinalizer);
        let standing = plan.status;
        let stored = requests.iter().any(|it| matches!(it, Request::Take(Step::StoreStatus(it)) if **it == standing));
        if object.with(&standing) != object && !removed && !stored {
            requests.push(Request::Report(Box::new(standing)));
        }
        requests
    }
}
