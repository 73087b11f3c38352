//! A small HTTP service: `/items/{key}` has a value for every key.

use std::convert::Infallible;
use std::thread;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::filled::value;

/// Listens on a thread of its own until the process ends, and returns the address.
pub(crate) fn start() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens").to_string();
    listener.set_nonblocking(true).expect("a socket");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a socket");
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(async move {
                    let http1 = hyper::server::conn::http1::Builder::new();
                    let _ = http1.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
                });
            }
        });
    });
    address
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let found = request.uri().path().starts_with("/items/").then(value);
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let mut response = Response::new(Full::new(found.unwrap_or_default()));
    *response.status_mut() = status;
    Ok(response)
}
