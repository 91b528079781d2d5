//! Regular expressions for the format of texts, shared by the admission policy and the validator.
//!
//! Both engines must agree, so the patterns use only what RE2 and `regex-lite` have in common, and no Unicode classes.

/// A label value, which may be empty.
pub(crate) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// The key of a label, annotation or taint. Does not limit the length of the prefix.
pub(crate) const QUALIFIED_NAME: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
                                         [A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// A duration of any length.
pub(crate) const DURATION: &str = "^[1-9][0-9]*[smh]$";

/// A Kubernetes version, with an optional suffix of a distribution.
pub(crate) const KUBERNETES_VERSION: &str =
    "^v?(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)([-_.+A-Za-z][-_.+A-Za-z0-9]*)?$";

/// An RFC 3339 timestamp or a date. Does not check that the date and the time exist.
pub(crate) const INSTANT: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}\
                                 (T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2}))?$";

/// A text that is not blank and contains no NUL.
pub(crate) const NOT_BLANK: &str = r"^[^\x00]*[^\x00 \t\n\f\r][^\x00]*$";

/// An entry of `daysOfWeek`.
pub(crate) fn days() -> String {
    list_of_ranges("(mon|tue|wed|thu|fri|sat|sun)")
}

/// An entry of `hoursOfDay`. Does not check the range of the numbers.
pub(crate) fn hours() -> String {
    list_of_ranges("[0-9]{1,2}")
}

/// A cron expression of five fields. Checks neither the range of the values nor the direction of ranges.
pub(crate) fn cron() -> String {
    let value = "([0-9]{1,2}|[A-Za-z]{3})";
    let entry = format!("([*]|{value}(-{value})?)(/[0-9]{{1,2}})?");
    let field = format!("{entry}(,{entry})*");
    let (blank, blanks) = (r"[ \t\n\f\r]*", r"[ \t\n\f\r]+");
    format!("^{blank}{field}({blanks}{field}){{4}}{blank}$")
}

/// An `apiVersion` of one of these groups.
pub(crate) fn api_version(groups: &[&str]) -> String {
    format!("^({})/v[0-9]+((alpha|beta)[0-9]+)?$", alternatives(groups))
}

/// A key whose prefix is one of these.
pub(crate) fn prefixed(prefixes: &[&str]) -> String {
    format!("^({})/", alternatives(prefixes))
}

/// A key whose prefix is one of these domains or a subdomain.
pub(crate) fn in_domain(domains: &[&str]) -> String {
    format!("^([^/]*[.])?({})/", alternatives(domains))
}

fn list_of_ranges(value: &str) -> String {
    format!("^{value}(-{value})?(,{value}(-{value})?)*$")
}

fn alternatives(texts: &[&str]) -> String {
    texts.iter().map(|it| it.replace('.', "[.]")).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use fivespot_schedule::{DurationError, OverrideSource, Schedule, Source, parse_duration};
    use proptest::prelude::*;
    use regex_lite::Regex;

    use super::*;
    use crate::names;

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::new(pattern).unwrap().is_match(text)
    }

    /// Valid and invalid texts: a random concatenation of `words`, sometimes with an unusual character.
    fn texts(words: &'static [&'static str]) -> impl Strategy<Value = String> {
        let unusual = prop::sample::select(vec![" ", "\n", "é", "٣", "-", "/", ",", ".", "_", "0", "A", "\0", "'"]);
        let word = prop_oneof![8 => prop::sample::select(words), 1 => unusual];
        prop::collection::vec(word, 0..10).prop_map(|it| it.concat())
    }

    enum Base<'a> {
        DaysAndHours(&'a str, &'a str),
        Cron(&'a str),
    }

    fn parses(base: &Base<'_>, until: &str) -> bool {
        let (days, hours, cron) = match base {
            Base::DaysAndHours(days, hours) => (vec![(*days).to_owned()], vec![(*hours).to_owned()], None),
            Base::Cron(cron) => (vec![], vec![], Some(*cron)),
        };
        let overrides = vec![OverrideSource { from: "0001-01-01", until, active: true }];
        let source =
            Source { days_of_week: &days, hours_of_day: &hours, timezone: "UTC", cron, duration: None, overrides };
        Schedule::parse(&source).is_ok()
    }

    const LATER: &str = "9999-12-31";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn name_patterns_agree_with_names(text in texts(&["a", "b-c", "A", "0", "_", ".", "/", "d.e/"])) {
            prop_assert_eq!(matches(LABEL_VALUE, &text), names::is_label_value(&text));
            prop_assert_eq!(matches(QUALIFIED_NAME, &text), names::is_qualified_name(&text));
        }

        #[test]
        fn domain_pattern_agrees_with_names(
            text in texts(&["kubernetes.io", "kubernetes", ".io", ".", "/", "a", "node.", "x"])
        ) {
            let owner = "kubernetes.io";
            prop_assert_eq!(matches(&in_domain(&[owner]), &text), names::belongs_to(&text, owner));
        }

        #[test]
        fn days_pattern_agrees_with_parser(text in texts(&["mon", "fri", "sun", "-", ",", "tu", "e"])) {
            prop_assert_eq!(matches(&days(), &text), parses(&Base::DaysAndHours(&text, "9"), LATER));
        }

        #[test]
        fn duration_pattern_agrees_with_parser(text in texts(&["1", "24", "0", "s", "m", "h"])) {
            let is_well_formed = matches!(parse_duration(&text), Ok(_) | Err(DurationError::TooLong));
            prop_assert_eq!(matches(DURATION, &text), is_well_formed);
        }

        /// These patterns accept more than the parser, but must not reject what it accepts.
        #[test]
        fn patterns_accept_what_the_parser_accepts(
            hour in texts(&["9", "17", "0", "-", ","]),
            expression in texts(&["*", "*/15", "0", "9-17", "mon-fri", " ", " ", "\t", ","]),
            instant in texts(&["2026-12-24", "T", "18:00:00", ".5", "Z", "+01:00"]),
        ) {
            prop_assert!(!parses(&Base::DaysAndHours("mon", &hour), LATER) || matches(&hours(), &hour));
            prop_assert!(!parses(&Base::Cron(&expression), LATER) || matches(&cron(), &expression));
            prop_assert!(!parses(&Base::DaysAndHours("mon", "9"), &instant) || matches(INSTANT, &instant));
        }
    }
}
