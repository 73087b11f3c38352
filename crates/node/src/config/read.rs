//! From text to [`RawFile`]: all that is wrong with the shape of a file, not only the first thing.
//!
//! A deserialiser stops at its first error. So each error is noted, the entry it is about is taken out of the parsed
//! tree, and the rest is read again, until nothing is wrong or enough is.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::problem::{Origin, Problems};
use super::raw::RawFile;

/// Largest configuration file, in bytes; thousands of backends fit.
pub(super) const FILE_BYTES_MAX: usize = 4 << 20;

/// Reads `text`; what is wrong goes to `problems`, and then nothing is returned.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Option<RawFile> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        problems.add(&origin(error), format!("this is not TOML: {}", error.message()));
    }
    if !errors.is_empty() {
        return None;
    }
    let (span, mut tree) = (root.span(), root.into_inner());
    let mut complete = true;
    while !problems.is_full() {
        let value = Spanned::new(span.clone(), DeValue::Table(tree.clone()));
        let error = match RawFile::deserialize(ValueDeserializer::from(value)) {
            Ok(file) => return complete.then_some(file),
            Err(error) => error,
        };
        complete = false;
        let removed = error.span().and_then(|span| remove_at(&mut tree, &span));
        problems.add(&origin(&error), sentence(removed.as_deref().unwrap_or_default(), error.message()));
        removed?;
    }
    None
}

fn origin(error: &toml::de::Error) -> Origin {
    error.span().map_or(Origin::Absent, Origin::Bytes)
}

/// Takes the innermost entry that `span` lies in out of `table`, and returns how people name it: the table, then keys.
fn remove_at(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<Vec<String>> {
    let holds = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
    let mut chosen = None;
    for (key, value) in table.iter_mut() {
        if let Some(mut path) = remove_inside(value, span) {
            path.insert(0, key.get_ref().to_string());
            return Some(path);
        }
        if holds(key.span()) || holds(value.span()) {
            chosen = Some(key.get_ref().to_string());
        }
    }
    let key = chosen?;
    table.remove(key.as_str());
    Some(vec![key])
}

fn remove_inside(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Vec<String>> {
    match value.get_mut() {
        DeValue::Table(table) => remove_at(table, span),
        DeValue::Array(array) => array.iter_mut().find_map(|element| remove_inside(element, span)),
        _ => None,
    }
}

fn sentence(path: &[String], message: &str) -> String {
    match unknown_field(message) {
        Some((unknown, known)) => {
            let table = label(&path[..path.len().saturating_sub(1)]);
            let what = format!("{table}unknown key `{unknown}`; the keys here are {}", known.join(", "));
            match nearest(unknown, &known) {
                Some(near) => format!("{what}: did you mean `{near}`?"),
                None => format!("{what}: remove it"),
            }
        }
        None => format!("{}{message}", label(path)),
    }
}

/// The names in serde's message about an unknown field: the field, and the fields there are.
pub(super) fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut names = message.strip_prefix("unknown field `")?.split('`').step_by(2);
    Some((names.next()?, names.filter(|name| !name.is_empty()).collect()))
}

/// How a key is named in messages: `[memory] total: `.
fn label(path: &[String]) -> String {
    match path {
        [] => String::new(),
        [table] => format!("{}: ", bracketed(table)),
        [table, keys @ ..] => format!("{} {}: ", bracketed(table), keys.join(".")),
    }
}

fn bracketed(table: &str) -> String {
    match table {
        "listener" | "backend" | "partition" => format!("[[{table}]]"),
        _ => format!("[{table}]"),
    }
}

/// The name among `known` that takes the fewest edits to get from `word`, when they are few for its length.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let edits_max = 1 + word.chars().count().min(12) / 4;
    let near = known.iter().map(|&name| (edits(word, name), name)).min()?;
    (near.0 <= edits_max).then_some(near.1)
}

/// Insertions, deletions and replacements from `a` to `b` (Levenshtein's distance), over the first 64 characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (above, from) in a.chars().take(64).enumerate() {
        let mut diagonal = above;
        row[0] = above + 1;
        for (at, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Problems::new(Some(("a.toml", text)));
        assert!(read(text, &mut problems).is_none());
        let error = problems.finish().expect_err("something is wrong");
        error.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_wrong_entry_is_reported_at_its_place() {
        let found = problems(
            "[memory]\ntotl = 1\n[slo]\nbound = 5\n[[backend]]\nname = \"a\"\nstore = { kind = \"kv\", cashe_bytes = 3 }\n\
             [control]\ndelta = \"5\"\nband = [98.5, \"x\"]\n[memroy]\n",
        );
        assert_eq!(
            found,
            [
                "a.toml:2:1: [memory]: unknown key `totl`; the keys here are total, max_item_size, eviction, buffers, mrc_sample, snapshot: did \
                 you mean `total`?",
                "a.toml:4:9: [slo] bound: invalid type: integer `5`, expected a duration with its unit, such as \"5s\"",
                "a.toml:7:24: [[backend]] store: unknown key `cashe_bytes`; the keys here are kind, path, query, \
                 cache_bytes, n, bytes, threads, queued_calls_max, address, user, password_file, password_env, write, delete, tls, \
                 connections_max, connect_timeout, answer_timeout, value_max, url, headers, key_prefix, db, ttl, write_ttl, \
                 database, value, ttl_column, tags_column: did you mean `cache_bytes`?",
                "a.toml:9:9: [control] delta: \"5\" is no duration; write a whole number of us, ms, s, m, h or d, such as \
                 \"5s\"",
                "a.toml:10:15: [control] band: invalid type: string \"x\", expected f64",
                "a.toml:11:2: unknown key `memroy`; the keys here are memory, server, listener, backend, partition, slo, \
                 control, admin: did you mean `memory`?",
            ]
        );
    }

    #[test]
    fn what_is_no_toml_is_reported_at_its_place() {
        let found = problems("[memory]\ntotal = \n");
        assert!(found[0].starts_with("a.toml:2:"), "{found:?}");
        assert!(found[0].contains("this is not TOML"), "{found:?}");
    }

    #[test]
    fn suggestions_are_near_or_absent() {
        assert_eq!(nearest("totl", &["max_item_size", "total"]), Some("total"));
        assert_eq!(nearest("colour", &["total", "bind"]), None);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("same", "same")), (3, 3, 0));
    }
}
