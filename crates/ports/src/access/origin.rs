//! Checks that a request names this machine, and comes from no other site.
//!
//! A browser sends the name that was requested (`Host`) and, if a page of another site causes the
//! request, that site (`Origin`); a page can change neither. A request with a name that is not this
//! machine's was directed here by that name's owner, whatever its current address. Other programs
//! send the name they were given, and no origin.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, Uri, header};

/// Relation between the site of the page that causes a request and the request's address.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Reason for refusing a request: it names another machine, or another site's page caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// The request names another machine.
    Host,
    /// The request comes from another site.
    Origin,
}

/// Checks the names in a request to a port bound to `bound`.
pub(crate) fn check(uri: &Uri, headers: &HeaderMap, bound: SocketAddr) -> Result<(), Foreign> {
    // A host in the request line overrides the header; HTTP/1.0, which browsers do not use, may
    // send neither.
    let named = match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => text(headers, header::HOST).map_err(|()| Foreign::Host)?,
    };
    if named.is_some_and(|named| !is_ours(host(named), bound.ip())) {
        return Err(Foreign::Host);
    }
    match text(headers, header::ORIGIN).map_err(|()| Foreign::Origin)? {
        Some(origin) if !is_of(origin, named) => Err(Foreign::Origin),
        _ => Ok(()),
    }
}

/// Checks that no page of another site causes a request that changes something, whatever its token:
/// a token that such a page has come to know shall not be used by it.
///
/// `Sec-Fetch-Site` decides where a browser sends it, because it is also right behind a proxy that
/// changes `Host`. Browsers leave it out over plain HTTP to other machines.
pub(crate) fn check_change(uri: &Uri, headers: &HeaderMap) -> Result<(), Foreign> {
    match text(headers, SEC_FETCH_SITE).map_err(|()| Foreign::Origin)? {
        Some("same-origin" | "none") => return Ok(()),
        Some(_) => return Err(Foreign::Origin),
        None => {}
    }
    let named = match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => text(headers, header::HOST).map_err(|()| Foreign::Host)?,
    };
    match text(headers, header::ORIGIN).map_err(|()| Foreign::Origin)? {
        Some(origin) if !is_of(origin, named) => Err(Foreign::Origin),
        _ => Ok(()),
    }
}

/// Value of a header that may occur once.
fn text(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// The host of `host:port`, `[address]:port`, or either without a port.
fn host(authority: &str) -> &str {
    if let Some((address, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Returns true if the host is this machine by a name that others cannot assign, or by the address
/// that the port is bound to.
fn is_ours(host: &str, bound: IpAddr) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        let address = address.to_canonical();
        return address.is_loopback() || address == bound.to_canonical();
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns true if a page of `origin` was served by the host that the request names.
fn is_of(origin: &str, named: Option<&str>) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    named.is_some_and(|named| named.eq_ignore_ascii_case(authority))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str, headers: &[(HeaderName, &str)]) -> Result<(), Foreign> {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        check(&uri.parse().unwrap(), &headers, "127.0.0.1:8080".parse().unwrap())
    }

    #[test]
    fn request_is_accepted_only_to_local_names_and_the_bound_address() {
        for ours in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "127.1.2.3:9",
            "localhost",
            "LocalHost:8080",
            "localhost.:8080",
            "node.localhost:8080",
            "[::1]:8080",
            "[::1]",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert_eq!(asked("/", &[(header::HOST, ours)]), Ok(()), "{ours}");
        }
        for other in [
            "example.com",
            "example.com:8080",
            "127.0.0.1.example.com:8080",
            "localhost.example.com",
            "notlocalhost",
            "10.0.0.1:8080",
            "[::2]:8080",
            "[",
            "",
            ":8080",
            "127.0.0.1:8080:8080x",
        ] {
            assert_eq!(asked("/", &[(header::HOST, other)]), Err(Foreign::Host), "{other}");
        }
        assert_eq!(asked("/", &[]), Ok(()), "HTTP/1.0");
        let twice = [(header::HOST, "localhost"), (header::HOST, "localhost")];
        assert_eq!(asked("/", &twice), Err(Foreign::Host));
        assert_eq!(asked("http://example.com/", &[(header::HOST, "localhost")]), Err(Foreign::Host));
        assert_eq!(asked("http://localhost/", &[]), Ok(()));
        let bound = "10.0.0.1:8080".parse().unwrap();
        let named = [(header::HOST, "10.0.0.1:8080".parse().unwrap())].into_iter().collect();
        assert_eq!(check(&"/".parse().unwrap(), &named, bound), Ok(()));
    }

    #[test]
    fn change_is_refused_to_pages_of_other_sites() {
        let change = |headers: &[(&'static str, &str)]| {
            let named = |(name, value): &(&'static str, &str)| {
                (HeaderName::from_static(name), value.parse().unwrap())
            };
            check_change(&"/v1/control".parse().unwrap(), &headers.iter().map(named).collect())
        };
        let host = ("host", "node.example");
        for ours in [
            &[host][..],
            &[host, ("origin", "https://node.example")],
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            // A proxy passes the page's origin on, and has another name for the node.
            &[
                ("host", "10.0.0.1:8080"),
                ("origin", "https://node.example"),
                ("sec-fetch-site", "same-origin"),
            ],
        ] {
            assert_eq!(change(ours), Ok(()), "{ours:?}");
        }
        for other in [
            &[host, ("origin", "https://evil.example")][..],
            &[host, ("origin", "null")],
            &[("origin", "https://node.example")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[host, ("origin", "https://node.example"), ("sec-fetch-site", "cross-site")],
        ] {
            assert_eq!(change(other), Err(Foreign::Origin), "{other:?}");
        }
    }

    #[test]
    fn browser_origin_must_have_the_name_and_port_of_the_requested_host() {
        let from = |origin| asked("/", &[(header::HOST, "localhost:8080"), (header::ORIGIN, origin)]);
        assert_eq!(from("http://localhost:8080"), Ok(()));
        assert_eq!(from("https://LOCALHOST:8080"), Ok(()));
        for other in ["http://localhost:3000", "http://localhost", "https://example.com", "null", ""] {
            assert_eq!(from(other), Err(Foreign::Origin), "{other}");
        }
        assert_eq!(asked("/", &[(header::ORIGIN, "http://localhost")]), Err(Foreign::Origin));
    }
}
