//! Tests of the PostgreSQL connector with a PostgreSQL server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sherwood_model::Tags;
use sherwood_store::{Fault, Secret, SqlOptions, SqlValue, Store, StoreOptions, TlsOptions};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls};

use crate::certificates::Authority;
use crate::databases::{Database, PASSWORD, page, page_statements, page_text};
use crate::{failure, keys, label, lengths, opened, value, values};

const TABLES: &str = "
    CREATE TYPE mood AS ENUM ('fine', 'so so');
    CREATE DOMAIN cents AS bigint;
    CREATE TABLE item (id int PRIMARY KEY, name text, body bytea, price numeric(10,2), made timestamptz, day date,
        score float8, sold boolean, more jsonb, code uuid, mood mood, cents cents, words text[], ttl real, tags text);
    INSERT INTO item VALUES
        (1, 'é\"', '\\xff00', 1.50, '2024-02-29 07:08:09.12+01', '2024-02-29', 0.25, true, '{\"a\": [1]}',
         '6ba7b810-9dad-11d1-80b4-00c04fd430c8', 'so so', 5000000000, '{x,\"y,\"}', 2.5, 'a, b'),
        (7, 'seven', '7', -7, NULL, NULL, 1e300, false, '1', NULL, NULL, 7, '{}', -1, '');
    INSERT INTO item (id) VALUES (2);
    CREATE TABLE pair (shop text, id text, body bytea, note text, PRIMARY KEY (shop, id));
    INSERT INTO pair VALUES ('s1', 'a', 'of s1'), ('s2', 'a', 'of s2');
    CREATE TABLE big (id int PRIMARY KEY, body text);
    INSERT INTO big VALUES (1, repeat('x', 1000000)), (2, 'small');
    CREATE TABLE private (id int);
    GRANT ALL ON item, pair, big TO shop";

pub(crate) async fn admin(server: &Database) -> Client {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let mut config = Config::new();
    config.user("admin").password(PASSWORD).dbname("shop");
    let (client, connection) = config.connect_raw(socket, NoTls).await.expect("the superuser logs in");
    tokio::spawn(connection);
    client
}

async fn started(more: &[&str]) -> (Database, Client) {
    let server = Database::postgres(|_| more.iter().map(|&arg| arg.to_owned()).collect());
    let admin = admin(&server).await;
    admin.batch_execute(TABLES).await.expect("the tables are made");
    (server, admin)
}

fn store(options: SqlOptions) -> Arc<dyn Store> {
    opened(StoreOptions::Postgres(options))
}

