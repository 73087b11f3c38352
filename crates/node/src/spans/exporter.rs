//! The exporter: sends batches of spans to the collector, by the crate of OpenTelemetry.

use std::path::{Path, PathBuf};
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
use sherwood_config::{ExportProtocol, SpanExport};
use sherwood_ports::access::{AccessError, Refusal, refused, secret_bytes};
use sherwood_store::{HttpConnector, OpenCause};
use sherwood_textfile::{Reader, Watched};
use tokio::time::{Instant, timeout};
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
use tonic::{Request, Status};

use super::client::CollectorClient;
use super::queue::SpanQueue;

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

/// The headers that are sent to the collector. Their file is read again when it changes.
pub(super) type Headers = Arc<Watched<HeaderMap>>;

/// An exporter of spans, with its headers.
pub(super) struct Exporter {
    spans: SpanExporter,
    headers: Headers,
}

/// Makes the exporter of `export`, whose spans are those of the node with this `instance` id. To be
/// called within a runtime. Nothing is connected yet.
pub(super) fn open(export: &SpanExport, instance: &str) -> Result<Exporter, SpanExportError> {
    let headers = open_headers(export.headers_file.clone())?;
    let connector =
        |protocols| HttpConnector::open(export.endpoint.is_secure(), &export.tls, protocols, export.timeout);
    let mut exporter = match export.protocol {
        ExportProtocol::Grpc => {
            let endpoint = Endpoint::from_shared(export.endpoint.origin()).expect("it was parsed as a URL");
            let channel = endpoint.timeout(export.timeout).connect_with_connector_lazy(connector(&["h2"])?);
            let exporter = SpanExporter::builder().with_tonic().with_channel(channel);
            exporter.with_interceptor(with_metadata(&headers)).with_timeout(export.timeout).build()?
        }
        ExportProtocol::HttpProtobuf => {
            let path = if export.endpoint.path().is_empty() { "/v1/traces" } else { export.endpoint.path() };
            let exporter = SpanExporter::builder().with_http();
            exporter
                .with_http_client(CollectorClient::new(connector(&["h2", "http/1.1"])?, Arc::clone(&headers)))
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(export.endpoint.origin() + path)
                .with_timeout(export.timeout)
                .build()?
        }
    };
    exporter.set_resource(&resource(instance));
    Ok(Exporter { spans: exporter, headers })
}

/// Adds the current headers to each gRPC call.
fn with_metadata(
    headers: &Headers,
) -> impl FnMut(Request<()>) -> Result<Request<()>, Status> + Clone + Send + Sync + 'static + use<> {
    let headers = Arc::clone(headers);
    move |mut request| {
        let more = HeaderMap::clone(&headers.current());
        let mut metadata = std::mem::take(request.metadata_mut()).into_headers();
        metadata.extend(more);
        *request.metadata_mut() = MetadataMap::from_headers(metadata);
        Ok(request)
    }
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

/// Opens the headers file; without a file there are no headers.
pub(super) fn open_headers(file: Option<PathBuf>) -> Result<Headers, AccessError> {
    let read = move |reader: &mut Reader| match &file {
        Some(path) => headers(path, reader),
        None => Ok(HeaderMap::new()),
    };
    Watched::open(read).map(Arc::new)
}

/// Reads a file of headers, one `name: value` a line; lines that begin with `#` are comments.
fn headers(path: &Path, reader: &mut Reader) -> Result<HeaderMap, AccessError> {
    let bytes = secret_bytes(HEADERS, path, reader)?;
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

/// Exports batches until the queue is closed and empty. A batch that the collector does not accept
/// within `most` is dropped and counted.
pub(super) async fn run(exporter: Exporter, queue: Arc<SpanQueue>, most: Duration) {
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

async fn export(exporter: &Exporter, batch: Vec<SpanData>, most: Duration) -> Result<(), OTelSdkError> {
    let exported = timeout(most, exporter.spans.export(batch)).await;
    exported.unwrap_or(Err(OTelSdkError::Timeout(most))).inspect_err(|_| {
        // The library does not tell a refused token from other errors: the next batch has the
        // token that is in the file by then.
        exporter.headers.newer_than(&exporter.headers.current());
    })
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
            headers(&path, &mut Reader::new())
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
    #[test]
    fn grpc_call_carries_the_current_headers_from_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("headers");
        let write = |text: &str| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        };
        write("authorization: Bearer old\n");
        let headers = open_headers(Some(path.clone())).expect("valid");
        let mut add = with_metadata(&headers);
        let mut shown = || {
            let mut request = Request::new(());
            request.metadata_mut().insert("x-other", "1".parse().expect("valid"));
            let request = add(request).expect("it is not refused");
            assert_eq!(request.metadata().get("x-other").expect("it stays"), "1");
            request.metadata().get("authorization").expect("it is added").clone()
        };
        assert_eq!(shown(), "Bearer old");
        write("\u{feff}authorization: Bearer new\r\n");
        assert!(headers.newer_than(&headers.current()).is_some());
        assert_eq!(shown(), "Bearer new");
    }
}
