//! Helpers of validation: the source of a value, the name of its setting, and range checks.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::spanned::Spanned;

use super::problem::{Origin, Problems};
use super::raw::Key;

/// A value of the file or of a flag, with its source.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// A setting: its names in the file and on the command line, and a value to suggest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Table as written, such as `[memory]`.
    pub(super) table: &'static str,
    /// Key within the table.
    pub(super) key: &'static str,
    /// A value that works, as TOML.
    pub(super) example: &'static str,
}

impl Setting {
    pub(super) const fn new(table: &'static str, key: &'static str, example: &'static str) -> Self {
        Self { table, key, example }
    }

    /// Name of the setting as it is written in the value's source.
    pub(super) fn name(&self, origin: &Origin) -> String {
        match origin {
            Origin::Flag(flag) => (*flag).to_owned(),
            _ => format!("{} {}", self.table, self.key),
        }
    }

    /// Remedy that suggests the example.
    pub(super) fn remedy(&self, origin: &Origin) -> String {
        self.remedy_with(&self.example.trim_matches('"'), origin)
    }

    /// Remedy that suggests `value`, for settings whose example is out of range.
    fn remedy_with(&self, value: &dyn Display, origin: &Origin) -> String {
        let quote = if self.example.starts_with('"') { "\"" } else { "" };
        match origin {
            Origin::Flag(flag) => format!("give {flag} {value}"),
            _ => format!("set {} = {quote}{value}{quote}", self.key),
        }
    }
}

/// Returns a value of the configuration file with its place; none if the key is absent.
pub(super) fn given<T: Clone>(key: &Key<T>) -> Option<Given<T>> {
    let spanned = key.as_ref()?;
    Some(Given { value: spanned.get_ref().clone(), origin: bytes(spanned) })
}

/// The place of a value or table of the file.
pub(super) fn bytes<T>(spanned: &Spanned<T>) -> Origin {
    Origin::Bytes(spanned.span())
}

/// Returns the tables of a list, up to `max` of them; more are a problem. `heading` is that of one.
pub(super) fn at_most<'t, T>(
    problems: &mut Problems<'_>,
    heading: &str,
    tables: &'t [Spanned<T>],
    max: usize,
) -> &'t [Spanned<T>] {
    if let Some(first) = tables.get(max) {
        let message =
            format!("there are {} {heading}; at most {max} are accepted: leave some out", tables.len());
        problems.add(&bytes(first), message);
    }
    &tables[..tables.len().min(max)]
}

/// Returns the flag's value, otherwise the file's.
pub(super) fn flag_or<T: Clone>(flag: &'static str, value: Option<T>, key: &Key<T>) -> Option<Given<T>> {
    value.map(|value| Given { value, origin: Origin::Flag(flag) }).or_else(|| given(key))
}

/// Parses the flag's text, otherwise returns the file's value; text that cannot be parsed is a
/// problem and counts as absent.
pub(super) fn parsed_flag_or<T>(
    problems: &mut Problems<'_>,
    flag: &'static str,
    text: Option<&str>,
    key: &Key<T>,
) -> Option<Given<T>>
where
    T: Clone + FromStr,
    T::Err: Display,
{
    let origin = Origin::Flag(flag);
    match text.map(str::parse) {
        Some(Ok(value)) => Some(Given { value, origin }),
        Some(Err(error)) => {
            problems.add(&origin, format!("{flag}: {error}"));
            None
        }
        None => given(key),
    }
}

/// Returns the given value if it is accepted; otherwise the default, with a problem if a value was
/// given.
pub(super) fn in_range<T>(
    problems: &mut Problems<'_>,
    setting: Setting,
    given: Option<Given<T>>,
    default: T,
    accepted: RangeInclusive<T>,
) -> T
where
    T: Copy + PartialOrd + Display + FromStr,
{
    let Some(Given { value, origin }) = given else { return default };
    if accepted.contains(&value) {
        return value;
    }
    let name = setting.name(&origin);
    let (min, max) = (accepted.start(), accepted.end());
    let remedy = match setting.example.trim_matches('"').parse() {
        Ok(example) if accepted.contains(&example) => setting.remedy(&origin),
        _ => setting.remedy_with(if value < *min { min } else { max }, &origin),
    };
    let bound = if value < *min { format!("at least {min}") } else { format!("{min} to {max}") };
    problems.add(&origin, format!("{name} is {value}; it must be {bound}: {remedy}"));
    default
}

/// Returns the meaning of the given word; that of the first word if none is given, or if it is
/// unknown, which is a problem.
pub(super) fn one_of<T: Copy>(
    problems: &mut Problems<'_>,
    setting: Setting,
    given: Option<Given<String>>,
    words: &[(&str, T)],
) -> T {
    let default = words[0].1;
    let Some(Given { value, origin }) = given else { return default };
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == value) {
        return *meaning;
    }
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    unknown(problems, setting, &Given { value, origin }, &names);
    default
}

/// Adds the problem of an unknown word, with the most similar known one as the remedy.
pub(super) fn unknown(problems: &mut Problems<'_>, setting: Setting, given: &Given<String>, known: &[&str]) {
    let Given { value, origin } = given;
    let shown = super::units::quoted(value);
    let what = format!("{} is \"{shown}\"; it must be {}", setting.name(origin), either(known));
    let remedy = match sherwood_model::nearest(value, known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => {
            let example = setting.example.trim_matches('"');
            let works = known.iter().find(|name| **name == example).or(known.first());
            setting.remedy_with(works.unwrap_or(&example), origin)
        }
    };
    problems.add(origin, format!("{what}: {remedy}"));
}

/// Maximum of names listed in one message.
const NAMES_MAX: usize = 30;

/// Joins the accepted words for a message: `"a"`, `"a" or "b"`, `one of "a", "b", "c"`.
pub(super) fn either(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("\"{name}\"")).collect();
    match &quoted[..] {
        [a] => a.clone(),
        [a, b] => format!("{a} or {b}"),
        _ if names.len() > NAMES_MAX => {
            format!("one of {} and {} more", quoted.join(", "), names.len() - NAMES_MAX)
        }
        _ => format!("one of {}", quoted.join(", ")),
    }
}
