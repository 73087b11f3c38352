//! Tests of the PostgreSQL connector behind PgBouncer.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use sherwood_store::{Secret, SqlOptions, SqlValue, Store, StoreOptions};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::databases::{Database, PASSWORD};
use crate::{keys, label, lengths, opened, value, values};

const MODES: [&str; 3] = ["session", "transaction", "statement"];

const TABLES: &str = "
    CREATE TYPE mood AS ENUM ('fine');
    CREATE DOMAIN code AS bytea;
    CREATE TABLE red (id int PRIMARY KEY, name text, body bytea, mood mood DEFAULT 'fine', code code);
    INSERT INTO red SELECT i, 'red' || i, convert_to('red' || i, 'UTF8') FROM generate_series(1, 200) i;
    CREATE TABLE blue (id int PRIMARY KEY, name text);
    INSERT INTO blue SELECT i, 'blue' || i FROM generate_series(1, 200) i;
    CREATE PROCEDURE rename_(k int, v text) LANGUAGE sql AS 'UPDATE red SET name = v WHERE id = k'";

async fn client(server: &Database, user: &str) -> Client {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let mut config = Config::new();
    config.user(user).password(PASSWORD).dbname("shop");
    let (client, connection) = config.connect_raw(socket, NoTls).await.expect("the user logs in");
    tokio::spawn(connection);
    client
}

async fn started() -> (Database, Client) {
    let server = Database::postgres(|_| Vec::new());
    let shop = client(&server, "shop").await;
    shop.batch_execute(TABLES).await.expect("the tables are made");
    (server, shop)
}

fn store(options: SqlOptions) -> Arc<dyn Store> {
    opened(StoreOptions::Postgres(options))
}

#[tokio::test]
async fn statements_run_through_pgbouncer_in_each_of_its_pool_modes() {
    let (server, shop) = started().await;
    for mode in MODES {
        let pooler = Database::pgbouncer(&server, mode);
        let one = store(SqlOptions {
            write: Some("UPDATE red SET body = :value WHERE id = :key".into()),
            delete: Some("DELETE FROM red WHERE id = :key".into()),
            ..pooler.options("SELECT body FROM red WHERE id = :key;")
        });
        let report = one.check().await.expect(mode);
        let remark =
            "a pooler, such as PgBouncer, is in between: statements have no names and are parsed each time";
        assert_eq!(report.details.last().map(String::as_str), Some(remark), "{mode}");
        assert!(report.server.starts_with("PostgreSQL 1"), "{}", report.server);
        assert_eq!(values(&one, &["500", "1", "x"]).await, [None, Some("red1".into()), None], "{mode}");
        let any = Bytes::from((0..=255).collect::<Vec<u8>>());
        one.put("2".into(), any.clone()).await.expect(mode);
        assert_eq!(one.get_many(keys(&["2"])).await.unwrap()[0].as_ref().unwrap().value, any, "{mode}");
        assert_eq!(label(one.put("500".into(), "x".into()).await), "missing");
        assert_eq!(label(one.put("x".into(), "x".into()).await), "key");
        one.delete("3".into()).await.expect(mode);
        assert_eq!(value(&one, "3").await, None);
        shop.batch_execute("INSERT INTO red VALUES (3, 'red3')").await.unwrap();
        let many = store(pooler.options("SELECT id, name FROM red WHERE id IN (:keys)"));
        let found = values(&many, &["1", "x", "900", "200"]).await;
        assert_eq!(found, [Some("red1".into()), None, None, Some("red200".into())], "{mode}");
        let none = store(pooler.options("SELECT id, name FROM red WHERE id IN (:keys)"));
        assert_eq!(values(&none, &["800", "900"]).await, [None, None], "{mode}");
        let wrong = store(pooler.options("SELECT id, name FROM red WHERE id = :key"));
        assert_eq!(label(wrong.get_many(keys(&["900"])).await), "statement");
        assert_eq!(label(wrong.check().await), "statement");
        let absent = store(pooler.options("SELECT name FROM rde WHERE id = :key"));
        assert_eq!(label(absent.check().await), "missing");
        let domain = store(SqlOptions {
            write: Some("UPDATE red SET code = :value WHERE id = :key".into()),
            ..pooler.options("SELECT code FROM red WHERE id = :key")
        });
        domain.put("4".into(), any.clone()).await.expect(mode);
        assert_eq!(domain.get_many(keys(&["4"])).await.unwrap()[0].as_ref().unwrap().value, any, "{mode}");
    }
    let direct = store(server.options("SELECT name FROM red WHERE id = :key")).check().await.unwrap();
    assert!(!direct.details.iter().any(|detail| detail.contains("pooler")), "{direct:?}");
}

