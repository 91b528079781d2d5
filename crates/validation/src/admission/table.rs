//! Every rule, in the order in which they are asked.

use fivespot_api::keys;

use super::form;
use super::rule::Rule;
use crate::validate::rules::{self, DurationRules, InlineRules};

/// Every rule of the policy, in the order in which they are asked.
pub fn rules() -> Vec<Rule> {
    let parts = [
        cluster_name(),
        timeout("gracefulShutdownTimeout", &rules::GRACEFUL_SHUTDOWN_TIMEOUT),
        timeout("nodeDrainTimeout", &rules::NODE_DRAIN_TIMEOUT),
        schedule(),
        inline_object("bootstrap", &rules::BOOTSTRAP),
        inline_object("infrastructure", &rules::INFRASTRUCTURE),
        machine_template(),
        kill_if_commands(),
        node_taints(),
    ];
    parts.into_iter().flatten().collect()
}

fn cluster_name() -> Vec<Rule> {
    vec![
        Rule::new(rules::CLUSTER_NAME_EMPTY, "variables.clusterName != ''"),
        Rule::new(rules::CLUSTER_NAME_FORM, matches("variables.clusterName", form::LABEL_VALUE)),
    ]
}

fn timeout(field: &str, words: &DurationRules) -> Vec<Rule> {
    let text = format!("variables.{field}");
    let form = matches(&text, form::DURATION);
    vec![Rule::new(words.form, form.as_str()), Rule::new(words.bound, format!("!{form} || {}", at_most_a_day(&text)))]
}

/// Of a text that has the form of a duration. Six digits and their unit are more than a day, and more of them would be
/// more than the API server can count.
fn at_most_a_day(text: &str) -> String {
    format!("(size({text}) <= 6 && duration({text}) <= duration('24h'))")
}

fn schedule() -> Vec<Rule> {
    let length = "variables.duration.orValue('')";
    vec![
        Rule::new(
            rules::CRON_OR_WINDOW,
            "!variables.cron.hasValue() || (size(variables.daysOfWeek) == 0 && size(variables.hoursOfDay) == 0)",
        ),
        Rule::new(
            rules::WINDOW_COMPLETE,
            "variables.cron.hasValue() || (size(variables.daysOfWeek) > 0 && size(variables.hoursOfDay) > 0)",
        ),
        Rule::new(
            rules::DAYS_FORM,
            format!(
                "variables.cron.hasValue() || variables.daysOfWeek.all(entry, {})",
                matches("entry", &form::days())
            ),
        ),
        Rule::new(
            rules::HOURS_FORM,
            format!(
                "variables.cron.hasValue() || variables.hoursOfDay.all(entry, {})",
                matches("entry", &form::hours())
            ),
        ),
        Rule::new(
            rules::CRON_FORM,
            format!("!variables.cron.hasValue() || {}", matches("variables.cron.orValue('')", &form::cron())),
        ),
        Rule::new(
            rules::WINDOW_DURATION,
            format!(
                "!variables.duration.hasValue() || (variables.cron.hasValue() && {} && {})",
                matches(length, form::DURATION),
                at_most_a_day(length)
            ),
        ),
        Rule::new(
            rules::OVERRIDES,
            format!(
                "variables.overrides.all(entry, {} && {})",
                matches("entry.from", form::MOMENT),
                matches("entry.until", form::MOMENT)
            ),
        ),
    ]
}

fn inline_object(object: &str, words: &InlineRules) -> Vec<Rule> {
    let field = |name: &str| format!("variables.{object}{name}");
    let (api_version, kind, namespace) = (field("ApiVersion"), field("Kind"), field("Namespace"));
    vec![
        Rule::new(words.group_present, format!("{api_version}.contains('/')")),
        Rule::new(
            words.group_allowed,
            format!("!{api_version}.contains('/') || {}", matches(&api_version, &form::api_version(words.groups))),
        ),
        Rule::new(words.kind_present, format!("{kind} != ''")),
        Rule::new(
            words.kind_allowed,
            format!("!{kind}.endsWith('Template') && !{kind}.endsWith('Cluster') && {kind} != 'JoinTokenRequest'"),
        ),
        Rule::new(words.namespace, format!("{namespace} == '' || {namespace} == request.namespace")),
        Rule::new(words.provider_id, format!("!{}.hasValue()", field("ProviderID"))),
    ]
}

/// A schema cannot bound the length of a key, so that is done here, before anything is asked that costs the more the longer
/// the key is: 253 characters of prefix, a slash and 63 of name.
const LONGEST_KEY: usize = 317;

fn machine_template() -> Vec<Rule> {
    let key =
        format!("size(key) <= {LONGEST_KEY} && key.indexOf('/') <= 253 && {}", matches("key", form::QUALIFIED_NAME));
    let value = matches("variables.labels[key]", form::LABEL_VALUE);
    let reserved = matches("key", &form::below(&keys::RESERVED_PREFIXES));
    let nodes = matches("key", &form::below(&[keys::NODE_LABEL_PREFIX]));
    let version = matches("variables.version.orValue('')", form::KUBERNETES_VERSION);
    vec![
        Rule::new(
            rules::TEMPLATE_FORM,
            format!(
                "variables.labels.all(key, {key} && size(variables.labels[key]) <= 63 && {value}) &&\n\
                 variables.annotations.all(key, {key})"
            ),
        ),
        Rule::new(
            rules::TEMPLATE_RESERVED,
            format!(
                "variables.labels.all(key, size(key) > {LONGEST_KEY} || !{reserved} || {nodes}) &&\n\
                 variables.annotations.all(key, size(key) > {LONGEST_KEY} || !{reserved})"
            ),
        ),
        Rule::new(rules::TEMPLATE_VERSION, format!("!variables.version.hasValue() || {version}")),
    ]
}

fn kill_if_commands() -> Vec<Rule> {
    let each = format!("variables.killIfCommands.all(command, {})", matches("command", form::VISIBLE));
    vec![Rule::new(rules::COMMAND_FORM, each)]
}

fn node_taints() -> Vec<Rule> {
    let each = |holds: String| format!("variables.nodeTaints.all(taint, {holds})");
    vec![
        Rule::new(rules::TAINT_KEY_FORM, each(matches("taint.key", form::QUALIFIED_NAME))),
        Rule::new(
            rules::TAINT_KEY_RESERVED,
            each(format!("!{}", matches("taint.key", &form::prefixed(&rules::RESERVED_TAINT_PREFIXES)))),
        ),
        Rule::new(
            rules::TAINT_VALUE_FORM,
            each(format!("!has(taint.value) || {}", matches("taint.value", form::LABEL_VALUE))),
        ),
        Rule::new(
            rules::TAINT_UNIQUE,
            each(
                "variables.nodeTaints.exists_one(other, other.key == taint.key && other.effect == taint.effect)"
                    .to_owned(),
            ),
        ),
    ]
}

fn matches(text: &str, form: &str) -> String {
    format!("{text}.matches(r'{form}')")
}
