//! TLS certificates made for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use sherwood_store::TlsOptions;
use tempfile::TempDir;

/// A certificate authority, with a folder of files.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // The name differs from those it signs, or OpenSSL takes them for self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// TLS options of a client that trusts this authority.
    pub(crate) fn trusted(&self) -> TlsOptions {
        TlsOptions { ca: Some(self.path("ca.pem")), ..TlsOptions::default() }
    }

    /// TLS options of a client that trusts this authority and has a client certificate.
    pub(crate) fn trusted_with_a_certificate(&self) -> TlsOptions {
        let (certificate, key) = self.signed("client");
        std::fs::write(self.path("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(self.path("key.pem"), key.serialize_pem()).unwrap();
        let (cert, key) = (Some(self.path("cert.pem")), Some(self.path("key.pem")));
        TlsOptions { cert, key, ..self.trusted() }
    }

    /// The TLS configuration of a server called `name`; with `asks` it requires a client
    /// certificate of this authority.
    pub(crate) fn server(&self, name: &str, asks: bool, protocols: &[&str]) -> Arc<ServerConfig> {
        let (certificate, key) = self.signed(name);
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if asks {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from(self.issuer.der().to_vec())).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// The certificate and key of a server called `name`, as world-readable files.
    pub(crate) fn files(&self, name: &str, folder: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.signed(name);
        let files = (folder.join("server.pem"), folder.join("server.key"));
        std::fs::write(&files.0, certificate.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    /// The authority's certificate as a file in `folder`, to verify client certificates.
    pub(crate) fn signer(&self, folder: &Path) -> PathBuf {
        let file = folder.join("clients-ca.pem");
        std::fs::write(&file, self.issuer.pem()).unwrap();
        file
    }

    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
