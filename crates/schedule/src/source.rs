//! What a user wrote, before anything is known about it.

/// A schedule as written, borrowed from wherever it lives.
///
/// The fields are those of `spec.schedule`; errors name them as users know them (`daysOfWeek[1]`).
#[derive(Clone, Debug, Default)]
pub struct Source<'a> {
    /// Day names, ranges and lists: `mon`, `mon-fri`, `mon-wed,fri`. Empty means every day.
    pub days_of_week: &'a [String],
    /// Hours, ranges and lists: `9`, `9-17`, `0-9,17-23`. Empty means every hour.
    pub hours_of_day: &'a [String],
    /// Five cron fields; excludes days and hours.
    pub cron: Option<&'a str>,
    /// How long each firing of `cron` keeps the schedule open: `90m`, `9h`.
    pub duration: Option<&'a str>,
    /// An IANA name (`Europe/Paris`) or `UTC`.
    pub timezone: &'a str,
    /// Exceptions to all of the above; later ones win over earlier ones.
    pub overrides: Vec<OverrideSource<'a>>,
}

/// A span in which the schedule is open, or closed, whatever else it says. Half-open.
#[derive(Clone, Copy, Debug)]
pub struct OverrideSource<'a> {
    /// The first instant of the span: RFC 3339, or a local date `YYYY-MM-DD`.
    pub from: &'a str,
    /// The first instant after the span, in the same two forms.
    pub until: &'a str,
    /// Whether the schedule is open in the span.
    pub active: bool,
}
