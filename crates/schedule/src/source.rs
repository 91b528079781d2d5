//! The input of the parser.

/// The text of a schedule before parsing: the fields of `spec.schedule`.
///
/// Errors name the fields as users write them (`daysOfWeek[1]`).
#[derive(Clone, Debug, Default)]
pub struct Source<'a> {
    /// Days, ranges and lists: `mon`, `mon-fri`, `mon-wed,fri`. Empty means every day.
    pub days_of_week: &'a [String],
    /// Hours, ranges and lists: `9`, `9-17`, `0-9,17-23`. Empty means every hour.
    pub hours_of_day: &'a [String],
    /// Cron expression of five fields; mutually exclusive with days and hours.
    pub cron: Option<&'a str>,
    /// Length of the window that each firing of `cron` opens: `90m`, `9h`.
    pub duration: Option<&'a str>,
    /// IANA time zone (`Europe/Paris`) or `UTC`.
    pub timezone: &'a str,
    /// Exceptions; later entries take precedence over earlier ones and over the fields above.
    pub overrides: Vec<OverrideSource<'a>>,
}

/// An exception: a half-open time span during which the schedule is open or closed, regardless of its other fields.
#[derive(Clone, Copy, Debug)]
pub struct OverrideSource<'a> {
    /// Start of the span, inclusive: an RFC 3339 timestamp or a local date `YYYY-MM-DD`.
    pub from: &'a str,
    /// End of the span, exclusive, in the same format.
    pub until: &'a str,
    /// Whether the schedule is open during the span.
    pub active: bool,
}
