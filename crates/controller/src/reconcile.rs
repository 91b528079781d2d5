//! One pass over one object: observe, decide, act, report.

use std::sync::Arc;
use std::time::Duration;

use fivespot_api::ScheduledMachine;
use fivespot_planner::decide::{Situation, decide};
use fivespot_planner::intent::Intent;
use fivespot_planner::observed::Observed;
use fivespot_planner::patience::{Kind, LONGEST_EJECT, Patience, Verdict};
use fivespot_planner::plan::{Action, Decision, Plan};
use fivespot_validation::validate::{SpecErrors, Standard, ValidSpec, validate};
use jiff::Timestamp;
use kube::Api;

use crate::act::{self, Pass};
use crate::context::Context;
use crate::observe::Eye;
use crate::queue::Key;
use crate::trouble::{MANAGEMENT, Trouble, within};
use crate::urgency::is_urgent;

/// A stepped clock or a suspended host is noticed after this long at the latest.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// What an object asks for, what there is, and what time it is.
pub(crate) struct Scene {
    pub(crate) intent: Intent,
    pub(crate) spec: Result<ValidSpec, SpecErrors>,
    pub(crate) seen: Observed,
    pub(crate) now: Timestamp,
}

impl Scene {
    pub(crate) fn situation(&self) -> Situation<'_> {
        Situation { intent: &self.intent, spec: self.spec.as_ref(), seen: &self.seen, now: self.now }
    }
}

/// What comes after a pass.
pub(crate) struct Next {
    /// After how long to look again, if nothing happens before; `None` if there is no object any more.
    pub(crate) again: Option<Duration>,
    /// The word for the metric.
    pub(crate) result: &'static str,
}

/// Looks at an object once.
pub(crate) async fn reconcile(context: &Context, key: &Key) -> Next {
    let mut patience = context.recall(key);
    if let Err(trouble) = make_sure(context, key).await {
        context.metrics.failed(trouble.kind());
        let now = Timestamp::now();
        let at = match patience.failed(&[], Kind::Hiccup, now) {
            Verdict::Soon(at) => at,
            Verdict::Report(at) => {
                tracing::warn!(object = %key, why = %trouble, "failed");
                at
            }
        };
        context.remember(key, patience);
        let urgent = context.objects.get(&key.namespace, &key.name).is_some_and(|it| is_urgent(context, key, &it));
        let longest = if urgent { LONGEST_EJECT.unsigned_abs() } else { LONGEST_SLEEP };
        return Next { again: Some(until(at, now).min(longest)), result: "failed" };
    }
    let Some(object) = context.objects.get(&key.namespace, &key.name) else {
        context.forget(key);
        return Next { again: None, result: "gone" };
    };
    let again = pass(context, key, object, &mut patience).await;
    context.remember(key, patience);
    let (again, result) = match again {
        Ok(again) => (again, "done"),
        Err(again) => (again, "failed"),
    };
    Next { again: Some(again.min(LONGEST_SLEEP)), result }
}

/// Reads an object of which it is not known what is stored. A cache that has not heard of our own last write would show
/// an intent that has been dropped since.
async fn make_sure(context: &Context, key: &Key) -> Result<(), Trouble> {
    if !context.is_doubted(key) {
        return Ok(());
    }
    let what = format!("cannot read ScheduledMachine {key}");
    let objects: Api<ScheduledMachine> = Api::namespaced(context.client.clone(), &key.namespace);
    match within(MANAGEMENT, &what, objects.get_opt(&key.name)).await? {
        Ok(Some(mut object)) => {
            object.metadata.managed_fields = None;
            context.count(&context.objects.saw(object));
        }
        Ok(None) => {
            if let Some(known) = context.objects.get(&key.namespace, &key.name) {
                context.count(&context.objects.found_gone(&known));
            }
        }
        Err(error) => return Err(Trouble::of(&what, &error)),
    }
    context.trust(key);
    Ok(())
}

