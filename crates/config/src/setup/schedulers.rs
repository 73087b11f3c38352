//! Schedulers that a node serves to others, and schedulers from which it gets the tickets for its
//! calls.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use sherwood_dispatch::TicketOptions;
use sherwood_store::TlsOptions;

/// Name of the scheduler if a URL or a call does not name one.
pub const DEFAULT_SCHEDULER: &str = "default";

/// A scheduler, before the node is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSetup {
    /// Unique name, which clients put into the URL.
    pub name: String,
    /// Order of calls, slots, bounds and lease time.
    pub options: TicketOptions,
}

/// The URL of a scheduler: `http://host:port/name`, or `https`; without a name it is `default`.
#[derive(Clone, PartialEq, Eq)]
pub struct SchedulerUrl {
    is_tls: bool,
    authority: Authority,
    port: u16,
    scheduler: String,
}

/// The scheduler of a replica, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSource {
    /// The URL of the scheduler.
    pub url: SchedulerUrl,
    /// File of the token that the scheduler's node requires; none if it requires none.
    pub token_file: Option<PathBuf>,
    /// Options of TLS, for `https`.
    pub tls: TlsOptions,
}

/// The error of a text that is not the URL of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be http:// or https://, a host, a port, and nothing else or the name of a scheduler")]
pub struct NoSchedulerUrl;

impl SchedulerUrl {
    /// True for `https`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_tls
    }

    /// Host and port, as written.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The host; an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name of the scheduler among those of its node.
    #[must_use]
    pub fn scheduler(&self) -> &str {
        &self.scheduler
    }
}

impl FromStr for SchedulerUrl {
    type Err = NoSchedulerUrl;

    fn from_str(text: &str) -> Result<Self, NoSchedulerUrl> {
        let uri: Uri = text.parse().map_err(|_| NoSchedulerUrl)?;
        let parts = uri.into_parts();
        let is_tls = match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(NoSchedulerUrl),
        };
        let authority = parts.authority.ok_or(NoSchedulerUrl)?;
        let port = authority.port_u16().ok_or(NoSchedulerUrl)?;
        let path = parts.path_and_query.as_ref().map_or("/", PathAndQuery::as_str);
        let name = path.strip_prefix('/').ok_or(NoSchedulerUrl)?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if authority.as_str().contains('@') || authority.host().is_empty() || !is_name {
            return Err(NoSchedulerUrl);
        }
        let scheduler = if name.is_empty() { DEFAULT_SCHEDULER } else { name }.to_owned();
        Ok(Self { is_tls, authority, port, scheduler })
    }
}

impl fmt::Display for SchedulerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_tls, authority, port: _, scheduler } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{authority}/{scheduler}")
    }
}

impl fmt::Debug for SchedulerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_url_needs_scheme_host_and_port_and_may_have_a_name() {
        let shown = |text: &str| text.parse::<SchedulerUrl>().map(|url| url.to_string());
        assert_eq!(shown("http://127.0.0.1:8080").unwrap(), "http://127.0.0.1:8080/default");
        assert_eq!(shown("https://a.example:443/catalog-1").unwrap(), "https://a.example:443/catalog-1");
        assert_eq!(shown("http://[::1]:80/").unwrap(), "http://[::1]:80/default");
        for wrong in [
            "",
            "127.0.0.1:8080",
            "ftp://a:1",
            "http://a",
            "http://a:b",
            "http://a:1/b/c",
            "http://a:1/b?c",
            "http://u@a:1",
            "http://:1",
        ] {
            assert_eq!(shown(wrong), Err(NoSchedulerUrl), "{wrong}");
        }
    }
}
