//! Tests of lists of keys in which one key, or its row, makes a statement fail: the other keys are
//! answered.

use std::sync::Arc;

use bytes::Bytes;
use mysql_async::prelude::Queryable;
use sherwood_store::{KeyAnswer, SqlOptions, Store, StoreOptions};

use crate::databases::Database;
use crate::mariadb::root;
use crate::postgres::{admin, admin_of};
use crate::{keys, label, lengths, opened};

/// Returns the result of a key: found, absent, or the label of its error.
fn outcome(answer: &KeyAnswer) -> &'static str {
    match answer {
        Ok(Some(_)) => "found",
        Ok(None) => "absent",
        Err(error) => error.cause().label(),
    }
}

async fn outcomes(store: &Arc<dyn Store>, asked: Vec<Bytes>) -> Vec<&'static str> {
    let each = store.get_each(asked).await.expect("an answer").each;
    each.iter().map(outcome).collect()
}

/// Returns the keys `0` to `255`, some of which are replaced by the `bad` ones at their places.
fn with_bad(bad: &[(usize, Bytes)]) -> Vec<Bytes> {
    let mut asked: Vec<Bytes> = (0..256).map(|key: u32| key.to_string().into()).collect();
    for (place, key) in bad {
        asked[*place] = key.clone();
    }
    asked
}

/// Checks that the keys at `places` have the result `bad`, and all others are found.
fn only(places: &[usize], bad: &str, outcomes: &[&str]) {
    for (place, outcome) in outcomes.iter().enumerate() {
        let expected = if places.contains(&place) { bad } else { "found" };
        assert_eq!(*outcome, expected, "key {place}");
    }
}

#[tokio::test]
async fn key_not_encodable_in_the_postgres_character_set_is_absent_and_fails_no_other_key() {
    let server = Database::postgres(|_| Vec::new());
    let on_shop = admin(&server).await;
    let made = "CREATE DATABASE latin OWNER shop ENCODING LATIN1 LOCALE 'C' TEMPLATE template0";
    on_shop.batch_execute(made).await.expect("the database is made");
    let options = |query: &str| SqlOptions { database: "latin".into(), ..server.options(query) };
    let latin = admin_of(&server, "latin").await;
    let made = "CREATE TABLE item AS SELECT k::text, 'é' AS v FROM generate_series(0, 255) AS k; GRANT ALL ON item TO shop";
    latin.batch_execute(made).await.expect("the table is made");
    let bad = [
        (3, Bytes::from("😀")),
        (100, "日本".into()),
        (101, "日本".into()),
        (255, Bytes::from_static(b"\xff")),
    ];
    let places = [3, 100, 101, 255];
    for query in ["SELECT k, v FROM item WHERE k IN (:keys)", "SELECT v FROM item WHERE k = :key"] {
        let store = opened(StoreOptions::Postgres(options(query)));
        only(&places, "absent", &outcomes(&store, with_bad(&bad)).await);
        assert_eq!(outcomes(&store, vec!["😀".into()]).await, ["absent"]);
        let all_bad = (0..200).map(|key: u32| format!("日{key}").into()).chain(["7".into()]).collect();
        let found = outcomes(&store, all_bad).await;
        assert!(found[..200].iter().all(|one| *one == "absent") && found[200] == "found");
    }
}

#[tokio::test]
async fn row_that_makes_a_postgres_statement_fail_fails_only_its_own_key() {
    let server = Database::postgres(|_| Vec::new());
    let admin = admin(&server).await;
    let made = "CREATE TABLE item AS SELECT k, CASE k WHEN 77 THEN 0 ELSE 1 END AS n, CASE k WHEN 99 THEN 'soon' ELSE '9' END AS ttl,
            CASE k WHEN 12 THEN '{{1}}' ELSE '{1}' END::int[] AS list,
            CASE k WHEN 200 THEN repeat('x', 100000) ELSE 'x' END AS body
        FROM generate_series(0, 255) AS k; GRANT ALL ON item TO shop";
    admin.batch_execute(made).await.expect("the table is made");
    let open = |query: &str, change: fn(&mut SqlOptions)| {
        let mut options = server.options(query);
        change(&mut options);
        opened(StoreOptions::Postgres(options))
    };
    let divided = open("SELECT k, 1 / n FROM item WHERE k IN (:keys)", |_| ());
    only(&[77], "statement", &outcomes(&divided, with_bad(&[])).await);
    let timed = open("SELECT k, n, ttl FROM item WHERE k IN (:keys)", |options| {
        options.ttl_column = Some("ttl".into());
    });
    only(&[99], "statement", &outcomes(&timed, with_bad(&[])).await);
    let listed = open("SELECT k, list FROM item WHERE k IN (:keys)", |_| ());
    only(&[12], "statement", &outcomes(&listed, with_bad(&[])).await);
    let large = open("SELECT k, body FROM item WHERE k IN (:keys)", |options| {
        options.remote.value_bytes_max = 50_000;
        options.remote.connections_max = 1;
    });
    only(&[200], "too_large", &outcomes(&large, with_bad(&[])).await);
    // A statement that fails for every key ends, and an invalid one fails the call.
    let failing = open("SELECT k, 1 / (n - n) FROM item WHERE k IN (:keys)", |_| ());
    assert!(outcomes(&failing, with_bad(&[])).await.iter().all(|one| *one == "statement"));
    let invalid = open("SELECT k, n, n FROM item WHERE k IN (:keys)", |_| ());
    assert_eq!(label(invalid.get_each(with_bad(&[])).await), "statement");
}

