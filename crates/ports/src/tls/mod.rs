//! TLS of the HTTP port and of listeners: the node's certificate and, where clients must show
//! certificates, their verification.
//!
//! Certificates are replaced while the node runs: new connections use the current files
//! ([`Watched`]), existing ones keep those that they began with. A handshake counts as one of the
//! connections, so it has a timeout; it runs in a task of its own, so it delays no other
//! connection.

mod expiry;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use sherwood_config::TlsFiles;
use sherwood_listener::ServerTls;
use sherwood_textfile::{Reader, Watched};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access::{AccessError, Refusal, public_bytes, refused, secret_bytes};

pub use expiry::Certificates;

/// Timeout of a handshake. Chosen: several intercontinental round trips, and a lost packet or two.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Names of the configuration keys of a port's TLS files.
#[derive(Debug)]
struct Keys {
    cert: &'static str,
    key: &'static str,
    client_ca: &'static str,
}

const ADMIN: Keys =
    Keys { cert: "[admin] tls.cert", key: "[admin] tls.key", client_ca: "[admin] tls.client_ca" };
const LISTENER: Keys = Keys {
    cert: "[[listener]] tls.cert",
    key: "[[listener]] tls.key",
    client_ca: "[[listener]] tls.client_ca",
};

/// The answer to a client that speaks HTTP without TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
    this port speaks TLS: ask for https:// instead of http://\n";

/// TLS with the current contents of its files.
pub struct Tls(Watched<Loaded>);

/// The contents of TLS files.
struct Loaded {
    config: Arc<ServerConfig>,
    /// Seconds since 1970 from which the certificate is invalid; none if it does not tell.
    end: Option<i64>,
}

impl Tls {
    /// Loads the TLS of an HTTP port from these files, for HTTP/1.1 and perhaps HTTP/2.
    ///
    /// # Errors
    /// Fails when a file cannot be read, has the wrong contents, or does not match the others.
    pub fn open(files: TlsFiles, speaks_http2: bool) -> Result<Self, AccessError> {
        // The first one that the client offers is used. Clients of gRPC offer HTTP/2 alone.
        let protocols: [&'static [u8]; 2] = [b"http/1.1", b"h2"];
        Self::of(files, &ADMIN, &protocols[..1 + usize::from(speaks_http2)])
    }

    /// Loads the TLS of a listener, whose protocols have no names in TLS.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_listener(files: TlsFiles) -> Result<Self, AccessError> {
        Self::of(files, &LISTENER, &[])
    }

    fn of(files: TlsFiles, keys: &'static Keys, protocols: &[&'static [u8]]) -> Result<Self, AccessError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        Watched::open(move |reader: &mut Reader| load(&files, keys, &protocols, reader)).map(Self)
    }

    /// Returns the time from which the present certificate is invalid, in seconds since 1970.
    fn end(&self) -> Option<i64> {
        self.0.current().end
    }

    /// Performs the handshake with a client.
    ///
    /// # Errors
    /// Fails when the client does not speak TLS, lacks a required certificate, takes too long, or
    /// disconnects.
    pub(crate) async fn shake_hands(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = async {
            if speaks_http(&stream).await? {
                tell_to_speak_tls(stream).await?;
                return Err(io::Error::new(io::ErrorKind::InvalidData, "HTTP without TLS"));
            }
            TlsAcceptor::from(self.current()).accept(stream).await
        };
        let timed = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
        timed.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl ServerTls for Tls {
    fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.current().config)
    }
}

/// Returns whether the first byte begins an HTTP method and no handshake.
async fn speaks_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    Ok(first[0].is_ascii_uppercase())
}

async fn tell_to_speak_tls(mut stream: TcpStream) -> io::Result<()> {
    // The request is read first: closing with unread input resets the connection, and the answer
    // would be lost.
    let _ = stream.read(&mut [0; 4096]).await?;
    stream.write_all(PLAIN).await?;
    stream.shutdown().await
}

fn load(
    files: &TlsFiles,
    keys: &Keys,
    protocols: &[Vec<u8>],
    reader: &mut Reader,
) -> Result<Loaded, AccessError> {
    let chain = certificates(keys.cert, &files.cert, reader)?;
    let end = expiry::end(&chain);
    let config = server_config(files, keys, chain, protocols, reader)?;
    expiry::warn(keys.cert, &files.cert, end, SystemTime::now());
    Ok(Loaded { config: Arc::new(config), end })
}

fn server_config(
    files: &TlsFiles,
    keys: &Keys,
    certificates: Vec<CertificateDer<'static>>,
    protocols: &[Vec<u8>],
    reader: &mut Reader,
) -> Result<ServerConfig, AccessError> {
    let TlsFiles { cert, key, client_ca } = files;
    let unusable = |error: rustls::Error| match error {
        rustls::Error::InconsistentKeys(_) => refused(keys.key, key, Refusal::Mismatch(cert.clone())),
        error => refused(keys.cert, cert, Refusal::Unusable(error.to_string())),
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    // TLS 1.2 and 1.3; rustls supports no older versions.
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    let builder = match client_ca {
        Some(path) => builder.with_client_cert_verifier(verifier(keys.client_ca, path, reader)?),
        None => builder.with_no_client_auth(),
    };
    let key = private_key(keys.key, key, reader)?;
    let mut config = builder.with_single_cert(certificates, key).map_err(unusable)?;
    config.alpn_protocols = protocols.to_vec();
    Ok(config)
}

fn certificates(
    what: &'static str,
    path: &Path,
    reader: &mut Reader,
) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let bytes = public_bytes(what, path, reader)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| refused(what, path, not_pem(&error)))?;
    if certificates.is_empty() {
        let nothing = Refusal::Empty("certificate in PEM (-----BEGIN CERTIFICATE-----)");
        return Err(refused(what, path, nothing));
    }
    Ok(certificates)
}

fn private_key(
    what: &'static str,
    path: &Path,
    reader: &mut Reader,
) -> Result<PrivateKeyDer<'static>, AccessError> {
    let bytes = secret_bytes(what, path, reader)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let encrypted = bytes.windows(9).any(|window| window == b"ENCRYPTED");
        let refusal = match error {
            pem::Error::NoItemsFound if encrypted => {
                Refusal::Unusable("it is encrypted; decrypt it by `openssl pkey`".to_owned())
            }
            pem::Error::NoItemsFound => Refusal::Empty("private key in PEM (-----BEGIN PRIVATE KEY-----)"),
            error => not_pem(&error),
        };
        refused(what, path, refusal)
    })
}

/// Converts a PEM error without the text it quotes, which may be part of a key.
fn not_pem(error: &pem::Error) -> Refusal {
    let problem = match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end; copy the file whole",
        pem::Error::IllegalSectionStart { .. } => {
            "a section begins with something else than -----BEGIN …-----"
        }
        pem::Error::Base64Decode(_) => "a section is no base 64; copy the file whole",
        _ => "it cannot be understood; copy the file whole",
    };
    Refusal::NotPem(problem.to_owned())
}

fn verifier(
    what: &'static str,
    path: &Path,
    reader: &mut Reader,
) -> Result<Arc<dyn ClientCertVerifier>, AccessError> {
    let unusable = |problem: String| refused(what, path, Refusal::Unusable(problem));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, path, reader)? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider())).build();
    verifier.map_err(|error| unusable(error.to_string()))
}
