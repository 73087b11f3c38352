//! The HTTP port: accepts within its bounds, serves, and drains.
//!
//! Bounds: connections at once, handshakes among them and the time for one ([`crate::tls`]), time
//! and size of a request's head, time for the client to take its answer, and (where bodies are
//! read) size and time of the body. A connection beyond the bound waits in the kernel's backlog and
//! takes no memory of the node.
//!
//! HTTP/2 is spoken if there are gRPC services, which have a router of their own: a client that
//! speaks both versions is served by HTTP/1.1, whose answers are bounded by their number of
//! connections. Over HTTP/2 a connection carries many requests at once, so their number, the sizes
//! of their heads and the bytes in transit are bounded as well.

mod activity;
mod body;
mod drain;
mod form;
mod misread;
mod reply;
mod text;

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use sherwood_config::http_limits::{
    CONNECTION_BYTES_MAX, HEAD_BYTES_MAX, HTTP2_CONNECTION_BYTES_MAX, STREAM_HEAD_BYTES_MAX, STREAMS_MAX,
    TLS_CONNECTION_BYTES_MAX, WINDOW_BYTES,
};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tower_service::Service;

use crate::access::Refusals;
use crate::tls::Tls;
use activity::{Activity, Heard};
use drain::Drain;
use sherwood_process::buffers::{Buffers, Uncounted};

pub use body::{BODY_BYTES_MAX, HasBuffers, JsonBody, KEY_BYTES_MAX, WholeBody, json_at, without_mark};
pub use form::{EndsLine, form};
pub use misread::{InQuery, Misread};
pub use reply::{InPath, Problem, ProblemBody, listed};
pub use text::Text;

/// Timeout of the head of a request, and of an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// Bytes of one request by HTTP/2 that a client may send before they are read, and the largest
/// frame.
const STREAM_BYTES: u32 = 16 << 10;
/// Time without a frame after which the client of an HTTP/2 connection is sent a ping, and the
/// timeout of its answer: a silent client is disconnected after fourteen seconds.
const PING_INTERVAL: Duration = Duration::from_secs(7);
/// Timeout of the first byte on a connection. A gRPC port has few connections, and silent clients
/// could occupy all of them.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a client that takes nothing of its answer, where the system supports one.
#[cfg(target_os = "linux")]
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for requests in flight to end when the node stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Prepares the socket of the port for [`serve`], so that errors are known before anything is
/// served.
///
/// # Errors
/// The system's.
pub fn listener(listener: std::net::TcpListener) -> io::Result<std::net::TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The routes of a port.
#[derive(Clone)]
pub struct Routers {
    /// The routes of HTTP/1.
    pub http1: Router,
    /// The routes of HTTP/2; none if only HTTP/1 is spoken.
    pub http2: Option<Router>,
}

/// Serves `routers`, over TLS if configured, until `stop` turns true, then drains: requests in
/// flight end, and meanwhile readiness probes are answered that the node is not ready. Connections
/// still in their handshake are closed, since they have sent no request.
pub async fn serve(
    listener: std::net::TcpListener,
    routers: Routers,
    tls: Option<(Arc<Tls>, Arc<Refusals>)>,
    (connections_max, buffers): (usize, Arc<Buffers>),
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(connections_max));
    let port = Port { listener: TcpListener::from_std(listener)?, routers, tls, permits, buffers };
    let clients = Drain::new();
    tokio::select! {
        never = port.serve(&clients) => match never {},
        () = stopped(&mut stop) => {}
    }
    let latecomers = Drain::new();
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
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

struct Port {
    listener: TcpListener,
    routers: Routers,
    /// TLS, and the counters of its failures.
    tls: Option<(Arc<Tls>, Arc<Refusals>)>,
    permits: Arc<Semaphore>,
    /// The count of memory held for clients.
    buffers: Arc<Buffers>,
}

/// A connection's permit, of which there are as many as connections may be open, and the upper
/// bound of its buffers.
struct Place {
    _permit: OwnedSemaphorePermit,
    _memory: Uncounted,
}

/// A connection after its TLS handshake, with its permit; none if the handshake failed.
type Greeted = Option<(TlsStream<TcpStream>, Place)>;

