//! The CEL expression of every rule.

use fivespot_api::keys;

use super::rule::Rule;
use crate::inline_spec::{MAX_DEPTH, MAX_ENTRIES, MAX_SIZE};
use crate::patterns;
use crate::rules::{self, DurationRules, InlineRules};

/// All rules of the policy, in the order in which the API server evaluates them.
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
        Rule::new(rules::CLUSTER_NAME_FORMAT, matches("variables.clusterName", patterns::LABEL_VALUE)),
    ]
}

fn timeout(field: &str, messages: &DurationRules) -> Vec<Rule> {
    let text = format!("variables.{field}");
    let is_duration = matches(&text, patterns::DURATION);
    vec![
        Rule::new(messages.format, is_duration.as_str()),
        Rule::new(messages.bound, format!("!{is_duration} || {}", at_most_a_day(&text))),
    ]
}

/// The bound of a well-formed duration. The length is checked first, because CEL fails on numbers that overflow; any duration
/// of more than six characters exceeds a day.
fn at_most_a_day(text: &str) -> String {
    format!("(size({text}) <= 6 && duration({text}) <= duration('24h'))")
}

fn schedule() -> Vec<Rule> {
    let duration = "variables.duration.orValue('')";
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
            rules::DAYS_FORMAT,
            format!(
                "variables.cron.hasValue() || variables.daysOfWeek.all(entry, {})",
                matches("entry", &patterns::days())
            ),
        ),
        Rule::new(
            rules::HOURS_FORMAT,
            format!(
                "variables.cron.hasValue() || variables.hoursOfDay.all(entry, {})",
                matches("entry", &patterns::hours())
            ),
        ),
        Rule::new(
            rules::CRON_FORMAT,
            format!("!variables.cron.hasValue() || {}", matches("variables.cron.orValue('')", &patterns::cron())),
        ),
        Rule::new(
            rules::WINDOW_DURATION,
            format!(
                "!variables.duration.hasValue() || (variables.cron.hasValue() && {} && {})",
                matches(duration, patterns::DURATION),
                at_most_a_day(duration)
            ),
        ),
        Rule::new(
            rules::OVERRIDES,
            format!(
                "variables.overrides.all(entry, {} && {})",
                matches("entry.from", patterns::INSTANT),
                matches("entry.until", patterns::INSTANT)
            ),
        ),
    ]
}

fn inline_object(object: &str, messages: &InlineRules) -> Vec<Rule> {
    let field = |name: &str| format!("variables.{object}{name}");
    let (api_version, kind, namespace) = (field("ApiVersion"), field("Kind"), field("Namespace"));
    vec![
        Rule::new(messages.group_present, format!("{api_version}.contains('/')")),
        Rule::new(
            messages.group_allowed,
            format!(
                "!{api_version}.contains('/') || {}",
                matches(&api_version, &patterns::api_version(messages.groups))
            ),
        ),
        Rule::new(messages.kind_present, format!("{kind} != ''")),
        Rule::new(
            messages.kind_allowed,
            format!(
                "!{kind}.endsWith('Template') && !{kind}.endsWith('Cluster') && !{kind}.endsWith('Identity') && \
                 {kind} != 'JoinTokenRequest'"
            ),
        ),
        Rule::new(messages.namespace, format!("{namespace} == '' || {namespace} == request.namespace")),
        Rule::new(messages.provider_id, format!("!{}.hasValue()", field("ProviderID"))),
        Rule::new(messages.shape, has_allowed_shape(MAX_DEPTH, &field("Spec"))),
        // The outermost value has no comma.
        Rule::new(messages.size, format!("{} <= {}", size_with_comma(MAX_DEPTH, &field("Spec")), MAX_SIZE + 1)),
    ]
}

/// The values in an object or a list that is not too long. CEL has no recursion, so the expressions below contain this once
/// for each level.
fn children(value: &str) -> String {
    format!("({} ? [] : type({value}) == map ? {value}.map(k, {value}[k]) : {value})", has_no_children(value))
}

