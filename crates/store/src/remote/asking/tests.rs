use proptest::prelude::*;

use super::*;

/// A server that considers keys equal if `equal` says so, and refuses lists with any of the `bad`
/// keys.
struct Model<'a> {
    compared: Compared,
    equal: fn(&[u8], &[u8]) -> bool,
    rows: &'a [Bytes],
    bad: &'a [Bytes],
}

impl Model<'_> {
    /// Returns the rows that equal one of the keys; none if the server refuses the list.
    fn list(&self, keys: &[Bytes]) -> Option<Rows<Option<Bytes>>> {
        if keys.iter().any(|key| self.bad.contains(key)) {
            return None;
        }
        let mut rows = Rows::new(self.compared, keys.len());
        for row in self.rows.iter().filter(|row| keys.iter().any(|key| (self.equal)(key, row))) {
            rows.insert(row.clone(), Some(row.clone()));
        }
        Some(rows)
    }

    /// Returns the answer to `= :key`: a row with exactly the key's spelling, or else the first row
    /// that equals it.
    fn alone(&self, key: &Bytes) -> Option<Bytes> {
        if self.bad.contains(key) {
            return Some("bad".into());
        }
        let mut equal = self.rows.iter().filter(|row| (self.equal)(key, row));
        let first = equal.next()?;
        Some(equal.find(|row| *row == key).unwrap_or(first).clone())
    }

    /// Reads keys as a driver does, and returns the answers with the number of statements.
    fn read(&self, keys: &[Bytes]) -> (Vec<Option<Bytes>>, usize) {
        let mut rows = self.list(keys);
        let mut values = Vec::new();
        if rows.as_ref().is_some_and(|rows| rows.append(keys, &None, &mut values)) {
            return (values, 1);
        }
        let (mut asking, mut list, mut statements) = (Asking::new(), distinct(keys), 1);
        loop {
            match rows {
                Some(rows) => asking.answered(list, rows).for_each(drop),
                None => asking.refused(list, Some("bad".into())),
            }
            let Some(next) = asking.next() else { break };
            (list, statements) = (next, statements + 1);
            rows = self.list(&list);
        }
        let answers = asking.into_answers();
        (keys.iter().map(|key| answers.get(key).cloned().flatten()).collect(), statements)
    }
}

fn bytes(keys: &[&str]) -> Vec<Bytes> {
    keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
}

/// The equality of a case-insensitive collation that ignores blanks at the end.
fn is_equal_text(one: &[u8], other: &[u8]) -> bool {
    one.trim_ascii_end().eq_ignore_ascii_case(other.trim_ascii_end())
}

/// The equality of a collation that also ignores accents, and differences between some letters.
fn is_equal_loosely(one: &[u8], other: &[u8]) -> bool {
    let base = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).to_lowercase().replace(['á', 'à'], "a");
        text.replace('v', "u").replace(['-', ' '], "")
    };
    base(one) == base(other)
}

/// MySQL's equality of texts and numbers.
fn is_equal_number(one: &[u8], other: &[u8]) -> bool {
    let number = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        let text = text.trim_start();
        let longest = (0..=text.len()).rev().find_map(|end| text.get(..end)?.parse::<f64>().ok());
        longest.filter(|number| number.is_finite()).unwrap_or(0.0)
    };
    number(one) == number(other)
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one == other
}

/// Returns the number of statements that a model server takes to answer `keys`.
fn statements(compared: Compared, equal: fn(&[u8], &[u8]) -> bool, rows: &[&str], keys: &[&str]) -> usize {
    let (rows, keys) = (bytes(rows), bytes(keys));
    let model = Model { compared, equal, rows: &rows, bad: &[] };
    let (answers, statements) = model.read(&keys);
    assert_eq!(answers, keys.iter().map(|key| model.alone(key)).collect::<Vec<_>>());
    statements
}

#[test]
fn absent_keys_of_number_and_text_columns_need_no_second_statement() {
    let numbers = |keys| statements(Compared::Decimal, is_equal_number, &["7", "8"], keys);
    assert_eq!(numbers(&["7", "9", "8", "16777217", "16777216"]), 1);
    assert_eq!(numbers(&["9", "10"]), 1);
    let texts = |keys| statements(Compared::Text, is_equal_text, &["abc", "x:1"], keys);
    assert_eq!(texts(&["abc", "abd", "x:1", "x:2", ""]), 1);
}

