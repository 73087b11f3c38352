//! `POST /v1/traces`: OTLP over HTTP, as protobuf or JSON, plain or compressed by gzip.

use std::io::Read;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::read::MultiGzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use sherwood_ports::http::{Misread, Problem, WholeBody};

use super::export::{Export, Refused};
use super::{intake, json};
use crate::core::Core;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Largest export without compression, bytes.
pub(super) const EXPORT_BYTES_MAX: u64 = 16 << 20;
/// Maximum memory of a decoded export, as a multiple of its encoded size. The worst case is an
/// attribute without key and value, which takes two encoded bytes. The number of spans is limited
/// separately.
pub(super) const DECODED_RATIO: usize = 32;

/// Takes an export of spans and answers as OTLP defines it.
pub(crate) async fn export(
    State(core): State<Arc<Core>>,
    headers: HeaderMap,
    WholeBody { bytes, mut hold }: WholeBody,
) -> Result<Response, Problem> {
    let is_json = is_json(&headers)?;
    let bytes = if is_compressed(&headers)? { decompress(&bytes)? } else { bytes };
    if !hold.take(DECODED_RATIO * bytes.len()) {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, core.buffers.spent()));
    }
    let export = if is_json { from_json(&bytes)? } else { from_protobuf(bytes)? };
    let answer = answer(intake::take(&core, export));
    Ok(if is_json {
        axum::Json(answer).into_response()
    } else {
        ([(CONTENT_TYPE, PROTOBUF)], answer.encode_to_vec()).into_response()
    })
}

/// Returns the answer to an export with these refused spans.
pub(super) fn answer(refused: Refused) -> ExportTraceServiceResponse {
    let partial_success = refused.first.map(|first| ExportTracePartialSuccess {
        rejected_spans: i64::try_from(refused.spans).unwrap_or(i64::MAX),
        error_message: format!("malformed spans were refused, the first because: {first}"),
    });
    ExportTraceServiceResponse { partial_success }
}

fn is_json(headers: &HeaderMap) -> Result<bool, Problem> {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match value.split(';').next().unwrap_or("").trim() {
        media if media.eq_ignore_ascii_case(PROTOBUF) => Ok(false),
        media if media.eq_ignore_ascii_case(JSON) => Ok(true),
        other => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content-type is {other:?}; it must be {PROTOBUF} or {JSON}"),
        )),
    }
}

fn is_compressed(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?")) {
        None => Ok(false),
        Some(coding) if coding.eq_ignore_ascii_case("identity") => Ok(false),
        Some(coding) if ["gzip", "x-gzip"].iter().any(|gzip| coding.eq_ignore_ascii_case(gzip)) => Ok(true),
        Some(other) => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content-encoding is {other:?}; it must be gzip, or left out"),
        )),
    }
}

/// Decompresses by gzip, at most [`EXPORT_BYTES_MAX`].
pub(super) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(EXPORT_BYTES_MAX + 1)
        .read_to_end(&mut plain)
        .map_err(|error| Problem::bad_request(format!("decompressing the body: {error}")))?;
    if plain.len() as u64 > EXPORT_BYTES_MAX {
        let error = format!(
            "the body has more than {EXPORT_BYTES_MAX} bytes without compression, the most accepted; send smaller batches"
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error));
    }
    Ok(plain)
}

fn from_json(bytes: &[u8]) -> Result<Export, Problem> {
    json::export(bytes).map_err(|Misread { path, reason }| {
        Problem::bad_request(format!("reading the body as OTLP's JSON, at {path}: {reason}"))
            .with("path", path)
    })
}

fn from_protobuf(bytes: Vec<u8>) -> Result<Export, Problem> {
    Export::from_protobuf(bytes.into())
        .map_err(|error| Problem::bad_request(format!("reading the body as OTLP's protobuf: {error}")))
}
