//! Statement templates of the configuration, converted to statements that a server prepares.
//!
//! A key is sent by a client, so it must never become part of a statement's text. In place of a
//! template's parameter the server receives a placeholder, and the key is passed as a bound
//! parameter. In a string, a comment or a quoted name `:key` is text and not a parameter. So
//! templates are split by the lexical rules of their dialect; their syntax is checked by the
//! server.
//!
//! | written | bound |
//! |---|---|
//! | `:key` | the key |
//! | `:key.1`, `:key.2`, … | a part of the key, split at each `:`, counted from 1 |
//! | `IN (:keys)` | a list of keys; the statement then reads many at once, and its first column says which |
//! | `:value` | the value to write |
//!
//! Pure: it needs no server.

use std::fmt::Write;

use bytes::Bytes;

use crate::OpenCause;

/// Most keys of one statement. Servers accept far more parameters, but more than a few hundred save
/// no time.
pub(crate) const KEYS_MAX: usize = 256;

/// The dialect of a statement: its lexical rules and placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// MySQL and MariaDB: `?`; backslashes escape, both quotes are strings, backticks are names.
    MySql,
    /// PostgreSQL: `$1`; comments nest, `$tag$` quotes, a backslash escapes in `E''` only.
    Postgres,
    /// SQLite: `?1`; names in any of its three quotes. Its own placeholders are kept, and of ours
    /// it supports `:keys`.
    Sqlite,
}

/// The purpose of a statement template, which determines its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Statement that reads a key, or a list of keys.
    Query,
    /// Statement that stores a value under a key.
    Write,
    /// Statement that removes a key.
    Delete,
}

impl Purpose {
    /// The name of the configuration option with a statement of this purpose.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Query => {
                "write a SELECT with `:key` (or its parts `:key.1`, `:key.2`) for one key, or with `IN (:keys)` for many, \
                 whose first column is the key"
            }
            Self::Write => "write a statement with `:key` (or its parts `:key.1`, `:key.2`) and `:value`",
            Self::Delete => "write a statement with `:key` (or its parts `:key.1`, `:key.2`)",
        }
    }
}

/// A parameter of a statement template, replaced by a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// The whole key, `:key`.
    Key,
    /// A part of the key, counted from 1.
    Part(usize),
    /// A list of keys, `:keys`.
    Keys,
    /// The value to write.
    Value,
}

/// A statement template, split at its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    dialect: Dialect,
    /// Each parameter, with the text before it.
    before: Vec<(String, Parameter)>,
    /// The text after the last parameter.
    after: String,
}

impl Template {
    /// Parses a statement.
    ///
    /// # Errors
    /// When a parameter is unknown, missing or out of place, or a string, name or comment does not
    /// end; with the position in characters, from 1.
    pub(crate) fn parse(text: &str, dialect: Dialect, purpose: Purpose) -> Result<Self, OpenCause> {
        let refused =
            |detail| OpenCause::Remote { option: purpose.option(), detail, remedy: purpose.remedy() };
        let template = read(text, dialect).map_err(refused)?;
        template.check(purpose).map_err(refused)?;
        Ok(template)
    }