#[test]
fn row_that_can_match_only_one_of_the_keys_needs_no_second_statement() {
    assert_eq!(statements(Compared::Decimal, is_equal_number, &["1.50", "7"], &["1.5", "07", "8"]), 1);
    assert_eq!(statements(Compared::Text, is_equal_text, &["abc   ", "d    "], &["ABC", "d", "e"]), 1);
    assert_eq!(statements(Compared::Other, is_equal_text, &["abc"], &["ABC"]), 1);
}

#[test]
fn two_spellings_of_one_key_are_both_answered_with_one_additional_statement() {
    assert_eq!(statements(Compared::Decimal, is_equal_number, &["7"], &["7", "07", "8"]), 2);
    assert_eq!(statements(Compared::Text, is_equal_text, &["abc"], &["ABC", "abc", "d"]), 2);
    assert_eq!(statements(Compared::Other, is_equal_text, &["abc"], &["abc", "x", "y", "z"]), 2);
}

#[test]
fn rows_without_the_key_in_their_first_column_are_matched_by_one_statement_per_key() {
    // The first column of the row is not the key, as in `SELECT name, body … WHERE id IN (:keys)`.
    let is_own = |one: &[u8], other: &[u8]| one.strip_prefix(b"k") == other.strip_prefix(b"r");
    assert_eq!(statements(Compared::Text, is_own, &["r1", "r2"], &["k1", "k2", "k3"]), 4);
}

#[test]
fn one_rejected_key_among_256_is_found_by_bisection() {
    let keys: Vec<Bytes> = (0..256).map(|key: u32| key.to_string().into()).collect();
    for bad in [0, 100, 255] {
        let bad = &keys[bad..=bad];
        let model = Model { compared: Compared::Text, equal: is_same, rows: &keys, bad };
        let (answers, statements) = model.read(&keys);
        assert_eq!(answers, keys.iter().map(|key| model.alone(key)).collect::<Vec<_>>());
        assert_eq!(statements, 17);
    }
}

#[test]
fn giving_up_reports_the_failure_for_all_unanswered_keys() {
    let keys = bytes(&["a", "b", "c", "d", "e", "f"]);
    let mut asking = Asking::new();
    asking.refused(keys.clone(), "one");
    let list = asking.next().unwrap();
    asking.give_up(list, &"all");
    assert_eq!(asking.next(), None);
    let answers = asking.into_answers();
    assert!(keys.iter().all(|key| answers.get(key) == Some(&"all")));
}

/// Keys of which many are equal to each other in some of the models.
fn key() -> impl Strategy<Value = Bytes> {
    let text = "[aAáuv]{1,2}[ -]{0,2}|[-+]?0{0,2}[0-3](\\.[05]{1,2})?(e[01])?x?| ?1";
    text.prop_map(Bytes::from)
}

proptest! {
    #[test]
    fn list_query_gives_the_same_answers_as_one_query_per_key(
        rows in prop::collection::hash_set(key(), 0..12),
        keys in prop::collection::vec(key(), 1..40),
        bad in prop::collection::vec(key(), 0..3),
        own in 0..12_usize,
    ) {
        let rows: Vec<Bytes> = rows.into_iter().collect();
        let keys: Vec<Bytes> = keys.into_iter().chain(rows.iter().take(own).cloned()).collect();
        for (compared, equal) in [
            (Compared::Text, is_equal_text as fn(&[u8], &[u8]) -> bool),
            (Compared::Text, is_equal_loosely),
            (Compared::Text, is_same),
            (Compared::Other, is_equal_loosely),
            (Compared::Other, is_equal_number),
            (Compared::Decimal, is_equal_number),
            (Compared::Float, is_equal_number),
            (Compared::Bytes, is_same),
        ] {
            let model = Model { compared, equal, rows: &rows, bad: &bad };
            let (answers, statements) = model.read(&keys);
            for (key, answer) in keys.iter().zip(answers) {
                prop_assert_eq!(answer, model.alone(key), "{:?} {:?}", compared, key);
            }
            prop_assert!(statements <= 2 * distinct(&keys).len(), "{statements}");
        }
    }
}
