//! The pause of a client whose request was refused.

use std::time::Duration;

/// Pause of a client that is not told when to try again.
const UNKNOWN: Duration = Duration::from_millis(10);
/// Shortest pause: a client that asked more often would take time from requests that are served.
const LEAST: Duration = Duration::from_millis(1);
/// Longest pause: rates change meanwhile.
const MOST: Duration = Duration::from_secs(1);

/// Returns the time for which a client of a closed loop waits after a refusal before it sends its
/// next request: the time that the refusal names, from 1 ms to 1 s, or 10 ms if it names none.
#[must_use]
pub fn pause_after_refusal(retry_in: Option<Duration>) -> Duration {
    retry_in.unwrap_or(UNKNOWN).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_the_time_that_the_refusal_names_within_bounds() {
        let millis = Duration::from_millis;
        let pause = |named: Option<u64>| pause_after_refusal(named.map(millis));
        assert_eq!([None, Some(40), Some(0), Some(9_000)].map(pause), [10, 40, 1, 1_000].map(millis));
    }
}