    /// Parses a statement of SQLite; none if it does not contain `:keys`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(crate) fn of_list(text: &str) -> Result<Option<Self>, String> {
        let template = read(text, Dialect::Sqlite)?;
        template.check_list()?;
        Ok(template.reads_many().then_some(template))
    }

    fn check(&self, purpose: Purpose) -> Result<(), String> {
        let count = |wanted: fn(&Parameter) -> bool| self.parameters().filter(wanted).count();
        let lists = count(|one| matches!(one, Parameter::Keys));
        let keys = count(|one| matches!(one, Parameter::Key | Parameter::Part(_)));
        let values = self.values();
        match purpose {
            Purpose::Query if values > 0 => Err("a query has no `:value`".into()),
            Purpose::Query if lists > 0 && keys > 0 => {
                Err("it has `:keys` and `:key`, where one of them is accepted".into())
            }
            Purpose::Query if lists + keys == 0 => {
                Err("it has neither `:key` nor `:keys` outside of quotes and comments".into())
            }
            Purpose::Write | Purpose::Delete if lists > 0 => Err("`:keys` is for queries only".into()),
            Purpose::Write | Purpose::Delete if keys == 0 => Err("it has no `:key`".into()),
            Purpose::Write if values == 0 => Err("it has no `:value`".into()),
            Purpose::Delete if values > 0 => Err("there is no `:value` to delete".into()),
            _ => self.check_list(),
        }
    }

    /// Checks that `:keys` occurs at most once, and in parentheses.
    fn check_list(&self) -> Result<(), String> {
        let lists = self.parameters().filter(|parameter| *parameter == Parameter::Keys).count();
        if lists > 1 {
            return Err(format!("it has `:keys` {lists} times, where once is accepted"));
        }
        let Some(at) = self.before.iter().position(|(_, parameter)| *parameter == Parameter::Keys) else {
            return Ok(());
        };
        let after = self.before.get(at + 1).map_or(&self.after, |(text, _)| text);
        let (before, _) = &self.before[at];
        if before.trim_end().ends_with('(') && after.trim_start().starts_with(')') {
            return Ok(());
        }
        Err("`:keys` stands outside parentheses".into())
    }

    /// True if the statement reads many keys at once, by `:keys`.
    pub(crate) fn reads_many(&self) -> bool {
        self.parameters().any(|parameter| parameter == Parameter::Keys)
    }

    /// True if the server counts the rows that the statement changes, as it does not for a
    /// procedure.
    pub(crate) fn counts_rows(&self) -> bool {
        !self.is_call() && !self.verb().eq_ignore_ascii_case("select")
    }

    /// True if the statement calls a procedure, which may have committed changes before it fails.
    pub(crate) fn is_call(&self) -> bool {
        is_call(self.before.first().map_or(self.after.as_str(), |(text, _)| text))
    }

    /// The first word of the statement.
    fn verb(&self) -> &str {
        word(self.before.first().map_or(self.after.as_str(), |(text, _)| text).trim_start())
    }

    /// The number of occurrences of `:value` in the statement.
    pub(crate) fn values(&self) -> usize {
        self.parameters().filter(|parameter| *parameter == Parameter::Value).count()
    }

    /// The parameters in the order of the statement.
    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        self.before.iter().map(|(_, parameter)| *parameter)
    }

    /// The statement for the server, with `keys` placeholders for `:keys`.
    pub(crate) fn sql(&self, keys: usize) -> String {
        let mut sql = String::new();
        let mut placed = 0;
        for (text, parameter) in &self.before {
            sql.push_str(text);
            let places = if *parameter == Parameter::Keys { keys } else { 1 };
            for place in 0..places {
                if place > 0 {
                    sql.push(',');
                }
                placed += 1;
                match self.dialect {
                    Dialect::MySql => sql.push('?'),
                    Dialect::Postgres => _ = write!(sql, "${placed}"),
                    Dialect::Sqlite => _ = write!(sql, "?{placed}"),
                }
            }
        }
        sql.push_str(&self.after);
        sql
    }

    /// The parameters for one key; none if the key lacks a part that the statement needs.
    pub(crate) fn bind(&self, key: &Bytes, value: &Bytes) -> Option<Vec<Bytes>> {
        let bound = |parameter| match parameter {
            Parameter::Key | Parameter::Keys => Some(key.clone()),
            Parameter::Part(part) => self::part(key, part),
            Parameter::Value => Some(value.clone()),
        };
        self.parameters().map(bound).collect()
    }
}

/// True if a statement that starts with `text` calls a procedure.
pub(crate) fn is_call(text: &str) -> bool {
    word(text.trim_start()).eq_ignore_ascii_case("call")
}

/// Pads a list of keys to the number of its placeholders ([`places`]) by repeating the last key.
pub(crate) fn padded(keys: &[Bytes]) -> Vec<Bytes> {
    keys.iter().chain(keys.last().into_iter().cycle()).take(places(keys.len())).cloned().collect()
}

/// The number of placeholders for a list of `keys` keys, in four steps per power of two: 5, 6, 7,
/// 8, 10, 12, 14, 16, 20 and so on. So a connection prepares at most [`LISTS_MAX`] statements
/// instead of one for every length, and at most a quarter of the placeholders is padding, each of
/// which costs the server a look-up.
fn places(keys: usize) -> usize {
    let step = (keys.next_power_of_two() / 8).max(1);
    keys.next_multiple_of(step)
}

/// The number of different numbers of placeholders that key lists are padded to.
pub(crate) const LISTS_MAX: usize = 4 * (KEYS_MAX.ilog2() as usize - 1);

/// Returns a part of a key, counted from 1.
fn part(key: &Bytes, part: usize) -> Option<Bytes> {
    let found = key.split(|byte| *byte == b':').nth(part - 1)?;
    Some(key.slice_ref(found))
}

/// Most parts of a key that a template may use.
const PARTS_MAX: usize = 16;

