//! Parses text to [`RawFile`], reporting all errors in the structure of a file.
//!
//! A deserialiser stops at its first error. So each error is recorded, the entry it is about is
//! removed from the parsed tree, and the rest is deserialised again, until no error is left or the
//! limit of problems is reached.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::problem::{Origin, Problems};
use super::raw::RawFile;

/// Parses `text`. Returns none after adding errors to `problems`.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Option<RawFile> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let brackets = error.span().and_then(|span| single_brackets(&text[span.start..]));
        let remedy = brackets
            .map(|table| format!("; each of several {table}s begins with [[{table}]]"))
            .unwrap_or_default();
        problems.add(&origin(error), format!("this is not TOML: {}{remedy}", error.message()));
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

/// Names of array tables, written `[[listener]]`.
const LISTS: [&str; 7] = ["listener", "backend", "partition", "tenant", "resource", "deadline", "scheduler"];

/// Returns the array table (such as `listener`) whose heading is written with one bracket; `text`
/// begins after that bracket.
fn single_brackets(text: &str) -> Option<&'static str> {
    LISTS.into_iter().find(|table| text.strip_prefix(table).is_some_and(|rest| rest.starts_with([']', '.'])))
}

fn origin(error: &toml::de::Error) -> Origin {
    error.span().map_or(Origin::Absent, Origin::Bytes)
}

/// Removes the innermost entry that contains `span` from `table`, and returns its path: the table,
/// then keys.
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
            if path.starts_with(&["backend".to_owned(), "dispatch".to_owned()])
                && path.len() == 3
                && DISPATCH_PLANNED.contains(&unknown)
            {
                return format!("{table}no rule that is built uses key `{unknown}`: remove it");
            }
            let what = format!("{table}unknown key `{unknown}`; the keys here are {}", known.join(", "));
            match nearest(unknown, &known) {
                Some(near) => format!("{what}: did you mean `{near}`?"),
                None => format!("{what}: remove it"),
            }
        }
        None => match (path, message) {
            ([table], "invalid type: map, expected a sequence") if LISTS.contains(&table.as_str()) => {
                format!("[{table}] is one table, where several may be: write [[{table}]]")
            }
            _ => format!("{}{message}", label(path)),
        },
    }
}

/// Keys of `[backend.dispatch]` that belong to rules which are not built yet.
const DISPATCH_PLANNED: [&str; 2] = ["extra", "cancel"];

/// Names in serde's message about an unknown field: that field, and the known ones.
pub(super) fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut names = message.strip_prefix("unknown field `")?.split('`').step_by(2);
    Some((names.next()?, names.filter(|name| !name.is_empty()).collect()))
}

/// Prefix of messages about a key: `[memory] total: `.
fn label(path: &[String]) -> String {
    match path {
        [] => String::new(),
        [table] => format!("{}: ", bracketed(table)),
        [table, keys @ ..] => format!("{} {}: ", bracketed(table), keys.join(".")),
    }
}

fn bracketed(table: &str) -> String {
    if LISTS.contains(&table) { format!("[[{table}]]") } else { format!("[{table}]") }
}

/// Returns the name in `known` with the smallest edit distance from `word`, if that is small for
/// its length; otherwise the first that begins with `word`.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let edits_max = 1 + word.chars().count().min(12) / 4;
    let near = known.iter().map(|&name| (edits(word, name), name)).min()?;
    let begun = || known.iter().copied().find(|name| word.len() >= BEGINNING && name.starts_with(word));
    if near.0 <= edits_max { Some(near.1) } else { begun() }
}

/// Minimum length, in characters, of an unknown word for which a known name that it begins is
/// suggested.
const BEGINNING: usize = 4;

/// Edit distance from `a` to `b` (insertions, deletions, replacements and swaps of neighbours) over
/// the first 64 characters.
fn edits(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|word| word.chars().take(64).collect::<Vec<char>>());
    // `table[i][j]` is the distance from the first `i` characters of `a` to the first `j` of `b`.
    let mut table: Vec<Vec<usize>> = (0..=a.len()).map(|i| (i..=i + b.len()).collect()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let least = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            let swaps = i > 1 && j > 1 && a[i - 2] == b[j - 1] && a[i - 1] == b[j - 2];
            table[i][j] = if swaps { least.min(table[i - 2][j - 2] + 1) } else { least };
        }
    }
    table[a.len()][b.len()]
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
    fn every_wrong_entry_of_a_configuration_is_reported_at_its_place() {
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
                 cache_bytes, n, bytes, latency, threads, queued_calls_max, address, user, password_file, password_env, write, delete, tls, \
                 connections_max, connect_timeout, answer_timeout, value_max, url, headers, key_prefix, db, ttl, write_ttl, \
                 database, value, ttl_column, tags_column, table, region, endpoint, key_attribute, value_attribute, consistent, \
                 credentials, tickets: did you mean `cache_bytes`?",
                "a.toml:9:9: [control] delta: \"5\" is no duration; write whole microseconds as us, ms, s, m, h or d, such as \
                 \"5s\"",
                "a.toml:10:15: [control] band: invalid type: string \"x\", expected f64",
                "a.toml:11:2: unknown key `memroy`; the keys here are memory, server, listener, backend, partition, tenants, tenant, resource, slo, \
                 deadline, scheduler, control, admin, otlp: did you mean `memory`?",
            ]
        );
    }

    #[test]
    fn array_table_with_one_bracket_is_refused_with_the_remedy() {
        assert_eq!(
            problems("[backend]\nname = \"a\"\n"),
            ["a.toml:1:1: [backend] is one table, where several may be: write [[backend]]"]
        );
        let found = problems("[backend]\nname = \"a\"\n[backend]\nname = \"b\"\n");
        assert_eq!(
            found[0],
            "a.toml:3:2: this is not TOML: duplicate key; each of several backends begins with [[backend]]"
        );
    }

    #[test]
    fn invalid_toml_is_reported_at_its_place() {
        let found = problems("[memory]\ntotal = \n");
        assert!(found[0].starts_with("a.toml:2:"), "{found:?}");
        assert!(found[0].contains("this is not TOML"), "{found:?}");
    }

    #[test]
    fn suggestion_for_an_unknown_key_is_a_similar_name_or_none() {
        assert_eq!(nearest("totl", &["max_item_size", "total"]), Some("total"));
        assert_eq!(nearest("colour", &["total", "bind"]), None);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("same", "same")), (3, 3, 0));
        assert_eq!((edits("stroe", "store"), edits("ab", "ba"), edits("abcd", "badc")), (1, 1, 2));
        assert_eq!(nearest("stroe", &["stale", "store", "ttl"]), Some("store"));
        assert_eq!(nearest("password", &["path", "password_file", "password_env"]), Some("password_file"));
    }
}
