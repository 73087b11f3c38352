//! The HTTP client of the exporter, for OTLP over HTTP.

use std::error::Error;
use std::io;
use std::pin::Pin;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, StatusCode};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use sherwood_store::HttpConnector;

use super::exporter::Headers;

/// Largest answer of a collector that is read, bytes: a message of protobuf or an error page.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// An HTTP client over the same kind of connections as to backends. A request whose headers the
/// collector refuses is sent once more if their file has changed. The caller limits the total time.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: Client<HttpConnector, Body>,
    headers: Headers,
}

impl CollectorClient {
    pub(super) fn new(connector: HttpConnector, headers: Headers) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build(connector), headers }
    }

    /// Sends a request with these headers, and once more if its connection was closed before an
    /// answer: the collector may have closed a kept-alive connection just as it was reused. Spans
    /// have ids, so a collector can recognise duplicates.
    async fn send(
        &self,
        mut request: Request<Bytes>,
        headers: &HeaderMap,
    ) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().extend(headers.clone());
        let again = request.clone();
        let response = match self.client.request(request.map(Body::from)).await {
            Err(error) if is_end(&error) => self.client.request(again.map(Body::from)).await?,
            response => response?,
        };
        let (head, body) = response.into_parts();
        let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await?;
        Ok(Response::from_parts(head, body))
    }
}

/// Returns true if a connection was closed before it delivered an answer.
fn is_end(error: &legacy::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.any(|cause| {
        let ended = |error: &hyper::Error| error.is_incomplete_message() || error.is_canceled();
        let reset = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        };
        cause.downcast_ref().is_some_and(ended) || cause.downcast_ref().is_some_and(reset)
    })
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

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use axum::Router;
    use axum::routing::post;
    use sherwood_store::TlsOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::exporter::open_headers;
    use super::*;

    #[tokio::test]
    async fn span_export_refused_for_its_token_is_resent_with_the_new_token() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let check = |headers: HeaderMap, body: String| async move {
            let is_known = headers.get("authorization").is_some_and(|shown| shown == "Bearer new");
            if is_known { (StatusCode::OK, body) } else { (StatusCode::UNAUTHORIZED, String::new()) }
        };
        tokio::spawn(axum::serve(listener, Router::new().route("/", post(check))).into_future());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("headers");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        };
        write("authorization: Bearer old\n");
        let headers = open_headers(Some(path.clone())).unwrap();
        let connector =
            HttpConnector::open(false, &TlsOptions::default(), &[], Duration::from_secs(60)).unwrap();
        let client = CollectorClient::new(connector, headers);
        write("authorization: Bearer new\n");
        let request = Request::post(&url).body(Bytes::from("spans")).unwrap();
        let answer = client.send_bytes(request).await.unwrap();
        assert_eq!((answer.status(), &answer.body()[..]), (StatusCode::OK, &b"spans"[..]));
    }

    #[tokio::test]
    async fn span_export_is_resent_if_its_reused_connection_was_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let collector = tokio::spawn(async move {
            // Each connection ends at its second request.
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
            }
        });
        let connector = HttpConnector::open(false, &TlsOptions::default(), &[], Duration::from_secs(60));
        let client = CollectorClient::new(connector.unwrap(), open_headers(None).unwrap());
        for _ in 0..2 {
            let request = Request::post(&url).body(Bytes::from_static(b"spans")).unwrap();
            assert_eq!(client.send_bytes(request).await.unwrap().status(), 200);
        }
        drop(client);
        collector.await.unwrap();
    }
}
