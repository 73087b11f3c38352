//! The tools of judgement: where a value came from, what it is called, and whether it is in range.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use toml::Spanned;

use super::problem::{Origin, Problems};
use super::raw::Key;

/// A value somebody gave, and where.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// One setting: its names in the file and on the command line, and a value to suggest.
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

    /// What the setting is called where the value came from.
    pub(super) fn name(&self, origin: &Origin) -> String {
        match origin {
            Origin::Flag(flag) => (*flag).to_owned(),
            _ => format!("{} {}", self.table, self.key),
        }
    }

    /// What to type there instead.
    pub(super) fn remedy(&self, origin: &Origin) -> String {
        self.remedy_with(&self.example.trim_matches('"'), origin)
    }

    /// What to type there where the example would be refused, too: a value of the same kind.
    fn remedy_with(&self, value: &dyn Display, origin: &Origin) -> String {
        let quote = if self.example.starts_with('"') { "\"" } else { "" };
        match origin {
            Origin::Flag(flag) => format!("give {flag} {value}"),
            _ => format!("set {} = {quote}{value}{quote}", self.key),
        }
    }
}

/// A value of the file with its place.
pub(super) fn given<T: Clone>(key: &Key<T>) -> Option<Given<T>> {
    let spanned = key.as_ref()?;
    Some(Given { value: spanned.get_ref().clone(), origin: bytes(spanned) })
}

/// The place of a value or table of the file.
pub(super) fn bytes<T>(spanned: &Spanned<T>) -> Origin {
    Origin::Bytes(spanned.span())
}

/// The flag's value, else the file's.
pub(super) fn flag_or<T: Clone>(flag: &'static str, value: Option<T>, key: &Key<T>) -> Option<Given<T>> {
    value.map(|value| Given { value, origin: Origin::Flag(flag) }).or_else(|| given(key))
}

/// As [`flag_or`], for flags whose text is yet to be understood; nonsense is a problem and counts
/// as not given.
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

/// The given value when it is accepted; else the default, with a problem when one was given.
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

/// The meaning of the given word, or of the first word when none is given or, with a problem, when
/// it is none of them.
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

/// Notes that a word is none of the known ones, with the nearest of them as the remedy.
pub(super) fn unknown(problems: &mut Problems<'_>, setting: Setting, given: &Given<String>, known: &[&str]) {
    let Given { value, origin } = given;
    let shown = super::units::quoted(value);
    let what = format!("{} is \"{shown}\"; it must be {}", setting.name(origin), either(known));
    let remedy = match super::read::nearest(value, known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => {
            let example = setting.example.trim_matches('"');
            let works = known.iter().find(|name| **name == example).or(known.first());
            setting.remedy_with(works.unwrap_or(&example), origin)
        }
    };
    problems.add(origin, format!("{what}: {remedy}"));
}

/// Most names listed in one message.
const NAMES_MAX: usize = 30;

/// `"a"`, `"a" or "b"`, `one of "a", "b", "c"`.
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
