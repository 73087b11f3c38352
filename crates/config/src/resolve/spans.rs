//! `[otlp] export`: the collector of spans, and the share of requests that have some.

use std::time::Duration;

use crate::problem::Problems;
use crate::raw::{RawOtlp, RawSpanExport};
use crate::scope::{Setting, bytes, given, in_range, one_of};
use crate::setup::{CollectorUrl, ExportProtocol, SpanExport};
use crate::units::{Span, quoted};

const PROTOCOL: Setting = Setting::new("[otlp]", "export.protocol", "\"grpc\"");
const RATIO: Setting = Setting::new("[otlp]", "export.sample_ratio", "0.01");
const TIMEOUT: Setting = Setting::new("[otlp]", "export.timeout", "\"10s\"");

/// Protocols of a collector, the default first.
const PROTOCOLS: [(&str, ExportProtocol); 2] =
    [("grpc", ExportProtocol::Grpc), ("http/protobuf", ExportProtocol::HttpProtobuf)];

/// Default share of requests. Chosen: at 10,000 requests per second, spans of a hundred.
const RATIO_DEFAULT: f64 = 0.01;
/// Default timeout, that of OpenTelemetry.
const TIMEOUT_DEFAULT: Span = Span(Duration::from_secs(10));
const TIMEOUT_MIN: Span = Span(Duration::from_millis(100));
const TIMEOUT_MAX: Span = Span(Duration::from_secs(60));

/// Resolves the export of spans; none without that table.
pub(super) fn resolve(file: &RawOtlp, problems: &mut Problems<'_>) -> Option<SpanExport> {
    let table = file.export.as_ref()?;
    let RawSpanExport { endpoint, protocol, sample_ratio, timeout, headers_file, tls } = table.get_ref();
    let protocol = one_of(problems, PROTOCOL, given(protocol), &PROTOCOLS);
    let sample_ratio = in_range(problems, RATIO, given(sample_ratio), RATIO_DEFAULT, 0.0..=1.0);
    let timeout = in_range(problems, TIMEOUT, given(timeout), TIMEOUT_DEFAULT, TIMEOUT_MIN..=TIMEOUT_MAX).0;
    let Some(endpoint) = given(endpoint) else {
        let message = "[otlp] export has no endpoint; it must be the URL of a collector: set export.endpoint = \
                       \"http://127.0.0.1:4317\"";
        problems.add(&bytes(table), message);
        return None;
    };
    // It may have a password.
    let shown = if endpoint.value.contains('@') { "…".to_owned() } else { quoted(&endpoint.value) };
    let endpoint = match endpoint.value.parse::<CollectorUrl>() {
        Ok(url) if protocol == ExportProtocol::Grpc && !url.path().is_empty() => {
            let message = format!(
                "[otlp] export.endpoint is \"{shown}\"; gRPC has no path: leave it out, or set export.protocol = \
                 \"http/protobuf\""
            );
            problems.add(&endpoint.origin, message);
            url
        }
        Ok(url) => url,
        Err(error) => {
            let message = format!(
                "[otlp] export.endpoint is \"{shown}\"; {error}: set export.endpoint = \"http://127.0.0.1:4317\"; \
                 credentials go into headers_file"
            );
            problems.add(&endpoint.origin, message);
            return None;
        }
    };
    let headers_file = given(headers_file).map(|path| path.value.into());
    Some(SpanExport { endpoint, protocol, sample_ratio, timeout, headers_file, tls: tls.clone() })
}
