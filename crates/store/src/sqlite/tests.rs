use tempfile::TempDir;

use super::*;

/// A database with a table that the store did not create, and options to read it with `query`.
fn user_table(directory: &TempDir, query: &str) -> SqliteOptions {
    let path = directory.path().join("shop.db");
    if !path.exists() {
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE price (product INTEGER PRIMARY KEY, cents INTEGER, note TEXT);
                 INSERT INTO price VALUES (1, 100, 'one'), (2, 200, NULL), (3, 300, 'three');",
            )
            .unwrap();
    }
    SqliteOptions { query: Some(query.to_owned()), threads: 1, ..SqliteOptions::new(path) }
}

fn read(options: &SqliteOptions, keys: &[&'static str]) -> Vec<Option<Bytes>> {
    let mut session = sessions(options).unwrap().remove(0);
    let keys: Vec<Bytes> = keys.iter().map(|key| Bytes::from(*key)).collect();
    session.get_many(&keys, &mut || ()).unwrap()
}

#[test]
fn query_per_key_reads_tables_of_any_schema() {
    let directory = tempfile::tempdir().unwrap();
    let options = user_table(&directory, "SELECT cents FROM price WHERE product = ?1");
    assert_eq!(read(&options, &["3", "x", "1"]), [Some("300".into()), None, Some("100".into())]);
    let options = user_table(&directory, "SELECT note FROM price WHERE product = ?1");
    assert_eq!(read(&options, &["2", "3"]), [None, Some("three".into())]);
}

#[test]
fn query_per_list_answers_in_the_order_of_the_keys_with_repetitions() {
    let directory = tempfile::tempdir().unwrap();
    let options = user_table(&directory, "SELECT product, note FROM price WHERE product IN (:keys)");
    let (one, three) = (Some(Bytes::from("one")), Some(Bytes::from("three")));
    assert_eq!(read(&options, &["3", "9", "1", "3", "2"]), [three.clone(), None, one, three, None]);
}

#[test]
fn keys_parameter_in_a_string_of_a_query_is_text() {
    let directory = tempfile::tempdir().unwrap();
    let options = user_table(&directory, "SELECT ':keys' || note FROM price WHERE product = ?1");
    assert_eq!(read(&options, &["3"]), [Some(":keysthree".into())]);
}

#[test]
fn key_in_another_spelling_is_found_in_a_list_query_and_by_a_query_per_key() {
    let directory = tempfile::tempdir().unwrap();
    let list = user_table(&directory, "SELECT product, note FROM price WHERE product IN (:keys)");
    let three = || Some(Bytes::from("three"));
    assert_eq!(read(&list, &["03", "3", "3.0", "33", "x"]), [three(), three(), three(), None, None]);
    assert_eq!(read(&list, &["03"]), [three()]);
    let list = user_table(&directory, "SELECT note, cents FROM price WHERE note COLLATE NOCASE IN (:keys)");
    let found = read(&list, &["ONE", "three", "One", "four", "THREE"]);
    let (one, three) = (Some(Bytes::from("100")), Some(Bytes::from("300")));
    assert_eq!(found, [one.clone(), three.clone(), one, None, three]);
    let mixed = user_table(&directory, "SELECT 'x', cents FROM price WHERE product IN (:keys)");
    assert_eq!(read(&mixed, &["1", "2", "9"]), [Some("100".into()), Some("200".into()), None]);
    let alone = user_table(&directory, "SELECT note FROM price WHERE product = ?1");
    assert_eq!(read(&alone, &["03", "3"]), [Some("three".into()), Some("three".into())]);
}

#[test]
fn long_lists_of_keys_are_split_into_several_statements() {
    let directory = tempfile::tempdir().unwrap();
    let options = user_table(&directory, "SELECT product, cents FROM price WHERE product IN (:keys)");
    let mut keys = vec!["9"; 1000];
    keys[999] = "2";
    let values = read(&options, &keys);
    assert_eq!((values.len(), values[999].clone()), (1000, Some("200".into())));
}

#[test]
fn keys_are_bound_parameters_and_not_part_of_the_statement() {
    let directory = tempfile::tempdir().unwrap();
    for query in [
        "SELECT cents FROM price WHERE product = ?1",
        "SELECT product, cents FROM price WHERE product IN (:keys)",
    ] {
        let options = user_table(&directory, query);
        assert_eq!(read(&options, &["1 OR 1=1", "'); DROP TABLE price; --", "2"])[2], Some("200".into()));
    }
}

#[test]
fn invalid_sqlite_query_is_refused_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |query: &str| sessions(&user_table(&directory, query)).err().unwrap().to_string();
    assert!(refused("DELETE FROM price WHERE product = ?1 RETURNING cents").contains("it writes"));
    assert!(refused("SELECT cents FROM price").contains("it has 0 parameters, where 1 is accepted"));
    assert!(refused("SELECT cents FROM price WHERE product IN (:keys)").contains("it returns 1 columns"));
    assert!(refused("SELECT weight FROM price WHERE product = ?1").contains("no such column: weight"));
    assert!(refused("SELECT product, cents FROM price WHERE product IN (?1, :keys)").contains("outside"));
    assert!(refused("SELEC").contains("write a SELECT of one column"));
}

#[test]
fn store_with_a_query_is_read_only_and_requires_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let options = user_table(&directory, "SELECT cents FROM price WHERE product = ?1");
    let mut session = sessions(&options).unwrap().remove(0);
    assert!(matches!(session.put(b"1", b"2"), Err(Cause::ReadOnly { .. })));

    let absent = SqliteOptions { path: directory.path().join("absent.db"), ..options };
    assert!(matches!(sessions(&absent).err().unwrap(), OpenCause::Directory { .. }));
    assert!(!absent.path.exists());
}

#[test]
fn default_query_of_sqlite_uses_the_indexes_of_both_tables() {
    let directory = tempfile::tempdir().unwrap();
    let connection = open_writer(&SqliteOptions::new(directory.path().join("plan.db"))).unwrap();
    let plan: Vec<String> = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {DEFAULT_QUERY}"))
        .unwrap()
        .query_map(["key"], |row| row.get("detail"))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        plan,
        [
            "SEARCH item USING COVERING INDEX sqlite_autoindex_item_1 (key=?)",
            "SEARCH content USING INTEGER PRIMARY KEY (rowid=?)"
        ]
    );
}
