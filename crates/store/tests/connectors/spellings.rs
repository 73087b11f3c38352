//! Tests of keys that a database considers equal to the key of a row: a statement with `:keys`
//! finds the same rows as one with `:key`.

use std::sync::Arc;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sherwood_store::{Store, StoreOptions};

use crate::databases::Database;
use crate::mariadb::root;
use crate::postgres::admin;
use crate::{keys, label, opened, values};

/// A type of a key column, the keys of its rows, other spellings of these keys, and keys without a
/// row.
struct Case {
    column: &'static str,
    rows: &'static [&'static str],
    spellings: &'static [&'static str],
    absent: &'static [&'static str],
}

const fn case(
    column: &'static str,
    rows: &'static [&'static str],
    spellings: &'static [&'static str],
    absent: &'static [&'static str],
) -> Case {
    Case { column, rows, spellings, absent }
}

const UUIDS: [&str; 2] = ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-0000-0000-0000-0000000000aa"];

const POSTGRES: [Case; 17] = [
    case("int", &["7", "-8"], &["07", "+7", "-08"], &["9", "junk", "7x", "2147483648"]),
    case("numeric", &["1.50", "0", "NaN"], &["1.5", "15e-1", "00", "-0", "nan"], &["2", "1.51", "x"]),
    case(
        "float8",
        &["-0", "1.5", "NaN", "Infinity"],
        &["0", "0.0", "1.50", "nan", "inf", "+Infinity"],
        &["-1", "x"],
    ),
    case("real", &["0.1", "16777216"], &["0.10", "1e-1", "16777217"], &["0.2", ""]),
    case(
        "uuid",
        &UUIDS,
        &[
            "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
            "000000000000000000000000000000AA",
        ],
        &["6ba7b810-9dad-11d1-80b4-00c04fd430c9", "none", "6ba7b810--9dad11d1-80b4-00c04fd430c8"],
    ),
    case("char(8)", &["ab", "abc", "Ab"], &["ab  ", "abc     ", "Ab "], &["a", "AB", "b", "é"]),
    case("varchar(20)", &["ab", "é"], &[], &["AB", "ab ", "e", "É", "xyz"]),
    case("citext", &["abc", "É", "x y"], &["ABC", "aBc", "X Y"], &["abd", "ab", "x  y", "E", "é"]),
    case("text COLLATE loose", &["Éa", "b", "user-1"], &["ea", "EA", "éA", "B"], &["c", "user1", "üb", ""]),
    case("text COLLATE shifted", &["user-1", "b"], &["user1", "user 1", "B"], &["user2", "c"]),
    case(
        "timestamptz",
        &["2024-02-29 06:00:00+00"],
        &["2024-02-29T07:00+01", "Feb 29 2024 6:00 UTC"],
        &["no time"],
    ),
    case(
        "date",
        &["2024-02-29", "0044-03-15 BC"],
        &["2024-2-29", "20240229", "29 Feb 2024"],
        &["2024-02-30", "x"],
    ),
    case("boolean", &["true"], &["t", "yes", "1", "TRUE", "on"], &["f", "no", "maybe"]),
    case("bytea", &["a", "b c"], &[], &["A", "a ", "é", "\\x61"]),
    case("mood", &["fine"], &[], &["FINE", "fine ", "so so", "bad"]),
    case("code", &["abc"], &["ABC"], &["abd"]),
    case("name", &["abc"], &[], &["ABC", "abc "]),
];

