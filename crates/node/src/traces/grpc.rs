//! `TraceService/Export`: OTLP over gRPC, plain or compressed by gzip.

use std::future::{Ready, ready};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use bytes::Buf;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use sherwood_ports::http::{BODY_BYTES_MAX, Problem, Routers, WholeBody};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstEncoder;

use super::export::Export;
use super::http::{DECODED_RATIO, EXPORT_BYTES_MAX, answer, decompress};
use super::intake;
use crate::core::Core;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The header that names the compression of messages.
const ENCODING: &str = "grpc-encoding";
/// Bytes of gRPC before a message: a flag of compression, and the length.
const PREFIX_BYTES: usize = 5;

/// The routes of the port of OTLP over gRPC.
pub(crate) fn routers(core: Arc<Core>) -> Routers {
    let unknown = || async {
        Status::unimplemented("this port has the call TraceService/Export only").into_http::<Body>()
    };
    let http2 = Router::new().route(EXPORT, post(export)).fallback(unknown).with_state(core);
    let http1 = Router::new().fallback(|| async {
        let error = "this port speaks gRPC over HTTP/2; send OTLP over HTTP to /v1/traces of the admin port";
        Problem::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, error)
    });
    Routers { http1, http2: Some(http2) }
}

async fn export(State(core): State<Arc<Core>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let mut whole = match WholeBody::of_value(body, &core.buffers, BODY_BYTES_MAX + PREFIX_BYTES).await {
        Ok(whole) => whole,
        Err(problem) => return status(&problem).into_http(),
    };
    let message = match plain(&mut head.headers, whole.bytes) {
        Ok(message) => message,
        Err(status) => return status.into_http(),
    };
    if !whole.hold.take(DECODED_RATIO * message.len()) {
        return Status::unavailable(core.buffers.spent()).into_http();
    }
    let mut grpc = Grpc::new(Messages).apply_max_message_size_config(Some(EXPORT_BYTES_MAX as usize), None);
    let request = Request::from_parts(head, Body::from(message));
    grpc.unary(Intake(core), request).await.map(Body::new)
}

/// Returns the message with its prefix, without compression. What tonic decompresses has no bound.
fn plain(headers: &mut HeaderMap, framed: Vec<u8>) -> Result<Vec<u8>, Status> {
    // A client may name a compression and not use it, as for an empty message; tonic knows none.
    let encoding = headers.remove(ENCODING);
    if framed.first() != Some(&1) {
        return Ok(framed);
    }
    match encoding.as_ref().map(|value| value.to_str().unwrap_or("?")) {
        Some(coding) if coding.eq_ignore_ascii_case("gzip") => {}
        other => {
            let other = other.unwrap_or("identity");
            return Err(Status::unimplemented(format!(
                "{ENCODING} is {other:?}; it must be gzip, or left out"
            )));
        }
    }
    let message = framed.get(PREFIX_BYTES..).unwrap_or(&[]);
    let length =
        framed.get(1..PREFIX_BYTES).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
    if length.map(|length| length as usize) != Some(message.len()) {
        return Err(Status::invalid_argument("the call has more or less than one message"));
    }
    let message = decompress(message).map_err(|problem| status(&problem))?;
    let length = u32::try_from(message.len()).expect("bounded");
    Ok([&[0], &length.to_be_bytes()[..], &message].concat())
}

/// Converts the reason why a body was refused. Exporters send again what is unavailable, and drop
/// what is invalid.
fn status(problem: &Problem) -> Status {
    let code = match problem.status() {
        StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::InvalidArgument,
    };
    Status::new(code, problem.error())
}

/// The messages of the call. Malformed ones are the client's error, not one of the server, as which
/// tonic's own codec answers them.
struct Messages;

impl Codec for Messages {
    type Encode = ExportTraceServiceResponse;
    type Decode = Export;
    type Encoder = ProstEncoder<ExportTraceServiceResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for Messages {
    type Item = Export;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        Export::from_protobuf(message.copy_to_bytes(message.remaining()))
            .map(Some)
            .map_err(|error| Status::invalid_argument(format!("reading OTLP's protobuf: {error}")))
    }
}

/// The call, after its message was read.
struct Intake(Arc<Core>);

impl UnaryService<Export> for Intake {
    type Response = ExportTraceServiceResponse;
    type Future = Ready<Result<tonic::Response<Self::Response>, Status>>;

    fn call(&mut self, request: tonic::Request<Export>) -> Self::Future {
        let refused = intake::take(&self.0, request.into_inner());
        ready(Ok(tonic::Response::new(answer(refused))))
    }
}