#[tokio::test]
async fn postgres_value_that_is_not_valid_text_fails_only_its_own_key() {
    let server = Database::postgres(|_| Vec::new());
    let on_shop = admin(&server).await;
    let made = "CREATE DATABASE bytes OWNER shop ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0";
    on_shop.batch_execute(made).await.expect("the database is made");
    let on_bytes = admin_of(&server, "bytes").await;
    let made = "CREATE TABLE item AS SELECT k::text, CASE k WHEN 30 THEN convert_from('\\xff', 'SQL_ASCII') ELSE 'x' END AS v
        FROM generate_series(0, 255) AS k; GRANT ALL ON item TO shop";
    on_bytes.batch_execute(made).await.expect("the table is made");
    let query = "SELECT k, v FROM item WHERE k IN (:keys)";
    let options = SqlOptions { database: "bytes".into(), ..server.options(query) };
    // The row exists, so its key is not absent.
    only(&[30], "key", &outcomes(&opened(StoreOptions::Postgres(options)), with_bad(&[])).await);
}

#[tokio::test]
async fn key_or_row_that_makes_a_mariadb_statement_fail_fails_only_its_own_key() {
    let server = Database::mariadb(|_| Vec::new());
    let mut root = root(&server).await;
    let made = "CREATE TABLE item AS SELECT CONVERT(seq USING latin1) AS k, IF(seq = 77, 9223372036854775807, 1) AS n,
            IF(seq = 99, 'soon', '9') AS ttl, IF(seq = 200, REPEAT('x', 100000), 'x') AS body FROM seq_0_to_255";
    root.query_drop(made).await.expect("the table is made");
    let open = |query: &str, change: fn(&mut SqlOptions)| {
        let mut options = server.options(query);
        change(&mut options);
        opened(StoreOptions::MySql(options))
    };
    let bad = [
        (3, Bytes::from("😀")),
        (100, "日本".into()),
        (101, "日本".into()),
        (255, Bytes::from_static(b"\xff")),
    ];
    for query in ["SELECT k, n FROM item WHERE k IN (:keys)", "SELECT n FROM item WHERE k = :key"] {
        only(&[3, 100, 101, 255], "key", &outcomes(&open(query, |_| ()), with_bad(&bad)).await);
    }
    let sum = open("SELECT k, n + 1 FROM item WHERE k IN (:keys)", |_| ());
    only(&[77], "statement", &outcomes(&sum, with_bad(&[])).await);
    let timed = open("SELECT k, n, ttl FROM item WHERE k IN (:keys)", |options| {
        options.ttl_column = Some("ttl".into());
    });
    only(&[99], "statement", &outcomes(&timed, with_bad(&[])).await);
    let large = open("SELECT k, body FROM item WHERE k IN (:keys)", |options| {
        options.remote.value_bytes_max = 50_000;
        options.remote.connections_max = 1;
    });
    only(&[200], "too_large", &outcomes(&large, with_bad(&[])).await);
    let invalid = open("SELECT k, n, n FROM item WHERE k IN (:keys)", |_| ());
    assert_eq!(label(invalid.get_each(with_bad(&[])).await), "statement");
    let each = large.get_each(keys(&["7", "200", "8"])).await.unwrap().each;
    assert_eq!(lengths(&each), [Ok(1), Err("too_large"), Ok(1)]);
}
