//! The URL of a node's admin API.

use crate::exit::Failure;

/// Host and port of a node, and whether it is asked by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeUrl {
    /// The flag that named it, for errors.
    pub(super) flag: &'static str,
    pub(super) is_secure: bool,
    /// `host:port`.
    pub(super) authority: String,
}

impl NodeUrl {
    /// Parses `http://host:port` or `https://host:port`, the value of `flag`. Without a scheme it
    /// is `http`.
    ///
    /// # Errors
    /// If it is neither.
    pub(super) fn parse(flag: &'static str, url: &str) -> Result<Self, Failure> {
        let invalid = || {
            Failure::usage(format!(
                "{flag} {url:?} is no URL of a node; write it as http://127.0.0.1:8080 or https://host:8080"
            ))
        };
        let (is_secure, rest) = match url.split_once("://") {
            None => (false, url),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(invalid()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(invalid)?;
        let is_plain = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@".contains(&byte));
        if host.is_empty() || !is_plain || port.parse::<u16>().is_err() {
            return Err(invalid());
        }
        Ok(Self { flag, is_secure, authority: authority.to_owned() })
    }

    /// Returns the whole URL of a path.
    pub(super) fn at(&self, path: &str) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_a_node_has_a_host_and_a_port() {
        let at = |url: &str| NodeUrl::parse("--url", url).map(|url| url.at("/v1/slo"));
        for (url, whole) in [
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/slo"),
            ("https://cache-1:8443", "https://cache-1:8443/v1/slo"),
            ("http://[::1]:80", "http://[::1]:80/v1/slo"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080/v1/slo"),
        ] {
            assert_eq!(at(url).unwrap(), whole);
        }
        for url in ["ftp://a:1", "http://a", "https://a", "http://:1", "http://a:1/v1", "http://a b:1", "a:x"]
        {
            let Err(Failure::Usage(said)) = at(url) else { panic!("{url} was taken") };
            assert!(said.contains("--url") && said.contains("http://127.0.0.1:8080"), "{said}");
        }
    }
}
