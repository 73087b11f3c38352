//! TLS options of ZooKeeper's client.

use rustls_native_certs::load_native_certs;
use sherwood_textfile::{Reader, Watched};
use zookeeper_client::TlsOptions as ClientOptions;

use crate::OpenCause;
use crate::remote::tls::{self, TlsOptions};

/// Returns the options of TLS, whose files are read again when they change.
pub(super) fn watched(options: TlsOptions) -> Result<Watched<ClientOptions>, OpenCause> {
    tls::install_provider();
    Watched::open(move |reader: &mut Reader| client_options(&options, reader))
}

fn client_options(options: &TlsOptions, reader: &mut Reader) -> Result<ClientOptions, OpenCause> {
    let TlsOptions { ca, cert, key, server_name: _ } = options;
    let refused = |option, error: &zookeeper_client::Error| OpenCause::Remote {
        option,
        detail: error.to_string(),
        remedy: "name a PEM file that ZooKeeper's client accepts",
    };
    let mut text = |option, path| {
        let bytes = tls::pem(option, path, reader)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let roots = match ca {
        Some(ca) => text("tls.ca", ca)?,
        None => system_roots(),
    };
    let client = ClientOptions::new().with_pem_ca(&roots).map_err(|error| refused("tls.ca", &error))?;
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let (cert, key) = (text("tls.cert", cert)?, text("tls.key", key)?);
            client.with_pem_identity(&cert, &key).map_err(|error| refused("tls.cert", &error))
        }
        _ => Ok(client),
    }
}

/// Returns the system's certificates as PEM text.
fn system_roots() -> String {
    use base64::Engine;
    let certificates = load_native_certs().certs;
    let pem = certificates.iter().map(|certificate| {
        let body = base64::engine::general_purpose::STANDARD.encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    });
    pem.collect()
}