#[tokio::test]
async fn postgres_columns_are_the_values_of_their_keys() {
    let (server, admin) = started(&[]).await;
    let one = store(server.options("SELECT name FROM item WHERE id = :key"));
    // A key that is not an integer is absent, and not an error.
    let asked = ["1", "2", "3", "1x", "99999999999", "'", "7"];
    let seven = Some("seven".to_owned());
    assert_eq!(
        values(&one, &asked).await,
        [Some("é\"".to_owned()), None, None, None, None, None, seven.clone()]
    );
    let found = one.get_many(vec![Bytes::from_static(b"\xff"), "7".into()]).await.unwrap();
    assert!(found[0].is_none() && found[1].is_some());
    for (column, expected) in [
        ("price", "1.50"),
        ("made", "2024-02-29 06:08:09.12+00"),
        ("day", "2024-02-29"),
        ("sold", "true"),
        ("more", r#"{"a": [1]}"#),
        ("code", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ("mood", "so so"),
        ("cents", "5000000000"),
        ("words", r#"["x","y,"]"#),
        ("interval '1 day'::text", "1 day"),
    ] {
        let column = store(server.options(&format!("SELECT {column} FROM item WHERE id = :key")));
        assert_eq!(value(&column, "1").await.as_deref(), Some(expected));
    }
    // Numbers have the server's own format.
    for number in [
        "0",
        "-1e9",
        "1.50",
        "0.000123",
        "-100000042.1230",
        "1e-20",
        "2e30 / 7",
        "10000",
        "'NaN'",
        "'-infinity'",
    ] {
        let number = format!("({number}::numeric)");
        let row = admin.query_one(&format!("SELECT {number}::text"), &[]).await.unwrap();
        let read = store(server.options(&format!("SELECT {number} WHERE :key = 'k'")));
        assert_eq!(value(&read, "k").await.as_deref(), Some(row.get(0)), "{number}");
    }
    let many = store(server.options("SELECT id, body FROM item WHERE id IN (:keys)"));
    let found = many.get_many(keys(&["7", "1", "07", "1x", "nine", "7"])).await.unwrap();
    let bodies: Vec<_> = found.into_iter().map(|found| found.map(|found| found.value)).collect();
    let (seven, bytes) = (Some(Bytes::from("7")), Some(Bytes::from_static(b"\xff\0")));
    assert_eq!(bodies, [seven.clone(), bytes, None, None, None, seven]);
    let parts = store(server.options("SELECT body FROM pair WHERE shop = :key.1 AND id = :key.2"));
    let found = values(&parts, &["s2:a", "s1:a", "s1", "s3:a"]).await;
    assert_eq!(found, [Some("of s2".to_owned()), Some("of s1".to_owned()), None, None]);
    let by_code = store(server.options("SELECT code, name FROM item WHERE code IN (:keys)"));
    let code = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    assert_eq!(values(&by_code, &[code, "no code"]).await, [Some("é\"".to_owned()), None]);
    // More keys than one statement reads.
    let asked: Vec<String> = (0..600).map(|i| i.to_string()).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let found = many.get_many(keys(&asked)).await.unwrap();
    assert_eq!((found.len(), found.iter().flatten().count()), (600, 2));
    let quoted = store(server.options("SELECT ':key ' || $$:key$$ || :key::text"));
    assert_eq!(
        value(&quoted, "'; DROP TABLE item; --").await.as_deref(),
        Some(":key :key'; DROP TABLE item; --")
    );
}

#[tokio::test]
async fn postgres_rows_become_json_values_with_time_to_live_and_tags() {
    let (server, _admin) = started(&[]).await;
    let options = SqlOptions {
        value: SqlValue::Json,
        ttl_column: Some("ttl".into()),
        tags_column: Some("tags".into()),
        ..server.options(
            "SELECT id, name, body, price, sold, more, words, ttl, tags FROM item WHERE id IN (:keys)",
        )
    };
    let found = store(options).get_many(keys(&["1", "2", "7"])).await.unwrap();
    let [Some(one), Some(two), Some(seven)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        one.value,
        r#"{"id":1,"name":"é\"","body":"/wA=","price":1.50,"sold":true,"more":{"a": [1]},"words":["x","y,"]}"#
    );
    assert_eq!(one.good_for, Some(Duration::from_millis(2500)));
    assert_eq!(one.tags, [&b"a"[..], b"b"].into_iter().collect());
    assert_eq!((two.good_for, two.tags), (None, Tags::NONE));
    assert_eq!(seven.good_for, Some(Duration::ZERO));
}

#[tokio::test]
async fn acknowledged_writes_are_in_the_postgres_table() {
    let (server, admin) = started(&[]).await;
    let query = "SELECT body FROM pair WHERE shop = :key.1 AND id = :key.2";
    let store_of = |write: &str| {
        store(SqlOptions {
            write: Some(write.into()),
            delete: Some("DELETE FROM pair WHERE shop = :key.1 AND id = :key.2".into()),
            ..server.options(query)
        })
    };
    let upsert = "INSERT INTO pair (shop, id, body) VALUES (:key.1, :key.2, :value)
                  ON CONFLICT (shop, id) DO UPDATE SET body = excluded.body";
    let shop = store_of(upsert);
    let any = Bytes::from((0..=255).collect::<Vec<u8>>());
    shop.put("s1:a".into(), any.clone()).await.unwrap();
    shop.put("s9:z".into(), "new".into()).await.unwrap();
    let row = admin.query_one("SELECT body FROM pair WHERE shop = 's1' AND id = 'a'", &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<u8>>(0), any);
    assert_eq!(value(&shop, "s9:z").await.as_deref(), Some("new"));
    shop.delete("s9:z".into()).await.unwrap();
    shop.delete("s9:z".into()).await.unwrap();
    assert_eq!(value(&shop, "s9:z").await, None);
    assert_eq!(label(shop.put("s1".into(), "no part".into()).await), "key");
    let update = store_of("UPDATE pair SET note = :value WHERE shop = :key.1 AND id = :key.2");
    update.put("s1:a".into(), "text".into()).await.unwrap();
    assert_eq!(label(update.put("s9:z".into(), "nowhere".into()).await), "missing");
    assert_eq!(label(update.put("s1:a".into(), Bytes::from_static(b"\xff")).await), "key");
    // The result of a write is not read completely, and the row is written.
    let update = store_of(
        "UPDATE pair SET note = :value WHERE shop = :key.1 AND id = :key.2 RETURNING repeat('x', 1000000)",
    );
    let error = update.put("s1:a".into(), "long".into()).await.unwrap_err();
    assert_eq!((error.cause().label(), error.fault()), ("protocol", Fault::Broken), "{error}");
    let read_only = store(server.options(query));
    assert_eq!(label(read_only.put("a".into(), "b".into()).await), "unsupported");
    assert_eq!(label(read_only.delete("a".into()).await), "unsupported");
    // Like a primary that has become a replica: the store is not read-only.
    admin.batch_execute("ALTER ROLE shop SET default_transaction_read_only = on").await.unwrap();
    let shop = store_of(upsert);
    for refused in [shop.put("s1:a".into(), "x".into()).await, shop.delete("s1:a".into()).await] {
        assert_eq!(label(refused), "wrong_server");
    }
}

#[tokio::test]
async fn postgres_statement_that_fails_for_one_key_fails_no_other_key() {
    let (server, _admin) = started(&[]).await;
    let mut options = server.options("SELECT repeat('x', 1000 / CAST(:key AS int))");
    (options.remote.connections_max, options.remote.value_bytes_max) = (1, 1 << 10);
    let each = store(options).get_each(keys(&["10", "0", "1", "0", "1", "500"])).await.unwrap().each;
    let (statement, large) = (Err("statement"), Err("too_large"));
    assert_eq!(lengths(&each), [Ok(100), statement, large, statement, large, Ok(2)]);
}

#[tokio::test]
async fn postgres_errors_do_not_contain_the_content_of_rows() {
    let (server, admin) = started(&[]).await;
    let made = "CREATE TABLE vault (id text PRIMARY KEY, secret text CHECK (length(secret) < 9), n int); ALTER TABLE vault OWNER TO shop";
    admin.batch_execute(made).await.unwrap();
    let write = Some("INSERT INTO vault VALUES (:key, :value, 1)".to_owned());
    let vault = store(SqlOptions { write, ..server.options("SELECT secret FROM vault WHERE id = :key") });
    vault.put("hunter1".into(), "hunter2".into()).await.unwrap();
    let twice = vault.put("hunter1".into(), "hunter2".into()).await.unwrap_err().to_string();
    assert!(twice.contains("unique constraint \"vault_pkey\" (SQLSTATE 23505)"), "{twice}");
    let long = vault.put("hunter3".into(), "hunter2hunter2".into()).await.unwrap_err().to_string();
    assert!(long.contains("check constraint \"vault_secret_check\" (SQLSTATE 23514)"), "{long}");
    let number = store(server.options("SELECT secret FROM vault WHERE n = CAST(:key AS text)::int"));
    let unfit = number.get_many(keys(&["hunter2"])).await.unwrap_err().to_string();
    assert!(unfit.contains("(SQLSTATE 22P02)"), "{unfit}");
    for said in [twice, long, unfit] {
        assert!(!said.contains("hunter"), "{said}");
    }
}

#[tokio::test]
async fn failures_of_postgres_are_mapped_to_their_causes() {
    let (server, admin) = started(&[]).await;
    let asking = |query: &str| failure_of(server.options(query));
    assert_eq!(asking("SELEC body FROM item WHERE id = :key").await, "statement");
    assert_eq!(asking("SELECT body, name FROM item WHERE id = :key").await, "statement");
    assert_eq!(asking("SELECT body FROM itme WHERE id = :key").await, "missing");
    assert_eq!(asking("SELECT boddy FROM item WHERE id = :key").await, "missing");
    assert_eq!(asking("SELECT id FROM private WHERE id = :key").await, "credentials");
    let inet = store(server.options("SELECT '::1'::inet WHERE :key = 'k'"));
    let error = inet.get_many(keys(&["k"])).await.unwrap_err().to_string();
    assert!(error.contains("a column has type inet, which is not read; cast it"), "{error}");
    // A column type whose literals are checked only by the server: the other keys are answered.
    for by_day in
        ["SELECT name FROM item WHERE day = :key", "SELECT day, name FROM item WHERE day IN (:keys)"]
    {
        let by_day = store(server.options(by_day));
        let each = by_day.get_each(keys(&["2024-02-29", "no day", "2025-01-01"])).await.unwrap().each;
        assert!(each[0].as_ref().is_ok_and(Option::is_some) && each[2] == Ok(None), "{each:?}");
        assert_eq!(each[1].as_ref().unwrap_err().cause().label(), "key");
    }
    // A row with a column of an unsupported type does not affect the next statement.
    let mut options =
        server.options("SELECT '::1'::inet, repeat('x', 900) FROM generate_series(1, 999) WHERE :key = 'k'");
    (options.remote.connections_max, options.value, options.remote.value_bytes_max) =
        (1, SqlValue::Json, 1 << 20);
    let rows = store(options);
    for _ in 0..3 {
        assert_eq!(failure(&rows).await, "statement");
    }
    admin.batch_execute("ALTER ROLE shop SET statement_timeout = '20ms'").await.unwrap();
    assert_eq!(asking("SELECT pg_sleep(1000)::text WHERE :key = 'k'").await, "busy");
    admin.batch_execute("ALTER ROLE shop RESET statement_timeout").await.unwrap();
    let query = "SELECT body FROM item WHERE id = :key";
    let no_password = SqlOptions { password: None, ..server.options(query) };
    assert_eq!(failure_of(no_password).await, "credentials");
    let nobody = SqlOptions { user: "nobody".into(), ..server.options(query) };
    assert_eq!(failure_of(nobody).await, "credentials");
    let elsewhere = SqlOptions { database: "shoop".into(), ..server.options(query) };
    assert_eq!(failure_of(elsewhere).await, "missing");

    let mut options = server.options("SELECT body FROM big WHERE id = :key");
    options.remote.value_bytes_max = 10_000;
    let small = store(options);
    assert_eq!(label(small.get_many(keys(&["1"])).await), "too_large");
    assert_eq!(value(&small, "2").await.as_deref(), Some("small"));

    let one =
        format!("CREATE ROLE one LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 1; GRANT ALL ON item TO one");
    admin.batch_execute(&one).await.unwrap();
    let one = || SqlOptions { user: "one".into(), ..server.options("SELECT name FROM item WHERE id = :key") };
    let first = store(one());
    assert_eq!(value(&first, "7").await.as_deref(), Some("seven"));
    assert_eq!(failure_of(one()).await, "busy");

    admin.batch_execute("ALTER ROLE shop SET lock_timeout = '50ms'").await.unwrap();
    let writes = store(SqlOptions {
        write: Some("UPDATE item SET name = :value WHERE id = :key".into()),
        ..server.options(query)
    });
    admin.batch_execute("BEGIN; UPDATE item SET name = 'held' WHERE id = 7").await.unwrap();
    assert_eq!(label(writes.put("7".into(), "8".into()).await), "busy");
    admin.batch_execute("ROLLBACK").await.unwrap();
    writes.put("7".into(), "8".into()).await.unwrap();
}

async fn failure_of(options: SqlOptions) -> &'static str {
    failure(&store(options)).await
}

/// True if the store's user runs a statement on the server.
async fn is_running(admin: &Client) -> bool {
    let running = "SELECT 1 FROM pg_stat_activity WHERE usename = 'shop' AND state = 'active'";
    !admin.query(running, &[]).await.unwrap().is_empty()
}

#[tokio::test]
async fn postgres_statement_of_a_dropped_call_is_cancelled() {
    let (server, admin) = started(&[]).await;
    let query = "SELECT 'x' FROM item, pg_sleep(1000) WHERE id = :key";
    let slow = store(server.options(query));
    let ask = || {
        let slow = Arc::clone(&slow);
        tokio::spawn(async move { slow.get_many(keys(&["7"])).await })
    };
    let asking = ask();
    while !is_running(&admin).await {}
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    while is_running(&admin).await {}
    // A statement that times out is stopped as well.
    let mut options = server.options(query);
    options.remote.answer_timeout_ms = 100;
    assert_eq!(label(store(options).get_many(keys(&["7"])).await), "silent");
    while is_running(&admin).await {}
    // A statement that the server's administrator terminates.
    let asking = ask();
    while !is_running(&admin).await {}
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'";
    admin.query(end, &[]).await.unwrap();
    assert_eq!(label(asking.await.unwrap()), "reset");
}

#[tokio::test]
async fn postgres_is_used_again_after_its_restart() {
    let (mut server, admin) = started(&[]).await;
    let shop = store(server.options("SELECT name FROM item WHERE id = :key"));
    assert_eq!(value(&shop, "7").await.as_deref(), Some("seven"));
    assert_eq!(shop.get_many(Vec::new()).await.unwrap(), []);
    // After a change of a column's type the statement is prepared again, one call later.
    admin.batch_execute("ALTER TABLE item ALTER name TYPE varchar(9)").await.unwrap();
    let _ = shop.get_many(keys(&["7"])).await;
    assert_eq!(value(&shop, "7").await.as_deref(), Some("seven"));
    server.kill();
    while label(shop.get_many(keys(&["7"])).await) != "unreachable" {}
    server.restart();
    assert_eq!(value(&shop, "7").await.as_deref(), Some("seven"));
    let socket = server.folder.path().join(format!(".s.PGSQL.{}", server.port));
    let address = format!("unix:{}", socket.display());
    let by_socket = SqlOptions { address, ..server.options("SELECT name FROM item WHERE id = :key") };
    assert_eq!(value(&store(by_socket), "7").await.as_deref(), Some("seven"));
    let absent = SqlOptions { address: "unix:/nowhere/socket".into(), ..server.options("SELECT :key::text") };
    assert_eq!(failure_of(absent).await, "unreachable");
}

#[tokio::test]
async fn check_identifies_the_postgres_server() {
    let (server, _admin) = started(&[]).await;
    let options = SqlOptions {
        delete: Some("DELETE FROM item WHERE id = :key".into()),
        ..server.options("SELECT body FROM item WHERE id = :key")
    };
    let report = store(options).check().await.unwrap();
    assert!(report.server.starts_with("PostgreSQL 1"), "{}", report.server);
    let way = format!("{}, no TLS", server.address());
    assert_eq!(
        report.details,
        [way.as_str(), "database shop as shop", "reads 1 key by a statement, deletes"]
    );
    let wrong = SqlOptions {
        write: Some("UPDATE itme SET body = :value WHERE id = :key".into()),
        ..server.options("SELECT body FROM item WHERE id = :key")
    };
    let error = store(wrong).check().await.unwrap_err().to_string();
    assert!(error.contains("a table is missing (relation \"itme\" does not exist"), "{error}");
}

#[tokio::test]
async fn tls_to_postgres_requires_a_trusted_certificate() {
    let (ours, others) = (Authority::new(), Authority::new());
    let server = Database::postgres(|folder| {
        let (cert, key) = ours.files("localhost", folder);
        crate::databases::give_to(&key, "postgres");
        let settings = [
            "ssl=on".into(),
            format!("ssl_cert_file={}", cert.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
    });
    let with = |tls: TlsOptions| {
        let query = "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND :key = 'k'";
        let mut options = server.options(query);
        options.remote.tls = Some(tls);
        store(options)
    };
    let named = |tls: TlsOptions| TlsOptions { server_name: Some("localhost".into()), ..tls };
    assert_eq!(value(&with(named(ours.trusted())), "k").await.as_deref(), Some("TLSv1.3"));
    assert_eq!(failure(&with(named(others.trusted()))).await, "certificate");
    assert_eq!(failure(&with(ours.trusted())).await, "certificate");
}

#[tokio::test]
async fn client_certificate_is_presented_if_postgres_requires_it() {
    let (ours, others) = (Authority::new(), Authority::new());
    let server = Database::postgres(|folder| {
        let (cert, key) = ours.files("localhost", folder);
        crate::databases::give_to(&key, "postgres");
        let rules = folder.join("hba.conf");
        std::fs::write(&rules, "hostssl all shop 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n").unwrap();
        let settings = [
            "ssl=on".into(),
            format!("ssl_cert_file={}", cert.display()),
            format!("ssl_key_file={}", key.display()),
            format!("ssl_ca_file={}", ours.signer(folder).display()),
            format!("hba_file={}", rules.display()),
        ];
        settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
    });
    let with = |tls: TlsOptions| {
        let mut options = server.options("SELECT :key::text");
        options.remote.tls = Some(TlsOptions { server_name: Some("localhost".into()), ..tls });
        store(options)
    };
    assert_eq!(value(&with(ours.trusted_with_a_certificate()), "k").await.as_deref(), Some("k"));
    assert_eq!(failure(&with(ours.trusted())).await, "credentials");
    let stranger = TlsOptions { ca: ours.trusted().ca, ..others.trusted_with_a_certificate() };
    assert_eq!(failure(&with(stranger)).await, "certificate");
}

#[tokio::test]
async fn postgres_example_of_the_documentation_works() {
    let (server, admin) = started(&[]).await;
    let section = page("PostgreSQL");
    for statement in page_statements(section) {
        admin.batch_execute(statement).await.expect(statement);
    }
    let password = server.folder.path().join("postgres-password");
    std::fs::write(&password, "change me\n").unwrap();
    let text = |key| page_text(section, key);
    let profiles = store(SqlOptions {
        user: text("user"),
        password: Some(Secret::File(password)),
        database: text("database"),
        write: Some(text("write")),
        delete: Some(text("delete")),
        ..server.options(&text("query"))
    });
    let found = values(&profiles, &["north:7", "north:x", "north"]).await;
    assert_eq!(found, [Some(r#"{"name": "Ada"}"#.to_owned()), None, None]);
    profiles.put("north:8".into(), "[1]".into()).await.unwrap();
    assert_eq!(value(&profiles, "north:8").await.as_deref(), Some("[1]"));
    profiles.delete("north:8".into()).await.unwrap();
    assert_eq!(value(&profiles, "north:8").await, None);
}
