//! Durations on the command line, written as in the configuration.

use std::time::Duration;

use sherwood_config::Span;

/// Parses a duration such as `500ms` or `5m` and checks that it is in `shortest..=longest`.
pub(crate) fn between(shortest: Duration, longest: Duration, text: &str) -> Result<Duration, String> {
    let Span(duration) = text.parse().map_err(|error| format!("{error}"))?;
    if (shortest..=longest).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("{text} is not between {} and {}", Span(shortest), Span(longest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_a_duration_are_accepted_and_printed_in_input_syntax() {
        let (shortest, longest) = (Duration::from_secs(10), Duration::from_secs(3 * 3_600));
        let between = |text| super::between(shortest, longest, text);
        assert_eq!([between("10s"), between("180m")], [Ok(shortest), Ok(longest)]);
        assert_eq!(between("9999ms"), Err("9999ms is not between 10s and 3h".to_owned()));
        assert!(between("10").unwrap_err().contains("\"10\" is no duration"));
    }
}
