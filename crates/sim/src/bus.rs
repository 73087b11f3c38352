//! Settings of the bus over which servers exchange their statistics.

use std::ops::Range;
use std::time::Duration;

use sherwood_model::Instant;

use crate::settings::{RangeError, check};

/// Largest number of statistics servers, each of which publishes a snapshot a second.
const STATISTICS_MAX: u32 = 16;

/// Statistics servers, and the messages that are lost. By default every server merges all reports
/// itself, and none is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bus {
    /// Number of statistics servers, 0 to 16: the first servers merge the reports of all, and
    /// publish a snapshot once a second. With 0 every server merges all reports itself. Else each
    /// follows the first statistics server whose snapshot is younger than 3 s, or decides on its
    /// own requests.
    pub statistics: u32,
    /// Probability that a server's report of a second is lost on its way to one of its receivers, 0
    /// to 1. What a server knows of itself is not lost.
    pub report_loss: f64,
    /// Minutes of the measurement, counted from its beginning, in which neither reports nor
    /// snapshots arrive: from the first up to the second, 0 to 1,000,000. None for a bus that is
    /// always up.
    pub down_min: Option<(f64, f64)>,
}

impl Bus {
    /// Checks the ranges of the numbers.
    pub(crate) fn validate(&self, servers: u32) -> Result<(), RangeError> {
        let Self { statistics, report_loss, down_min } = *self;
        let accepted = "0 to the number of servers, at most 16";
        check("statistics", statistics.into(), 0.0, servers.min(STATISTICS_MAX).into(), accepted)?;
        check("report_loss", report_loss, 0.0, 1.0, "0 to 1")?;
        let Some((from, until)) = down_min else { return Ok(()) };
        check("bus_down from", from, 0.0, MINUTES_MAX, "0 to 1000000")?;
        let accepted = "the minute from which it is down to 1000000";
        check("bus_down until", until, from, MINUTES_MAX, accepted)
    }

    /// True if all servers know the same, without delay: none needs statistics of its own.
    pub(crate) fn is_perfect(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the time in which nothing arrives, for a measurement that begins at `measured_from`;
    /// empty if there is none.
    pub(crate) fn down(&self, measured_from: Instant) -> Range<Instant> {
        let (from, until) = self.down_min.unwrap_or_default();
        let at = |minute: f64| measured_from + Duration::from_secs_f64(minute * 60.0);
        at(from)..at(until)
    }
}

/// Largest minute, as for the lengths of warm-up and measurement.
const MINUTES_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        let refusal = |bus: Bus| bus.validate(17).unwrap_err().to_string();
        assert_eq!(
            refusal(Bus { statistics: 17, ..Bus::default() }),
            "cannot simulate with statistics = 17: the accepted range is 0 to the number of servers, at most 16"
        );
        assert_eq!(
            refusal(Bus { report_loss: 1.1, ..Bus::default() }),
            "cannot simulate with report_loss = 1.1: the accepted range is 0 to 1"
        );
        let down = |from, until| Bus { down_min: Some((from, until)), ..Bus::default() };
        assert!(refusal(down(-1.0, 2.0)).contains("bus_down from = -1"));
        assert_eq!(
            refusal(down(3.0, 2.0)),
            "cannot simulate with bus_down until = 2: the accepted range is the minute from which it is down to 1000000"
        );
        let last = Bus { statistics: 16, report_loss: 1.0, down_min: Some((0.5, 1e6)) };
        assert_eq!(last.validate(16), Ok(()));
        assert!(last.validate(15).is_err(), "more than servers");
    }

    #[test]
    fn bus_is_down_in_minutes_of_the_measurement() {
        let bus = Bus { down_min: Some((0.5, 2.0)), ..Bus::default() };
        let down = bus.down(Instant::from_secs(60));
        assert_eq!(down, Instant::from_secs(90)..Instant::from_secs(180));
        assert!(!bus.is_perfect());
        assert!(Bus::default().is_perfect() && Bus::default().down(Instant::from_secs(60)).is_empty());
    }
}
