//! The HTTP port: accepts within its bounds, serves, and drains.
//!
//! Bounds: connections at once, handshakes among them and the time for one ([`crate::tls`]), time
//! and size of a request's head, time for the client to take its answer, and (where bodies are
//! read) size and time of the body. A connection beyond the bound waits in the kernel's backlog and
//! takes no memory of the node.

mod body;
mod reply;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use crate::access::Refusals;
use crate::tls::Tls;

pub(crate) use body::{HasBuffers, JsonBody, KEY_BYTES_MAX, WholeBody};
pub(crate) use reply::{InPath, Problem, listed};

/// Timeout of the head of a request, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Largest head of a request, bytes; also the bound of the read buffer and of the write buffer.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Upper bound of a connection's read and write buffers, which are not part of the shared budget
/// ([`crate::buffers`]), bytes.
pub(crate) const CONNECTION_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;
/// Timeout of a client that takes nothing of its answer, where the system supports one.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for requests in flight to end when the node stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Binds the port, so that its errors are known before anything is served.
///
/// # Errors
/// The system's: the address is in use, or not an address of this machine.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves `router`, over TLS if configured, until `stop` turns true, then drains: requests in
/// flight end, and meanwhile readiness probes are answered that the node is not ready. Connections
/// still in their handshake are closed, since they have sent no request.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    tls: Option<(Arc<Tls>, Arc<Refusals>)>,
    connections_max: usize,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(connections_max));
    let port = Port { listener: TcpListener::from_std(listener)?, router, tls, permits };
    let clients = GracefulShutdown::new();
    tokio::select! {
        never = port.serve(&clients) => match never {},
        () = stopped(&mut stop) => {}
    }
    let latecomers = GracefulShutdown::new();
    let drain = async {
        tokio::select! {
            never = port.serve(&latecomers) => match never {},
            () = clients.shutdown() => {}
        }
        latecomers.shutdown().await;
    };
    if tokio::time::timeout(DRAIN, drain).await.is_err() {
        tracing::warn!("requests under way did not end within {DRAIN:?} and were cut off");
    }
    Ok(())
}

/// Waits until the node is told to stop, or was dropped.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

struct Port {
    listener: TcpListener,
    router: Router,
    /// TLS, and the counters of its failures.
    tls: Option<(Arc<Tls>, Arc<Refusals>)>,
    permits: Arc<Semaphore>,
}

/// A connection after its handshake, with its permit.
type Greeted = Option<(TlsStream<TcpStream>, OwnedSemaphorePermit)>;

impl Port {
    /// Accepts connections and serves each in a task of its own, which `clients` can end.
    /// Handshakes in flight end with this future.
    async fn serve(&self, clients: &GracefulShutdown) -> Infallible {
        // Bounded by the number of permits.
        let mut greetings: JoinSet<Greeted> = JoinSet::new();
        loop {
            tokio::select! {
                (stream, permit) = self.accept() => match &self.tls {
                    None => self.serve_connection(stream, permit, clients),
                    Some((tls, refusals)) => {
                        greetings.spawn(greet(Arc::clone(tls), Arc::clone(refusals), stream, permit));
                    }
                },
                Some(greeted) = greetings.join_next() => match greeted {
                    Ok(Some((stream, permit))) => self.serve_connection(stream, permit, clients),
                    Ok(None) => {}
                    Err(error) => tracing::error!("a handshake ended badly: {error}"),
                },
            }
        }
    }

    /// Accepts the next connection, after a permit for it is free.
    async fn accept(&self) -> (TcpStream, OwnedSemaphorePermit) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    set_socket_options(&stream);
                    return (stream, permit);
                }
                Err(error) => {
                    // Usually the descriptors are used up; retrying at once would only spin.
                    tracing::warn!("accepting a connection failed: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn serve_connection<S>(&self, stream: S, permit: OwnedSemaphorePermit, clients: &GracefulShutdown)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = clients.watch(connection(stream, self.router.clone()));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
}

async fn greet(
    tls: Arc<Tls>,
    refusals: Arc<Refusals>,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
) -> Greeted {
    match tls.shake_hands(stream).await {
        Ok(stream) => Some((stream, permit)),
        Err(error) => {
            refusals.note_handshake();
            tracing::debug!("a handshake failed: {error}");
            None
        }
    }
}

fn connection<S>(stream: S, router: Router) -> http1::Connection<TokioIo<S>, TowerToHyperService<Router>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}

/// Sets socket options. They are improvements only; a connection works without them.
fn set_socket_options(stream: &TcpStream) {
    // Answers are written whole, so the kernel need not wait for more data.
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_keepalive(true);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT));
}
