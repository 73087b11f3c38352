//! The end of connections: of all when the node stops, and of single ones that are idle.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::watch;

/// Timeout of the client of an idle connection to close it, once it is told.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections that end when the node stops.
pub(crate) struct Drain(watch::Sender<()>);

impl Drain {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Serves a connection until its client closes it, [`shutdown`](Self::shutdown) is called, or
    /// `idle` completes. In the latter cases requests in flight are answered, and no further ones:
    /// a client of HTTP/2 is told which was the last (GOAWAY), so that it can send others again.
    pub(crate) fn watch<C: GracefulConnection, I: Future<Output = ()>>(
        &self,
        connection: C,
        idle: I,
    ) -> impl Future<Output = Result<(), C::Error>> + use<C, I> {
        let mut stop = self.0.subscribe();
        async move {
            let mut connection = pin!(connection);
            let is_idle = tokio::select! {
                end = connection.as_mut() => return end,
                _ = stop.changed() => false,
                () = idle => true,
            };
            connection.as_mut().graceful_shutdown();
            if !is_idle {
                return connection.await;
            }
            tracing::debug!("an idle connection is closed");
            tokio::time::timeout(CLOSE_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    }

    /// Ends all connections, and returns once they have ended.
    pub(crate) async fn shutdown(self) {
        let _ = self.0.send(());
        self.0.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::oneshot;

    use super::super::{Routers, connection};
    use super::*;

    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const ACK: u8 = 1;

    async fn send(client: &mut DuplexStream, kind: u8, flags: u8, payload: &[u8]) {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 0];
        client.write_all(&[&head, payload].concat()).await.expect("sent");
    }

    /// Returns type, flags and payload of the next frame; none at the end of the connection.
    async fn frame(client: &mut DuplexStream) -> Option<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; u16::from_be_bytes([head[1], head[2]]).into()];
        client.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], payload))
    }

    /// Serves a connection by HTTP/2, which is idle once it is open, or else shut down. Returns the
    /// error codes of the frames GOAWAY until it has ended.
    async fn codes_of_end(is_idle: bool) -> Vec<u32> {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let routers = Routers { http1: Router::new(), http2: Some(Router::new()) };
        let (drain, (make_idle, idle)) = (Drain::new(), oneshot::channel::<()>());
        let idle = async { idle.await.expect("it is made idle") };
        let served = tokio::spawn(drain.watch(connection(server, routers, Arc::default()), idle));
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
        send(&mut client, SETTINGS, 0, &[]).await;
        while frame(&mut client).await.is_some_and(|(kind, ..)| kind != SETTINGS) {}
        let client_side = async {
            let mut codes = Vec::new();
            while let Some((kind, flags, payload)) = frame(&mut client).await {
                match (kind, flags) {
                    (PING, 0) => send(&mut client, PING, ACK, &payload).await,
                    (GOAWAY, _) => codes.push(u32::from_be_bytes(payload[4..8].try_into().expect("a code"))),
                    _ => {}
                }
            }
            codes
        };
        let codes = if is_idle {
            make_idle.send(()).expect("it is served");
            client_side.await
        } else {
            tokio::join!(client_side, drain.shutdown()).0
        };
        assert!(served.await.expect("no panic").is_ok());
        codes
    }

    #[test]
    fn client_by_http2_is_told_of_the_end_of_an_idle_connection_and_of_a_shutdown() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for is_idle in [true, false] {
                assert_eq!(codes_of_end(is_idle).await, [0, 0], "the notice, and the end");
            }
        });
    }
}
