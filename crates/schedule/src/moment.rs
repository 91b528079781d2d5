//! Instants as people write them, read by the schedule's own wall clock.

use jiff::Timestamp;

use crate::error::ScheduleError;
use crate::field::Field;
use crate::instant::Edge;
use crate::schedule::Schedule;

impl Schedule {
    /// Reads an RFC 3339 instant or a local date, just as the edge of an override is read. An error calls it `field`.
    pub fn moment(&self, field: &str, text: &str) -> Result<Timestamp, ScheduleError> {
        Edge::parse(text)
            .map(|edge| edge.resolve(&self.zone))
            .map_err(|fault| fault.in_field(Field::Asked(field.to_owned()), text))
    }
}