fn read(text: &str, dialect: Dialect) -> Result<Template, String> {
    let mut template = Template { dialect, before: Vec::new(), after: String::new() };
    let (mut at, mut plain) = (0, 0);
    while at < text.len() {
        if let Some(bytes) = quoted(&text[at..], &text[..at], dialect) {
            let bytes =
                bytes.map_err(|what| format!("{what} at position {} has no end", position(text, at)))?;
            at += bytes;
        } else if let Some((parameter, bytes)) = parameter(text, at, dialect)? {
            template.before.push((text[plain..at].to_owned(), parameter));
            at += bytes;
            plain = at;
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text[plain..].clone_into(&mut template.after);
    Ok(template)
}

/// Converts the byte index `at` in `text` to a position in characters, from 1.
fn position(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}

/// Parses the parameter at byte `at` of a template and returns it with its length; none if there is
/// no parameter.
fn parameter(text: &str, at: usize, dialect: Dialect) -> Result<Option<(Parameter, usize)>, String> {
    let rest = &text[at..];
    refuse_native(text, at, dialect)?;
    let Some(after) = rest.strip_prefix(':') else { return Ok(None) };
    // `::type` is a cast; its second colon does not start a parameter either.
    if after.starts_with(':') || text[..at].ends_with(':') {
        return Ok(None);
    }
    let name = word(after);
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        return Ok(None);
    }
    let whole = |parameter| Ok(Some((parameter, 1 + name.len())));
    match name {
        "keys" => whole(Parameter::Keys),
        _ if dialect == Dialect::Sqlite => Ok(None),
        "value" => whole(Parameter::Value),
        "key" => {
            let digits = after["key".len()..].strip_prefix('.').map_or("", digits);
            if digits.is_empty() {
                return whole(Parameter::Key);
            }
            let part = digits.parse().ok().filter(|part| (1..=PARTS_MAX).contains(part));
            let part = part.ok_or_else(|| {
                let position = position(text, at);
                format!("`:key.{digits}` at position {position} is no part; 1 to {PARTS_MAX} are accepted")
            })?;
            Ok(Some((Parameter::Part(part), 1 + "key.".len() + digits.len())))
        }
        _ => Err(format!("`:{name}` at position {} is no parameter", position(text, at))),
    }
}

/// Refuses the database server's own placeholders, which would be mixed up with ours.
fn refuse_native(text: &str, at: usize, dialect: Dialect) -> Result<(), String> {
    let rest = &text[at..];
    let native = match dialect {
        Dialect::MySql => rest.starts_with('?').then_some(1),
        Dialect::Postgres => rest
            .strip_prefix('$')
            .map(digits)
            .filter(|digits| !digits.is_empty())
            .map(|digits| 1 + digits.len()),
        Dialect::Sqlite => None,
    };
    match native {
        Some(bytes) if !text[..at].ends_with(is_word) => {
            let (native, position) = (&rest[..bytes], position(text, at));
            Err(format!("`{native}` at position {position} is the server's placeholder, ours have names"))
        }
        _ => Ok(()),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

fn digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())]
}

/// Returns the length of the string, quoted name or comment at the start of `text`, which follows
/// `before`; none if it starts with none of them, and an error with its kind if it does not end.
fn quoted(text: &str, before: &str, dialect: Dialect) -> Option<Result<usize, &'static str>> {
    let string = |escapes| Some(until_quote(text, escapes).ok_or("the string"));
    let name = || Some(until_quote(text, false).ok_or("the quoted name"));
    let line = || Some(Ok(text.find('\n').map_or(text.len(), |end| end + 1)));
    match (dialect, text.as_bytes()[0]) {
        (Dialect::MySql, b'\'' | b'"') => string(true),
        (Dialect::MySql, b'`') => name(),
        (Dialect::MySql, b'#') => line(),
        // In MySQL two hyphens start a comment only before a blank, so that `5--1` is 6.
        (Dialect::MySql, b'-') if is_mysql_comment(text) => line(),
        (Dialect::Postgres, b'\'') => string(is_escape_string(before)),
        (Dialect::Postgres, b'"') => name(),
        (Dialect::Postgres, b'-') if text.starts_with("--") => line(),
        (Dialect::Sqlite, b'\'') => string(false),
        (Dialect::Sqlite, b'"' | b'`') => name(),
        (Dialect::Sqlite, b'[') => Some(text.find(']').map(|end| end + 1).ok_or("the quoted name")),
        (Dialect::Sqlite, b'-') if text.starts_with("--") => line(),
        (Dialect::Postgres, b'$') if !before.ends_with(is_word) => dollar(text),
        (_, b'/') if text.starts_with("/*") => {
            Some(until_comment_ends(text, dialect == Dialect::Postgres).ok_or("the comment"))
        }
        _ => None,
    }
}

fn is_mysql_comment(text: &str) -> bool {
    let blank = |c: char| c.is_whitespace() || c.is_control();
    text.strip_prefix("--").is_some_and(|rest| rest.is_empty() || rest.starts_with(blank))
}

/// True if the quote that follows `before` opens a string like `E'…'`, in which backslashes escape.
fn is_escape_string(before: &str) -> bool {
    before.strip_suffix(['e', 'E']).is_some_and(|before| !before.ends_with(|c| is_word(c) || c == '$'))
}

/// The length of `text` up to and including the quote that closes the one in its first byte; a
/// doubled quote does not close it.
fn until_quote(text: &str, escapes: bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            byte if byte == bytes[0] && bytes.get(at + 1) == Some(&byte) => at += 2,
            byte if byte == bytes[0] => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn until_comment_ends(text: &str, nests: bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (2, 1);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            b"/*" if nests => {
                depth += 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    None
}

/// Parses a string like `$$…$$` or `$tag$…$tag$`; returns its length.
fn dollar(text: &str) -> Option<Result<usize, &'static str>> {
    let tag = word(&text[1..]);
    if tag.starts_with(|c: char| c.is_ascii_digit()) || !text[1 + tag.len()..].starts_with('$') {
        return None;
    }
    let fence = &text[..tag.len() + 2];
    let end = text[fence.len()..].find(fence).map(|end| end + 2 * fence.len());
    Some(end.ok_or("the dollar-quoted string"))
}

#[cfg(test)]
mod tests;
