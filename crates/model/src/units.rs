//! Sizes and durations with their units.
//!
//! Durations always name their unit, and sizes do unless they are plain bytes, since a wrongly
//! guessed unit is off by a factor of a thousand. Units of sizes are binary (KiB, 1,024 bytes) or
//! decimal (kB, 1,000 bytes).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A number of bytes, 0 to `u64::MAX`, written like `"64MiB"`, `"1.5 GB"` or as plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A duration of whole microseconds, written like `"150ms"` or `"0.15s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Refusal of a text as a size or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a number with one of the units of a size, not whole bytes, or above 2⁶⁴ - 1 bytes.
    #[error(
        "\"{0}\" is no size; write whole bytes as B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as \"64MiB\""
    )]
    Size(String),
    /// Not a number with one of the units of a duration, not whole microseconds, or above 2⁶⁴ - 1.
    #[error("\"{0}\" is no duration; write whole microseconds as us, ms, s, m, h or d, such as \"5s\"")]
    Duration(String),
}

/// Longest text quoted in an error, in characters.
const QUOTED_CHARS_MAX: usize = 40;

/// Units of sizes, as they are printed.
const SIZES: [(&str, u64); 6] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)];
/// Further units of sizes that are read. `KB` is what people write for `kB`.
const DECIMAL_SIZES: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("KB", 1_000)];

const DURATIONS_US: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let units = SIZES.iter().chain(&DECIMAL_SIZES);
        parse(text, units).map(Self).ok_or_else(|| UnitError::Size(quoted(text)))
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let micros = parse(text, DURATIONS_US.iter()).ok_or_else(|| UnitError::Duration(quoted(text)))?;
        Ok(Self(Duration::from_micros(micros)))
    }
}

/// Prints the value in the largest unit that divides it, so that parsing the text returns the same
/// value.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0 bytes") } else { write_largest(f, self.0, &SIZES) }
    }
}

/// Prints the value as [`ByteSize`] does; fractions of a microsecond are dropped.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        if micros == 0 { f.write_str("0s") } else { write_largest(f, micros, &DURATIONS_US) }
    }
}

/// Schema of the texts and numbers that are read; the pattern admits sizes of parts of a byte.
impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let units = SIZES.iter().chain(&DECIMAL_SIZES);
        json_schema!({ "type": ["string", "integer"], "pattern": pattern(units), "minimum": 0 })
    }
}

/// Schema of the texts that are read; the pattern admits parts of a microsecond.
impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": pattern(DURATIONS_US.iter()) })
    }
}

/// Returns a regular expression of a decimal number with one of the units.
fn pattern<'a>(units: impl Iterator<Item = &'a (&'a str, u64)>) -> String {
    let units: Vec<_> = units.map(|&(unit, _)| unit).collect();
    format!(r"^[0-9]+(\.[0-9]+)? *({})$", units.join("|"))
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"64MiB\" or a number of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom(UnitError::Size(bytes.to_string())))
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with its unit, such as \"5s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }
}

/// Returns the first 40 characters of `text`, escaped, for one line of an error.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut start: String = text.chars().take(QUOTED_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED_CHARS_MAX).is_some() {
        start.push('…');
    }
    start
}

/// Returns the number of smallest units in a decimal number with a unit, such as `1.5 GiB`; none if
/// it is not a whole number of them.
fn parse<'a>(text: &str, mut units: impl Iterator<Item = &'a (&'a str, u64)>) -> Option<u64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let &(_, scale) = units.find(|(name, _)| *name == unit.trim_start_matches(' '))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    // Nineteen digits are below 2⁶⁴, so their product with a scale is below 2¹²⁸.
    let tenths = 10_u128.checked_pow(u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 19)?)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale);
    if !part.is_multiple_of(tenths) {
        return None;
    }
    whole.checked_add(u64::try_from(part / tenths).ok()?)
}

fn write_largest(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let divides = units.iter().find(|(_, scale)| value.is_multiple_of(*scale));
    let (unit, scale) = divides.copied().unwrap_or(("", 1));
    write!(f, "{}{unit}", value / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_whole_bytes_in_binary_or_decimal_units() {
        let size = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("512KiB"), Ok(1 << 19));
        assert_eq!(size("7B"), Ok(7));
        assert_eq!(size("7"), Ok(7));
        assert_eq!(
            [size("1 GB"), size("250MB"), size("1kB")],
            [Ok(1_000_000_000), Ok(250_000_000), Ok(1_000)]
        );
        assert_eq!([size("1.5 GiB"), size("0.001kB")], [Ok(3 << 29), Ok(1)]);
        let wrong = ["", "GiB", "1.", ".5GiB", "1.5", "0.1KiB", "-1", "1gib", "1.0.0B", "1e3", "1 G iB"];
        let beyond = ["99999999999TiB", "18446744073709551616", "16777215.9999999999999999999TiB"];
        for wrong in wrong.into_iter().chain(beyond) {
            assert_eq!(size(wrong), Err(UnitError::Size(wrong.to_owned())));
        }
    }

    #[test]
    fn durations_are_whole_microseconds_with_a_unit() {
        let span = |text: &str| text.parse::<Span>().map(|span| span.0);
        assert_eq!(span("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(span("150ms"), Ok(Duration::from_millis(150)));
        assert_eq!(span("2m"), Ok(Duration::from_secs(120)));
        assert_eq!([span("0.15s"), span("1.5 ms")], [span("150ms"), span("1500us")]);
        for wrong in ["5", "", "s", "0.5us", "1.s", "-5s", "5min", "999999999999999d"] {
            assert_eq!(span(wrong), Err(UnitError::Duration(wrong.to_owned())));
        }
    }

    #[test]
    fn long_invalid_size_is_quoted_in_part() {
        let error = "x".repeat(100).parse::<ByteSize>().expect_err("no size");
        assert!(error.to_string().contains(&format!("\"{}…\"", "x".repeat(40))), "{error}");
    }

    proptest! {
        #[test]
        fn printed_size_or_duration_parses_to_the_same_value(bytes in 1_u64.., micros in 1_u64..) {
            prop_assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
            let span = Span(Duration::from_micros(micros));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn parsing_arbitrary_text_as_size_or_duration_never_panics(text in "\\PC*") {
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<Span>();
        }
    }
}
