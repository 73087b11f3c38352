//! Formats of `/metrics`, and the choice between them by a request's `Accept`.

use std::fmt::Write as _;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' classic text format 0.0.4.
    Text,
    /// The text format of OpenMetrics 1.0.
    OpenMetrics,
    /// Messages of Protocol Buffers, each after its length: Prometheus' format for native
    /// histograms.
    Protobuf,
}

impl Format {
    /// Formats from the least to the most expressive.
    const ALL: [Self; 3] = [Self::Text, Self::OpenMetrics, Self::Protobuf];

    /// Returns the format that `headers` prefer, as Prometheus' libraries choose: of those that
    /// `Accept` names with the highest quality the most expressive one, and the classic text if it
    /// names none.
    #[must_use]
    pub(crate) fn preferred(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let named: Vec<_> = values.flat_map(|value| value.split(',')).filter_map(accepted).collect();
        let quality = |format: Self| {
            let of_format = named.iter().filter(|(named, _)| *named == format);
            of_format.map(|(_, quality)| *quality).fold(0.0, f32::max)
        };
        let wanted = Self::ALL.into_iter().filter(|format| quality(*format) > 0.0);
        // The last of equals.
        wanted.max_by(|a, b| quality(*a).total_cmp(&quality(*b))).unwrap_or(Self::Text)
    }

    /// Returns the media type.
    #[must_use]
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// Returns the format that a media range of `Accept` names, and its quality from 0 to 1; none for
/// other types, wildcards, other versions and malformed qualities.
fn accepted(range: &str) -> Option<(Format, f32)> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let (mut version, mut message, mut encoding, mut quality) = (None, None, None, 1.0_f32);
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
        match name.as_str() {
            "version" => version = Some(value),
            "proto" => message = Some(value),
            "encoding" => encoding = Some(value),
            "q" => quality = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))?,
            _ => {}
        }
    }
    let format = match (kind.as_str(), version, message, encoding) {
        ("text/plain", None | Some("0.0.4"), ..) => Format::Text,
        ("application/openmetrics-text", None | Some("0.0.1" | "1.0.0"), ..) => Format::OpenMetrics,
        (
            "application/vnd.google.protobuf",
            _,
            Some("io.prometheus.client.MetricFamily"),
            Some("delimited"),
        ) => Format::Protobuf,
        _ => return None,
    };
    Some((format, quality))
}

/// Rewrites the OpenMetrics text `open`, in which each family's help comes before its type, as
/// classic text: a counter's family has the name of its samples, and no line marks the end.
#[must_use]
pub(super) fn classic(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = "";
    for line in open.lines() {
        if let Some((_, rest)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = rest;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let _ = writeln!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred(accept: &[&str]) -> Format {
        let mut headers = HeaderMap::new();
        accept.iter().for_each(|value| _ = headers.append(ACCEPT, value.parse().unwrap()));
        Format::preferred(&headers)
    }

    #[test]
    fn open_metrics_is_sent_where_it_is_named_with_sufficient_quality() {
        // As Prometheus 2.42 asks.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                          version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            &[prometheus][..],
            &["application/openmetrics-text"],
            &["Application/OpenMetrics-Text ; Version=\"1.0.0\""],
            &["text/plain;q=0.5", "application/openmetrics-text; q=0.5"],
        ] {
            assert_eq!(preferred(accept), Format::OpenMetrics, "{accept:?}");
        }
    }

    #[test]
    fn protobuf_is_sent_where_it_is_named_with_the_highest_quality() {
        let protobuf =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        // As Prometheus 2.42 asks where native histograms are enabled.
        let prometheus = format!(
            "{protobuf},application/openmetrics-text;version=1.0.0;q=0.8,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        );
        assert_eq!(preferred(&[&prometheus]), Format::Protobuf);
        assert_eq!(preferred(&[protobuf]), Format::Protobuf);
        assert_eq!(preferred(&[&format!("{protobuf};q=0.4"), "text/plain;q=0.5"]), Format::Text);
        let open = "application/openmetrics-text;q=0.5";
        assert_eq!(preferred(&[&format!("{protobuf};q=0.4,{open}")]), Format::OpenMetrics);
    }

    #[test]
    fn classic_text_is_sent_to_all_others() {
        for accept in [
            &[][..],
            &["*/*"],
            &["text/html, */*;q=0.8"],
            &["text/plain"],
            &["application/openmetrics-text;q=0"],
            &["application/vnd.google.protobuf"],
            &["application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text"],
            &["application/openmetrics-text;q=0.4, text/plain;q=0.5"],
            &["application/openmetrics-text;version=2.0.0"],
            &["application/openmetrics-text;q=NaN"],
            &["application/openmetrics-text;q=7"],
            &[";;,=,q="],
        ] {
            assert_eq!(preferred(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn counter_of_classic_text_has_the_name_of_its_samples() {
        let open = "# HELP a_hits Hits.\n# TYPE a_hits counter\na_hits_total{p=\"# EOF\"} 1\n\
                    # HELP a_bytes Bytes.\n# TYPE a_bytes gauge\na_bytes 2\n# EOF\n";
        let text = "# HELP a_hits_total Hits.\n# TYPE a_hits_total counter\na_hits_total{p=\"# EOF\"} 1\n\
                    # HELP a_bytes Bytes.\n# TYPE a_bytes gauge\na_bytes 2\n";
        assert_eq!(classic(open), text);
    }
}
