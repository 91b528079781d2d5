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
