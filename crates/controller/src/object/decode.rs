//! Decodes a ScheduledMachine.

use fivespot_api::conditions::{ConditionStatus, Ready, Reason as _};
use fivespot_api::{InlineObject, ScheduleSpec, ScheduledMachineSpec, ScheduledMachineStatus, defaults, keys};
use fivespot_planner::children::InlineSpecs;
use fivespot_planner::intent::{self, Intent};
use fivespot_validation::inline_spec::{InlineSpecSummaries, InlineSpecSummary};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::Map;
use serde_json::value::RawValue;

use super::fields::{Fields, Reading, split};
use super::{ReceivedObject, StoredObject};

/// What is kept of the metadata, in bytes of JSON: names and finalizers.
const MAX_METADATA: usize = 64 * 1024;
/// What is kept of the spec, in bytes of JSON, apart from the inline specs, of which nothing is kept. A schedule with 256
/// overrides and their reasons is about half of this.
const MAX_SPEC: usize = 128 * 1024;
/// What is kept of the status, in bytes of JSON: more than the controller itself writes, which is eight messages of 4 KiB, 32
/// taints and some references.
const MAX_STATUS: usize = 64 * 1024;
/// Finalizers that are kept, in bytes of JSON.
const MAX_FINALIZERS: usize = 4 * 1024;

/// Fails only if the text is no JSON object: whatever is wrong with a field is reported with the object.
pub(super) fn decode(json: &str) -> Result<ReceivedObject, serde_json::Error> {
    let root = split(json)?;
    let part = |name: &str| root.get(name).copied();
    let Metadata { kept: metadata, finalizers, recorded_intent } = metadata(part("metadata"));
    let mut reading = Reading::with_limit(MAX_SPEC);
    let decoded = spec(&mut Fields::new("spec", part("spec"), &mut reading));
    let unreadable = reading.unreadable;
    let mut reading = Reading::with_limit(MAX_STATUS);
    let status = status(&mut Fields::new("status", part("status"), &mut reading));
    let unreadable_status = reading.unreadable.iter().filter_map(|it| it.field.strip_prefix("status."));
    let name = metadata.name.as_deref().unwrap_or_default();
    let unobserved_intent = recorded_intent.and_then(|text| Intent::unobserved(name, &text, &status)).map(Box::new);
    Ok(ReceivedObject {
        stored: StoredObject {
            unobserved_intent,
            has_all_finalizers: metadata.finalizers.as_ref().is_none_or(|kept| kept.len() == finalizers.len()),
            metadata,
            spec: decoded.spec,
            inline: decoded.summaries,
            unreadable,
            status: serde_json::to_string(&status).unwrap_or_default().into_boxed_str(),
            phase: status.phase,
            not_ready: not_ready(&status.conditions),
            reclaim_in_progress: status.reclaim.is_some_and(|reclaim| reclaim.in_progress),
            unreadable_status: unreadable_status.map(str::to_owned).collect(),
        },
        inline_specs: decoded.inline_specs,
        finalizers,
    })
}

struct Metadata {
    /// What the controller uses of it.
    kept: ObjectMeta,
    /// All of them.
    finalizers: Vec<String>,
    recorded_intent: Option<String>,
}

/// `managedFields` are never read: they are nested as deep as the spec. Of the annotations one is read, unless it is too long.
fn metadata(json: Option<&RawValue>) -> Metadata {
    let mut reading = Reading::with_limit(MAX_METADATA);
    let mut fields = Fields::new("metadata", json, &mut reading);
    let recorded_intent = fields.nested("annotations").take(keys::CHILDREN_ANNOTATION).map(RawValue::get);
    let recorded_intent = recorded_intent.filter(|json| json.len() <= intent::MAX_ANNOTATION + "\"\"".len());
    let listed = fields.take("finalizers").map_or("[]", RawValue::get);
    let finalizers: Vec<String> = serde_json::from_str(listed).unwrap_or_default();
    let mut kept_finalizers = finalizers.clone();
    if listed.len() > MAX_FINALIZERS {
        // Enough to tell whether the object waits for this controller, and whether it waits for another one.
        let (own, others): (Vec<_>, Vec<_>) = kept_finalizers.into_iter().partition(|it| it == keys::FINALIZER);
        let other = others.into_iter().find(|it| it.len() < MAX_FINALIZERS / 2);
        kept_finalizers = own.into_iter().take(1).chain(other.or_else(|| Some(String::new()))).collect();
    }
    let is_deleted = fields.take("deletionTimestamp");
    let kept = ObjectMeta {
        name: fields.read("name"),
        namespace: fields.read("namespace"),
        uid: fields.read("uid"),
        resource_version: fields.read("resourceVersion"),
        generation: fields.read("generation"),
        // Only whether it is set matters.
        deletion_timestamp: is_deleted
            .map(|json| serde_json::from_str(json.get()).unwrap_or(Time(Timestamp::UNIX_EPOCH))),
        finalizers: (!kept_finalizers.is_empty()).then_some(kept_finalizers),
        ..ObjectMeta::default()
    };
    Metadata { kept, finalizers, recorded_intent: recorded_intent.and_then(|json| serde_json::from_str(json).ok()) }
}

