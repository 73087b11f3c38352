//! The time at which a refused operation may be tried again, as the target's text names it.

use std::time::Duration;

/// Words after which the text of a refusal names the time.
const BEFORE: [&str; 2] = ["try again in ", "a start in "];

/// Returns the time that the text of a refusal names, such as `try again in 12.5ms`; none if it
/// names none.
pub(super) fn retry_in(text: &str) -> Option<Duration> {
    BEFORE.iter().find_map(|words| duration(text.split_once(words)?.1))
}

/// Reads a number and its unit at the beginning of `text`.
fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let units = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (_, unit_s) = units.into_iter().find(|(name, _)| unit.starts_with(name))?;
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit_s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_from_the_texts_of_a_node() {
        let nanos = |text: &str| retry_in(text).map(|time| time.as_nanos());
        assert_eq!(
            nanos("common to all tenants, are used; try again in 1.5s, slow down"),
            Some(1_500_000_000)
        );
        assert_eq!(nanos("it allows a start in 90ms, which is longer than"), Some(90_000_000));
        assert_eq!(nanos("it allows a start in 12.5µs, which is longer than"), Some(12_500));
        assert_eq!(nanos("`REJECTED a start in 7ns`"), Some(7));
        for text in ["", "try again in a moment", "a start in ms", "try again in 1.2.3s", "a start in 5"] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
