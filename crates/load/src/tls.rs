//! TLS to a target.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// TLS to a target: the trusted certificates, and the name that the target's has to contain.
#[derive(Clone)]
pub struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Tls {
    /// Makes TLS to `host`, a name or an IP address; none if it is neither.
    #[must_use]
    pub fn new(config: Arc<ClientConfig>, host: &str) -> Option<Self> {
        let name = ServerName::try_from(host.to_owned()).ok()?;
        Some(Self { config, name })
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}
