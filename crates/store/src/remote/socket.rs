//! Connections to a server, in clear or over TLS, with a cause for each kind of failure.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::host::{Deadline, HostPort};
use super::options::RemoteOptions;
use super::tls::{self, ClientTls};
use crate::{Cause, OpenCause};

/// A connection in clear or over TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// An established connection to a server.
pub(crate) struct Connected {
    pub(crate) io: Box<dyn Io>,
    /// True if the server chose HTTP/2 in the TLS handshake.
    pub(crate) http2: bool,
}

/// A server's address, with the options of connections to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: HostPort,
    pub(crate) tls: Option<(ClientTls, ServerName<'static>)>,
    /// The timeout for each of resolving, connecting and the TLS handshake.
    pub(crate) timeout: Duration,
}

impl Endpoint {
    pub(crate) fn new(address: HostPort, options: &RemoteOptions) -> Result<Self, OpenCause> {
        let timeout = options.connect_timeout();
        let tls = match &options.tls {
            Some(tls) => Some((ClientTls::open(tls, &[])?, tls::server_name(tls, &address.host)?)),
            None => None,
        };
        Ok(Self { address, tls, timeout })
    }

    /// Connects to the server. If the peers do not trust each other and the TLS files have changed,
    /// connects once more with the new files.
    pub(crate) async fn connect(&self) -> Result<Connected, Cause> {
        #[cfg(test)]
        if let Some(network) = super::simulated::Network::of_this_thread() {
            let unreachable = |error: io::Error| Cause::Unreachable {
                address: self.address.to_string(),
                detail: error.to_string(),
            };
            let io = network.connect().await.map_err(unreachable)?;
            return Ok(Connected { io: Box::new(io), http2: false });
        }
        let Some((tls, name)) = &self.tls else {
            return Ok(Connected { io: Box::new(self.reach().await?), http2: false });
        };
        let config = tls.current();
        match self.connect_with(&config, name).await {
            Err(cause @ Cause::Certificate { .. }) => match tls.newer_than(&config) {
                Some(newer) => self.connect_with(&newer, name).await,
                None => Err(cause),
            },
            connected => connected,
        }
    }

    async fn reach(&self) -> Result<TcpStream, Cause> {
        let addresses = self.address.look_up(Deadline::new(self.timeout)).await?;
        self.address.reach(&addresses, Deadline::new(self.timeout)).await
    }

    async fn connect_with(
        &self,
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
    ) -> Result<Connected, Cause> {
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name.clone(), self.reach().await?);
        match timeout(self.timeout, handshake).await {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Ok(Connected { io: Box::new(stream), http2 })
            }
            Ok(Err(error)) => Err(self.handshake_failed(&error)),
            Err(_) => Err(Cause::silent(&self.address, self.timeout)),
        }
    }

    /// The cause of a failed TLS handshake.
    fn handshake_failed(&self, error: &io::Error) -> Cause {
        let address = self.address.to_string();
        match rustls_error(error) {
            Some(rustls::Error::InvalidMessage(_)) | None => {
                Cause::Protocol { address, expected: "TLS", detail: error.to_string() }
            }
            Some(known) => Cause::Certificate { address, detail: tls::words(known) },
        }
    }

    /// Returns the cause of a connection that broke with `error`. A server that requires a client
    /// certificate reports it only after the handshake; the TLS files are then read again, for the
    /// next connection.
    pub(crate) fn broken(&self, error: &io::Error) -> Cause {
        let address = self.address.to_string();
        match rustls_error(error) {
            Some(known) if tls::is_refusal(known) => {
                if let Some((tls, _)) = &self.tls {
                    tls.newer_than(&tls.current());
                }
                Cause::Certificate { address, detail: known.to_string() }
            }
            _ => Cause::Reset { address, detail: error.to_string() },
        }
    }
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    let inner: &(dyn Error + 'static) = error.get_ref()?;
    inner.downcast_ref()
}
