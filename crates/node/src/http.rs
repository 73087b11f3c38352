//! The HTTP port: accepts within its bounds, serves, and drains.
//!
//! Bounds: connections at once, time for a request's head, size of the head, and (in the router) size of the body. A
//! connection beyond the bound waits in the kernel's backlog; it costs the node nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Longest time a client may take for the head of a request; also how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Largest head of a request, bytes; and the read buffer's bound.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long requests under way may take to end when the node stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Binds the port, so that its errors are known before anything is served.
///
/// # Errors
/// As the system gives them: the address is in use, or not this machine's.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves `router` until `stop` turns true, then drains.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    connections_max: usize,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(connections_max));
    let graceful = GracefulShutdown::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place.expect("never closed"),
            () = stopped(&mut stop) => break,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, mostly: trying again at once would only spin.
                    tracing::warn!("accepting a connection failed: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stopped(&mut stop) => break,
        };
        let connection = graceful.watch(connection(stream, router.clone()));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests under way did not end within {DRAIN:?} and were cut off");
    }
    Ok(())
}

/// Waits until the node is told to stop, or is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn connection(
    stream: TcpStream,
    router: Router,
) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // Answers are written whole, so there is nothing for the kernel to wait for.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}
