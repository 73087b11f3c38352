//! Texts of errors about values that have another form than the accepted one.
//!
//! Readers of TOML and JSON describe such an error in serde's words, which name types of Rust.
//! [`reworded`] says the same for people: the offending value, the accepted form and the remedy;
//! [`json`] and [`json_file`] do so for a whole error of JSON.

use serde_json::Error;
use serde_json::error::Category;

use crate::nearest;
use crate::units::quoted;

/// The format of a text, which decides what its values are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Values with names are objects.
    Json,
    /// Values with names are tables.
    Toml,
    /// Values are texts that follow `name=` in the query of a URL.
    Query,
}

impl Format {
    fn object(self) -> &'static str {
        if self == Self::Toml { "a table" } else { "an object" }
    }

    fn text(self) -> &'static str {
        if self == Self::Query { "a text" } else { "a text in quotes" }
    }

    fn key(self) -> &'static str {
        if self == Self::Query { "parameter" } else { "key" }
    }
}

/// The value at the place of an error, and what is accepted there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The value as it was written, for messages that do not have it.
    pub written: Option<&'a str>,
    /// Accepted range or names, such as `1 to 16`.
    pub range: Option<&'a str>,
}

/// Returns `message`, serde's about a value or a key, in words for people. Messages of our own
/// types are returned unchanged.
///
/// ```
/// # use sherwood_model::misread::{Format, Place, reworded};
/// let place = Place { range: Some("1 to 16"), ..Place::default() };
/// let message = "invalid type: string \"x\", expected u32";
/// assert_eq!(
///     reworded(message, Format::Json, place),
///     "\"x\" is not accepted; write a whole number (1 to 16)"
/// );
/// ```
#[must_use]
pub fn reworded(message: &str, format: Format, place: Place<'_>) -> String {
    if let Some((unknown, known)) = unknown_field(message) {
        return unknown_key(unknown, &known, format);
    }
    if let Some((unknown, known)) = unknown_variant(message) {
        let what = format!("unknown name \"{}\"; write {}", quoted(unknown), listed(&known));
        return nearest(unknown, &known)
            .map_or(what.clone(), |near| format!("{what}: did you mean \"{near}\"?"));
    }
    if let Some(name) = between(message, "missing field `", "`") {
        return format!("the {} `{name}` is missing; add it", format.key());
    }
    if let Some(name) = between(message, "duplicate field `", "`") {
        return format!("the {} `{name}` is written twice; remove one", format.key());
    }
    let found = || place.written.map_or_else(|| "the value".to_owned(), shown);
    if message.starts_with("data did not match any variant") {
        return format!("{} is in none of the accepted forms", found());
    }
    if message == "wanted string or table" {
        return format!("{} is not accepted; write {}", found(), accepted("a map", format, place.range));
    }
    let (found, expected) = match refused(message) {
        Some((unexpected, expected)) => (value(unexpected, format).unwrap_or_else(found), expected),
        None => match message.strip_prefix("expected ") {
            Some(expected) => (found(), expected),
            None => return message.to_owned(),
        },
    };
    format!("{found} is not accepted; write {}", accepted(expected, format, place.range))
}

/// Returns an error of a JSON text in words for people. One about a value does not say where it is.
#[must_use]
pub fn json(error: &Error) -> String {
    let text = error.to_string();
    let message = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    match error.classify() {
        Category::Eof if error.line() <= 1 && error.column() == 0 => {
            "there is no JSON; write a JSON value".to_owned()
        }
        Category::Eof => format!("the JSON ends within a value, {}; complete it", place_of(error)),
        Category::Syntax | Category::Io => {
            let problem = match message {
                "expected value" => "no value",
                "trailing characters" => "more text after the value",
                other => other,
            };
            format!("this is not JSON, {}: {problem}; write valid JSON", place_of(error))
        }
        Category::Data => reworded(message, Format::Json, Place::default()),
    }
}

/// Returns an error of a JSON file in words for people, with the line and column.
///
/// ```
/// # use sherwood_model::misread::json_file;
/// let error = serde_json::from_str::<Vec<u8>>("[1,\n300]").unwrap_err();
/// assert_eq!(
///     json_file(&error),
///     "line 2, column 3: 300 is not accepted; write a whole number (0 to 255)"
/// );
/// ```
#[must_use]
pub fn json_file(error: &Error) -> String {
    let reason = json(error);
    match error.classify() {
        Category::Data if error.line() > 0 => format!("{}: {reason}", place_of(error)),
        _ => reason,
    }
}

fn place_of(error: &Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// Returns the sentence about a key (or parameter) that is not among the `known` ones.
#[must_use]
pub fn unknown_key(unknown: &str, known: &[&str], format: Format) -> String {
    let (key, shown) = (format.key(), quoted(unknown));
    if known.is_empty() {
        return format!("unknown {key} `{shown}`; there are none here: remove it");
    }
    let what = format!("unknown {key} `{shown}`; the {key}s here are {}", known.join(", "));
    match nearest(unknown, known) {
        Some(near) => format!("{what}: did you mean `{near}`?"),
        None => format!("{what}: remove it"),
    }
}

/// Returns the names in serde's message about an unknown field: that field, and the known ones.
#[must_use]
pub fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    unknown_name(message.strip_prefix("unknown field `")?)
}

fn unknown_variant(message: &str) -> Option<(&str, Vec<&str>)> {
    unknown_name(message.strip_prefix("unknown variant `")?)
}

