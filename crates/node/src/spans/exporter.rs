//! The exporter: sends batches of spans to the collector, by the crate of OpenTelemetry.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use sherwood_store::{HttpConnector, OpenCause};
use tokio::time::{Instant, timeout};
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;

use super::client::CollectorClient;
use super::options::{ExportProtocol, SpanExport};
use super::queue::SpanQueue;
use crate::access::{AccessError, Refusal, file_bytes, refused};

/// Time after which an incomplete batch is sent.
const DELAY: Duration = Duration::from_secs(1);
/// Interval of log lines about a collector that does not accept spans.
const WARN_INTERVAL: Duration = Duration::from_secs(60);
/// Name of the configuration key, for errors.
const HEADERS: &str = "[otlp] export.headers_file";

/// The reason why spans cannot be exported as configured.
#[derive(Debug, thiserror::Error)]
pub enum SpanExportError {
    /// The file of headers is unusable.
    #[error(transparent)]
    Headers(#[from] AccessError),
    /// The options of TLS are unusable.
    #[error("[otlp] export.tls: {0}")]
    Tls(#[from] OpenCause),
    /// The exporter refuses its options, which include the environment variables
    /// `OTEL_EXPORTER_OTLP_*`.
    #[error("[otlp] export: {0}; change it, or the environment variable OTEL_EXPORTER_OTLP_… that sets it")]
    Options(#[from] ExporterBuildError),
}

/// Makes the exporter of `export`, whose spans are those of the node with this `instance` id. To be
/// called within a runtime. Nothing is connected yet.
pub(super) fn open(export: &SpanExport, instance: &str) -> Result<SpanExporter, SpanExportError> {
    let headers = export.headers_file.as_deref().map(headers).transpose()?.unwrap_or_default();
    let connector =
        |protocols| HttpConnector::open(export.endpoint.is_secure(), &export.tls, protocols, export.timeout);
    let mut exporter = match export.protocol {
        ExportProtocol::Grpc => {
            let endpoint = Endpoint::from_shared(export.endpoint.origin()).expect("it was parsed as a URL");
            let channel = endpoint.timeout(export.timeout).connect_with_connector_lazy(connector(&["h2"])?);
            let exporter = SpanExporter::builder().with_tonic().with_channel(channel);
            exporter.with_metadata(MetadataMap::from_headers(headers)).with_timeout(export.timeout).build()?
        }
        ExportProtocol::HttpProtobuf => {
            let path = if export.endpoint.path().is_empty() { "/v1/traces" } else { export.endpoint.path() };
            let exporter = SpanExporter::builder().with_http();
            exporter
                .with_http_client(CollectorClient::new(connector(&["h2", "http/1.1"])?))
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(export.endpoint.origin() + path)
                .with_timeout(export.timeout)
                .with_headers(texts(&headers))
                .build()?
        }
    };
    exporter.set_resource(&resource(instance));
    Ok(exporter)
}

/// The attributes that all spans of this process share.
fn resource(instance: &str) -> Resource {
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", "sherwood"),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", instance.to_owned()),
        ])
        .build()
}

/// Reads a file of headers, one `name: value` a line; lines that begin with `#` are comments.
fn headers(path: &Path) -> Result<HeaderMap, AccessError> {
    let bytes = file_bytes(HEADERS, path, true)?;
    let mut headers = HeaderMap::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).enumerate() {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let problem = "is no header: write `name: value`";
        let wrong = || refused(HEADERS, path, Refusal::Line { line: index + 1, problem });
        let colon = line.iter().position(|&byte| byte == b':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(line[..colon].trim_ascii()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(|_| wrong())?;
        value.to_str().map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn texts(headers: &HeaderMap) -> HashMap<String, String> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.to_string(), value.to_str().unwrap_or_default().to_owned())
    };
    headers.iter().map(text).collect()
}

/// Exports batches until the queue is closed and empty. A batch that the collector does not accept
/// within `most` is dropped and counted.
pub(super) async fn run(exporter: SpanExporter, queue: Arc<SpanQueue>, most: Duration) {
    let mut warned: Option<Instant> = None;
    while let Some(batch) = queue.next(DELAY).await {
        let count = batch.len();
        if count == 0 {
            continue;
        }
        let result = export(&exporter, batch, most).await;
        queue.count(count, result.is_ok());
        match result {
            Ok(()) if warned.take().is_some() => tracing::info!("the collector accepts spans again"),
            Err(error) if warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) => {
                warned = Some(Instant::now());
                tracing::warn!(
                    "{count} spans were dropped: {error}; requests are not affected; check the collector and [otlp] export"
                );
            }
            _ => {}
        }
    }
}

async fn export(exporter: &SpanExporter, batch: Vec<SpanData>, most: Duration) -> Result<(), OTelSdkError> {
    timeout(most, exporter.export(batch)).await.unwrap_or(Err(OTelSdkError::Timeout(most)))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn headers_are_read_from_a_private_file_and_hidden() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("headers");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
            headers(&path)
        };
        let found = read("# of the collector\n\nAuthorization: Bearer sesame\nx-scope:a:b\n", 0o600);
        let found = found.expect("valid");
        assert_eq!(
            (found["authorization"].as_bytes(), &found["x-scope"]),
            (&b"Bearer sesame"[..], &HeaderValue::from_static("a:b"))
        );
        assert!(!format!("{found:?}").contains("sesame"));
        let refused = read("a: b\nsesame\n", 0o600).expect_err("the second line is no header").to_string();
        assert!(refused.contains("line 2") && !refused.contains("sesame"), "{refused}");
        assert!(read("a: b", 0o644).expect_err("others may read it").to_string().contains("chmod 600"));
    }
}
