//! TLS of Cassandra's driver, which asks for the server's IP address in the certificate.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use sherwood_textfile::{Reader, Watched};

use crate::OpenCause;
use crate::remote::tls::{self, TlsOptions};

/// Returns the options of TLS, whose files are read again when they change. The certificate has to
/// contain `name`.
pub(super) fn watched(
    options: TlsOptions,
    name: ServerName<'static>,
) -> Result<Watched<Arc<ClientConfig>>, OpenCause> {
    Watched::open(move |reader: &mut Reader| {
        let mut config = tls::client_config(&options, reader)?;
        let verifier = tls::verifier(&options, reader)?;
        config.dangerous().set_certificate_verifier(Arc::new(Named { verifier, name: name.clone() }));
        Ok(Arc::new(config))
    })
}

/// Verifies certificates for one name, whatever name is asked for.
#[derive(Debug)]
struct Named {
    verifier: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier.verify_server_cert(certificate, intermediates, &self.name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