/// The time in which an expression is evaluated grows with the square of the length of a list, and its cost does not, so
/// that a list which is too long must not be evaluated.
fn has_no_children(value: &str) -> String {
    format!("((type({value}) != map && type({value}) != list) || size({value}) > {MAX_ENTRIES})")
}

/// Whether a value has at most so many levels, of which it is the first, and no list or object that is too long.
fn has_allowed_shape(levels: usize, value: &str) -> String {
    if levels == 0 {
        return format!("type({value}) != map && type({value}) != list");
    }
    let child = format!("v{levels}");
    let is_short = format!("((type({value}) != map && type({value}) != list) || size({value}) <= {MAX_ENTRIES})");
    format!("({is_short} && {}.all({child}, {}))", children(value), has_allowed_shape(levels - 1, &child))
}

/// Size of a value in JSON, with the comma after it: `size_in_policy` of [`crate::inline_spec`].
fn size_with_comma(levels: usize, value: &str) -> String {
    let own = format!(
        "(type({value}) == string ? size({value}) + 3 : \
         type({value}) != map || size({value}) > {MAX_ENTRIES} ? 2 : {value}.map(k, size(k) + 3).sum() + 2)"
    );
    if levels == 0 {
        return own;
    }
    let child = format!("v{levels}");
    format!("{}.map({child}, {}).sum() + {own}", children(value), size_with_comma(levels - 1, &child))
}

/// The longest valid key: a prefix of 253 characters, a slash and a name of 63.
///
/// A schema cannot bound the length of keys, so the expressions check it before they evaluate patterns, whose cost depends on
/// the length.
const MAX_KEY_LENGTH: usize = 317;

fn machine_template() -> Vec<Rule> {
    let key = format!(
        "size(key) <= {MAX_KEY_LENGTH} && key.indexOf('/') <= 253 && {}",
        matches("key", patterns::QUALIFIED_NAME)
    );
    let value = matches("variables.labels[key]", patterns::LABEL_VALUE);
    let reserved = matches("key", &patterns::in_domain(&keys::RESERVED_PREFIXES));
    let copied_to_node = matches("key", &patterns::in_domain(&[keys::NODE_LABEL_PREFIX]));
    let version = matches("variables.version.orValue('')", patterns::KUBERNETES_VERSION);
    vec![
        Rule::new(
            rules::TEMPLATE_FORMAT,
            format!(
                "variables.labels.all(key, {key} && size(variables.labels[key]) <= 63 && {value}) &&\n\
                 variables.annotations.all(key, {key})"
            ),
        ),
        Rule::new(
            rules::TEMPLATE_RESERVED,
            format!(
                "variables.labels.all(key, size(key) > {MAX_KEY_LENGTH} || !{reserved} || {copied_to_node}) &&\n\
                 variables.annotations.all(key, size(key) > {MAX_KEY_LENGTH} || !{reserved})"
            ),
        ),
        Rule::new(rules::TEMPLATE_VERSION, format!("!variables.version.hasValue() || {version}")),
    ]
}

fn kill_if_commands() -> Vec<Rule> {
    let each = format!("variables.killIfCommands.all(command, {})", matches("command", patterns::NOT_BLANK));
    vec![Rule::new(rules::COMMAND_FORMAT, each)]
}

fn node_taints() -> Vec<Rule> {
    let each = |condition: String| format!("variables.nodeTaints.all(taint, {condition})");
    vec![
        Rule::new(rules::TAINT_KEY_FORMAT, each(matches("taint.key", patterns::QUALIFIED_NAME))),
        Rule::new(
            rules::TAINT_KEY_RESERVED,
            each(format!("!{}", matches("taint.key", &patterns::prefixed(&rules::RESERVED_TAINT_PREFIXES)))),
        ),
        Rule::new(
            rules::TAINT_VALUE_FORMAT,
            each(format!("!has(taint.value) || {}", matches("taint.value", patterns::LABEL_VALUE))),
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

fn matches(text: &str, pattern: &str) -> String {
    format!("{text}.matches(r'{pattern}')")
}
