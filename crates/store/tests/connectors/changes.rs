//! Tests of changes to tables for which connections keep prepared statements.

use std::sync::Arc;

use bytes::Bytes;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sherwood_store::{SqlOptions, SqlValue, Store, StoreOptions};
use tokio_postgres::Client;

use crate::databases::Database;
use crate::{keys, label, mariadb, opened, postgres, value, values};

const QUERIES: [&str; 2] =
    ["SELECT name FROM part WHERE id = :key", "SELECT id, name FROM part WHERE id IN (:keys)"];

/// Opens a store for each form of query (one key, list of keys), and makes its connection keep the
/// prepared statements.
async fn stores(server: &Database, kind: fn(SqlOptions) -> StoreOptions) -> [Arc<dyn Store>; 2] {
    let stores = QUERIES.map(|query| {
        opened(kind(SqlOptions {
            write: Some("UPDATE part SET name = :value WHERE id = :key".into()),
            delete: Some("DELETE FROM part WHERE id = :key".into()),
            ..server.options(query)
        }))
    });
    for store in &stores {
        assert_eq!(value(store, "1").await.as_deref(), Some("one"));
        store.put("1".into(), "one".into()).await.unwrap();
        store.delete("1000".into()).await.unwrap();
    }
    stores
}

async fn postgres_stores(made: &str) -> (Database, Client, [Arc<dyn Store>; 2]) {
    let (server, admin) = postgres::started(&[]).await;
    make(&admin, made).await;
    let stores = stores(&server, StoreOptions::Postgres).await;
    (server, admin, stores)
}

/// Creates the table, after dropping the existing one.
async fn make(admin: &Client, made: &str) {
    admin.batch_execute("DROP TABLE IF EXISTS part").await.unwrap();
    admin.batch_execute(made).await.unwrap();
    admin.batch_execute("ALTER TABLE part OWNER TO shop").await.unwrap();
}

const INTEGERS: &str =
    "CREATE TABLE part (id int PRIMARY KEY, name text); INSERT INTO part VALUES (1, 'one'), (2, 'two')";

#[tokio::test]
async fn reads_and_writes_work_immediately_after_a_postgres_key_column_is_widened() {
    let (_server, admin, stores) = postgres_stores(INTEGERS).await;
    admin.batch_execute("ALTER TABLE part ALTER id TYPE bigint").await.unwrap();
    for (store, id) in stores.iter().zip(["3000000000", "3000000001"]) {
        admin.batch_execute(&format!("INSERT INTO part VALUES ({id}, 'big')")).await.unwrap();
        let found = values(store, &["1", id, "x"]).await;
        assert_eq!(found, [Some("one".into()), Some("big".into()), None]);
        store.put(Bytes::from_static(id.as_bytes()), "new".into()).await.unwrap();
        assert_eq!(value(store, id).await.as_deref(), Some("new"));
        store.delete(Bytes::from_static(id.as_bytes())).await.unwrap();
        assert_eq!(value(store, id).await, None);
    }
}