impl Port {
    /// Accepts connections and serves each in a task of its own, which `clients` can end.
    /// Handshakes in flight end with this future.
    async fn serve(&self, clients: &Drain) -> Infallible {
        // Bounded by the number of permits.
        let mut greetings: JoinSet<Greeted> = JoinSet::new();
        loop {
            tokio::select! {
                (stream, place) = self.accept() => match &self.tls {
                    None => self.serve_connection(stream, place, clients),
                    Some((tls, refusals)) => {
                        greetings.spawn(greet(Arc::clone(tls), Arc::clone(refusals), stream, place));
                    }
                },
                Some(greeted) = greetings.join_next() => match greeted {
                    Ok(Some((stream, place))) => self.serve_connection(stream, place, clients),
                    Ok(None) => {}
                    Err(error) => tracing::error!("a handshake ended badly: {error}"),
                },
            }
        }
    }

    /// Accepts the next connection, after a permit for it is free.
    async fn accept(&self) -> (TcpStream, Place) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    set_socket_options(&stream);
                    let memory = self.buffers.uncounted(self.connection_bytes_max());
                    return (stream, Place { _permit: permit, _memory: memory });
                }
                Err(error) => {
                    // Usually the descriptors are used up; retrying at once would only spin.
                    tracing::warn!("accepting a connection failed: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Returns the upper bound of the buffers of one connection, bytes.
    fn connection_bytes_max(&self) -> usize {
        let plain =
            if self.routers.http2.is_some() { HTTP2_CONNECTION_BYTES_MAX } else { CONNECTION_BYTES_MAX };
        plain + self.tls.as_ref().map_or(0, |_| TLS_CONNECTION_BYTES_MAX)
    }

    fn serve_connection<S>(&self, stream: S, place: Place, clients: &Drain)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::default());
        let stream = Heard::new(stream, Arc::clone(&activity));
        let connection = connection(stream, self.routers.clone(), Arc::clone(&activity));
        let idle = async move { activity.idle(FIRST_BYTE_TIMEOUT, HEAD_TIMEOUT).await };
        let connection = clients.watch(connection, idle);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(place);
        });
    }
}

async fn greet(tls: Arc<Tls>, refusals: Arc<Refusals>, stream: TcpStream, place: Place) -> Greeted {
    match tls.shake_hands(stream).await {
        Ok(stream) => Some((stream, place)),
        Err(error) => {
            refusals.note_handshake();
            tracing::debug!("a handshake failed: {error}");
            None
        }
    }
}

fn connection<S>(
    stream: S,
    routers: Routers,
    activity: Arc<Activity>,
) -> impl GracefulConnection<Error = impl Display> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if routers.http2.is_none() {
        builder = builder.http1_only();
    }
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(STREAM_BYTES)
        .max_frame_size(STREAM_BYTES)
        .max_header_list_size(STREAM_HEAD_BYTES_MAX)
        .max_send_buf_size(STREAM_BYTES as usize)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    let service = service_fn(move |request: Request<Incoming>| {
        let is_http2 = request.version() == Version::HTTP_2;
        let running = activity.begin(is_http2);
        let http2 = routers.http2.as_ref().filter(|_| is_http2);
        let mut router = http2.unwrap_or(&routers.http1).clone();
        async move {
            let _running = running;
            let answer: Result<Response, Infallible> = router.call(request.map(Body::new)).await;
            answer
        }
    });
    builder.serve_connection(TokioIo::new(stream), service).into_owned()
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn open_http_connection_counts_with_the_upper_bound_of_its_buffers() {
        let (buffers, bound) = (Buffers::new(0), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let listener = listener(bound).unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopping) = watch::channel(false);
        let routers = Routers { http1: Router::new(), http2: None };
        let serving = tokio::spawn(serve(listener, routers, None, (2, Arc::clone(&buffers)), stopping));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        client.read_exact(&mut [0; 12]).await.unwrap();
        assert_eq!(buffers.most_bytes(), CONNECTION_BYTES_MAX as u64);
        drop(client);
        let start = Instant::now();
        while buffers.most_bytes() > 0 {
            assert!(start.elapsed() < HEAD_TIMEOUT, "it is never given back");
            tokio::task::yield_now().await;
        }
        serving.abort();
    }
}
