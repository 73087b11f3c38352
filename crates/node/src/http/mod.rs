//! The HTTP port: accepts within its bounds, serves, and drains.
//!
//! Bounds: connections at once, handshakes among them and time for one ([`crate::tls`]), time for a
//! request's head, size of the head, time for the client to take its answer, and (where bodies are
//! read) size of the body and time for it. A connection beyond the bound waits in the kernel's
//! backlog; it costs the node nothing.

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

/// Longest time a client may take for the head of a request; also how long an idle connection is
/// kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Largest head of a request, bytes; and the bound of what is read and of what is written at a
/// time.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// The most bytes a connection may hold beside its part of the budget that all share
/// ([`crate::buffers`]), bytes: what it reads and what it writes.
pub(crate) const CONNECTION_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;
/// Longest time in which a client may take nothing of what was sent to it, where the system can
/// watch over that.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that requests in flight have to end when the node stops.
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

/// Serves `router`, over TLS where there is some, until `stop` turns true, then drains: requests
/// under way end, and as long as they do, who asks whether the node is ready is told that it is
/// not. Who has not ended its handshake then has asked for nothing, and is cut off.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    tls: Option<(Arc<Tls>, Arc<Refusals>)>,
    connections_max: usize,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(connections_max));
    let port = Port { listener: TcpListener::from_std(listener)?, router, tls, places };
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

/// Waits until the node is told to stop, or is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

struct Port {
    listener: TcpListener,
    router: Router,
    /// With where its failures are counted.
    tls: Option<(Arc<Tls>, Arc<Refusals>)>,
    places: Arc<Semaphore>,
}

/// A client that has ended its handshake, with its place.
type Greeted = Option<(TlsStream<TcpStream>, OwnedSemaphorePermit)>;

impl Port {
    /// Accepts connections and serves each in a task of its own that `clients` can end. Those that
    /// shake hands end with this.
    async fn serve(&self, clients: &GracefulShutdown) -> Infallible {
        // As many as there are places, at most.
        let mut greetings: JoinSet<Greeted> = JoinSet::new();
        loop {
            tokio::select! {
                (stream, place) = self.accept() => match &self.tls {
                    None => self.converse(stream, place, clients),
                    Some((tls, refusals)) => {
                        greetings.spawn(greet(Arc::clone(tls), Arc::clone(refusals), stream, place));
                    }
                },
                Some(greeted) = greetings.join_next() => match greeted {
                    Ok(Some((stream, place))) => self.converse(stream, place, clients),
                    Ok(None) => {}
                    Err(error) => tracing::error!("a handshake ended badly: {error}"),
                },
            }
        }
    }

    /// The next connection, and a place for it.
    async fn accept(&self) -> (TcpStream, OwnedSemaphorePermit) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    tend(&stream);
                    return (stream, place);
                }
                Err(error) => {
                    // Out of descriptors, mostly: trying again at once would only spin.
                    tracing::warn!("accepting a connection failed: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn converse<S>(&self, stream: S, place: OwnedSemaphorePermit, clients: &GracefulShutdown)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = clients.watch(connection(stream, self.router.clone()));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

async fn greet(
    tls: Arc<Tls>,
    refusals: Arc<Refusals>,
    stream: TcpStream,
    place: OwnedSemaphorePermit,
) -> Greeted {
    match tls.shake_hands(stream).await {
        Ok(stream) => Some((stream, place)),
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

/// Asks the system to look after a connection. All of it only makes things better; a connection
/// without it works.
fn tend(stream: &TcpStream) {
    // Answers are written whole, so there is nothing for the kernel to wait for.
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_keepalive(true);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(WRITE_TIMEOUT));
}
