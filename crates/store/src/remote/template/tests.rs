use proptest::prelude::*;

use super::Dialect::{MySql, Postgres};
use super::*;

fn query(text: &str, dialect: Dialect) -> Result<Template, String> {
    Template::parse(text, dialect, Purpose::Query).map_err(|cause| cause.to_string())
}

fn sql(text: &str, dialect: Dialect) -> String {
    query(text, dialect).unwrap().sql(3)
}

fn refusal(text: &str, dialect: Dialect, purpose: Purpose) -> String {
    Template::parse(text, dialect, purpose).unwrap_err().to_string()
}

#[test]
fn key_parameter_becomes_a_placeholder_of_the_server_dialect() {
    let text = "SELECT body FROM item WHERE id = :key AND shop = :key.2";
    assert_eq!(sql(text, MySql), "SELECT body FROM item WHERE id = ? AND shop = ?");
    assert_eq!(sql(text, Postgres), "SELECT body FROM item WHERE id = $1 AND shop = $2");
}

#[test]
fn keys_parameter_becomes_as_many_placeholders_as_there_are_keys() {
    let text = "SELECT id, body FROM item WHERE id IN ( :keys ) LIMIT 9";
    assert_eq!(sql(text, MySql), "SELECT id, body FROM item WHERE id IN ( ?,?,? ) LIMIT 9");
    assert_eq!(sql(text, Postgres), "SELECT id, body FROM item WHERE id IN ( $1,$2,$3 ) LIMIT 9");
    assert!(query(text, MySql).unwrap().reads_many());
    assert!(!query("SELECT :key", MySql).unwrap().reads_many());
}

#[test]
fn parameters_in_quoted_text_are_not_replaced() {
    for (text, dialect) in [
        (r#"SELECT ':key', ":key\":key", `:key`, 'it''s :key' /* :key */ -- :key"#, MySql),
        ("SELECT 1 # :key ?\n, 'it\\':key?'", MySql),
        (r#"SELECT ':key\', ":key""$1", E'\':key', $$:key$$, $a$ :key $$ $1 $a$, x::text"#, Postgres),
        ("SELECT 1 /* :key /* $1 */ :key */ -- :key\n, a[1:2], b ? 'c'", Postgres),
    ] {
        assert_eq!(sql(&format!("{text}\n, :key"), dialect), {
            let placeholder = if dialect == MySql { "?" } else { "$1" };
            format!("{text}\n, {placeholder}")
        });
    }
}

#[test]
fn keys_parameter_of_sqlite_is_found_only_outside_quotes() {
    let of_list = |text| Template::of_list(text).map(|found| found.map(|found| found.sql(2)));
    let quoted = r#"SELECT ':keys', ":keys", `:keys`, [:keys] /* :keys */ -- :keys"#;
    assert_eq!(of_list(quoted), Ok(None));
    assert_eq!(of_list("SELECT v FROM t WHERE k = ?1 AND l = :keyspace"), Ok(None));
    let list = format!("{quoted}\n, ? FROM t WHERE k IN (:keys)");
    assert_eq!(of_list(&list), Ok(Some(list.replace("IN (:keys)", "IN (?1,?2)"))));
    assert!(of_list("SELECT 'x").unwrap_err().contains("the string at position 8 has no end"));
    assert!(of_list("SELECT k WHERE k IN (:keys) OR l IN (:keys)").unwrap_err().contains("`:keys` 2 times"));
    assert!(of_list("SELECT k WHERE k = :keys").unwrap_err().contains("outside parentheses"));
}

#[test]
fn comment_in_a_statement_ends_by_the_rules_of_its_dialect() {
    assert_eq!(sql("SELECT 5--:key", MySql), "SELECT 5--?");
    assert!(refusal("SELECT 5--:key", Postgres, Purpose::Query).contains("neither `:key` nor `:keys`"));
    assert_eq!(sql("SELECT /* /* */ :key", MySql), "SELECT /* /* */ ?");
    assert!(
        refusal("SELECT /* /* */ :key", Postgres, Purpose::Query)
            .contains("comment at position 8 has no end")
    );
}

#[test]
fn postgres_cast_with_colons_is_not_a_parameter() {
    assert_eq!(sql("SELECT :key::int8, now()::text", Postgres), "SELECT $1::int8, now()::text");
}

#[test]
fn refusal_of_a_statement_names_option_position_and_remedy() {
    assert_eq!(
        refusal("SELECT é FROM t WHERE k = :id", Postgres, Purpose::Query),
        "`query` cannot be used (`:id` at position 27 is no parameter); write a SELECT with `:key` (or its parts `:key.1`, \
         `:key.2`) for one key, or with `IN (:keys)` for many, whose first column is the key"
    );
    for (text, purpose, said) in [
        ("SELECT 1", Purpose::Query, "neither `:key` nor `:keys`"),
        ("SELECT :key, :value", Purpose::Query, "a query has no `:value`"),
        ("SELECT :key WHERE k IN (:keys)", Purpose::Query, "one of them is accepted"),
        ("SELECT 1 WHERE k IN (:keys) OR l IN (:keys)", Purpose::Query, "`:keys` 2 times"),
        ("SELECT k WHERE k = :keys", Purpose::Query, "outside parentheses"),
        ("SELECT :key.0", Purpose::Query, "`:key.0` at position 8 is no part; 1 to 16"),
        ("SELECT :key.17", Purpose::Query, "`:key.17`"),
        ("SELECT ':key", Purpose::Query, "the string at position 8 has no end"),
        ("SELECT :key, ?", Purpose::Query, "`?` at position 14 is the server's placeholder"),
        ("INSERT INTO t VALUES (:key)", Purpose::Write, "no `:value`"),
        ("INSERT INTO t VALUES (:value)", Purpose::Write, "no `:key`"),
        ("DELETE FROM t WHERE k IN (:keys)", Purpose::Delete, "for queries only"),
        ("DELETE FROM t WHERE k = :key AND v = :value", Purpose::Delete, "no `:value` to delete"),
    ] {
        let refusal = refusal(text, MySql, purpose);
        assert!(refusal.contains(said), "{text}: {refusal}");
        assert!(refusal.starts_with(&format!("`{}`", purpose.option())), "{refusal}");
    }
    assert!(refusal("SELECT :key, $12", Postgres, Purpose::Query).contains("`$12` at position 14"));
}

#[test]
fn parts_of_a_key_are_split_at_colons() {
    let template = query("SELECT :key.2, :key, :key.1", MySql).unwrap();
    let bound = |key: &'static str| template.bind(&key.into(), &Bytes::new());
    assert_eq!(bound("a:b:c"), Some(vec!["b".into(), "a:b:c".into(), "a".into()]));
    assert_eq!(bound("a:"), Some(vec!["".into(), "a:".into(), "a".into()]));
    assert_eq!(bound("a"), None);
}

#[test]
fn key_lists_are_padded_to_few_different_lengths() {
    let keys: Vec<Bytes> = (0..KEYS_MAX).map(|i| i.to_string().into()).collect();
    let lengths: std::collections::BTreeSet<_> =
        (1..=KEYS_MAX).map(|len| padded(&keys[..len]).len()).collect();
    assert_eq!(lengths.len(), LISTS_MAX);
    assert_eq!(
        lengths.into_iter().take(17).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40]
    );
    assert!((1..=KEYS_MAX).all(|len| 4 * padded(&keys[..len]).len() <= 5 * len), "a quarter at most");
    assert_eq!(padded(&keys[..9])[7..], ["7", "8", "8"]);
}

#[test]
fn written_value_is_bound_at_the_value_parameter() {
    let text = "INSERT INTO t (v, k) VALUES (:value, :key) ON CONFLICT (k) DO UPDATE SET v = :value";
    let template = Template::parse(text, Postgres, Purpose::Write).unwrap();
    assert_eq!(template.bind(&"k".into(), &"v".into()), Some(vec!["v".into(), "k".into(), "v".into()]));
    assert!(template.sql(1).ends_with("VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = $3"));
}

/// Fragments of statement templates, each with its form in MySQL; `?` is one placeholder.
fn fragments() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let known = [
        ("SELECT a ", "SELECT a "),
        (":key", "?"),
        (":key.1 ", "? "),
        (" ':key \\' ? ' ", " ':key \\' ? ' "),
        (" `:key?` ", " `:key?` "),
        (" /* :keys ? */ ", " /* :keys ? */ "),
        ("-- :key ?\n", "-- :key ?\n"),
        (" ü := 1 ", " ü := 1 "),
        ("::x ", "::x "),
    ];
    prop::collection::vec(prop::sample::select(known.to_vec()), 1..20)
}

