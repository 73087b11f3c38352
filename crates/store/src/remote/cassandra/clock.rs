//! Timestamps of writes.
//!
//! They are microseconds of the system's clock, unless that has gone back: each is later than the
//! one before it, also after a restart of this process. For that, the table has a row under
//! [`CLOCK_KEY`](crate::duplicate::CLOCK_KEY), whose own timestamp is later than those of all other
//! writes: it is written ahead of time, once for all writes of [`RESERVED_US`].

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;

use crate::Cause;

/// Microseconds that one write of the row covers. After a restart, timestamps may be ahead of the
/// system's clock by as many.
const RESERVED_US: i64 = 1_000_000;

/// The row of the clock.
pub(super) trait ClockRow {
    /// Reads its timestamp; none if the row is absent.
    fn read(&self) -> impl Future<Output = Result<Option<i64>, Cause>> + Send;

    /// Writes it with a timestamp.
    fn write(&self, timestamp: i64) -> impl Future<Output = Result<(), Cause>> + Send;
}

/// The timestamps of a store.
#[derive(Default)]
pub(super) struct Clock(Mutex<Option<Timestamps>>);

struct Timestamps {
    next: i64,
    /// The first timestamp that the row does not cover.
    end: i64,
}

impl Clock {
    /// Returns a timestamp that is later than those that were returned before.
    ///
    /// # Errors
    /// When the row cannot be read or written; the next call tries again.
    pub(super) async fn next(&self, row: &impl ClockRow) -> Result<i64, Cause> {
        self.next_at(row, microseconds()).await
    }

    async fn next_at(&self, row: &impl ClockRow, now: i64) -> Result<i64, Cause> {
        let mut timestamps = self.0.lock().await;
        let (next, end) = match &*timestamps {
            Some(Timestamps { next, end }) => (*next, *end),
            None => {
                let first = row.read().await?.map_or(i64::MIN, |covered| covered.saturating_add(1));
                (first, first)
            }
        };
        let next = next.max(now);
        let end = if next < end {
            end
        } else {
            let end = next.saturating_add(RESERVED_US);
            row.write(end).await?;
            end
        };
        *timestamps = Some(Timestamps { next: next.saturating_add(1), end });
        Ok(next)
    }
}

fn microseconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// A row with its timestamp, 0 if it is absent.
    struct Row(AtomicI64);

    impl ClockRow for Row {
        async fn read(&self) -> Result<Option<i64>, Cause> {
            Ok(Some(self.0.load(Ordering::Relaxed)).filter(|&timestamp| timestamp > 0))
        }

        async fn write(&self, timestamp: i64) -> Result<(), Cause> {
            assert!(timestamp > self.0.swap(timestamp, Ordering::Relaxed));
            Ok(())
        }
    }

    #[tokio::test]
    async fn timestamps_rise_when_the_clock_goes_back_and_after_a_restart() {
        let row = Row(AtomicI64::new(0));
        let clock = Clock::default();
        let mut last = 0;
        for now in [1_000_000, 1_000_000, 5_000_000, 2_000_000, 5_000_000, 6_500_000] {
            let next = clock.next_at(&row, now).await.unwrap();
            assert!(next > last && next >= now, "{next} after {last}");
            assert!(next < row.0.load(Ordering::Relaxed), "the row covers {next}");
            last = next;
        }
        for now in [0, 100] {
            let next = Clock::default().next_at(&row, now).await.unwrap();
            assert!(next > last && next < row.0.load(Ordering::Relaxed), "{next} after {last}");
            last = next;
        }
    }

    #[tokio::test]
    async fn timestamps_follow_the_clock_with_one_write_of_the_row_each_second() {
        struct Counted(AtomicI64);
        impl ClockRow for Counted {
            async fn read(&self) -> Result<Option<i64>, Cause> {
                Ok(None)
            }

            async fn write(&self, _: i64) -> Result<(), Cause> {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
        let (row, clock) = (Counted(AtomicI64::new(0)), Clock::default());
        for now in (7_000_000..9_000_000).step_by(1_000) {
            assert_eq!(clock.next_at(&row, now).await, Ok(now));
        }
        assert_eq!(row.0.load(Ordering::Relaxed), 2);
    }
}
