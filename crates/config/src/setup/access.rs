//! TLS and tokens of a port.

use std::path::PathBuf;

/// TLS and tokens of the HTTP port. The default, for a port on loopback, accepts requests of every
/// process of this machine, but not those that a web page of another site makes in a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSetup {
    /// Files for TLS; if none, the port serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// File of the tokens of which a request must present one; if none, no token is required.
    pub token_file: Option<PathBuf>,
    /// File of tokens with read access only.
    pub read_token_file: Option<PathBuf>,
}

impl AccessSetup {
    /// The scheme of the HTTP port.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// PEM files of a port's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, followed by its intermediate certificates.
    pub cert: PathBuf,
    /// The file of the private key, which other users must not be able to read.
    pub key: PathBuf,
    /// Certificates of the authorities that issue client certificates; if none, clients need no
    /// certificate.
    pub client_ca: Option<PathBuf>,
}
