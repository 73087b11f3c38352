//! From an address to a connection, each way it can fail told apart.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::host::HostPort;
use super::options::RemoteOptions;
use super::tls;
use crate::{Cause, OpenCause};

/// Both directions of a connection, in clear or not.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that stands.
pub(crate) struct Connected {
    pub(crate) io: Box<dyn Io>,
    /// Whether the server chose HTTP/2.
    pub(crate) http2: bool,
}

/// A server and how to reach it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: HostPort,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// For the name, the connection and TLS, each.
    pub(crate) timeout: Duration,
}

impl Endpoint {
    pub(crate) fn new(address: HostPort, options: &RemoteOptions) -> Result<Self, OpenCause> {
        let timeout = options.connect_timeout();
        let tls = match &options.tls {
            Some(tls) => Some((tls::client_config(tls)?, tls::server_name(tls, &address.host)?)),
            None => None,
        };
        Ok(Self { address, tls, timeout })
    }

    pub(crate) async fn connect(&self) -> Result<Connected, Cause> {
        let addresses = self.look_up().await?;
        let stream = self.reach(&addresses).await?;
        let Some((config, name)) = &self.tls else {
            return Ok(Connected { io: Box::new(stream), http2: false });
        };
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream);
        match timeout(self.timeout, handshake).await {
            Ok(Ok(stream)) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Ok(Connected { io: Box::new(stream), http2 })
            }
            Ok(Err(error)) => Err(self.distrusted(&error)),
            Err(_) => Err(self.silent(self.timeout)),
        }
    }

    async fn look_up(&self) -> Result<Vec<SocketAddr>, Cause> {
        let HostPort { host, port } = &self.address;
        let nameless = |detail: String| Cause::Name { host: host.clone(), detail };
        match timeout(self.timeout, tokio::net::lookup_host((host.as_str(), *port))).await {
            Ok(Ok(found)) => {
                let found: Vec<_> = found.take(ADDRESSES_MAX).collect();
                if found.is_empty() { Err(nameless("it is known, but nowhere".into())) } else { Ok(found) }
            }
            Ok(Err(error)) => Err(nameless(error.to_string())),
            Err(_) => Err(nameless(format!("no answer within {} ms", self.timeout.as_millis()))),
        }
    }

    /// Connects to the first address that takes a connection, all of them within one time-out.
    async fn reach(&self, addresses: &[SocketAddr]) -> Result<TcpStream, Cause> {
        let deadline = Instant::now() + self.timeout;
        let mut detail = String::new();
        for address in addresses {
            match timeout_at(deadline, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small requests must not wait for the acknowledgement of those before them.
                    let _ = stream.set_nodelay(true);
                    // A connection that something on the way has forgotten shows itself while nothing is asked on it.
                    let _ =
                        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
                    return Ok(stream);
                }
                Ok(Err(error)) => detail = error.to_string(),
                Err(_) => {
                    detail = format!("no connection within {} ms", self.timeout.as_millis());
                    break;
                }
            }
        }
        Err(Cause::Unreachable { address: self.address.to_string(), detail })
    }

    /// What a failed handshake means.
    fn distrusted(&self, error: &io::Error) -> Cause {
        let address = self.address.to_string();
        match rustls_error(error) {
            Some(rustls::Error::InvalidMessage(_)) | None => {
                Cause::Protocol { address, expected: "TLS", detail: error.to_string() }
            }
            Some(known) => Cause::Certificate { address, detail: known.to_string() },
        }
    }

    /// What a broken connection means: a server that wants to see a certificate of ours says so only now.
    pub(crate) fn broken(&self, error: &io::Error) -> Cause {
        let address = self.address.to_string();
        match rustls_error(error) {
            Some(known @ rustls::Error::AlertReceived(_)) => {
                Cause::Certificate { address, detail: known.to_string() }
            }
            _ => Cause::Reset { address, detail: error.to_string() },
        }
    }

    pub(crate) fn silent(&self, waited: Duration) -> Cause {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        Cause::Silent { address: self.address.to_string(), waited_ms }
    }
}

/// Silence after which the system asks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    let inner: &(dyn Error + 'static) = error.get_ref()?;
    inner.downcast_ref()
}
