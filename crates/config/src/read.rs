//! Parses text to [`RawFile`], reporting all errors in the structure of a file.
//!
//! A deserialiser stops at its first error. So each error is recorded, the entry it is about is
//! removed from the parsed tree, and the rest is deserialised again, until no error is left or the
//! limit of problems is reached.

use std::ops::Range;

use serde::Deserialize;
use sherwood_model::misread::{Format, Place, reworded, unknown_field, unknown_key};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::problem::{Origin, Problems};
use super::raw::RawFile;
use super::schema::{accepted, array_for_table};

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
    while let Some((path, place)) = array_for_table(&tree).filter(|_| !problems.is_full()) {
        complete = false;
        let message = format!("{}an array is not accepted; write a table", label(&path));
        problems.add(&Origin::Bytes(place.clone()), message);
        remove_at(&mut tree, &place)?;
    }
    while !problems.is_full() {
        let value = Spanned::new(span.clone(), DeValue::Table(tree.clone()));
        let error = match RawFile::deserialize(ValueDeserializer::from(value)) {
            Ok(file) => return complete.then_some(file),
            Err(error) => error,
        };
        complete = false;
        let removed = error.span().and_then(|span| remove_at(&mut tree, &span));
        let Some(Removed { path, kind }) = &removed else {
            problems.add(&origin(&error), sentence(&[], error.message(), None));
            return None;
        };
        let written = kind.or_else(|| text.get(error.span()?));
        problems.add(&origin(&error), sentence(path, error.message(), written));
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

/// An entry that was removed from a tree.
struct Removed {
    /// Path of the entry: the table, then keys.
    path: Vec<String>,
    /// The type of a value that may be long.
    kind: Option<&'static str>,
}

/// Removes the innermost entry that contains `span` from `table`, and returns it.
fn remove_at(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<Removed> {
    let holds = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
    let mut chosen = None;
    for (key, value) in table.iter_mut() {
        if let Some(mut removed) = remove_inside(value, span) {
            removed.path.insert(0, key.get_ref().to_string());
            return Some(removed);
        }
        if holds(key.span()) || holds(value.span()) {
            chosen = Some(key.get_ref().to_string());
        }
    }
    let key = chosen?;
    let kind = match table.remove(key.as_str())?.get_ref() {
        DeValue::Table(_) => Some("a table"),
        DeValue::Array(_) => Some("an array"),
        _ => None,
    };
    Some(Removed { path: vec![key], kind })
}

fn remove_inside(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Removed> {
    match value.get_mut() {
        DeValue::Table(table) => remove_at(table, span),
        DeValue::Array(array) => array.iter_mut().find_map(|element| remove_inside(element, span)),
        _ => None,
    }
}

/// Returns the problem of the entry at `path`, written as `written`, of which serde says `message`.
fn sentence(path: &[String], message: &str, written: Option<&str>) -> String {
    if let Some((unknown, known)) = unknown_field(message) {
        let table = &path[..path.len().saturating_sub(1)];
        let remedy = moved(table, unknown).unwrap_or_else(|| unknown_key(unknown, &known, Format::Toml));
        return format!("{}{remedy}", label(table));
    }
    match (path, message) {
        ([table], "invalid type: map, expected a sequence") if LISTS.contains(&table.as_str()) => {
            format!("[{table}] is one table, where several may be: write [[{table}]]")
        }
        _ => {
            let range = accepted(path);
            let place = Place { written, range: range.as_deref() };
            format!("{}{}", label(path), reworded(message, Format::Toml, place))
        }
    }
}

/// Returns what to do about an unknown key of `table` that is known elsewhere.
fn moved(table: &[String], unknown: &str) -> Option<String> {
    let table: Vec<&str> = table.iter().map(String::as_str).collect();
    let (.., place) = MOVED.iter().find(|(of, key, _)| *of == table && *key == unknown)?;
    Some(format!("unknown key `{unknown}`; it is elsewhere: write {place}"))
}

/// Keys that are looked for in another table than theirs: that table, the key, and its place.
const MOVED: [(&[&str], &str, &str); 9] = [
    (&["control"], "tenants", "[tenants] policy = \"hare\""),
    (&["control"], "slo", "[slo] bound = \"150ms\""),
    (&["control"], "bound", "[slo] bound = \"150ms\""),
    (&["control"], "window", "[slo] window = \"60s\""),
    (&["tenants"], "weight", "[[tenant]] weight = 1"),
    (&["memory"], "max_connections", "[server] max_connections = 1024"),
    (&["memory"], "threads", "[server] threads = 4"),
    (&["server"], "memory", "[memory] total = \"64MiB\""),
    (&["backend"], "retry", "[backend.dispatch.retry]"),
];

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
                "a.toml:4:9: [slo] bound: 5 is not accepted; write a duration with its unit, such as \"5s\" (1ms to 1h)",
                "a.toml:7:24: [[backend]] store: unknown key `cashe_bytes`; the keys here are kind, path, query, \
                 cache_bytes, n, bytes, latency, threads, queued_calls_max, address, user, password_file, password_env, write, delete, tls, \
                 connections_max, connect_timeout, answer_timeout, value_max, url, headers, key_prefix, db, ttl, write_ttl, \
                 database, value, ttl_column, tags_column, table, region, endpoint, key_attribute, value_attribute, consistent, \
                 credentials, keyspace, root, tickets: did you mean `cache_bytes`?",
                "a.toml:9:9: [control] delta: \"5\" is no duration; write whole microseconds as us, ms, s, m, h or d, such as \
                 \"5s\"",
                "a.toml:10:15: [control] band: \"x\" is not accepted; write a number",
                "a.toml:11:2: unknown key `memroy`; the keys here are memory, server, listener, backend, partition, tenants, tenant, resource, slo, \
                 deadline, scheduler, control, replication, stores, cluster, admin, otlp: did you mean `memory`?",
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
}
