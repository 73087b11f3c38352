//! The two clocks a pool reads: time passed, and processor time its thread used.

use std::time::Duration;

use sherwood_model::Instant;

/// Where a pool's threads read time; a test drives its own.
pub(crate) trait Clock: Send + Sync + 'static {
    /// Time passed since the clock's origin.
    fn now(&self) -> Instant;

    /// Processor time the calling thread has used since it began.
    fn thread_cpu(&self) -> Duration;

    /// How long a thread that must wait from `now` to `until` has to sleep; `None` when it will be woken instead.
    fn sleep(&self, now: Instant, until: Instant) -> Option<Duration>;
}

/// The machine's monotonic clock and the system's account of each thread.
#[derive(Debug)]
pub(crate) struct MachineClock {
    origin: std::time::Instant,
}

impl MachineClock {
    pub(crate) fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    fn thread_cpu(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live, exclusively borrowed timespec, which is all the call writes to.
        let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        debug_assert_eq!(answer, 0, "every Linux since 2.6.12 has this clock");
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn sleep(&self, now: Instant, until: Instant) -> Option<Duration> {
        Some(until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work_and_not_with_waiting() {
        let clock = MachineClock::new();
        let before = clock.thread_cpu();
        let mut sum = 0_u64;
        while clock.thread_cpu() - before < Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(clock.now() > Instant::ZERO, "{sum} additions");
    }
}
