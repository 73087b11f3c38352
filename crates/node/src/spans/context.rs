//! W3C trace context: the `traceparent` header.

use axum::http::{HeaderMap, HeaderName};
use opentelemetry::{SpanId, TraceId};
use sherwood_model::RequestId;

/// The header with the caller's trace and span.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header with vendor-specific data of the trace.
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bit of the flags that says that the caller's span is recorded.
const SAMPLED: u8 = 1;

/// The caller's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// True if the caller's span is recorded.
    pub(super) is_sampled: bool,
}

impl Parent {
    /// Parses a header `00-<trace>-<span>-<flags>` in lower-case hexadecimal. None if it is
    /// malformed; the request then begins a trace. Later versions may append fields.
    pub(super) fn parse(header: &[u8]) -> Option<Self> {
        let version = hex(header.get(..2)?)?;
        let is_whole = match version {
            0 => header.len() == 55,
            0xff => false,
            _ => header.len() == 55 || header.get(55) == Some(&b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|&at| header.get(at) == Some(&b'-'));
        if !is_whole || !dashes {
            return None;
        }
        let (trace, span, flags) = (hex(&header[3..35])?, hex(&header[36..52])?, hex(&header[53..55])?);
        (trace != 0 && span != 0).then(|| Self {
            trace: TraceId::from(trace),
            span: SpanId::from(span as u64),
            is_sampled: flags as u8 & SAMPLED != 0,
        })
    }
}

/// Returns the request id for these headers: the last 8 bytes of the trace id; none without a
/// trace.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<RequestId> {
    let parent = Parent::parse(headers.get(TRACEPARENT)?.as_bytes())?;
    let [.., a, b, c, d, e, f, g, h] = parent.trace.to_bytes();
    RequestId::new(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// Returns the `traceparent` of a recorded span.
pub(super) fn header(trace: TraceId, span: SpanId) -> String {
    format!("00-{trace}-{span}-{SAMPLED:02x}")
}

/// Parses up to 32 lower-case hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn header_names_trace_span_and_whether_it_is_sampled() {
        let parent = Parent::parse(EXAMPLE.as_bytes()).expect("valid");
        assert_eq!(header(parent.trace, parent.span), EXAMPLE);
        assert!(parent.is_sampled);
        let other = EXAMPLE.replace("-01", "-fe");
        assert!(!Parent::parse(other.as_bytes()).expect("unknown flags are ignored").is_sampled);
        let later = format!("{}-more", EXAMPLE.replacen("00", "cc", 1));
        assert_eq!(Parent::parse(later.as_bytes()), Some(parent));
    }

    #[test]
    fn request_id_is_derived_from_the_trace_id() {
        let mut headers = HeaderMap::new();
        assert_eq!(request_id(&headers), None);
        headers.insert(TRACEPARENT, EXAMPLE.parse().unwrap());
        assert_eq!(request_id(&headers), RequestId::new(0xa3ce_929d_0e0e_4736));
    }

    #[test]
    fn malformed_header_is_none() {
        let zeros = |from: usize, to: usize| {
            EXAMPLE.char_indices().map(|(at, c)| if (from..to).contains(&at) { '0' } else { c }).collect()
        };
        let wrong: [String; 8] = [
            String::new(),
            EXAMPLE[..54].to_owned(),
            format!("{EXAMPLE}-"),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replacen("00", "ff", 1),
            EXAMPLE.replace("-00f", "_00f"),
            zeros(3, 35),
            zeros(36, 52),
        ];
        for wrong in wrong {
            assert_eq!(Parent::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_ids_are_read_back(trace in 1_u128.., span in 1_u64..) {
            let header = header(TraceId::from(trace), SpanId::from(span));
            let expected = Parent { trace: TraceId::from(trace), span: SpanId::from(span), is_sampled: true };
            prop_assert_eq!(Parent::parse(header.as_bytes()), Some(expected));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Parent::parse(&bytes);
        }
    }
}
