//! Options of the export of spans.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use sherwood_store::TlsOptions;

/// Export of the spans of the node's own requests to a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanExport {
    /// URL of the collector.
    pub endpoint: CollectorUrl,
    /// Protocol of the collector.
    pub protocol: ExportProtocol,
    /// Share of the requests without a caller's `traceparent` that are sampled, 0 to 1.
    pub sample_ratio: f64,
    /// Timeout of an export, with its retries.
    pub timeout: Duration,
    /// File of headers that are sent to the collector; none sends none.
    pub headers_file: Option<PathBuf>,
    /// Options of TLS, for `https`.
    pub tls: TlsOptions,
}

/// Protocols of collectors, as `OTEL_EXPORTER_OTLP_PROTOCOL` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, as protobuf.
    HttpProtobuf,
}

/// URL of a collector: `http` or `https`, a host, perhaps a port, and a path for OTLP over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct CollectorUrl {
    scheme: Scheme,
    authority: Authority,
    path: String,
}

/// The reason why a text is no URL of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be http:// or https://, a host and perhaps a port and a path, without user and query")]
pub struct NoCollectorUrl;

impl CollectorUrl {
    /// True for `https`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The path; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.trim_end_matches('/')
    }

    /// The URL without its path.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }
}

impl FromStr for CollectorUrl {
    type Err = NoCollectorUrl;

    fn from_str(text: &str) -> Result<Self, NoCollectorUrl> {
        let uri: Uri = text.parse().map_err(|_| NoCollectorUrl)?;
        let parts = uri.into_parts();
        let scheme = parts.scheme.filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let (scheme, authority) = scheme.zip(parts.authority).ok_or(NoCollectorUrl)?;
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if authority.as_str().contains('@') || authority.host().is_empty() || path.query().is_some() {
            return Err(NoCollectorUrl);
        }
        Ok(Self { scheme, authority, path: path.path().to_owned() })
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path())
    }
}

impl fmt::Debug for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_url_has_scheme_host_and_perhaps_port_and_path() {
        let shown = |text: &str| text.parse::<CollectorUrl>().map(|url| url.to_string());
        assert_eq!(shown("http://127.0.0.1:4317").unwrap(), "http://127.0.0.1:4317");
        assert_eq!(shown("https://otel.example/v1/traces").unwrap(), "https://otel.example/v1/traces");
        assert_eq!(shown("http://[::1]:4318/").unwrap(), "http://[::1]:4318");
        for wrong in
            ["", "127.0.0.1:4317", "unix:/x", "ftp://a:1", "http://u:p@a:1", "http://a:1/?b=c", "http://:1"]
        {
            assert_eq!(shown(wrong), Err(NoCollectorUrl), "{wrong}");
        }
    }
}
