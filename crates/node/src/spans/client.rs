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
            let again = request.clone();
            let response = match self.0.request(request.map(Body::from)).await {
                // The collector may have ended a kept connection as it was used again. Spans have
                // ids, so a collector can tell those that it has received twice.
                Err(error) if !error.is_connect() => self.0.request(again.map(Body::from)).await?,
                response => response?,
            };
            let (head, body) = response.into_parts();
            let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await?;
            Ok(Response::from_parts(head, body))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sherwood_store::TlsOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn export_whose_kept_connection_ended_is_sent_again() {
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
        let client = CollectorClient::new(connector.unwrap());
        for _ in 0..2 {
            let request = Request::post(&url).body(Bytes::from_static(b"spans")).unwrap();
            assert_eq!(client.send_bytes(request).await.unwrap().status(), 200);
        }
        drop(client);
        collector.await.unwrap();
    }
}
