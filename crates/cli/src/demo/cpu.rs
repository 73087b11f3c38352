//! What a run costs in processor time.
//!
//! The demo shares one machine with its own backends and its own load. Whether its figures mean
//! something depends on how much of the machine was left over, and how much of the work was the
//! backends' shows what twenty of them cost.

use std::time::{Duration, Instant};

use super::world::Backends;

/// Processor time used up to one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuReading {
    at: Instant,
    process: Duration,
    stores: Duration,
}

/// Shares of the time between two readings; all zero when there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuUse {
    /// Processor time of the whole process over time, in cores.
    pub(super) process: f64,
    /// That of the embedded stores' own threads, in cores; contained in `process`.
    pub(super) stores: f64,
}

impl CpuReading {
    /// Reads the clocks: the system's account of this process, and that of the threads of each
    /// store.
    pub(super) fn take(backends: &Backends) -> Self {
        Self { at: Instant::now(), process: process_time(), stores: backends.cpu_time() }
    }

    /// What was used since `before`.
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
    // SAFETY: `rusage` is plain numbers, for which zero is a value, and the call writes to nothing
    // else.
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
    fn use_is_the_time_between_two_readings() {
        let (at, s) = (Instant::now(), Duration::from_secs);
        let before = CpuReading { at, process: s(10), stores: s(4) };
        let after = CpuReading { at: at + s(20), process: s(40), stores: s(10) };
        assert_eq!(after.since(&before), CpuUse { process: 1.5, stores: 0.3 });
        assert_eq!(before.since(&before), CpuUse::default());
    }
}