/// Parses the rest of such a message, behind the first backtick. The unknown name may have any
/// characters, the known ones have no backticks.
fn unknown_name(rest: &str) -> Option<(&str, Vec<&str>)> {
    let end = rest.find("`, expected ").or_else(|| rest.rfind("`, there are no "))?;
    let known = rest[end + 1..].split('`').skip(1).step_by(2);
    Some((&rest[..end], known.collect()))
}

fn between<'m>(message: &'m str, before: &str, after: &str) -> Option<&'m str> {
    Some(message.strip_prefix(before)?.split_once(after)?.0)
}

/// Splits a message about a value into the value and the accepted form. The value is first and may
/// have any characters.
fn refused(message: &str) -> Option<(&str, &str)> {
    let rest = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = rest.into_iter().find_map(|start| message.strip_prefix(start))?;
    rest.rsplit_once(", expected ")
}

/// Returns a value as serde describes it in the words of `format`, in one short line.
fn value(unexpected: &str, format: Format) -> Option<String> {
    if let Some(text) = unexpected.strip_prefix("string ") {
        return Some(shown(text));
    }
    for (name, shown) in [("map", format.object()), ("sequence", "an array"), ("null", "null")] {
        if unexpected == name {
            return Some(shown.to_owned());
        }
    }
    if let Ok(length) = unexpected.parse::<u64>() {
        return Some(format!("an array of {length}"));
    }
    let (_, rest) = unexpected.split_once('`')?;
    Some(shown(rest.trim_end_matches('`')))
}

/// Returns at most the first 40 characters of a value as it was written, in one line.
fn shown(written: &str) -> String {
    match written.strip_prefix('"') {
        // The text between the quotes is escaped as in a literal of Rust.
        Some(text) => format!("\"{}\"", first(text.strip_suffix('"').unwrap_or(text))),
        None => first(written),
    }
}

fn first(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut start: String = text.lines().next().unwrap_or_default().chars().take(CHARS_MAX).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}

/// Returns the accepted form of a value, of serde's words for it.
fn accepted(expected: &str, format: Format, range: Option<&str>) -> String {
    let (noun, of_type) = match expected {
        "u8" => ("a whole number", "0 to 255"),
        "u16" => ("a whole number", "0 to 65535"),
        "u32" => ("a whole number", "0 to 4294967295"),
        "u64" | "usize" | "u128" => ("a whole number", "at least 0"),
        "i8" | "i16" | "i32" | "i64" | "isize" => ("a whole number", ""),
        "f32" | "f64" => ("a number", ""),
        "a boolean" | "bool" => ("true or false", ""),
        "a string" | "a borrowed string" | "string" | "str" | "path string" => (format.text(), ""),
        "a sequence" => ("an array", ""),
        "a map" => (format.object(), ""),
        _ if expected.starts_with("struct ") => (format.object(), ""),
        other => (other.strip_prefix("expected ").unwrap_or(other), ""),
    };
    match range.unwrap_or(of_type) {
        "" => noun.to_owned(),
        range => format!("{noun} ({range})"),
    }
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_json(message: &str) -> String {
        reworded(message, Format::Json, Place::default())
    }

    #[test]
    fn message_about_a_value_has_the_value_and_the_accepted_form() {
        for (message, said) in [
            (
                "invalid type: string \"x\", expected u64",
                "\"x\" is not accepted; write a whole number (at least 0)",
            ),
            (
                "invalid value: integer `-1`, expected u8",
                "-1 is not accepted; write a whole number (0 to 255)",
            ),
            ("invalid type: floating point `1.5`, expected i64", "1.5 is not accepted; write a whole number"),
            ("invalid type: boolean `true`, expected f64", "true is not accepted; write a number"),
            ("invalid type: null, expected a string", "null is not accepted; write a text in quotes"),
            ("invalid type: sequence, expected struct A", "an array is not accepted; write an object"),
            (
                "invalid length 3, expected an array of 2 numbers",
                "an array of 3 is not accepted; write an array of 2 numbers",
            ),
            ("expected a text, or { file = 1 }", "the value is not accepted; write a text, or { file = 1 }"),
            (
                "data did not match any variant of untagged enum A",
                "the value is in none of the accepted forms",
            ),
            ("1 is no size", "1 is no size"),
        ] {
            assert_eq!(in_json(message), said);
        }
        let message = format!("invalid type: string \"a\\n, expected {}\", expected f64", "x".repeat(100));
        let said = in_json(&message);
        assert!(
            said.starts_with("\"a\\n, expected xxx") && said.ends_with("…\" is not accepted; write a number"),
            "{said}"
        );
        assert_eq!(
            reworded("invalid type: map, expected a string", Format::Toml, Place::default()),
            "a table is not accepted; write a text in quotes"
        );
    }

    #[test]
    fn message_about_a_name_lists_the_known_ones_and_suggests_the_nearest() {
        assert_eq!(
            in_json("unknown field `latncy`, expected one of `latency`, `blocking`"),
            "unknown key `latncy`; the keys here are latency, blocking: did you mean `latency`?"
        );
        assert_eq!(
            in_json("unknown field `a`b`, expected `c`"),
            "unknown key `a`b`; the keys here are c: remove it"
        );
        assert_eq!(
            in_json("unknown field `a`, there are no fields"),
            "unknown key `a`; there are none here: remove it"
        );
        assert_eq!(
            in_json("unknown variant `slot`, expected `slots` or `ops_per_s`"),
            "unknown name \"slot\"; write \"slots\", \"ops_per_s\": did you mean \"slots\"?"
        );
        assert_eq!(in_json("missing field `keys`"), "the key `keys` is missing; add it");
        assert_eq!(in_json("duplicate field `keys`"), "the key `keys` is written twice; remove one");
    }
}