proptest! {
    #[test]
    fn any_statement_text_is_parsed_or_refused(text in ".{0,60}", postgres: bool) {
        let dialect = if postgres { Postgres } else { MySql };
        for purpose in [Purpose::Query, Purpose::Write, Purpose::Delete] {
            if let Ok(template) = Template::parse(&text, dialect, purpose) {
                prop_assert!(template.bind(&"a:b".into(), &"v".into()).is_none_or(|bound| !bound.is_empty()));
            }
        }
    }

    #[test]
    fn only_statement_parameters_outside_quotes_are_replaced(fragments in fragments()) {
        // A blank between fragments: a parameter must not be followed directly by a word, nor
        // preceded by a colon.
        let text: String = fragments.iter().map(|(text, _)| format!(" {text}")).collect();
        let becomes: String = fragments.iter().map(|(_, becomes)| format!(" {becomes}")).collect();
        let text = format!("{text} :key");
        let template = query(&text, MySql).unwrap();
        prop_assert_eq!(template.sql(1), format!("{becomes} ?"));
        let places = fragments.iter().filter(|(text, _)| text.starts_with(":key")).count() + 1;
        prop_assert_eq!(template.bind(&"k".into(), &Bytes::new()).unwrap().len(), places);
    }

    #[test]
    fn key_does_not_become_part_of_the_statement(key in prop::collection::vec(any::<u8>(), 0..40)) {
        let template = query("SELECT v FROM t WHERE k = :key", Postgres).unwrap();
        let key = Bytes::from(key);
        prop_assert_eq!(template.bind(&key, &Bytes::new()), Some(vec![key]));
        prop_assert_eq!(template.sql(1), "SELECT v FROM t WHERE k = $1");
    }
}