#[tokio::test]
async fn bad_key_or_row_does_not_fail_other_keys_through_pgbouncer() {
    let (server, _shop) = started().await;
    let days = "(SELECT DATE '2023-12-31' + id AS day, name FROM red) AS dated WHERE day";
    for mode in MODES {
        let pooler = Database::pgbouncer(&server, mode);
        for query in
            [format!("SELECT day, name FROM {days} IN (:keys)"), format!("SELECT name FROM {days} = :key")]
        {
            let dated = store(pooler.options(&query));
            let asked = ["2024-01-01", "no day", "2024-1-2", "none", "2025-01-01", "no day"];
            let expected = [Some("red1".into()), None, Some("red2".into()), None, None, None];
            // Of a new statement, and of a kept one.
            for _ in 0..2 {
                assert_eq!(values(&dated, &asked).await, expected, "{mode}: {query}");
            }
            assert_eq!(values(&dated, &["no day"]).await, [None], "{mode}: {query}");
        }
        let divided = store(pooler.options("SELECT id, 1 / (id - 7) FROM red WHERE id IN (:keys)"));
        let each = divided.get_each(keys(&["3", "7", "100", "07"])).await.unwrap().each;
        assert_eq!(lengths(&each), [Ok(1), Err("statement"), Ok(1), Err("statement")], "{mode}");
        // Two spellings of a row, asked for together.
        let many = store(pooler.options("SELECT id, name FROM red WHERE id IN (:keys)"));
        let found = values(&many, &["7", "07", "900"]).await;
        assert_eq!(found, [Some("red7".into()), Some("red7".into()), None], "{mode}");
    }
}

#[tokio::test]
async fn stores_that_share_pgbouncer_never_get_rows_of_other_clients_statements() {
    let (server, _shop) = started().await;
    for mode in ["transaction", "statement"] {
        let pooler = Database::pgbouncer(&server, mode);
        // Another client has left its statements on both connections, under the names that client
        // libraries give.
        let (other, another) = (client(&pooler, "shop").await, client(&pooler, "shop").await);
        for _ in 0..8 {
            let left: String = (0..200)
                .map(|i| {
                    format!("PREPARE s{i} (int) AS SELECT 7, 'wrong' FROM pg_sleep(0.001) WHERE $1 > 0;")
                })
                .collect();
            let _ = tokio::join!(other.batch_execute(&left), another.batch_execute(&left));
        }
        let stores = ["red", "blue"].map(|table| {
            (table, store(pooler.options(&format!("SELECT id, name FROM {table} WHERE id IN (:keys)"))))
        });
        let asking = (0..600).map(|i| {
            let ((table, store), key) = (stores[i % 2].clone(), (i * 7 % 200 + 1).to_string());
            tokio::spawn(async move { (value(&store, &key).await, format!("{table}{key}")) })
        });
        for asked in asking.collect::<Vec<_>>() {
            let (found, expected) = asked.await.unwrap();
            assert_eq!(found, Some(expected), "{mode}");
        }
    }
}

#[tokio::test]
async fn type_changes_of_columns_are_noticed_through_pgbouncer() {
    let (server, shop) = started().await;
    let pooler = Database::pgbouncer(&server, "transaction");
    let many = || {
        store(SqlOptions {
            write: Some("INSERT INTO red (id, name) VALUES (:key, :value)".into()),
            ..pooler.options("SELECT id, name FROM red WHERE id IN (:keys)")
        })
    };
    let (many, other) = (many(), many());
    assert_eq!(value(&many, "1").await.as_deref(), Some("red1"));
    many.put("1000".into(), "red".into()).await.unwrap();
    shop.batch_execute("ALTER TABLE red ALTER id TYPE bigint").await.unwrap();
    many.put("3000000000".into(), "big".into()).await.unwrap();
    assert_eq!(value(&many, "3000000000").await.as_deref(), Some("big"));
    // A value of another type than before: text would be taken for the digits of bytes.
    other.put("1001".into(), "red".into()).await.unwrap();
    shop.batch_execute("ALTER TABLE red ALTER name TYPE bytea USING convert_to(name, 'UTF8')").await.unwrap();
    other.put("1002".into(), "\\x41".into()).await.unwrap();
    assert_eq!(value(&other, "1002").await.as_deref(), Some("\\x41"));
}

