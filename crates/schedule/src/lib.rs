//! Evaluates the schedule of a `ScheduledMachine`: when it is open, and when that changes.
//!
//! [`Schedule::parse`] turns the fields of `spec.schedule` into a value that tells for any instant whether the schedule is
//! open ([`Schedule::is_open`]), when that changes next ([`Schedule::next_change`]) and which windows lie in a time span
//! ([`Schedule::windows`]). There are three kinds of base schedule, and overrides take precedence over each of them:
//!
//! * days and hours, in whole local hours, both ends included: `mon-fri` with `9-17` closes at 18:00;
//! * `cron` alone, which opens every local hour in which the expression fires;
//! * `cron` with a `duration`, where each firing opens a window of that elapsed length.
//!
//! # Guarantees
//!
//! * The crate reads no clock, no environment and no zone files of the host: the same source has the same windows
//!   everywhere. The time zone database is compiled in.
//! * Windows are exact, disjoint, ordered and maximal; adjacent windows are one window.
//! * Searches are computed from the calendar instead of stepping through time, and always terminate: a schedule that never
//!   changes again returns `None`.
//! * Parsing reports every invalid field, with its text and the position of the error.
//!
//! # Daylight saving time
//!
//! * Whole hours follow the local wall clock: a skipped hour does not exist, and a repeated hour is open both times.
//! * With a `duration`, a firing in a skipped hour happens at the end of the gap, and a firing in a repeated hour happens
//!   once, the first time. The length of a window is elapsed time.
//!
//! # Example
//!
//! ```
//! use fivespot_schedule::{Schedule, Source};
//!
//! let office = Schedule::parse(&Source {
//!     days_of_week: &["mon-fri".to_owned()],
//!     hours_of_day: &["9-17".to_owned()],
//!     timezone: "Europe/Paris",
//!     ..Source::default()
//! })?;
//! let friday_evening = "2026-03-27T19:30:00+01:00".parse()?;
//! assert!(!office.is_open(friday_evening));
//! // Summer time begins over that weekend.
//! assert_eq!(office.next_change(friday_evening), Some("2026-03-30T09:00:00+02:00".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

mod calendar;
mod cron;
mod days;
mod duration;
mod error;
mod field;
mod firings;
mod hour_blocks;
mod hours;
mod instant;
mod overrides;
mod parse;
mod scan;
mod schedule;
mod source;
mod windows;
mod zone;

pub use duration::{DurationError, parse_duration};
pub use error::{InstantError, Reason, ScheduleError, ScheduleErrors};
pub use field::{Edge, Field};
pub use schedule::Schedule;
pub use source::{OverrideSource, Source};
pub use windows::Window;
