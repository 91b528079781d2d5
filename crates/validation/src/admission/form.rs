//! The forms of texts, as regular expressions that the API server and we read alike: RE2, without Unicode classes.

/// A label value, which may be empty.
pub(crate) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// The key of a label, annotation or taint; the length of its prefix is not looked at.
pub(crate) const QUALIFIED_NAME: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?\
                                         [A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// A duration of any length.
pub(crate) const DURATION: &str = "^[1-9][0-9]*[smh]$";

/// A Kubernetes version, with whatever a distribution appends.
pub(crate) const KUBERNETES_VERSION: &str =
    "^v?(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)([-_.+A-Za-z][-_.+A-Za-z0-9]*)?$";

/// An RFC 3339 instant or a date; the calendar and the clock are not looked at.
pub(crate) const MOMENT: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}\
                                 (T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2}))?$";

/// A text with something to see in it, and without a NUL.
pub(crate) const VISIBLE: &str = r"^[^\x00]*[^\x00 \t\n\f\r][^\x00]*$";

/// An entry of `daysOfWeek`.
pub(crate) fn days() -> String {
    list_of_ranges("(mon|tue|wed|thu|fri|sat|sun)")
}

/// An entry of `hoursOfDay`; whether the day has such an hour is not looked at.
pub(crate) fn hours() -> String {
    list_of_ranges("[0-9]{1,2}")
}

/// Five fields of cron; whether a field has such a value is not looked at, nor which way a range runs.
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

/// A key whose prefix is one of these domains, or below it.
pub(crate) fn below(domains: &[&str]) -> String {
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
    use fivespot_schedule::{OverrideSource, Schedule, Source, parse_duration};
    use proptest::prelude::*;
    use regex_lite::Regex;

    use super::*;
    use crate::names;

    fn matches(form: &str, text: &str) -> bool {
        Regex::new(form).unwrap().is_match(text)
    }

    /// Texts that are right, almost right, or neither: words of the form's own making, joined at random.
    fn texts(words: &'static [&'static str]) -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![" ", "\n", "é", "٣", "-", "/", ",", ".", "_", "0", "A", "\0", "'"]);
        let word = prop_oneof![8 => prop::sample::select(words), 1 => odd];
        prop::collection::vec(word, 0..10).prop_map(|it| it.concat())
    }

    /// Days and hours, or cron.
    enum Base<'a> {
        Window(&'a str, &'a str),
        Cron(&'a str),
    }

    fn parses(base: &Base<'_>, until: &str) -> bool {
        let (days, hours, cron) = match base {
            Base::Window(days, hours) => (vec![(*days).to_owned()], vec![(*hours).to_owned()], None),
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
        fn names_have_the_form_that_kubernetes_gives_them(text in texts(&["a", "b-c", "A", "0", "_", ".", "/", "d.e/"])) {
            prop_assert_eq!(matches(LABEL_VALUE, &text), names::is_label_value(&text));
            prop_assert_eq!(matches(QUALIFIED_NAME, &text), names::is_qualified_name(&text));
        }

        #[test]
        fn reserved_keys_are_those_that_belong_to_somebody(
            text in texts(&["kubernetes.io", "kubernetes", ".io", ".", "/", "a", "node.", "x"])
        ) {
            let owner = "kubernetes.io";
            prop_assert_eq!(matches(&below(&[owner]), &text), names::belongs_to(&text, owner));
        }

        #[test]
        fn days_have_the_form_that_the_schedule_reads(text in texts(&["mon", "fri", "sun", "-", ",", "tu", "e"])) {
            prop_assert_eq!(matches(&days(), &text), parses(&Base::Window(&text, "9"), LATER));
        }

        #[test]
        fn durations_have_the_form_that_the_schedule_reads(text in texts(&["1", "24", "0", "s", "m", "h"])) {
            let is_read = !matches!(parse_duration(&text), Err(it) if it != fivespot_schedule::DurationError::TooLong);
            prop_assert_eq!(matches(DURATION, &text), is_read);
        }

        /// Of these the form is not all, but nothing that is right lacks it.
        #[test]
        fn hours_cron_and_moments_that_are_read_have_their_form(
            hour in texts(&["9", "17", "0", "-", ","]),
            expression in texts(&["*", "*/15", "0", "9-17", "mon-fri", " ", " ", "\t", ","]),
            moment in texts(&["2026-12-24", "T", "18:00:00", ".5", "Z", "+01:00"]),
        ) {
            prop_assert!(!parses(&Base::Window("mon", &hour), LATER) || matches(&hours(), &hour));
            prop_assert!(!parses(&Base::Cron(&expression), LATER) || matches(&cron(), &expression));
            prop_assert!(!parses(&Base::Window("mon", "9"), &moment) || matches(MOMENT, &moment));
        }
    }
}
