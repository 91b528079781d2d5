//! When a schedule is open: the window algebra of a `ScheduledMachine`.
//!
//! [`Schedule::parse`] turns what a user wrote into a value that answers, for any instant, whether the schedule is open
//! ([`Schedule::is_open`]), when that changes next ([`Schedule::next_change`]) and which windows lie in a span
//! ([`Schedule::windows`]). Three kinds of base schedule exist, and overrides lie on top of each:
//!
//! * days and hours, whole local hours, both ends included: `mon-fri` and `9-17` close at 18:00;
//! * `cron` alone, which opens every local hour in which the expression fires;
//! * `cron` with a `duration`, where each firing opens a window of that elapsed length.
//!
//! Guarantees:
//!
//! * Nothing here reads a clock, the environment or the host's zone files: the same source gives the same windows
//!   everywhere. Time zones come from the database that is compiled in.
//! * Windows are exact, disjoint, ordered and maximal; windows that touch are one window.
//! * Every search is computed from the calendar, not stepped through time, and ends: a schedule that never changes again
//!   says `None`.
//! * A source that does not parse names every field at fault, with the text and the position in it.
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
mod moment;
mod overrides;
mod parse;
mod scan;
mod schedule;
mod source;
mod windows;
mod zone;

pub use duration::{DurationError, parse_duration};
pub use error::{Reason, ScheduleError, ScheduleErrors};
pub use field::{Edge, Field};
pub use schedule::Schedule;
pub use source::{OverrideSource, Source};
pub use windows::Window;
