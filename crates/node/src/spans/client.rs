//! The HTTP client of the exporter, for OTLP over HTTP.

use std::pin::Pin;

use axum::body::{Body, to_bytes};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use sherwood_store::HttpConnector;

/// Largest answer of a collector that is read, bytes: a message of protobuf or an error page.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// An HTTP client over the connections of backends' connectors. Its caller limits the time.
#[derive(Debug)]
pub(super) struct CollectorClient(Client<HttpConnector, Body>);

impl CollectorClient {
    pub(super) fn new(connector: HttpConnector) -> Self {
        Self(Client::builder(TokioExecutor::new()).build(connector))
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
            let response = self.0.request(request.map(Body::from)).await?;
            let (head, body) = response.into_parts();
            let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await?;
            Ok(Response::from_parts(head, body))
        })
    }
}
