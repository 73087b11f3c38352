//! The ends of certificates: a warning before, and a metric to be alerted by.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

use super::Tls;

/// Remaining validity below which a certificate is warned about when it is read. Chosen: renewals
/// by ACME are due a month before the end, so that half of it tells that they fail.
const SOON: Duration = Duration::from_hours(14 * 24);

/// Returns the time, in seconds since 1970, from which the first of `chain` to expire is invalid;
/// none if no certificate tells.
pub(crate) fn end(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let ends = chain.iter().filter_map(|certificate| {
        let (_, parsed) = parse_x509_certificate(certificate).ok()?;
        Some(parsed.validity().not_after.timestamp())
    });
    ends.min()
}

/// Warns about a certificate file that was read at `now` and has expired, or soon will.
pub(crate) fn warn(what: &str, path: &Path, end: Option<i64>, now: SystemTime) {
    let Some(end) = end else { return };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    let (left, path) = (end - now, path.display());
    if left <= 0 {
        tracing::warn!("{what} {path} has expired: clients will refuse it; renew it, and it is read again");
    } else if left < SOON.as_secs() as i64 {
        let days = left / (24 * 3600);
        tracing::warn!("{what} {path} expires in {days} days; renew it, and it is read again");
    }
}

/// The certificates of the node's ports, for as long as the ports are open.
#[derive(Debug, Default)]
pub struct Certificates(Mutex<Vec<(String, Weak<Tls>)>>);

impl Certificates {
    /// Adds the certificate of a port.
    pub fn add(&self, port: String, tls: &Arc<Tls>) {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|(_, tls)| tls.strong_count() > 0);
        ports.push((port, Arc::downgrade(tls)));
    }

    /// Returns the ports and the ends of their present certificates, in seconds since 1970.
    pub fn ends(&self) -> Vec<(String, i64)> {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ports.into_iter().filter_map(|(port, tls)| Some((port, tls.upgrade()?.end()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn end_of_a_chain_is_that_of_its_first_certificate_to_expire() {
        let chain = [certificate(2040), certificate(2030), certificate(2050)];
        assert_eq!(end(&chain), Some(1_893_456_000), "2030-01-01T00:00:00Z");
        assert_eq!(end(&[CertificateDer::from(vec![1, 2, 3])]), None);
    }
}
