//! Tests of stores that are servers.

use sherwood_store::{
    AwsCredentials, DynamoDbOptions, DynamoDbValue, HeaderValue, RemoteOptions, Secret, SqlOptions, SqlValue,
    TlsOptions,
};

use super::*;

fn store(keys: &str) -> StoreOptions {
    let config = config(&format!("[[backend]]\nname = \"a\"\nstore = {{ {keys} }}"));
    config.backends[0].replicas[0].clone()
}

#[test]
fn store_with_only_an_address_or_url_has_defaults() {
    let expected = MemcachedOptions::new("127.0.0.1:11211");
    assert_eq!(
        store("kind = \"memcached\", address = \"127.0.0.1:11211\""),
        StoreOptions::Memcached(expected)
    );
    let expected = RedisOptions::new("cache.example.com");
    assert_eq!(store("kind = \"redis\", address = \"cache.example.com\""), StoreOptions::Redis(expected));
    let expected = HttpOptions::new("http://h/{key}");
    assert_eq!(store("kind = \"http\", url = \"http://h/{key}\""), StoreOptions::Http(expected));
    let expected = DynamoDbOptions::new("orders", "eu-central-1");
    let keys = "kind = \"dynamodb\", table = \"orders\", region = \"eu-central-1\"";
    assert_eq!(store(keys), StoreOptions::DynamoDb(expected));
}

#[test]
fn every_key_of_a_remote_store_is_resolved() {
    let common = "tls = { ca = \"ca\", server_name = \"n\" }, connections_max = 7, queued_calls_max = 8, \
                  value_max = \"1MiB\", connect_timeout = \"2s\", answer_timeout = \"20ms\"";
    let login = "user = \"u\", password_env = \"P\", key_prefix = \"k:\", write_ttl = \"1500ms\"";
    let tls = TlsOptions { ca: Some("ca".into()), server_name: Some("n".into()), ..TlsOptions::default() };
    let remote = RemoteOptions {
        tls: Some(tls),
        connections_max: 7,
        queued_calls_max: 8,
        value_bytes_max: 1 << 20,
        connect_timeout_ms: 2_000,
        answer_timeout_ms: 20,
    };
    let (user, password) = (Some("u".to_owned()), Some(Secret::Env("P".to_owned())));
    let memcached = MemcachedOptions {
        key_prefix: "k:".into(),
        user: user.clone(),
        password: password.clone(),
        write_ttl_s: Some(2),
        remote: remote.clone(),
        ..MemcachedOptions::new("h:1")
    };
    let keys = format!("kind = \"memcached\", address = \"h:1\", {common}, {login}");
    assert_eq!(store(&keys), StoreOptions::Memcached(memcached));
    let redis = RedisOptions {
        key_prefix: "k:".into(),
        db: 3,
        user,
        password,
        ttl_of_server: true,
        write_ttl_s: Some(2),
        remote: remote.clone(),
        ..RedisOptions::new("h:1")
    };
    let keys = format!("kind = \"redis\", address = \"h:1\", db = 3, ttl = \"server\", {common}, {login}");
    assert_eq!(store(&keys), StoreOptions::Redis(redis));
    let file = HeaderValue::File { file: "t".into(), prefix: "Bearer ".into() };
    let headers = [("accept".to_owned(), HeaderValue::Text("x".into())), ("authorization".to_owned(), file)];
    let http = HttpOptions {
        write: Some("PUT https://h/{key}".into()),
        delete: Some("DELETE https://h/{key}".into()),
        headers: headers.into(),
        remote,
        ..HttpOptions::new("https://h/{key}")
    };
    let urls =
        "url = \"https://h/{key}\", write = \"PUT https://h/{key}\", delete = \"DELETE https://h/{key}\"";
    let headers = "headers = { accept = \"x\", authorization = { file = \"t\", prefix = \"Bearer \" } }";
    assert_eq!(store(&format!("kind = \"http\", {urls}, {headers}, {common}")), StoreOptions::Http(http));
}

#[test]
fn statements_of_databases_are_resolved() {
    let login = "address = \"db:1\", user = \"u\", database = \"d\"";
    let keys = format!("kind = \"postgres\", {login}, query = \"SELECT v FROM t WHERE k = :key\"");
    let options = SqlOptions::new("db:1", "u", "d", "SELECT v FROM t WHERE k = :key");
    assert_eq!(store(&keys), StoreOptions::Postgres(options.clone()));
    assert_eq!(options.remote.connections_max, 8);
    let more = "password_env = \"P\", write = \"UPDATE t SET v = :value WHERE k = :key\", connections_max = 3, \
                delete = \"DELETE FROM t WHERE k = :key\", value = \"json\", ttl_column = \"s\", tags_column = \"g\"";
    let remote = RemoteOptions { connections_max: 3, ..RemoteOptions::default() };
    let expected = SqlOptions {
        password: Some(Secret::Env("P".into())),
        write: Some("UPDATE t SET v = :value WHERE k = :key".into()),
        delete: Some("DELETE FROM t WHERE k = :key".into()),
        value: SqlValue::Json,
        ttl_column: Some("s".into()),
        tags_column: Some("g".into()),
        remote,
        ..options
    };
    let keys = format!("kind = \"mysql\", {login}, query = \"SELECT v FROM t WHERE k = :key\", {more}");
    assert_eq!(store(&keys), StoreOptions::MySql(expected));
}