/// After how long to look again: when all is done, or when something failed.
async fn pass(
    context: &Context,
    key: &Key,
    object: Arc<ScheduledMachine>,
    patience: &mut Patience,
) -> Result<Duration, Duration> {
    // The only clock of a pass.
    let now = Timestamp::now();
    let spec = validate(&object.spec, &key.namespace, Standard::Stored);
    context.metrics.evaluated(if spec.is_ok() { "ok" } else { "invalid" });
    let eye = Eye { context, key, object: &object };
    let mut seen = eye.observe(spec.as_ref().ok());
    patience.remember(&mut seen, object.metadata.generation, now);
    let mut scene = Scene { intent: Intent::of(&object), spec, seen, now };
    let plan = match decided(eye, &mut scene, patience).await {
        Ok(plan) => plan,
        Err(trouble) => {
            let mut pass = Pass::new(context, key, &object, &scene);
            return Err(failed(&mut pass, None, trouble, patience).await);
        }
    };
    if let Some(at) = patience.wait_for(&plan.actions, now) {
        return Ok(until(at.min(to_come(plan.wake_at, now)), now));
    }
    let mut pass = Pass::new(context, key, &object, &scene);
    let outcome = match act::act(&mut pass, &plan.actions).await {
        Ok(()) => pass.report(&plan).await,
        Err(trouble) => Err(trouble),
    };
    match outcome {
        Ok(()) => {
            patience.succeeded();
            Ok(plan.wake_at.map_or(LONGEST_SLEEP, |at| until(at, now)))
        }
        Err(trouble) => Err(failed(&mut pass, Some(&plan), trouble, patience).await),
    }
}

/// Decides, and looks closer for as long as the decision asks for it.
async fn decided(eye: Eye<'_>, scene: &mut Scene, patience: &mut Patience) -> Result<Plan, Trouble> {
    let mut looks = Vec::new();
    loop {
        patience.count_pods(&mut scene.seen);
        match decide(scene.situation()) {
            Decision::Do(plan) => return Ok(*plan),
            Decision::Look(look) if looks.contains(&look) => {
                return Err(Trouble::Hiccup(format!("{look:?} was looked at, and nothing was seen")));
            }
            Decision::Look(look) => {
                looks.push(look);
                eye.look(look, &mut scene.seen).await?;
            }
        }
    }
}

/// Makes the best of what went wrong: told where somebody has to know, and tried again when there is hope.
async fn failed(pass: &mut Pass<'_>, plan: Option<&Plan>, trouble: Trouble, patience: &mut Patience) -> Duration {
    pass.context.metrics.failed(trouble.kind());
    let now = pass.scene.now;
    let kind = match &trouble {
        Trouble::Stale(_) => Kind::Stale,
        Trouble::Stopping => return LONGEST_SLEEP,
        Trouble::Hiccup(_) => Kind::Hiccup,
        Trouble::Refused { .. } => Kind::Refusal,
    };
    let tried: Vec<Action> = match plan {
        // What was done is not held back for what was not.
        Some(_) if pass.is_only_undone() => pass.undone.iter().map(|it| it.act.clone()).collect(),
        Some(plan) => plan.actions.clone(),
        None => Vec::new(),
    };
    // What else is due is not slept through: the close of a window, the end of a drain.
    let due = to_come(plan.map_or_else(|| pass.scene.situation().boundary(), |it| it.wake_at), now);
    match patience.failed(&tried, kind, now) {
        Verdict::Soon(at) => {
            tracing::debug!(object = %pass.key, why = %trouble, "tried again soon");
            until(at.min(due), now)
        }
        Verdict::Report(at) => {
            pass.report_failure(plan, &trouble).await;
            until(at.min(due), now)
        }
    }
}

/// When something is due that is not due already: what failed just now is not due again.
fn to_come(at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    at.filter(|at| *at > now).unwrap_or(Timestamp::MAX)
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    at.duration_since(now).try_into().unwrap_or(Duration::ZERO)
}
