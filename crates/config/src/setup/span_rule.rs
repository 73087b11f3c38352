//! Rules that assign client spans of traces to backends.

use std::collections::BTreeMap;

use sherwood_store::StoreOptions;

/// The rule by which a client span belongs to a backend: it has all the attributes of at least one
/// of these sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanRule(Vec<BTreeMap<String, String>>);

impl SpanRule {
    /// Returns the rule that accepts spans with all these attributes.
    #[must_use]
    pub fn of(attributes: BTreeMap<String, String>) -> Self {
        Self(vec![attributes])
    }

    /// Returns the rule for a backend with this store: accepts spans whose OpenTelemetry
    /// attributes, old or stable, name the store's database system or the host of its HTTP service.
    /// For stores without either, it accepts no span.
    #[must_use]
    pub fn of_store(store: &StoreOptions) -> Self {
        let systems: &[(&str, &str)] = match store {
            StoreOptions::Memcached(_) => &[("memcached", "memcached")],
            StoreOptions::Redis(_) => &[("redis", "redis")],
            StoreOptions::MySql(_) => &[("mysql", "mysql"), ("mariadb", "mariadb")],
            StoreOptions::Postgres(_) => &[("postgresql", "postgresql")],
            StoreOptions::DynamoDb(_) => &[("aws.dynamodb", "dynamodb")],
            StoreOptions::Sqlite(_) => &[("sqlite", "sqlite")],
            StoreOptions::Cassandra(_) => &[("cassandra", "cassandra")],
            StoreOptions::Zookeeper(_) => &[("zookeeper", "zookeeper")],
            StoreOptions::Kv(_) | StoreOptions::Compute(_) | StoreOptions::Synthetic(_) => &[],
            StoreOptions::Http(http) => return host_of(&http.url).map_or_else(Self::default, Self::of_host),
        };
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let both = |(stable, old): &(&str, &str)| [one("db.system.name", stable), one("db.system", old)];
        Self(systems.iter().flat_map(both).collect())
    }

    /// The sets of attributes; a span has to have all attributes of one set.
    #[must_use]
    pub fn sets(&self) -> &[BTreeMap<String, String>] {
        &self.0
    }

    fn of_host(host: &str) -> Self {
        let one = |name: &str| BTreeMap::from([(name.to_owned(), host.to_owned())]);
        Self(["server.address", "net.peer.name"].map(one).to_vec())
    }
}

/// The host of a URL, without user and port.
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
