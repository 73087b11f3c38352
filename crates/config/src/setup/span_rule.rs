//! Rules by which client spans belong to backends.

use std::collections::BTreeMap;

use sherwood_store::StoreOptions;

/// The client spans of a backend: those that have all the attributes of one of these sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanRule(Vec<BTreeMap<String, String>>);

impl SpanRule {
    /// Returns the rule of spans with all these attributes.
    #[must_use]
    pub fn of(attributes: BTreeMap<String, String>) -> Self {
        Self(vec![attributes])
    }

    /// Returns the rule of spans that name the system of `store` by OpenTelemetry's attributes of
    /// databases, old or stable, or the host of an HTTP service; none for embedded stores.
    #[must_use]
    pub fn of_store(store: &StoreOptions) -> Self {
        let systems: &[(&str, &str)] = match store {
            StoreOptions::Memcached(_) => &[("memcached", "memcached")],
            StoreOptions::Redis(_) => &[("redis", "redis")],
            StoreOptions::MySql(_) => &[("mysql", "mysql"), ("mariadb", "mariadb")],
            StoreOptions::Postgres(_) => &[("postgresql", "postgresql")],
            StoreOptions::DynamoDb(_) => &[("aws.dynamodb", "dynamodb")],
            StoreOptions::Sqlite(_) => &[("sqlite", "sqlite")],
            StoreOptions::Kv(_) | StoreOptions::Compute(_) | StoreOptions::Synthetic(_) => &[],
            StoreOptions::Http(http) => return host_of(&http.url).map_or_else(Self::default, Self::of_host),
        };
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let both = |(stable, old): &(&str, &str)| [one("db.system.name", stable), one("db.system", old)];
        Self(systems.iter().flat_map(both).collect())
    }

    /// The sets of attributes, of which a span has one whole.
    #[must_use]
    pub fn sets(&self) -> &[BTreeMap<String, String>] {
        &self.0
    }

    fn of_host(host: &str) -> Self {
        let one = |name: &str| BTreeMap::from([(name.to_owned(), host.to_owned())]);
        Self(["server.address", "net.peer.name"].map(one).to_vec())
    }
}

/// The host of a URL, without its port.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some((address, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return Some(address);
    }
    host.split(':').next().filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_a_url_excludes_scheme_port_and_path() {
        assert_eq!(host_of("https://[::1]:80/x"), Some("::1"));
        assert_eq!(host_of("http://h"), Some("h"));
        assert_eq!([host_of("h/x"), host_of("http:///x")], [None, None]);
    }
}
