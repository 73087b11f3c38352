//! TLS to servers: trusted certificates and client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde::Deserialize;
use sherwood_textfile::{Reader, Rules, Watched};

use crate::OpenCause;

/// Options of TLS to a server. Versions 1.2 and 1.3 are supported; the server's certificate is
/// always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// PEM file of the trusted certificate authorities; those of the system by default.
    pub ca: Option<PathBuf>,
    /// PEM file of the client certificate and its chain, for servers that require one; with `key`.
    pub cert: Option<PathBuf>,
    /// PEM file of the private key of `cert`.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate has to contain; the host of the address by default.
    pub server_name: Option<String>,
}

/// TLS to a server, with files that are read again when they change.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<Watched<ClientConfig>>);

impl ClientTls {
    /// Creates TLS with `options`. The client offers these application `protocols`, the preferred
    /// one first.
    ///
    /// # Errors
    /// [`OpenCause::Remote`] names the option, the file and the remedy.
    pub fn open(options: &TlsOptions, protocols: &[&str]) -> Result<Self, OpenCause> {
        let protocols: Vec<_> = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let options = options.clone();
        let load = move |reader: &mut Reader| {
            let mut config = client_config(&options, reader)?;
            config.alpn_protocols.clone_from(&protocols);
            Ok(config)
        };
        Watched::open(load).map(|config| Self(Arc::new(config)))
    }

    /// Returns the configuration for a new connection, from the files as they were at most a second
    /// ago. Files that cannot be used leave the previous configuration in force.
    #[must_use]
    pub fn current(&self) -> Arc<ClientConfig> {
        self.0.current()
    }

    /// Returns the configuration to use instead of `refused`, with which the peers do not trust
    /// each other; none if the files have not changed. Reads the files at most once a second.
    pub fn newer_than(&self, refused: &Arc<ClientConfig>) -> Option<Arc<ClientConfig>> {
        self.0.newer_than(refused)
    }
}

/// Makes ring the process's provider of cryptography, which libraries use by default. If one is
/// installed already, it stays. With the clients of ZooKeeper and Cassandra, a build contains a
/// second one, and rustls has no default until this is called.
pub(crate) fn install_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Makes the TLS configuration of `options`.
///
/// # Errors
/// [`OpenCause::Remote`] names the option, the file and the remedy.
pub(crate) fn client_config(options: &TlsOptions, reader: &mut Reader) -> Result<ClientConfig, OpenCause> {
    let TlsOptions { ca, cert, key, server_name: _ } = options;
    // The provider is explicit: rustls has no default one in a process with two.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("tls", error.to_string(), "leave `tls` as documented"))?
        .with_root_certificates(roots(ca.as_deref(), reader)?);
    match (cert, key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let chain = certificates("tls.cert", cert, reader)?;
            let key = private_key(key, reader)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                refused("tls.key", error.to_string(), "name the private key that belongs to `tls.cert`")
            })
        }
        (Some(_), None) => Err(refused("tls.cert", "there is no `tls.key`".into(), "give both")),
        (None, Some(_)) => Err(refused("tls.key", "there is no `tls.cert`".into(), "give both")),
    }
}

/// Makes the verifier of the certificates of servers.
///
/// # Errors
/// As [`client_config`].
#[cfg(feature = "cassandra")]
pub(crate) fn verifier(
    options: &TlsOptions,
    reader: &mut Reader,
) -> Result<Arc<rustls::client::WebPkiServerVerifier>, OpenCause> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(roots(options.ca.as_deref(), reader)?);
    rustls::client::WebPkiServerVerifier::builder_with_provider(roots, provider)
        .build()
        .map_err(|error| refused("tls.ca", error.to_string(), "name a PEM file of certificates"))
}

/// Reads a PEM file of the option called `option`.
pub(crate) fn pem(option: &'static str, path: &Path, reader: &mut Reader) -> Result<Vec<u8>, OpenCause> {
    let wrong = |error| {
        let detail = format!("{} {error}", path.display());
        refused(option, detail, "name a PEM file that this user may read")
    };
    reader.bytes(path, Rules::DEFAULT).map_err(wrong)
}

/// The name that a server's certificate has to contain: that in `options`, or `host`.
pub(crate) fn server_name(options: &TlsOptions, host: &str) -> Result<ServerName<'static>, OpenCause> {
    let name = options.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| {
        let detail =
            format!("\"{}\" is neither a host's name nor an address", crate::escape::user_text(name));
        refused("tls.server_name", detail, "give the name that is in the server's certificate")
    })
}

/// Describes the trusted certificate authorities of `options`.
pub(crate) fn trust(options: &TlsOptions) -> String {
    match &options.ca {
        Some(ca) => format!("trusted by {}", ca.display()),
        None => "trusted by the system's certificates".to_owned(),
    }
}

/// True for an alert by which a server refuses the client certificate, or its absence. The alert
/// arrives after the handshake, when a request may have been sent already, which the server has not
/// executed; any other alert may arrive during the execution of a request.
pub(crate) fn is_refusal(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let rustls::Error::AlertReceived(alert) = error else { return false };
    matches!(
        alert,
        Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::HandshakeFailure
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate
    )
}

/// Describes a TLS error in plain words, instead of the library's names.
pub(crate) fn words(error: &rustls::Error) -> String {
    let said = error.to_string();
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is signed by nobody who is trusted here".to_owned()
        }
        // The verifier returns only a name for this error.
        rustls::Error::InvalidCertificate(_) if said.contains("CaUsedAsEndEntity") => {
            "its certificate is one of an authority (CA:TRUE), which cannot be a server's too; make one with CA:FALSE".to_owned()
        }
        _ => said,
    }
}

