//! Tests of the MySQL connector with a MariaDB server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use sherwood_model::Tags;
use sherwood_store::{
    Fault, KeyAnswer, RemoteOptions, Secret, SqlOptions, SqlValue, Store, StoreOptions, TlsOptions,
};

use crate::certificates::Authority;
use crate::databases::{Database, PASSWORD, page, page_statements, page_text};
use crate::{failure, keys, label, lengths, opened, value, values};

const TABLES: &str = "
    CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(40) COLLATE utf8mb4_bin, body BLOB, price DECIMAL(10,2),
        made DATETIME(3), day DATE, lasts TIME, score DOUBLE, flags BIT(9), ttl FLOAT, tags TEXT);
    INSERT INTO item VALUES
        (1, 'é\"', x'ff00', 1.50, '2024-02-29 07:08:09.12', '2024-02-29', '49:00:05', 0.25, 257, 2.5, 'a, b'),
        (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (7, 'seven', '7', -7, NULL, NULL, NULL, 1e300, NULL, -1, '');
    CREATE TABLE pair (shop VARCHAR(20), id VARCHAR(20), body LONGBLOB, PRIMARY KEY (shop, id));
    INSERT INTO pair VALUES ('s1', 'a', 'of s1'), ('s2', 'a', 'of s2');
    CREATE TABLE big (id INT PRIMARY KEY, body LONGTEXT);
    INSERT INTO big VALUES (1, REPEAT('x', 100000)), (2, 'small')";

pub(crate) async fn root(server: &Database) -> Conn {
    let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(server.port).user(Some("root"));
    Conn::new(opts.db_name(Some("shop")).prefer_socket(false)).await.expect("root logs in")
}

async fn started(more: &[&str]) -> (Database, Conn) {
    let server = Database::mariadb(|_| more.iter().map(|&arg| arg.to_owned()).collect());
    let mut root = root(&server).await;
    for statement in TABLES.split(';') {
        root.query_drop(statement).await.expect("the tables are made");
    }
    (server, root)
}

fn store(options: SqlOptions) -> Arc<dyn Store> {
    opened(StoreOptions::MySql(options))
}

#[tokio::test]
async fn mariadb_columns_are_the_values_of_their_keys() {
    let (server, mut root) = started(&[]).await;
    let one = store(server.options("SELECT name FROM item WHERE id = :key"));
    assert_eq!(values(&one, &["1", "2", "3"]).await, [Some("é\"".to_owned()), None, None]);
    let price = store(server.options("SELECT price FROM item WHERE id = :key"));
    assert_eq!(values(&price, &["1", "7"]).await, [Some("1.50".to_owned()), Some("-7.00".to_owned())]);
    let many = store(server.options("SELECT id, body FROM item WHERE id IN (:keys)"));
    // A key matches byte for byte, although MySQL treats others as equal.
    let found = many.get_many(keys(&["7", "1", "07", "1x", "nine", "7"])).await.unwrap();
    let bodies: Vec<_> = found.into_iter().map(|found| found.map(|found| found.value)).collect();
    let (seven, bytes) = (Some(Bytes::from("7")), Some(Bytes::from_static(b"\xff\0")));
    assert_eq!(bodies, [seven.clone(), bytes, None, None, None, seven]);
    // A key that is not text in the column's character set affects no other key.
    root.query_drop("CREATE TABLE old (id VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY, body TEXT)")
        .await
        .unwrap();
    root.query_drop("INSERT INTO old VALUES ('a', 'of a')").await.unwrap();
    for query in ["SELECT id, body FROM old WHERE id IN (:keys)", "SELECT body FROM old WHERE id = :key"] {
        let asked =
            vec![Bytes::from_static(b"\xff\xfe"), "\u{1fad6}".into(), Bytes::from_static(b"\0"), "a".into()];
        let found = store(server.options(query)).get_each(asked).await.unwrap().each;
        let text =
            |one: &KeyAnswer| one.as_ref().ok().and_then(Option::as_ref).map(|found| found.value.clone());
        let found: Vec<_> = found.iter().map(text).collect();
        assert_eq!(found, [None, None, None, Some("of a".into())], "{query}");
    }
    // With one key MySQL compares numbers with strings numerically, unless the statement is
    // stricter.
    let loose = store(server.options("SELECT name FROM item WHERE id = :key"));
    let strict = store(server.options("SELECT name FROM item WHERE id = :key AND CAST(id AS CHAR) = :key"));
    let seven = || Some("seven".to_owned());
    assert_eq!(values(&loose, &["7", "07", "7x"]).await, [seven(), seven(), seven()]);
    assert_eq!(values(&strict, &["7", "07", "7x"]).await, [seven(), None, None]);
    let parts = store(server.options("SELECT body FROM pair WHERE shop = :key.1 AND id = :key.2"));
    assert_eq!(
        values(&parts, &["s2:a", "s1:a", "s1", "s3:a"]).await,
        [Some("of s2".to_owned()), Some("of s1".to_owned()), None, None]
    );
    // More keys than one statement reads.
    let asked: Vec<String> = (0..600).map(|i| i.to_string()).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let found = many.get_many(keys(&asked)).await.unwrap();
    assert_eq!((found.len(), found.iter().flatten().count()), (600, 2));
    let quoted = store(server.options("SELECT CONCAT(':key ', '?', :key)"));
    assert_eq!(
        value(&quoted, "'; DROP TABLE item; --").await.as_deref(),
        Some(":key ?'; DROP TABLE item; --")
    );
}

#[tokio::test]
async fn mariadb_rows_become_json_values_with_time_to_live_and_tags() {
    let (server, _root) = started(&[]).await;
    let options = SqlOptions {
        value: SqlValue::Json,
        ttl_column: Some("ttl".into()),
        tags_column: Some("tags".into()),
        ..server.options("SELECT * FROM item WHERE id IN (:keys)")
    };
    let found = store(options).get_many(keys(&["1", "2", "7"])).await.unwrap();
    let [one, two, seven] = &found[..] else { panic!("{found:?}") };
    let (one, two, seven) = (one.as_ref().unwrap(), two.as_ref().unwrap(), seven.as_ref().unwrap());
    assert_eq!(
        one.value,
        r#"{"id":1,"name":"é\"","body":"/wA=","price":1.50,"made":"2024-02-29 07:08:09.120","day":"2024-02-29","lasts":"49:00:05","score":0.25,"flags":257}"#
    );
    assert_eq!(one.good_for, Some(Duration::from_millis(2500)));
    assert_eq!(one.tags, [&b"a"[..], b"b"].into_iter().collect());
    assert!(two.value.ends_with(br#""score":null,"flags":null}"#));
    assert_eq!((two.good_for, two.tags), (None, Tags::NONE));
    assert_eq!(seven.good_for, Some(Duration::ZERO));
}

#[tokio::test]
async fn acknowledged_writes_are_in_the_mariadb_table() {
    // A server without autocommit.
    let (server, mut root) = started(&["--autocommit=0"]).await;
    let upsert = "INSERT INTO pair (shop, id, body) VALUES (:key.1, :key.2, :value) ON DUPLICATE KEY UPDATE body = :value";
    let store_of = |write: &str| {
        store(SqlOptions {
            write: Some(write.into()),
            delete: Some("DELETE FROM pair WHERE shop = :key.1 AND id = :key.2".into()),
            ..server.options("SELECT body FROM pair WHERE shop = :key.1 AND id = :key.2")
        })
    };
    let shop = store_of(upsert);
    let any = Bytes::from((0..=255).collect::<Vec<u8>>());
    shop.put("s1:a".into(), any.clone()).await.unwrap();
    shop.put("s1:a".into(), any.clone()).await.unwrap();
    shop.put("s9:z".into(), "new".into()).await.unwrap();
    let stored: Option<Vec<u8>> =
        root.query_first("SELECT body FROM pair WHERE shop = 's1' AND id = 'a'").await.unwrap();
    assert_eq!(stored.as_deref(), Some(&any[..]));
    assert_eq!(value(&shop, "s9:z").await.as_deref(), Some("new"));
    shop.delete("s9:z".into()).await.unwrap();
    shop.delete("s9:z".into()).await.unwrap();
    assert_eq!(value(&shop, "s9:z").await, None);
    assert_eq!(label(shop.put("s1".into(), "no part".into()).await), "key");
    let update = store_of("UPDATE pair SET body = :value WHERE shop = :key.1 AND id = :key.2");
    update.put("s1:a".into(), any).await.unwrap();
    assert_eq!(label(update.put("s9:z".into(), "nowhere".into()).await), "missing");
    let read_only = store(server.options("SELECT body FROM pair WHERE id = :key"));
    assert_eq!(label(read_only.put("a".into(), "b".into()).await), "unsupported");
    assert_eq!(label(read_only.delete("a".into()).await), "unsupported");
    // A change refused by a trigger is not made; changes of a procedure before its failure are.
    root.query_drop(
        "CREATE PROCEDURE both_(k TEXT, v TEXT) BEGIN INSERT INTO pair VALUES ('p', k, v); COMMIT; \
                     SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no more'; END",
    )
    .await
    .unwrap();
    root.query_drop(
        "CREATE TRIGGER guard BEFORE DELETE ON pair FOR EACH ROW \
                     SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'",
    )
    .await
    .unwrap();
    let declined = shop.delete("s1:a".into()).await.unwrap_err();
    assert_eq!((declined.cause().label(), declined.fault()), ("statement", Fault::Rejected), "{declined}");
    let half = store_of("CALL both_(:key, :value)").put("k".into(), "v".into()).await.unwrap_err();
    assert_eq!((half.cause().label(), half.fault()), ("server", Fault::Broken), "{half}");
    // Like a primary that has become a replica: the store is not read-only.
    root.query_drop("COMMIT").await.unwrap();
    root.query_drop("SET GLOBAL read_only = 1").await.unwrap();
    for refused in [shop.put("s1:a".into(), "x".into()).await, shop.delete("s1:a".into()).await] {
        assert_eq!(label(refused), "wrong_server");
    }
}

#[tokio::test]
async fn mariadb_statement_that_fails_for_one_key_fails_no_other_key() {
    let (server, mut root) = started(&[]).await;
    root.query_drop("CREATE TABLE many (id VARCHAR(9), n INT)").await.unwrap();
    root.query_drop("INSERT INTO many VALUES ('a', 100), ('b', 1), ('b', 2), ('c', 5000), ('d', 2)")
        .await
        .unwrap();
    let mut options = server.options("SELECT REPEAT('x', (SELECT n FROM many WHERE id = :key))");
    (options.remote.connections_max, options.remote.value_bytes_max) = (1, 1 << 10);
    let each = store(options).get_each(keys(&["a", "b", "c", "b", "c", "d"])).await.unwrap().each;
    let (statement, large) = (Err("statement"), Err("too_large"));
    assert_eq!(lengths(&each), [Ok(100), statement, large, statement, large, Ok(2)]);
}

#[tokio::test]
async fn mariadb_errors_do_not_contain_the_content_of_rows() {
    let (server, mut root) = started(&[]).await;
    root.query_drop("CREATE TABLE vault (id VARCHAR(9) PRIMARY KEY, n INT)").await.unwrap();
    let write = Some("INSERT INTO vault VALUES (:key, :value)".to_owned());
    let vault = store(SqlOptions { write, ..server.options("SELECT n FROM vault WHERE id = :key") });
    vault.put("hunter1".into(), "7".into()).await.unwrap();
    let twice = vault.put("hunter1".into(), "7".into()).await.unwrap_err().to_string();
    assert!(twice.contains("(Duplicate entry for key 'PRIMARY' (error 1062))"), "{twice}");
    let unfit = vault.put("hunter3".into(), "hunter2".into()).await.unwrap_err().to_string();
    assert!(
        unfit.contains("(Incorrect integer value for column `shop`.`vault`.`n` at row 1 (error 1366))"),
        "{unfit}"
    );
    assert!(!twice.contains("hunter") && !unfit.contains("hunter"), "{twice}\n{unfit}");
}

#[tokio::test]
async fn failures_of_mariadb_are_mapped_to_their_causes() {
    let (server, mut root) = started(&["--innodb-lock-wait-timeout=1"]).await;
    let asking = |query: &str| failure_of(server.options(query));
    assert_eq!(asking("SELEC body FROM item WHERE id = :key").await, "statement");
    assert_eq!(asking("SELECT body, name FROM item WHERE id = :key").await, "statement");
    assert_eq!(asking("SELECT body FROM itme WHERE id = :key").await, "missing");
    assert_eq!(asking("SELECT boddy FROM item WHERE id = :key").await, "missing");
    assert_eq!(asking("SELECT host FROM mysql.user WHERE user = :key").await, "credentials");
    let query = "SELECT body FROM item WHERE id = :key";
    let no_password = SqlOptions { password: None, ..server.options(query) };
    assert_eq!(failure_of(no_password).await, "credentials");
    let nobody = SqlOptions { user: "nobody".into(), ..server.options(query) };
    assert_eq!(failure_of(nobody).await, "credentials");
    let elsewhere =
        SqlOptions { database: "shoop".into(), user: "root".into(), password: None, ..server.options(query) };
    assert_eq!(failure_of(elsewhere).await, "missing");

    let mut options = server.options("SELECT body FROM big WHERE id = :key");
    options.remote.value_bytes_max = 10_000;
    let small = store(options);
    assert_eq!(label(small.get_many(keys(&["1"])).await), "too_large");
    assert_eq!(value(&small, "2").await.as_deref(), Some("small"));
    assert_eq!(label(small.put("2".into(), "x".into()).await), "unsupported");

    root.query_drop("CREATE USER 'one'@'127.0.0.1' WITH MAX_USER_CONNECTIONS 1").await.unwrap();
    root.query_drop("GRANT ALL ON shop.* TO 'one'@'127.0.0.1'").await.unwrap();
    let one = || SqlOptions { user: "one".into(), password: None, ..server.options(query) };
    let first = store(one());
    assert_eq!(value(&first, "7").await.as_deref(), Some("7"));
    assert_eq!(failure_of(one()).await, "busy");

    let writes = SqlOptions {
        write: Some("UPDATE item SET body = :value WHERE id = :key".into()),
        ..server.options(query)
    };
    let writes = store(writes);
    root.query_drop("BEGIN").await.unwrap();
    root.query_drop("UPDATE item SET body = 'held' WHERE id = 7").await.unwrap();
    assert_eq!(label(writes.put("7".into(), "8".into()).await), "busy");
    root.query_drop("ROLLBACK").await.unwrap();
    writes.put("7".into(), "8".into()).await.unwrap();
}

async fn failure_of(options: SqlOptions) -> &'static str {
    failure(&store(options)).await
}

/// The numbers of the connections on which the store's user runs a statement.
async fn running(root: &mut Conn) -> Vec<u64> {
    let running = "SELECT id FROM information_schema.processlist WHERE user = 'shop' AND info LIKE '%SLEEP%'";
    root.query(running).await.unwrap()
}

#[tokio::test]
async fn mariadb_statement_of_a_dropped_call_is_killed() {
    let (server, mut root) = started(&[]).await;
    let slow = store(server.options("SELECT SLEEP(1000) FROM item WHERE id = :key"));
    let asking = tokio::spawn({
        let slow = Arc::clone(&slow);
        async move { slow.get_many(keys(&["7"])).await }
    });
    while running(&mut root).await.is_empty() {
        tokio::task::yield_now().await;
    }
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    while !running(&mut root).await.is_empty() {
        tokio::task::yield_now().await;
    }
    // A statement that times out is stopped as well.
    let mut options = server.options("SELECT SLEEP(1000) FROM item WHERE id = :key");
    options.remote.answer_timeout_ms = 100;
    assert_eq!(label(store(options).get_many(keys(&["7"])).await), "silent");
    while !running(&mut root).await.is_empty() {
        tokio::task::yield_now().await;
    }
    // A statement that the server's administrator kills.
    let asking = tokio::spawn({
        let slow = Arc::clone(&slow);
        async move { slow.get_many(keys(&["7"])).await }
    });
    let id = loop {
        if let Some(id) = running(&mut root).await.first() {
            break *id;
        }
    };
    root.query_drop(format!("KILL {id}")).await.unwrap();
    assert_eq!(label(asking.await.unwrap()), "reset");
}

#[tokio::test]
async fn mariadb_is_used_again_after_its_restart() {
    let (mut server, root) = started(&[]).await;
    drop(root);
    let shop = store(server.options("SELECT name FROM item WHERE id = :key"));
    assert_eq!(value(&shop, "7").await.as_deref(), Some("seven"));
    assert_eq!(shop.get_many(Vec::new()).await.unwrap(), []);
    server.kill();
    assert_eq!(failure(&shop).await, "reset");
    assert_eq!(failure(&shop).await, "unreachable");
    server.restart();
    assert_eq!(value(&shop, "7").await.as_deref(), Some("seven"));
    let socket = format!("unix:{}", server.folder.path().join("socket").display());
    let by_socket = SqlOptions { address: socket, ..server.options("SELECT name FROM item WHERE id = :key") };
    assert_eq!(value(&store(by_socket), "7").await.as_deref(), Some("seven"));
    let absent = SqlOptions { address: "unix:/nowhere/socket".into(), ..server.options("SELECT :key") };
    assert_eq!(failure_of(absent).await, "unreachable");
}

#[tokio::test]
async fn check_identifies_the_mariadb_server() {
    let (server, _root) = started(&[]).await;
    let options = SqlOptions {
        write: Some("REPLACE INTO item (id, body) VALUES (:key, :value)".into()),
        ..server.options("SELECT id, body FROM item WHERE id IN (:keys)")
    };
    let report = store(options).check().await.unwrap();
    assert!(report.server.starts_with("MariaDB 1"), "{}", report.server);
    let way = format!("{}, no TLS", server.address());
    assert_eq!(
        report.details,
        [
            way.as_str(),
            "database shop as shop",
            "reads up to 256 keys by a statement, writes",
            "a row is the value of the key in its column id"
        ]
    );
    let wrong = SqlOptions {
        delete: Some("DELETE FROM itme WHERE id = :key".into()),
        ..server.options("SELECT :key")
    };
    let error = store(wrong).check().await.unwrap_err().to_string();
    assert!(error.contains("a table is missing (Table 'shop.itme' doesn't exist"), "{error}");
}

#[tokio::test]
async fn tls_to_mariadb_requires_a_trusted_certificate() {
    let (ours, others) = (Authority::new(), Authority::new());
    let server = Database::mariadb(|folder| {
        let (cert, key) = ours.files("localhost", folder);
        vec![format!("--ssl-cert={}", cert.display()), format!("--ssl-key={}", key.display())]
    });
    let with = |tls: TlsOptions| {
        let mut options = server.options(
            "SELECT Variable_value FROM information_schema.session_status \
                                          WHERE Variable_name = 'Ssl_version' AND :key = :key",
        );
        options.remote.tls = Some(tls);
        store(options)
    };
    let named = |tls: TlsOptions| TlsOptions { server_name: Some("localhost".into()), ..tls };
    assert_eq!(value(&with(named(ours.trusted())), "k").await.as_deref(), Some("TLSv1.3"));
    assert_eq!(failure(&with(named(others.trusted()))).await, "certificate");
    assert_eq!(failure(&with(ours.trusted())).await, "certificate");
}

#[tokio::test]
async fn client_certificate_is_presented_if_mariadb_requires_it() {
    let (ours, others) = (Authority::new(), Authority::new());
    let server = Database::mariadb(|folder| {
        let (cert, key) = ours.files("localhost", folder);
        [("cert", cert), ("key", key), ("ca", ours.signer(folder))]
            .map(|(option, file)| format!("--ssl-{option}={}", file.display()))
            .into()
    });
    let mut root = root(&server).await;
    root.query_drop("CREATE USER 'known'@'127.0.0.1' REQUIRE X509").await.unwrap();
    root.query_drop("GRANT ALL ON shop.* TO 'known'@'127.0.0.1'").await.unwrap();
    let with = |tls: TlsOptions| {
        let known = SqlOptions { user: "known".into(), password: None, ..server.options("SELECT :key") };
        let tls = TlsOptions { server_name: Some("localhost".into()), ..tls };
        store(SqlOptions { remote: RemoteOptions { tls: Some(tls), ..known.remote }, ..known })
    };
    assert_eq!(value(&with(ours.trusted_with_a_certificate()), "k").await.as_deref(), Some("k"));
    assert_eq!(failure(&with(ours.trusted())).await, "credentials");
    let stranger = TlsOptions { ca: ours.trusted().ca, ..others.trusted_with_a_certificate() };
    assert_eq!(failure(&with(stranger)).await, "certificate");
}

#[tokio::test]
async fn mariadb_password_is_read_from_the_environment_and_not_shown() {
    let options = SqlOptions {
        password: Some(Secret::Env("SHERWOOD_TEST_NO_SUCH".into())),
        ..SqlOptions::new("127.0.0.1:1", "shop", "shop", "SELECT :key")
    };
    let Err(refused) = sherwood_store::open("b", &StoreOptions::MySql(options)) else {
        panic!("it is not set")
    };
    assert!(refused.to_string().contains("SHERWOOD_TEST_NO_SUCH"), "{refused}");
}

#[tokio::test]
async fn mariadb_user_of_the_ed25519_plugin_logs_in() {
    let (server, mut root) = started(&["--plugin-load-add=auth_ed25519"]).await;
    let create = format!("CREATE USER 'new'@'127.0.0.1' IDENTIFIED VIA ed25519 USING PASSWORD('{PASSWORD}')");
    root.query_drop(create).await.unwrap();
    root.query_drop("GRANT SELECT ON shop.item TO 'new'@'127.0.0.1'").await.unwrap();
    let new = |query| SqlOptions { user: "new".into(), ..server.options(query) };
    assert_eq!(value(&store(new("SELECT body FROM item WHERE id = :key")), "7").await.as_deref(), Some("7"));
    let asked = store(new("SELECT body FROM itme WHERE id = :key")).get_many(keys(&["7"])).await;
    let error = asked.unwrap_err();
    assert_eq!(error.cause().label(), "credentials");
    assert!(error.to_string().contains("which it says of a table that does not exist, too"), "{error}");
}

#[tokio::test]
async fn mysql_example_of_the_documentation_works() {
    let (server, mut root) = started(&[]).await;
    let section = page("MySQL and MariaDB");
    for statement in page_statements(section).into_iter().filter(|one| !one.starts_with("CREATE DATABASE")) {
        root.query_drop(statement).await.expect(statement);
    }
    let password = server.folder.path().join("mysql-password");
    std::fs::write(&password, "change me\n").unwrap();
    let text = |key| page_text(section, key);
    let products = store(SqlOptions {
        user: text("user"),
        password: Some(Secret::File(password)),
        database: text("database"),
        write: Some(text("write")),
        delete: Some(text("delete")),
        value: SqlValue::Json,
        ttl_column: Some(text("ttl_column")),
        tags_column: Some(text("tags_column")),
        ..server.options(&text("query"))
    });
    let kettle = products.get_many(keys(&["7"])).await.unwrap().remove(0).expect("it is there");
    assert!(section.contains(std::str::from_utf8(&kettle.value).unwrap()), "{kettle:?}");
    assert_eq!(kettle.good_for, Some(Duration::from_secs(60)));
    assert!(kettle.tags.may_hold(b"kitchen") && kettle.tags.may_hold(b"sale"));
    assert!(!products.answers_as_written(), "a row is more than its name");
    products.put("8".into(), "Pot".into()).await.unwrap();
    assert_eq!(value(&products, "8").await.as_deref(), Some(r#"{"id":8,"name":"Pot","price":null}"#));
    products.delete("8".into()).await.unwrap();
    assert_eq!(value(&products, "8").await, None);
}