const MARIADB: [Case; 14] = [
    case("INT", &["7", "0", "-8"], &["07", "+7", "7x", "junk", "", "-0", " 7"], &["9", "17", "1x"]),
    case(
        "BIGINT UNSIGNED",
        &["9007199254740993", "18446744073709551615"],
        &["09007199254740993"],
        &["9007199254740992"],
    ),
    case("DECIMAL(10,2)", &["1.50", "0"], &["1.5", "15e-1", "x"], &["2", "1.51"]),
    case("DOUBLE", &["1.5", "-0"], &["1.50", "0", "-0"], &["2", "1.51"]),
    case("VARCHAR(20) CHARACTER SET latin1", &["abc", "é"], &["ABC", "abc ", "É"], &["abd", "b"]),
    case("VARCHAR(20) COLLATE utf8mb4_unicode_ci", &["Éa", "b"], &["ea", "EA", "b "], &["c", "üb", "😀"]),
    case("VARCHAR(20) COLLATE utf8mb4_roman_ci", &["iulius", "b"], &["JULIVS", "Iulius"], &["c", "üb"]),
    case("VARCHAR(20) COLLATE utf8mb4_bin", &["abc", "é"], &["abc ", "é "], &["ABC", "É", "e"]),
    case("VARCHAR(20) COLLATE utf8mb4_nopad_bin", &["abc", "é"], &[], &["ABC", "abc ", "é "]),
    case("CHAR(8) COLLATE utf8mb4_general_ci", &["ab", "abc"], &["AB", "ab  "], &["a", "b"]),
    case("VARBINARY(20)", &["abc", "é"], &[], &["ABC", "abc "]),
    case(
        "DATETIME",
        &["2024-02-29 00:00:00"],
        &["2024-2-29", "20240229", "2024-02-29"],
        &["2024-02-28", "x"],
    ),
    case("UUID", &UUIDS, &["6BA7B8109DAD11D180B400C04FD430C8"], &["6ba7b810-9dad-11d1-80b4-00c04fd430c9"]),
    case("INET6", &["::1"], &["0:0::1", "0::0:1"], &["::2"]),
];

/// Checks that all ways to query the keys of a case have the same results: in one list, in the
/// opposite order, in pairs, alone in a list, and by a statement for one key.
async fn agree(case: &Case, list: &Arc<dyn Store>, one: &Arc<dyn Store>) {
    let Case { column, rows, spellings, absent } = case;
    let asked: Vec<&str> = [*rows, spellings, absent].concat();
    let expected = values(one, &asked).await;
    let found = rows.len() + spellings.len();
    assert!(expected[..found].iter().all(Option::is_some), "{column}: {asked:?} {expected:?}");
    assert!(expected[found..].iter().all(Option::is_none), "{column}: {asked:?} {expected:?}");
    assert_eq!(values(list, &asked).await, expected, "{column}: {asked:?}");
    let backward: Vec<&str> = asked.iter().rev().copied().collect();
    let mut found = values(list, &backward).await;
    found.reverse();
    assert_eq!(found, expected, "{column}: {backward:?}");
    for (key, expected) in asked.iter().zip(&expected) {
        for other in [asked[0], asked[asked.len() - 1]] {
            let found = values(list, &[other, key]).await.remove(1);
            assert_eq!(found, *expected, "{column}: {key} after {other}");
        }
        assert_eq!(values(list, &[key]).await, std::slice::from_ref(expected), "{column}: {key}");
    }
}

#[tokio::test]
async fn postgres_list_query_finds_the_same_rows_as_one_query_per_key() {
    let server = Database::postgres(|_| Vec::new());
    let admin = admin(&server).await;
    let types = "CREATE EXTENSION citext;
        CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
        CREATE COLLATION shifted (provider = icu, locale = 'und-u-ka-shifted-ks-level1', deterministic = false);
        CREATE TYPE mood AS ENUM ('fine', 'so so');
        CREATE DOMAIN code AS citext";
    admin.batch_execute(types).await.expect("the types are made");
    for (number, case) in POSTGRES.iter().enumerate() {
        let made =
            format!("CREATE TABLE t{number} (k {}, v text); GRANT ALL ON t{number} TO shop", case.column);
        admin.batch_execute(&made).await.expect(case.column);
        for row in case.rows {
            let row = format!("INSERT INTO t{number} VALUES ('{row}', 'of {row}')");
            admin.batch_execute(&row).await.expect(&row);
        }
        let open = |query: String| opened(StoreOptions::Postgres(server.options(&query)));
        let list = open(format!("SELECT k, v FROM t{number} WHERE k IN (:keys)"));
        agree(case, &list, &open(format!("SELECT v FROM t{number} WHERE k = :key"))).await;
    }
}