struct DecodedSpec {
    spec: ScheduledMachineSpec,
    summaries: InlineSpecSummaries,
    /// `None` if one of them exceeds a limit.
    inline_specs: Option<InlineSpecs>,
}

fn spec(fields: &mut Fields<'_, '_>) -> DecodedSpec {
    // What acts also on an invalid spec is read first, so that no other field uses up the limit.
    let (kill_switch, kill_if_commands) = (fields.read("killSwitch"), fields.read("killIfCommands"));
    let (bootstrap_spec, bootstrap) = inline_object(fields.nested("bootstrapSpec"));
    let (infrastructure_spec, infrastructure) = inline_object(fields.nested("infrastructureSpec"));
    DecodedSpec {
        spec: ScheduledMachineSpec {
            schedule: schedule(fields.nested("schedule")),
            bootstrap_spec,
            infrastructure_spec,
            cluster_name: fields.read("clusterName").unwrap_or_default(),
            machine_template: fields.read("machineTemplate"),
            priority: fields.read("priority").unwrap_or_else(defaults::priority),
            graceful_shutdown_timeout: fields.read("gracefulShutdownTimeout").unwrap_or_else(defaults::timeout),
            node_drain_timeout: fields.read("nodeDrainTimeout").unwrap_or_else(defaults::timeout),
            kill_switch: kill_switch.unwrap_or_default(),
            kill_if_commands,
            node_taints: fields.read("nodeTaints").unwrap_or_default(),
        },
        summaries: InlineSpecSummaries { bootstrap: bootstrap.0, infrastructure: infrastructure.0 },
        inline_specs: bootstrap
            .1
            .zip(infrastructure.1)
            .map(|(bootstrap, infrastructure)| InlineSpecs { bootstrap, infrastructure }),
    }
}

fn schedule(mut fields: Fields<'_, '_>) -> ScheduleSpec {
    let enabled = fields.read("enabled").unwrap_or_else(defaults::enabled);
    let mut schedule = ScheduleSpec {
        enabled,
        days_of_week: fields.read("daysOfWeek").unwrap_or_default(),
        hours_of_day: fields.read("hoursOfDay").unwrap_or_default(),
        cron: fields.read("cron"),
        duration: fields.read("duration"),
        timezone: fields.read("timezone").unwrap_or_else(defaults::timezone),
        overrides: fields.read("overrides").unwrap_or_default(),
    };
    // A note for people.
    schedule.overrides.iter_mut().for_each(|it| it.reason = None);
    schedule
}

/// An inline object without its spec, and what is known of the spec.
fn inline_object(mut fields: Fields<'_, '_>) -> (InlineObject, (InlineSpecSummary, Option<Box<RawValue>>)) {
    let object = InlineObject {
        api_version: fields.read("apiVersion").unwrap_or_default(),
        kind: fields.read("kind").unwrap_or_default(),
        namespace: fields.read("namespace"),
        spec: Map::new(),
    };
    let summarized = match fields.take("spec").map(InlineSpecSummary::of_json) {
        Some(Ok(summarized)) => summarized,
        Some(Err(error)) => {
            fields.unreadable("spec", error.to_string());
            (InlineSpecSummary::of(&Map::new()), None)
        }
        None => {
            fields.unreadable("spec", "it is missing");
            (InlineSpecSummary::of(&Map::new()), None)
        }
    };
    (object, summarized)
}

fn status(fields: &mut Fields<'_, '_>) -> ScheduledMachineStatus {
    ScheduledMachineStatus {
        phase: fields.read("phase"),
        in_schedule: fields.read("inSchedule"),
        // What a decision depends on is read first.
        reclaim: fields.read("reclaim"),
        shutdown_started_at: fields.read("shutdownStartedAt"),
        machine_failure: fields.read("machineFailure"),
        initial_pods: fields.read("initialPods"),
        machine_ref: fields.read("machineRef"),
        bootstrap_ref: fields.read("bootstrapRef"),
        infrastructure_ref: fields.read("infrastructureRef"),
        observed_intent: fields.read("observedIntent"),
        node_ref: fields.read("nodeRef"),
        applied_node_taints: fields.read("appliedNodeTaints").unwrap_or_default(),
        provider_id: fields.read("providerID"),
        last_scheduled_time: fields.read("lastScheduledTime"),
        next_activation: fields.read("nextActivation"),
        next_cleanup: fields.read("nextCleanup"),
        observed_generation: fields.read("observedGeneration"),
        message: fields.read("message"),
        conditions: fields.read("conditions").unwrap_or_default(),
    }
}

/// Why condition `Ready` is False. Users may be able to write the status: a reason that does not exist is none.
fn not_ready(conditions: &[Condition]) -> Option<Ready> {
    let is_false = |it: &&Condition| it.type_ == Ready::CONDITION && it.status == ConditionStatus::False.as_str();
    let condition = conditions.iter().find(is_false)?;
    Ready::ALL.iter().find(|it| it.status() == ConditionStatus::False && it.as_str() == condition.reason).copied()
}