fn roots(ca: Option<&Path>, reader: &mut Reader) -> Result<RootCertStore, OpenCause> {
    let mut roots = RootCertStore::empty();
    let Some(ca) = ca else {
        let found = rustls_native_certs::load_native_certs().certs;
        found.iter().for_each(|certificate| reader.include(certificate));
        if roots.add_parsable_certificates(found).0 == 0 {
            let detail = "the system has no trusted certificates".to_owned();
            return Err(refused(
                "tls.ca",
                detail,
                "install them (Debian: ca-certificates), or name a PEM file",
            ));
        }
        return Ok(roots);
    };
    for certificate in certificates("tls.ca", ca, reader)? {
        roots.add(certificate).map_err(|error| {
            refused("tls.ca", format!("{}: {error}", ca.display()), "name a PEM file of certificates")
        })?;
    }
    Ok(roots)
}

fn certificates(
    option: &'static str,
    path: &Path,
    reader: &mut Reader,
) -> Result<Vec<CertificateDer<'static>>, OpenCause> {
    let wrong = |detail: &str| {
        refused(option, format!("{}: {detail}", path.display()), "name a PEM file of whole certificates")
    };
    let bytes = pem(option, path, reader)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| wrong(not_pem(&error)))?;
    if found.is_empty() { Err(wrong("there is no certificate in it")) } else { Ok(found) }
}

fn private_key(path: &Path, reader: &mut Reader) -> Result<PrivateKeyDer<'static>, OpenCause> {
    let bytes = pem("tls.key", path, reader)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let detail = format!("{}: {}", path.display(), not_pem(&error));
        refused("tls.key", detail, "name a PEM file with an unencrypted private key")
    })
}

/// Describes the error of a PEM file without the text that the library quotes, which may be part of
/// a key.
fn not_pem(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end",
        pem::Error::IllegalSectionStart { .. } => {
            "a section begins with something else than -----BEGIN …-----"
        }
        pem::Error::Base64Decode(_) => "a section is no base 64",
        pem::Error::NoItemsFound => "there is none in it",
        _ => "it cannot be understood",
    }
}

fn refused(option: &'static str, detail: String, remedy: &'static str) -> OpenCause {
    OpenCause::Remote { option, detail, remedy }
}

#[cfg(test)]
mod tests {
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::UnixTime;

    use super::*;

    fn refusal(options: &TlsOptions) -> String {
        ClientTls::open(options, &[]).unwrap_err().to_string()
    }

    #[test]
    fn error_names_a_certificate_file_that_is_missing_or_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let options = TlsOptions { ca: Some(path.clone()), ..TlsOptions::default() };
        assert!(refusal(&options).starts_with("`tls.ca` cannot be used"), "{}", refusal(&options));
        assert!(refusal(&options).contains("ca.pem"), "{}", refusal(&options));
        std::fs::write(&path, "nothing of the sort\n").unwrap();
        assert!(refusal(&options).contains("there is no certificate in it"), "{}", refusal(&options));
    }

    /// The error text of a TLS client that trusts `ca` and connects to a server with the
    /// certificate `cert`.
    fn said_of(ca: &rcgen::Certificate, cert: &rcgen::Certificate) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let name = ServerName::try_from("a").unwrap();
        let verdict = verifier.verify_server_cert(cert.der(), &[], &name, &[], UnixTime::now());
        words(&verdict.map(drop).unwrap_err())
    }

    #[test]
    fn reasons_for_not_trusting_a_certificate_are_described() {
        let own = |is_ca| {
            let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
            params.is_ca = is_ca;
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
        };
        let (server, authority) =
            (own(rcgen::IsCa::ExplicitNoCa), own(rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained)));
        let said = said_of(&authority, &authority);
        assert!(said.contains("make one with CA:FALSE"), "{said}");
        let mut stranger = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        stranger.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
        let stranger = stranger.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let said = said_of(&stranger, &server);
        assert!(said.contains("nobody who is trusted here"), "{said}");
    }

    #[test]
    fn tls_options_with_a_client_certificate_without_its_key_are_refused() {
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
        assert!(ClientTls::open(&both, &[]).is_ok());
        assert!(refusal(&TlsOptions { key: None, ..both.clone() }).contains("there is no `tls.key`"));
        assert!(refusal(&TlsOptions { cert: None, ..both.clone() }).contains("there is no `tls.cert`"));
        assert!(refusal(&TlsOptions { key: wrong, ..both.clone() }).contains("belongs to `tls.cert`"));
        assert!(refusal(&TlsOptions { key: cert, ..both }).contains("unencrypted private key"));
    }

    #[test]
    fn tls_alert_means_that_no_request_was_executed_only_if_it_is_about_certificates() {
        use rustls::{AlertDescription, Error};
        assert!(is_refusal(&Error::AlertReceived(AlertDescription::CertificateRequired)));
        assert!(!is_refusal(&Error::AlertReceived(AlertDescription::InternalError)));
        assert!(!is_refusal(&Error::DecryptError));
    }

    #[test]
    fn verified_name_of_a_server_is_its_host_unless_the_options_give_another() {
        let options = TlsOptions::default();
        assert_eq!(server_name(&options, "::1").unwrap().to_str(), "::1");
        let named = TlsOptions { server_name: Some("db.internal".into()), ..options.clone() };
        assert_eq!(server_name(&named, "10.0.0.1").unwrap().to_str(), "db.internal");
        assert!(server_name(&options, "not a name").is_err());
    }
}
