//! Processor time of a run.
//!
//! The demo runs its load and twenty backends on the same machine as the cache. Its figures are
//! meaningful only if the machine had processor time to spare, so the report says how many cores
//! the process used and how many of them the backends did.

use std::time::{Duration, Instant};

use super::node::Backends;

/// Processor time used since the start of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuReading {
    at: Instant,
    process: Duration,
    stores: Duration,
}

/// Processor use between two readings; zero for an empty interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuUse {
    /// Average number of cores used by the process.
    pub(super) process: f64,
    /// Average number of cores used by the embedded stores' own threads; included in `process`.
    pub(super) stores: f64,
}

impl CpuReading {
    /// Reads the processor time of this process and that of each store's threads.
    pub(super) fn take(backends: &Backends) -> Self {
        Self { at: Instant::now(), process: process_time(), stores: backends.cpu_time() }
    }

    /// Computes the processor use since the reading `before`.
    pub(super) fn since(&self, before: &Self) -> CpuUse {
        let seconds = (self.at - before.at).as_secs_f64();
        let cores = |used: Duration| if seconds > 0.0 { used.as_secs_f64() / seconds } else { 0.0 };
        CpuUse {
            process: cores(self.process.saturating_sub(before.process)),
            stores: cores(self.stores.saturating_sub(before.stores)),
        }
    }
}

/// Processor time of this process so far.
fn process_time() -> Duration {
    // SAFETY: `rusage` is plain integers, for which zero is a valid value, and the call writes
    // nothing else.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_use_is_that_between_two_readings() {
        let (at, s) = (Instant::now(), Duration::from_secs);
        let before = CpuReading { at, process: s(10), stores: s(4) };
        let after = CpuReading { at: at + s(20), process: s(40), stores: s(10) };
        assert_eq!(after.since(&before), CpuUse { process: 1.5, stores: 0.3 });
        assert_eq!(before.since(&before), CpuUse::default());
    }
}
