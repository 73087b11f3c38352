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
}

impl Format {
    /// Returns the format that `headers` prefer, as Prometheus' libraries choose: OpenMetrics where
    /// `Accept` names it with at least the quality of `text/plain`, else the classic text.
    #[must_use]
    pub(crate) fn preferred(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let (mut text, mut open) = (0.0_f32, 0.0_f32);
        for range in values.flat_map(|value| value.split(',')) {
            match accepted(range) {
                Some((Self::Text, quality)) => text = text.max(quality),
                Some((Self::OpenMetrics, quality)) => open = open.max(quality),
                None => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the media type.
    #[must_use]
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the format that a media range of `Accept` names, and its quality from 0 to 1; none for
/// other types, wildcards, other versions and malformed qualities.
fn accepted(range: &str) -> Option<(Format, f32)> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let (mut version, mut quality) = (None, 1.0_f32);
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
        match name.as_str() {
            "version" => version = Some(value.to_owned()),
            "q" => quality = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))?,
            _ => {}
        }
    }
    match (kind.as_str(), version.as_deref()) {
        ("application/openmetrics-text", None | Some("0.0.1" | "1.0.0")) => {
            Some((Format::OpenMetrics, quality))
        }
        ("text/plain", None | Some("0.0.4")) => Some((Format::Text, quality)),
        _ => None,
    }
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
    fn classic_text_is_sent_to_all_others() {
        for accept in [
            &[][..],
            &["*/*"],
            &["text/html, */*;q=0.8"],
            &["text/plain"],
            &["application/openmetrics-text;q=0"],
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
