//! The HTTP client of the exporter, for OTLP over HTTP.

use std::pin::Pin;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use sherwood_store::HttpConnector;

use super::exporter::Headers;

/// Largest answer of a collector that is read, bytes: a message of protobuf or an error page.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// An HTTP client over the connections of backends' connectors. A request whose headers the
/// collector refuses is sent once more if their file has changed. Its caller limits the time.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: Client<HttpConnector, Body>,
    headers: Headers,
}

impl CollectorClient {
    pub(super) fn new(connector: HttpConnector, headers: Headers) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build(connector), headers }
    }

    /// Sends a request with these headers added.
    async fn send(
        &self,
        mut request: Request<Bytes>,
        headers: &HeaderMap,
    ) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().extend(headers.clone());
        let response = self.client.request(request.map(Body::from)).await?;
        let (head, body) = response.into_parts();
        let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await?;
        Ok(Response::from_parts(head, body))
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for CollectorClient {
    fn send_bytes<'this, 'answer>(&'this self, request: Request<Bytes>) -> Answer<'answer>
    where
        'this: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            let headers = self.headers.current();
            let answer = self.send(request.clone(), &headers).await?;
            let is_refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&answer.status());
            let newer = if is_refused { self.headers.newer_than(&headers) } else { None };
            match newer {
                Some(newer) => self.send(request, &newer).await,
                None => Ok(answer),
            }
        })
    }
}
