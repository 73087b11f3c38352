//! Processor time of the process, read from `/proc`.

use std::fs;
use std::time::Duration;

use sherwood_listener::CpuTimes;

/// Clock ticks a second in `/proc`: Linux' `USER_HZ`, the same on all our processors.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the processor time so far; zero if it cannot be read.
pub fn times() -> CpuTimes {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    times_of(&stat).unwrap_or_default()
}

/// Returns the processor time in the text of `/proc/self/stat`.
pub fn times_of(stat: &str) -> Option<CpuTimes> {
    let time = |number| Duration::try_from_secs_f64(ticks(stat, number)? / TICKS_PER_SECOND).ok();
    Some(CpuTimes { user: time(14)?, system: time(15)? })
}

/// Returns field `number` of `/proc/self/stat`, counted from 1 as in proc(5), in ticks. The second
/// field, the program's name, may itself hold spaces and brackets.
pub fn ticks(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_parsed_whatever_characters_the_program_name_has() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 8 0 4200 999 12\n";
        let (user, system) = (Duration::from_millis(1500), Duration::from_millis(500));
        assert_eq!(times_of(stat), Some(CpuTimes { user, system }));
        assert_eq!(times_of(""), None);
        // The system counts in ticks of ten milliseconds, which reading takes soon enough.
        assert!((0..1_000_000).any(|_| times() != CpuTimes::default()));
    }
}