#[tokio::test]
async fn mariadb_list_query_finds_the_same_rows_as_one_query_per_key() {
    let server = Database::mariadb(|_| Vec::new());
    let mut root = root(&server).await;
    for (number, case) in MARIADB.iter().enumerate() {
        let table = format!("CREATE TABLE t{number} (k {}, v TEXT CHARACTER SET utf8mb4)", case.column);
        root.query_drop(table).await.expect(case.column);
        for row in case.rows {
            let row = format!("INSERT INTO t{number} VALUES ('{row}', 'of {row}')");
            root.query_drop(&row).await.expect(&row);
        }
        let open = |query: String| opened(StoreOptions::MySql(server.options(&query)));
        let list = open(format!("SELECT k, v FROM t{number} WHERE k IN (:keys)"));
        agree(case, &list, &open(format!("SELECT v FROM t{number} WHERE k = :key"))).await;
    }
}

/// Returns the number of statements that clients have run on the server since its start.
async fn executed(root: &mut Conn) -> u64 {
    let row: Option<(String, u64)> =
        root.query_first("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'").await.expect("it counts");
    row.expect("it counts").1
}

#[tokio::test]
async fn list_query_of_up_to_256_keys_takes_one_statement_even_if_keys_are_absent() {
    let server = Database::mariadb(|_| Vec::new());
    let mut root = root(&server).await;
    root.query_drop("CREATE TABLE item (id INT PRIMARY KEY, code VARCHAR(20) UNIQUE, body TEXT)")
        .await
        .unwrap();
    root.query_drop("INSERT INTO item SELECT seq, CONCAT('c', seq), seq FROM seq_1_to_300").await.unwrap();
    let open = |query| opened(StoreOptions::MySql(server.options(query)));
    let by_id = open("SELECT id, body FROM item WHERE id IN (:keys)");
    let by_code = open("SELECT code, body FROM item WHERE code IN (:keys)");
    for (store, prefix) in [(by_id, ""), (by_code, "c")] {
        for (keys, statements) in [(1..=200, 1), (201..=456, 1), (400..=500, 1), (900..=900, 1), (1..=512, 2)]
        {
            let before = executed(&mut root).await;
            let asked: Vec<String> = keys.clone().map(|key: u32| format!("{prefix}{key}")).collect();
            let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
            let found = values(&store, &asked).await;
            let expected: Vec<_> = keys.map(|key| (key <= 300).then(|| key.to_string())).collect();
            assert_eq!(found, expected);
            assert_eq!(executed(&mut root).await - before, statements, "{} keys", asked.len());
        }
    }
    // Two spellings of a row take one statement more, and absent keys besides them none.
    let by_code = open("SELECT code, body FROM item WHERE code IN (:keys)");
    let before = executed(&mut root).await;
    let found = values(&by_code, &["c7", "C7", "c900", "C8"]).await;
    assert_eq!(found, [Some("7".to_owned()), Some("7".to_owned()), None, Some("8".to_owned())]);
    assert_eq!(executed(&mut root).await - before, 2);
}

#[tokio::test]
async fn write_with_a_key_that_is_equal_under_the_collation_changes_the_row() {
    let server = Database::mariadb(|_| Vec::new());
    let mut root = root(&server).await;
    root.query_drop("CREATE TABLE item (id VARCHAR(20) PRIMARY KEY, body TEXT)").await.unwrap();
    root.query_drop("INSERT INTO item VALUES ('abc', 'old')").await.unwrap();
    let mut options = server.options("SELECT id, body FROM item WHERE id IN (:keys)");
    options.write = Some("UPDATE item SET body = :value WHERE id = :key".to_owned());
    options.delete = Some("DELETE FROM item WHERE id = :key".to_owned());
    let store = opened(StoreOptions::MySql(options));
    store.put("ABC".into(), "new".into()).await.expect("there is such a row");
    assert_eq!(
        values(&store, &["abc", "ABC", "abd"]).await,
        [Some("new".to_owned()), Some("new".to_owned()), None]
    );
    store.delete("Abc ".into()).await.expect("there is such a row");
    assert_eq!(values(&store, &["abc", "ABC"]).await, [None, None]);
    assert_eq!(label(store.get_many(keys(&["abc"])).await), "none");
}
