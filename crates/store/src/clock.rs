//! The clocks of a store's thread pool: elapsed time, and the processor time of its threads.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::Duration;

use sherwood_model::Instant;

/// The clock that the threads of a store's pool read; tests replace it by a simulated one.
pub(crate) trait Clock: Send + Sync + 'static {
    /// Returns the time since the clock's origin.
    fn now(&self) -> Instant;

    /// Returns the processor time that the calling thread has used since it started.
    fn thread_cpu(&self) -> Duration;

    /// The timeout of a thread that waits from `now` until `until`; `None` if the clock wakes the
    /// thread itself, as simulated clocks do.
    fn sleep(&self, now: Instant, until: Instant) -> Option<Duration>;
}

/// The machine's monotonic clock and the system's processor time of each thread.
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
        let time = read(libc::CLOCK_THREAD_CPUTIME_ID);
        time.expect("every Linux since 2.6.12 has this clock")
    }

    fn sleep(&self, now: Instant, until: Instant) -> Option<Duration> {
        Some(until.since(now))
    }
}

/// Returns the processor time that a thread has used since it started; zero once it has ended.
pub(crate) fn thread_cpu_of<T>(thread: &JoinHandle<T>) -> Duration {
    let mut clock = 0;
    // SAFETY: a thread with a `JoinHandle` has been neither joined nor detached, so its id is
    // valid; the call writes only to a live, exclusively borrowed integer.
    let answer =
        unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t() as libc::pthread_t, &raw mut clock) };
    if answer == 0 { read(clock).unwrap_or_default() } else { Duration::ZERO }
}

/// Reads a clock of the system; none if it does not exist, such as that of a thread that has ended.
fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to a live, exclusively borrowed timespec.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let clock = MachineClock::new();
        let before = clock.thread_cpu();
        let mut sum = 0_u64;
        while clock.thread_cpu() - before < Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(clock.now() > Instant::ZERO, "{sum} additions");
    }

    #[test]
    fn processor_time_of_another_thread_is_readable() {
        let (worked, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let clock = MachineClock::new();
            while clock.thread_cpu() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            worked.send(()).unwrap();
            ended.recv().unwrap_err();
        });
        told.recv().unwrap();
        let used = thread_cpu_of(&thread);
        drop(end);
        thread.join().unwrap();
        assert!(used >= Duration::from_millis(2), "{used:?}");
    }
}
