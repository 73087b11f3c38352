//! TLS and tokens of a port.

use std::path::PathBuf;

/// TLS and tokens of the HTTP port. The default, for loopback, accepts every process of this
/// machine and no page of another site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSetup {
    /// Files for TLS; none serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// File of the tokens that requests must show; none requires no token.
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
    /// The file of the private key, which only its owner may read.
    pub key: PathBuf,
    /// Authorities of client certificates; none requires no certificate.
    pub client_ca: Option<PathBuf>,
}
