//! The deadline of a request: the time by which its client wants the answers.
//!
//! A deadline comes as the time that is left, so that clocks of clients and nodes need not agree:
//! in the body (`deadline_ms`), in the header of gRPC (`grpc-timeout`) or in one of our own. The
//! earliest counts. It starts when the body has been read.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use sherwood_model::{DEADLINE_MAX, deadline_within};

use super::body::Refusal;

/// Header with the time left in milliseconds, with the range of `deadline_ms` of the body.
const OWN_HEADER: &str = "sherwood-deadline-ms";
/// Header with the time left as gRPC writes it: one to eight digits and a unit.
const GRPC_HEADER: &str = "grpc-timeout";

/// Returns the time that a request leaves for its answers, the least of its headers and of
/// `deadline_ms` of its body, which was checked; none if it has no deadline. Zero for a request
/// whose deadline is over, as a `grpc-timeout` of 0 says.
///
/// # Errors
/// [`Refusal::Header`] if a header has no value of its form, or one out of range.
pub(super) fn within(headers: &HeaderMap, deadline_ms: Option<f64>) -> Result<Option<Duration>, Refusal> {
    let mut within = None;
    for value in headers.get_all(OWN_HEADER) {
        within = least(within, Some(own(value)?));
    }
    for value in headers.get_all(GRPC_HEADER) {
        within = least(within, grpc(value)?);
    }
    Ok(earlier(within, deadline_ms))
}

/// Returns the lesser of `within` and of `deadline_ms`, which was checked.
pub(super) fn earlier(within: Option<Duration>, deadline_ms: Option<f64>) -> Option<Duration> {
    least(within, deadline_ms.and_then(|ms| deadline_within(ms).ok()))
}

fn least(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

fn own(value: &HeaderValue) -> Result<Duration, Refusal> {
    let refusal = |reason| Refusal::Header { name: OWN_HEADER, reason };
    let number = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    let ms =
        number.ok_or_else(|| refusal(format!("{value:?} is not a number of milliseconds, such as 50")))?;
    deadline_within(ms).map_err(|error| refusal(error.to_string()))
}

/// Parses a `grpc-timeout`; one over 24 hours counts as none, since gRPC's clients send large ones
/// for calls without a deadline.
fn grpc(value: &HeaderValue) -> Result<Option<Duration>, Refusal> {
    let within = parse_grpc(value.as_bytes()).ok_or_else(|| Refusal::Header {
        name: GRPC_HEADER,
        reason: format!("{value:?} is not one to eight digits and a unit (H, M, S, m, u or n), such as 50m"),
    })?;
    Ok(Some(within).filter(|within| *within <= DEADLINE_MAX))
}

fn parse_grpc(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        headers: &[(&'static str, &'static str)],
        deadline_ms: Option<f64>,
    ) -> Result<Option<u128>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let within = within(&map, deadline_ms).map_err(|refusal| refusal.to_string())?;
        Ok(within.map(|within| within.as_micros()))
    }

    #[test]
    fn earliest_deadline_of_headers_and_body_counts() {
        assert_eq!(of(&[], None), Ok(None));
        assert_eq!(of(&[], Some(2.5)), Ok(Some(2_500)));
        assert_eq!(of(&[(OWN_HEADER, "0.5")], Some(2.5)), Ok(Some(500)));
        assert_eq!(of(&[(OWN_HEADER, "50"), (GRPC_HEADER, "20m")], None), Ok(Some(20_000)));
        assert_eq!(of(&[(GRPC_HEADER, "20m"), (GRPC_HEADER, "7m")], None), Ok(Some(7_000)));
    }

    #[test]
    fn grpc_timeout_of_each_unit_is_read() {
        let units = [("2H", 7_200_000_000), ("2M", 120_000_000), ("2S", 2_000_000), ("2m", 2_000), ("2u", 2)];
        for (text, micros) in units {
            assert_eq!(of(&[(GRPC_HEADER, text)], None), Ok(Some(micros)));
        }
        assert_eq!(of(&[(GRPC_HEADER, "99999999n")], None), Ok(Some(99_999)));
    }

    #[test]
    fn grpc_timeout_of_zero_has_passed_and_one_over_a_day_counts_as_none() {
        assert_eq!(of(&[(GRPC_HEADER, "0S")], None), Ok(Some(0)));
        assert_eq!(of(&[(GRPC_HEADER, "24H")], None), Ok(Some(24 * 3_600_000_000)));
        assert_eq!(of(&[(GRPC_HEADER, "1441M")], None), Ok(None));
        assert_eq!(of(&[(GRPC_HEADER, "99999999H")], Some(1.0)), Ok(Some(1_000)));
    }

    #[test]
    fn malformed_deadline_header_is_refused_with_its_form_or_range() {
        for value in ["", "m", "5", "5x", "123456789m", "-5m", "+5m", "5 m", "5.5m", "\u{b5}"] {
            let mut headers = HeaderMap::new();
            headers.append(GRPC_HEADER, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            let refusal = within(&headers, None).expect_err(value).to_string();
            assert!(refusal.contains("grpc-timeout") && refusal.contains("one to eight digits"), "{refusal}");
        }
        for value in ["", "soon", "5ms"] {
            let refusal = of(&[(OWN_HEADER, value)], None).expect_err(value);
            assert!(
                refusal.contains(OWN_HEADER) && refusal.contains("a number of milliseconds"),
                "{refusal}"
            );
        }
        for value in ["0", "-1", "NaN", "inf", "86400001"] {
            let refusal = of(&[(OWN_HEADER, value)], None).expect_err(value);
            assert!(refusal.contains("above 0 and at most 86400000 ms"), "{refusal}");
        }
    }
}
