//! TLS to servers: who is trusted, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use crate::OpenCause;

/// How TLS is spoken to a server. Versions 1.2 and 1.3; the server's certificate is always checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// PEM file of the certificates that are trusted to sign the server's; the system's where none.
    pub ca: Option<PathBuf>,
    /// PEM file of our own certificate and what signed it, for servers that ask for one; with `key`.
    pub cert: Option<PathBuf>,
    /// PEM file of the private key of `cert`.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate has to be for; the host of the address where none.
    pub server_name: Option<String>,
}

/// What speaks TLS as `options` say. Reads their files once: what changes there counts after the next start.
///
/// # Errors
/// [`OpenCause::Remote`] names the option, the file and the remedy.
pub fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>, OpenCause> {
    let TlsOptions { ca, cert, key, server_name: _ } = options;
    // The provider is named: a process that brings two along would otherwise have none.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("tls", error.to_string(), "leave `tls` as documented"))?
        .with_root_certificates(roots(ca.as_deref())?);
    let config = match (cert, key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("tls.cert", cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                refused(
                    "tls.key",
                    format!("{}: {error}", key.display()),
                    "name a PEM file with an unencrypted private key",
                )
            })?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                refused("tls.key", error.to_string(), "name the private key that belongs to `tls.cert`")
            })?
        }
        (Some(_), None) => return Err(refused("tls.cert", "there is no `tls.key`".into(), "give both")),
        (None, Some(_)) => return Err(refused("tls.key", "there is no `tls.cert`".into(), "give both")),
    };
    Ok(Arc::new(config))
}

/// The name a server's certificate is checked for: `options`' own, else `host`.
pub(crate) fn server_name(options: &TlsOptions, host: &str) -> Result<ServerName<'static>, OpenCause> {
    let name = options.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| {
        let detail = format!("\"{}\" is neither a host's name nor an address", super::host::shown(name));
        refused("tls.server_name", detail, "give the name that is in the server's certificate")
    })
}

/// Whom `options` trust, in words.
pub(crate) fn trust(options: &TlsOptions) -> String {
    match &options.ca {
        Some(ca) => format!("trusted by {}", ca.display()),
        None => "trusted by the system's certificates".to_owned(),
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, OpenCause> {
    let mut roots = RootCertStore::empty();
    let Some(ca) = ca else {
        let found = rustls_native_certs::load_native_certs();
        if roots.add_parsable_certificates(found.certs).0 == 0 {
            let detail = "the system has no trusted certificates".to_owned();
            return Err(refused(
                "tls.ca",
                detail,
                "install them (Debian: ca-certificates), or name a PEM file",
            ));
        }
        return Ok(roots);
    };
    for certificate in certificates("tls.ca", ca)? {
        roots.add(certificate).map_err(|error| {
            refused("tls.ca", format!("{}: {error}", ca.display()), "name a PEM file of certificates")
        })?;
    }
    Ok(roots)
}

fn certificates(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenCause> {
    let wrong = |detail: String| {
        refused(
            option,
            format!("{}: {detail}", path.display()),
            "name a PEM file of certificates that this user may read",
        )
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("there is no certificate in it".into())) } else { Ok(found) }
}

fn refused(option: &'static str, detail: String, remedy: &'static str) -> OpenCause {
    OpenCause::Remote { option, detail, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &TlsOptions) -> String {
        client_config(options).unwrap_err().to_string()
    }

    #[test]
    fn files_that_are_missing_or_no_certificates_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let options = TlsOptions { ca: Some(path.clone()), ..TlsOptions::default() };
        assert!(refusal(&options).starts_with("`tls.ca` cannot be used"), "{}", refusal(&options));
        assert!(refusal(&options).contains("ca.pem"), "{}", refusal(&options));
        std::fs::write(&path, "nothing of the sort\n").unwrap();
        assert!(refusal(&options).contains("there is no certificate in it"), "{}", refusal(&options));
    }

    #[test]
    fn a_certificate_and_its_key_belong_together() {
        let ours = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, pem: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, pem).unwrap();
            Some(path)
        };
        let (cert, key) = (path("cert", ours.cert.pem()), path("key", ours.signing_key.serialize_pem()));
        let wrong = path("wrong", other.signing_key.serialize_pem());
        let both = TlsOptions { ca: cert.clone(), cert: cert.clone(), key, server_name: None };
        assert!(client_config(&both).is_ok());
        assert!(refusal(&TlsOptions { key: None, ..both.clone() }).contains("there is no `tls.key`"));
        assert!(refusal(&TlsOptions { cert: None, ..both.clone() }).contains("there is no `tls.cert`"));
        assert!(refusal(&TlsOptions { key: wrong, ..both.clone() }).contains("belongs to `tls.cert`"));
        assert!(refusal(&TlsOptions { key: cert, ..both }).contains("unencrypted private key"));
    }

    #[test]
    fn the_name_to_check_is_the_hosts_unless_another_is_given() {
        let options = TlsOptions::default();
        assert_eq!(server_name(&options, "::1").unwrap().to_str(), "::1");
        let named = TlsOptions { server_name: Some("db.internal".into()), ..options.clone() };
        assert_eq!(server_name(&named, "10.0.0.1").unwrap().to_str(), "db.internal");
        assert!(server_name(&options, "not a name").is_err());
    }
}