#[test]
fn every_key_of_a_dynamodb_store_is_resolved() {
    let keys = "kind = \"dynamodb\", table = \"orders\", region = \"r\", endpoint = \"http://h:1\", key_attribute = \"k\", \
                value_attribute = \"v\", value = \"string\", consistent = true, connections_max = 7, \
                credentials = { access_key_id = { env = \"I\" }, secret_access_key = { file = \"s\" }, session_token = { env = \"T\" } }";
    let credentials = AwsCredentials {
        access_key_id: Secret::Env("I".into()),
        secret_access_key: Secret::File("s".into()),
        session_token: Some(Secret::Env("T".into())),
    };
    let default = DynamoDbOptions::new("orders", "r");
    let expected = DynamoDbOptions {
        endpoint: Some("http://h:1".into()),
        key_attribute: "k".into(),
        value_attribute: "v".into(),
        value: DynamoDbValue::String,
        consistent: true,
        credentials,
        remote: RemoteOptions { connections_max: 7, ..default.remote.clone() },
        ..default
    };
    assert_eq!(store(keys), StoreOptions::DynamoDb(expected));
}

#[test]
fn invalid_dynamodb_store_is_refused() {
    let backend = "[[backend]]\nname = \"a\"\n";
    for (keys, expected) in [
        (
            "region = \"r\"",
            "a.toml:3:9: [[backend]] store has no table; it must say which table has its items: set table = \"orders\"",
        ),
        (
            "table = \"orders\"",
            "a.toml:3:9: [[backend]] store has no region; it must say in which region its table is: set region = \
             \"eu-central-1\"",
        ),
        (
            "table = \"orders\", region = \"r\", endpoint = \"h:1\"",
            "a.toml:3:9: [[backend]] store: `endpoint` cannot be used (\"h:1\" is neither http:// nor https://); write scheme, \
             host and port, such as \"http://127.0.0.1:8000\", or leave it out for AWS",
        ),
        (
            "table = \"orders\", region = \"r\", value = \"json\"",
            "a.toml:3:70: [[backend]] store.value is \"json\"; it must be \"binary\" or \"string\": set store.value = \"binary\"",
        ),
        (
            "table = \"orders\", region = \"r\", credentials = { access_key_id = { env = \"I\" } }",
            "a.toml:3:76: [[backend]] store.credentials has no secret_access_key; it must say where it is: set \
             secret_access_key = { env = \"AWS_SECRET_ACCESS_KEY\" }",
        ),
        (
            "table = \"orders\", region = \"r\", user = \"u\"",
            "a.toml:3:69: [[backend]] store.user is a key of memcached, redis, mysql, postgres, zookeeper and cassandra stores, not of \
             dynamodb: remove it",
        ),
    ] {
        assert_refused(&[(&format!("{backend}store = {{ kind = \"dynamodb\", {keys} }}"), expected)]);
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn keys_of_a_zookeeper_store_are_resolved() {
    let expected = ZookeeperOptions {
        root: "/shop/profiles".into(),
        user: Some("u".into()),
        password: Some(Secret::Env("P".into())),
        remote: RemoteOptions { answer_timeout_ms: 20, ..RemoteOptions::default() },
        ..ZookeeperOptions::new("h:1")
    };
    let keys = "kind = \"zookeeper\", address = \"h:1\", root = \"/shop/profiles\", user = \"u\", password_env = \"P\", \
                answer_timeout = \"20ms\"";
    assert_eq!(store(keys), StoreOptions::Zookeeper(expected));
    let expected = ZookeeperOptions::new("h");
    assert_eq!(store("kind = \"zookeeper\", address = \"h\""), StoreOptions::Zookeeper(expected));
}

#[cfg(feature = "cassandra")]
#[test]
fn keys_of_a_cassandra_store_are_resolved() {
    let expected = CassandraOptions {
        user: Some("u".into()),
        password: Some(Secret::Env("P".into())),
        remote: RemoteOptions { connections_max: 2, ..RemoteOptions::default() },
        ..CassandraOptions::new("h:1", "shop", "items")
    };
    let keys = "kind = \"cassandra\", address = \"h:1\", keyspace = \"shop\", table = \"items\", user = \"u\", \
                password_env = \"P\", connections_max = 2";
    assert_eq!(store(keys), StoreOptions::Cassandra(expected));
    assert_refused(&[(
        "[[backend]]\nname = \"a\"\nstore = { kind = \"cassandra\", address = \"h\", table = \"items\" }",
        "a.toml:3:9: [[backend]] store has no keyspace; it must say where its table is: set keyspace = \"shop\"",
    )]);
}

#[cfg(not(feature = "zookeeper"))]
#[test]
fn store_whose_connector_is_not_built_is_refused_with_the_remedy() {
    assert_refused(&[(
        "[[backend]]\nname = \"a\"\nstore = { kind = \"zookeeper\", address = \"h\" }",
        "a.toml:3:9: [[backend]] store: `kind` cannot be used (this program is built without the connector of zookeeper \
         stores); build it with the Cargo feature of the kind's name, such as `cargo build --release -p sherwood \
         --features zookeeper`",
    )]);
}

#[test]
fn remote_store_counts_connections_and_no_memory() {
    let text = "[[backend]]\nname = \"a\"\nreplicas = [{ kind = \"redis\", address = \"h\" }, { kind = \"compute\" }]";
    let (with, without) = (config(text), config(""));
    assert!(with.memory_line().contains("+ 0 bytes for 1 embedded store"), "{}", with.memory_line());
    assert_eq!(with.descriptors(), without.descriptors() + 4);
}

#[test]
fn invalid_remote_store_is_refused() {
    let backend = "[[backend]]\nname = \"a\"\n";
    let cases = [
        (
            "store = { kind = \"redis\" }",
            "a.toml:3:9: [[backend]] store has no address; it must say where its server is: set address = \
             \"127.0.0.1:6379\"",
        ),
        (
            "store = { kind = \"http\" }",
            "a.toml:3:9: [[backend]] store has no url; it must say what is read: set url = \
             \"http://127.0.0.1:8000/items/{key}\"",
        ),
        (
            "store = { kind = \"redis\", address = \"h:0\" }",
            "a.toml:3:9: [[backend]] store: `address` cannot be used (\"h:0\" has no port); write a host and a port, such as \
             \"127.0.0.1:6379\", \"cache.example.com:6379\" or \"[::1]:6379\"",
        ),
        (
            "store = { kind = \"redis\", address = \"h\", user = \"u\" }",
            "a.toml:3:9: [[backend]] store: `user` cannot be used (there is a user without a password, or a password without a \
             user); give `user` and one of `password_file` and `password_env`, or none of them",
        ),
        (
            "store = { kind = \"redis\", address = \"h\", password_file = \"f\", password_env = \"E\" }",
            "a.toml:3:78: [[backend]] store has both password_file and password_env; it must have one: remove one",
        ),
        (
            "store = { kind = \"redis\", address = \"h\", ttl = \"sever\" }",
            "a.toml:3:48: [[backend]] store.ttl is \"sever\"; it must be \"server\": did you mean \"server\"?",
        ),
        (
            "store = { kind = \"memcached\", address = \"h\", db = 1 }",
            "a.toml:3:51: [[backend]] store.db is a key of redis stores, not of memcached: remove it",
        ),
        (
            "store = { kind = \"redis\", address = \"h\", threads = 1 }",
            "a.toml:3:52: [[backend]] store.threads is a key of kv, sqlite and compute stores, not of redis: remove it",
        ),
        (
            "store = { kind = \"redis\", address = \"h\", answer_timeout = \"5ms\" }",
            "a.toml:3:59: [[backend]] store.answer_timeout is 5ms; it must be at least 10ms: set store.answer_timeout = \
             \"1500ms\"",
        ),
        (
            "store = { kind = \"http\", url = \"http://h/{key}\", tls = {} }",
            "a.toml:3:9: [[backend]] store: `tls` cannot be used (the URL starts with http://); write https://, or leave `tls` \
             out",
        ),
        (
            "store = { kind = \"mysql\", address = \"h:1\", user = \"u\", query = \"SELECT :key\" }",
            "a.toml:3:9: [[backend]] store has no database; it must say where its tables are: set database = \"shop\"",
        ),
        (
            "store = { kind = \"postgres\", address = \"h:1\", user = \"u\", database = \"d\", query = \"SELECT $1\" }",
            "a.toml:3:9: [[backend]] store: `query` cannot be used (`$1` at position 8 is the server's placeholder, ours have \
             names); write a SELECT with `:key` (or its parts `:key.1`, `:key.2`) for one key, or with `IN (:keys)` for many, \
             whose first column is the key",
        ),
        (
            "store = { kind = \"redis\", address = \"h\", database = \"d\" }",
            "a.toml:3:53: [[backend]] store.database is a key of mysql and postgres stores, not of redis: remove it",
        ),
        (
            "store = { kind = \"http\", url = \"http://h/{key}\", headers = { a = 1 } }",
            "a.toml:3:66: [[backend]] store.headers.a: 1 is not accepted; write a text in quotes, or { file = \"run/token\", prefix = \"Bearer \" }",
        ),
    ];
    for (keys, expected) in cases {
        assert_refused(&[(&format!("{backend}{keys}"), expected)]);
    }
}

#[test]
fn server_name_as_kind_is_refused_with_the_right_kind() {
    let kind = |kind: &str| problem(&format!("[[backend]]\nname = \"a\"\nstore = {{ kind = \"{kind}\" }}"));
    assert_eq!(
        kind("mariadb"),
        "a.toml:3:18: [[backend]] store.kind is \"mariadb\"; it speaks as \"mysql\" does: set kind = \"mysql\""
    );
    assert!(kind("valkey").ends_with("set kind = \"redis\""), "{}", kind("valkey"));
}
