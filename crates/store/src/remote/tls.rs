//! Encrypted connections to servers, and whom to believe.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use crate::OpenCause;

/// How a connection is encrypted; all files are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// Certificates of those who may vouch for the server; without it, those the system trusts.
    pub ca: Option<PathBuf>,
    /// The certificate to show to the server; needs `key`.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must be for; without it, the host of the address.
    pub server_name: Option<String>,
}

/// What the options mean to rustls.
///
/// # Errors
/// When a file cannot be read or does not hold what it should.
pub(crate) fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>, OpenCause> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("tls", &error))?
        .with_root_certificates(roots(options.ca.as_deref())?);
    let config = match (&options.cert, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("tls.cert", cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| refused("tls.key", &error))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| refused("tls.cert", &error))?
        }
        (Some(_), None) => return Err(refused("tls.cert", &"it needs `tls.key`")),
        (None, Some(_)) => return Err(refused("tls.key", &"it needs `tls.cert`")),
    };
    Ok(Arc::new(config))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, OpenCause> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca {
        Some(ca) => certificates("tls.ca", ca)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(refused("tls.ca", &"there is no certificate to trust"));
    }
    Ok(roots)
}

fn certificates(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenCause> {
    let file = File::open(path).map_err(|error| refused(option, &format!("{}: {error}", path.display())))?;
    CertificateDer::pem_reader_iter(BufReader::new(file))
        .collect::<Result<_, _>>()
        .map_err(|error| refused(option, &format!("{}: {error}", path.display())))
}

fn refused(option: &'static str, detail: &dyn std::fmt::Display) -> OpenCause {
    OpenCause::Remote {
        option,
        detail: detail.to_string(),
        remedy: "name a file of PEM that this user may read",
    }
}