#[tokio::test]
async fn reads_and_writes_work_immediately_after_a_postgres_key_column_changes_its_type() {
    let (server, admin, _) = postgres_stores(INTEGERS).await;
    for (kind, key) in [("text USING 'k' || id", "k1"), ("numeric USING id + 0.5", "1.5"), ("smallint", "1")]
    {
        make(&admin, INTEGERS).await;
        let stores = stores(&server, StoreOptions::Postgres).await;
        admin.batch_execute(&format!("ALTER TABLE part ALTER id TYPE {kind}")).await.unwrap();
        for store in &stores {
            assert_eq!(value(store, key).await.as_deref(), Some("one"), "{kind}");
            store.put(key.into(), "one".into()).await.unwrap();
            store.delete("12".into()).await.unwrap();
        }
    }
    let codes = "CREATE TABLE part (id text PRIMARY KEY, name text); INSERT INTO part VALUES ('1', 'one')";
    for kind in ["int USING id::int", "bytea USING convert_to(id, 'UTF8')"] {
        make(&admin, codes).await;
        let stores = stores(&server, StoreOptions::Postgres).await;
        admin.batch_execute(&format!("ALTER TABLE part ALTER id TYPE {kind}")).await.unwrap();
        for store in &stores {
            assert_eq!(value(store, "1").await.as_deref(), Some("one"), "{kind}");
            store.put("1".into(), "one".into()).await.unwrap();
            store.delete("12".into()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn reads_and_writes_work_immediately_after_a_postgres_date_key_becomes_text() {
    let (server, admin, _) = postgres_stores(INTEGERS).await;
    let days =
        "CREATE TABLE part (id date PRIMARY KEY, name text); INSERT INTO part VALUES ('2024-02-29', 'one')";
    make(&admin, days).await;
    let stores = QUERIES.map(|query| {
        opened(StoreOptions::Postgres(SqlOptions {
            write: Some("UPDATE part SET name = :value WHERE id = :key".into()),
            ..server.options(query)
        }))
    });
    for store in &stores {
        assert_eq!(value(store, "2024-02-29").await.as_deref(), Some("one"));
        store.put("2024-02-29".into(), "one".into()).await.unwrap();
    }
    admin.batch_execute("ALTER TABLE part ALTER id TYPE text USING 'day ' || id").await.unwrap();
    for store in &stores {
        assert_eq!(value(store, "day 2024-02-29").await.as_deref(), Some("one"));
        store.put("day 2024-02-29".into(), "one".into()).await.unwrap();
    }
}

#[tokio::test]
async fn reads_and_writes_work_immediately_after_a_postgres_value_column_changes_its_type() {
    let (server, admin, _) = postgres_stores(INTEGERS).await;
    let changes = [
        ("ALTER TABLE part ALTER name TYPE varchar(9)", "three"),
        ("ALTER TABLE part ALTER name TYPE bytea USING convert_to(name, 'UTF8')", "\u{1}\\x"),
    ];
    for (change, written) in changes {
        admin.batch_execute("UPDATE part SET name = 'one'").await.unwrap();
        let stores = stores(&server, StoreOptions::Postgres).await;
        admin.batch_execute(change).await.unwrap();
        for store in &stores {
            assert_eq!(value(store, "1").await.as_deref(), Some("one"), "{change}");
        }
        for store in &stores {
            store.put("1".into(), written.into()).await.unwrap();
            assert_eq!(value(store, "1").await.as_deref(), Some(written), "{change}");
        }
    }
}

#[tokio::test]
async fn reads_and_writes_work_once_a_dropped_or_renamed_postgres_table_or_column_is_back() {
    let (server, admin, _) = postgres_stores(INTEGERS).await;
    for (broken, mended) in [
        ("ALTER TABLE part RENAME name TO title", "ALTER TABLE part RENAME title TO name"),
        ("ALTER TABLE part RENAME TO parts", "ALTER TABLE parts RENAME TO part"),
        ("ALTER TABLE part DROP name", "ALTER TABLE part ADD name varchar(9) DEFAULT 'one'"),
        (
            "DROP TABLE part",
            "CREATE TABLE part (id bigint, name bytea); GRANT ALL ON part TO shop; INSERT INTO part VALUES (1, 'one')",
        ),
    ] {
        let stores = stores(&server, StoreOptions::Postgres).await;
        admin.batch_execute(broken).await.unwrap();
        for store in &stores {
            assert_eq!(label(store.get_many(keys(&["1"])).await), "missing", "{broken}");
            assert_eq!(label(store.put("1".into(), "one".into()).await), "missing", "{broken}");
        }
        admin.batch_execute(mended).await.unwrap();
        for store in &stores {
            assert_eq!(value(store, "1").await.as_deref(), Some("one"), "{mended}");
            store.put("1".into(), "one".into()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn select_star_returns_the_current_columns_of_the_table() {
    let (server, admin, _) = postgres_stores(INTEGERS).await;
    let (maria, mut root, _) = mariadb_stores().await;
    let json = |server: &Database| SqlOptions {
        value: SqlValue::Json,
        ..server.options("SELECT * FROM part WHERE id = :key")
    };
    let mut before = r#"{"id":1,"name":"one"}"#;
    for (change, after) in [
        ("ALTER TABLE part ADD size int DEFAULT 7", r#"{"id":1,"name":"one","size":7}"#),
        ("ALTER TABLE part DROP name", r#"{"id":1,"size":7}"#),
    ] {
        // A statement is prepared anew once a second.
        let stores =
            [opened(StoreOptions::Postgres(json(&server))), opened(StoreOptions::MySql(json(&maria)))];
        for store in &stores {
            assert_eq!(value(store, "1").await.as_deref(), Some(before), "{}", store.kind());
        }
        admin.batch_execute(change).await.unwrap();
        root.query_drop(change).await.unwrap();
        for store in &stores {
            assert_eq!(value(store, "1").await.as_deref(), Some(after), "{}", store.kind());
        }
        before = after;
    }
}

#[tokio::test]
async fn postgres_type_that_was_dropped_and_recreated_is_looked_up_again() {
    let made = "
        CREATE TYPE id AS ENUM ('1', '1000');
        CREATE TABLE part (id id PRIMARY KEY, name text); INSERT INTO part VALUES ('1', 'one')";
    let (_server, admin, stores) = postgres_stores(made).await;
    admin.batch_execute("DROP TABLE part; DROP TYPE id").await.unwrap();
    make(&admin, made).await;
    for store in &stores {
        assert_eq!(value(store, "1").await.as_deref(), Some("one"));
        store.put("1".into(), "one".into()).await.unwrap();
    }
}

#[tokio::test]
async fn postgres_statement_that_the_server_has_deallocated_is_prepared_again() {
    let (server, admin) = postgres::started(&[]).await;
    admin
        .batch_execute(
            "CREATE FUNCTION forget(k text) RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN 'of ' || k; END $$",
        )
        .await
        .unwrap();
    let store = opened(StoreOptions::Postgres(server.options("SELECT forget(:key)")));
    assert_eq!(value(&store, "a").await.as_deref(), Some("of a"));
    assert_eq!(value(&store, "b").await.as_deref(), Some("of b"));
    // Within a second it is not prepared anew a second time.
    assert_eq!(label(store.get_many(keys(&["c"])).await), "server");
}

#[tokio::test]
async fn key_that_does_not_fit_the_type_of_its_column_is_absent_and_not_an_error() {
    let (_server, _admin, stores) = postgres_stores(INTEGERS).await;
    for store in &stores {
        for _ in 0..100 {
            assert_eq!(values(store, &["x", "2"]).await, [None, Some("two".into())]);
        }
        assert_eq!(label(store.put("x".into(), "one".into()).await), "key");
    }
}

async fn mariadb_stores() -> (Database, Conn, [Arc<dyn Store>; 2]) {
    let (server, mut root) = mariadb::started(&[]).await;
    root.query_drop("CREATE TABLE part (id INT PRIMARY KEY, name VARCHAR(20))").await.unwrap();
    root.query_drop("INSERT INTO part VALUES (1, 'one'), (2, 'two')").await.unwrap();
    let stores = stores(&server, StoreOptions::MySql).await;
    (server, root, stores)
}

#[tokio::test]
async fn reads_and_writes_work_immediately_after_mariadb_columns_change_their_type() {
    let (_server, mut root, stores) = mariadb_stores().await;
    for (change, key) in [
        ("ALTER TABLE part MODIFY id BIGINT", "3000000000"),
        ("ALTER TABLE part MODIFY id VARCHAR(20)", "k1"),
        ("ALTER TABLE part MODIFY name BLOB", "k2"),
        ("ALTER TABLE part MODIFY name VARCHAR(40) CHARACTER SET latin1", "é"),
        ("ALTER TABLE part CHANGE name name DECIMAL(9,2)", "k3"),
    ] {
        let (value_of, other) = if change.contains("DECIMAL") { ("2.50", "0") } else { ("é", "one") };
        if change.contains("DECIMAL") {
            root.query_drop("UPDATE part SET name = '0'").await.unwrap();
        }
        root.query_drop(change).await.unwrap();
        root.query_drop(format!("INSERT INTO part VALUES ('{key}', '{other}')")).await.unwrap();
        for store in &stores {
            assert!(value(store, key).await.is_some(), "{change}");
            store.put(key.into(), value_of.into()).await.unwrap();
            assert_eq!(value(store, key).await.as_deref(), Some(value_of), "{change}");
        }
    }
}

#[tokio::test]
async fn reads_and_writes_work_once_a_dropped_or_renamed_mariadb_table_or_column_is_back() {
    let (server, mut root, _) = mariadb_stores().await;
    for (broken, mended) in [
        ("ALTER TABLE part RENAME COLUMN name TO title", "ALTER TABLE part RENAME COLUMN title TO name"),
        ("RENAME TABLE part TO parts", "RENAME TABLE parts TO part"),
        ("ALTER TABLE part DROP name", "ALTER TABLE part ADD name BLOB DEFAULT 'one'"),
        ("DROP TABLE part", "CREATE TABLE part (id BIGINT, name CHAR(9)) SELECT 1 AS id, 'one' AS name"),
    ] {
        let stores = stores(&server, StoreOptions::MySql).await;
        root.query_drop(broken).await.unwrap();
        for store in &stores {
            assert_eq!(label(store.get_many(keys(&["1"])).await), "missing", "{broken}");
            assert_eq!(label(store.put("1".into(), "one".into()).await), "missing", "{broken}");
        }
        root.query_drop(mended).await.unwrap();
        for store in &stores {
            assert_eq!(value(store, "1").await.as_deref(), Some("one"), "{mended}");
            store.put("1".into(), "one".into()).await.unwrap();
        }
    }
}
