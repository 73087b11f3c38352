//! The addresses of stores' servers, as their options name them.

use hyper::Uri;

use super::host::HostPort;
use super::sql::Address;
use super::{cassandra, http, memcached, redis, sql, zookeeper};
use crate::{StoreKind, StoreOptions};

/// The address of a store's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// A name, an IP address without brackets, or the path of a UNIX socket.
    pub host: String,
    /// The port; none for a UNIX socket.
    pub port: Option<u16>,
}

impl From<HostPort> for ServerAddress {
    fn from(HostPort { host, port }: HostPort) -> Self {
        Self { host, port: Some(port) }
    }
}

impl StoreOptions {
    /// Returns the address of the store's server; none for an embedded store, or if the options
    /// name none.
    #[must_use]
    pub fn server(&self) -> Option<ServerAddress> {
        let host_port = |text: &str, port| HostPort::parse("address", text, port).ok().map(Into::into);
        match self {
            Self::Kv(_) | Self::Sqlite(_) | Self::Compute(_) | Self::Synthetic(_) => None,
            Self::Memcached(memcached) => host_port(&memcached.address, memcached::PORT),
            Self::Redis(redis) => host_port(&redis.address, redis::PORT),
            Self::Zookeeper(zookeeper) => host_port(&zookeeper.address, zookeeper::PORT),
            Self::Cassandra(cassandra) => host_port(&cassandra.address, cassandra::PORT),
            Self::MySql(options) => of_sql(&options.address, StoreKind::MySql),
            Self::Postgres(options) => of_sql(&options.address, StoreKind::Postgres),
            // Scheme, host and port come before the first placeholder.
            Self::Http(http) => of_url(&http.url.split('{').next()?.parse().ok()?),
            Self::DynamoDb(dynamo_db) => of_url(&dynamo_db.url().ok()?),
        }
    }

    /// Returns true if items of one store may be among those of the other: at one server, in one
    /// database, table or node, one prefix begins with the other.
    #[must_use]
    pub fn shares_items(&self, other: &Self) -> bool {
        let is_in = |one: &str, other: &str| one.starts_with(other) || other.starts_with(one);
        let is_within = match (self, other) {
            (Self::Memcached(one), Self::Memcached(other)) => is_in(&one.key_prefix, &other.key_prefix),
            (Self::Redis(one), Self::Redis(other)) => {
                one.db == other.db && is_in(&one.key_prefix, &other.key_prefix)
            }
            (Self::Zookeeper(one), Self::Zookeeper(other)) => one.root == other.root,
            (Self::Cassandra(one), Self::Cassandra(other)) => {
                (&one.keyspace, &one.table) == (&other.keyspace, &other.table)
            }
            _ => return self == other,
        };
        is_within && self.server() == other.server() && self.server().is_some()
    }
}

fn of_sql(address: &str, kind: StoreKind) -> Option<ServerAddress> {
    Some(match Address::parse(address, sql::port(kind)).ok()? {
        Address::Tcp(host) => host.into(),
        Address::Unix(path) => ServerAddress { host: path.display().to_string(), port: None },
    })
}

fn of_url(url: &Uri) -> Option<ServerAddress> {
    http::address(url).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_of_each_kind_has_host_and_port() {
        let server = |json: &str| {
            let options: StoreOptions = serde_json::from_str(json).expect("options of a store");
            options.server().map(|ServerAddress { host, port }| (host, port))
        };
        let is = |host: &str, port| Some((host.to_owned(), Some(port)));
        assert_eq!(server(r#"{"kind": "memcached", "address": "[::1]"}"#), is("::1", 11211));
        assert_eq!(server(r#"{"kind": "redis", "address": "cache:7"}"#), is("cache", 7));
        assert_eq!(server(r#"{"kind": "http", "url": "https://h/v1/{key}?x"}"#), is("h", 443));
        assert_eq!(server(r#"{"kind": "http", "url": "http://h:80{key}"}"#), is("h", 80));
        let dynamo_db = r#"{"kind": "dynamodb", "table": "orders", "region": "eu-central-1"}"#;
        assert_eq!(server(dynamo_db), is("dynamodb.eu-central-1.amazonaws.com", 443));
        assert_eq!(
            of_sql("db", StoreKind::MySql),
            Some(ServerAddress { host: "db".into(), port: Some(3306) })
        );
        let socket = Some(ServerAddress { host: "/run/pg".into(), port: None });
        assert_eq!(of_sql("unix:/run/pg", StoreKind::Postgres), socket);
        assert_eq!(server(r#"{"kind": "kv", "path": "/x"}"#), None);
    }

    #[test]
    fn stores_share_items_at_one_server_with_prefixes_database_node_or_table_in_common() {
        let is_same = |one: &str, other: &str| {
            let options: [StoreOptions; 2] =
                [one, other].map(|json| serde_json::from_str(json).expect("options of a store"));
            options[0].shares_items(&options[1])
        };
        let redis = r#"{"kind": "redis", "address": "h"}"#;
        assert!(is_same(redis, r#"{"kind": "redis", "address": "h:6379", "user": "x", "write_ttl_s": 9}"#));
        for other in [
            r#"{"kind": "redis", "address": "h:1"}"#,
            r#"{"kind": "redis", "address": "h", "db": 1}"#,
            r#"{"kind": "memcached", "address": "h:6379"}"#,
        ] {
            assert!(!is_same(redis, other), "{other}");
        }
        let of_prefix = |prefix| format!(r#"{{"kind": "redis", "address": "h", "key_prefix": "{prefix}"}}"#);
        assert!(is_same(redis, &of_prefix("t:")) && is_same(&of_prefix("t"), &of_prefix("t:")));
        assert!(!is_same(&of_prefix("t:"), &of_prefix("s:")));
        let cassandra = |table| {
            format!(r#"{{"kind": "cassandra", "address": "h", "keyspace": "shop", "table": "{table}"}}"#)
        };
        assert!(!is_same(&cassandra("a"), &cassandra("b")));
        let root = |root| format!(r#"{{"kind": "zookeeper", "address": "h", "root": "{root}"}}"#);
        assert!(is_same(&root("/a"), &root("/a")) && !is_same(&root("/a"), &root("/b")));
        let memcached = r#"{"kind": "memcached", "address": "h", "key_prefix": "t:"}"#;
        assert!(is_same(memcached, memcached));
    }
}