/// Opens a store that reads a column of a user-defined type, which has to be looked up.
fn moods(pooler: &Database, query: &str) -> Arc<dyn Store> {
    store(SqlOptions {
        value: SqlValue::Json,
        write: Some("UPDATE red SET mood = :value WHERE id = :key".into()),
        ..pooler.options(query)
    })
}

#[tokio::test]
async fn unknown_column_types_are_looked_up_through_pgbouncer_in_a_transaction() {
    let (server, shop) = started().await;
    for mode in ["session", "transaction"] {
        let pooler = Database::pgbouncer(&server, mode);
        let fine = Some(r#"{"name":"red1","mood":"fine"}"#.to_owned());
        let one = moods(&pooler, "SELECT name, mood FROM red WHERE id = :key");
        one.check().await.expect(mode);
        one.put("1".into(), "fine".into()).await.unwrap();
        let many = moods(&pooler, "SELECT id, name, mood FROM red WHERE id IN (:keys)");
        for _ in 0..20 {
            let asked = [("1", &one), ("1", &one), ("900", &one), ("2", &many), ("3", &many)];
            let asking = asked.map(|(key, store)| {
                let store = Arc::clone(store);
                tokio::spawn(async move { value(&store, key).await })
            });
            let mut found = Vec::new();
            for asked in asking {
                found.push(asked.await.unwrap());
            }
            assert_eq!(found[..3], [fine.clone(), fine.clone(), None], "{mode}");
            assert_eq!(found[3].as_deref(), Some(r#"{"id":2,"name":"red2","mood":"fine"}"#), "{mode}");
        }
        // Another type, which the connections have not looked up: they are replaced.
        shop.batch_execute("ALTER TABLE red ALTER mood DROP DEFAULT").await.unwrap();
        let kind = format!("CREATE TYPE {mode}_mood AS ENUM ('fine')");
        let change = format!("ALTER TABLE red ALTER mood TYPE {mode}_mood USING 'fine'::{mode}_mood");
        shop.batch_execute(&format!("{kind}; {change}")).await.unwrap();
        assert_eq!(value(&one, "1").await, fine);
        let left = "SELECT name FROM pg_prepared_statements WHERE name LIKE 's%'";
        let left = client(&pooler, "shop").await.simple_query(left).await.unwrap();
        assert!(!left.iter().any(|said| matches!(said, SimpleQueryMessage::Row(_))), "{left:?}");
    }
}

#[tokio::test]
async fn password_or_user_that_pgbouncer_refuses_is_a_credentials_error() {
    let (server, _shop) = started().await;
    let pooler = Database::pgbouncer(&server, "transaction");
    let options = pooler.options("SELECT name FROM red WHERE id = :key");
    let password = pooler.folder.path().join("wrong");
    fs::write(&password, "not this one\n").unwrap();
    let other = SqlOptions { password: Some(Secret::File(password)), ..options.clone() };
    let nobody = SqlOptions { user: "nobody".into(), ..options.clone() };
    for refused in [other, nobody] {
        assert_eq!(label(store(refused).check().await), "credentials");
    }
    let elsewhere = store(SqlOptions { database: "elsewhere".into(), ..options });
    assert_eq!(label(elsewhere.check().await), "missing");
}

#[tokio::test]
async fn error_names_the_pooler_if_a_statement_cannot_run_through_it() {
    let (server, _shop) = started().await;
    let pooler = Database::pgbouncer(&server, "statement");
    let refused = moods(&pooler, "SELECT name, mood FROM red WHERE id = :key");
    for error in [refused.get_many(keys(&["1"])).await.unwrap_err(), refused.check().await.unwrap_err()] {
        assert_eq!(error.cause().label(), "unsupported");
        let said = error.to_string();
        assert!(
            said.contains("a pooler, such as PgBouncer, is in between") && said.contains("::text"),
            "{said}"
        );
    }
    let cast = moods(&pooler, "SELECT name, mood::text FROM red WHERE id = :key");
    cast.put("1".into(), "fine".into()).await.unwrap();
    assert_eq!(value(&cast, "1").await.as_deref(), Some(r#"{"name":"red1","mood":"fine"}"#));
    let call = store(SqlOptions {
        write: Some("CALL rename_(:key, :value)".into()),
        ..pooler.options("SELECT name FROM red WHERE id = :key")
    });
    for error in [call.put("1".into(), "x".into()).await.unwrap_err(), call.check().await.unwrap_err()] {
        assert!(error.to_string().contains("through which no CALL is run"), "{error}");
    }
}
