//! Problems of a configuration, and their locations.
//!
//! All problems of a configuration are reported at once, each with its location and a remedy. They
//! are collected, up to a limit, and printed one per line in the format of compilers.

use std::fmt;
use std::ops::Range;

/// Maximum of problems reported for one configuration; further ones are only counted.
pub const PROBLEMS_MAX: usize = 20;

/// Refusal of a configuration: one line per problem, `location: what, accepted range: remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", lines(.problems), rest(*.unlisted))]
pub struct ConfigError {
    /// At least one and at most [`PROBLEMS_MAX`] problems, those of the file in the order of their
    /// places.
    pub problems: Vec<Problem>,
    /// Number of problems beyond those listed.
    pub unlisted: usize,
}

/// A problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Location of the wrong value.
    pub location: Location,
    /// The wrong value, the accepted range, and the remedy.
    pub message: String,
}

/// Location of a problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// The command line; the message names the flag.
    CommandLine,
    /// A file as a whole: something is missing, or it cannot be read.
    File(String),
    /// A line and a column of a file.
    Line {
        /// The file's name as it was given.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, message } = self;
        match location {
            Location::CommandLine => f.write_str(message),
            Location::File(file) => write!(f, "{file}: {message}"),
            Location::Line { file, line, column } => write!(f, "{file}:{line}:{column}: {message}"),
        }
    }
}

/// Source of a value, before it is turned into a [`Location`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A flag by its name, such as `--memory`.
    Flag(&'static str),
    /// Position of the value in the configuration file, as a range of bytes.
    Bytes(Range<usize>),
    /// A default, written neither in the file nor as a flag.
    Absent,
}

/// Collects the problems of a file.
#[derive(Debug)]
pub(super) struct Problems<'a> {
    file: Option<(&'a str, &'a str)>,
    found: Vec<Problem>,
    unlisted: usize,
}

impl<'a> Problems<'a> {
    /// Creates an empty collection; `file` is the configuration file's name and text.
    pub(super) fn new(file: Option<(&'a str, &'a str)>) -> Self {
        Self { file, found: Vec::new(), unlisted: 0 }
    }

    /// Adds a problem.
    pub(super) fn add(&mut self, origin: &Origin, message: impl Into<String>) {
        if self.found.len() == PROBLEMS_MAX {
            self.unlisted += 1;
            return;
        }
        let location = self.location(origin);
        self.found.push(Problem { location, message: message.into() });
    }

    /// Returns true if the limit of listed problems is reached.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() == PROBLEMS_MAX
    }

    /// Name of `origin` for messages about another location: "line 12", a flag, or "by default".
    pub(super) fn reference(&self, origin: &Origin) -> String {
        match (origin, self.location(origin)) {
            (Origin::Flag(flag), _) => (*flag).to_owned(),
            (_, Location::Line { line, .. }) => format!("line {line}"),
            _ => "by default".to_owned(),
        }
    }

    /// Returns the collected problems as an error, if there are any.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let Self { file: _, mut found, unlisted } = self;
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by(|a, b| a.location.cmp(&b.location));
        Err(ConfigError { problems: found, unlisted })
    }

    fn location(&self, origin: &Origin) -> Location {
        match (origin, self.file) {
            (Origin::Flag(_), _) | (_, None) => Location::CommandLine,
            (Origin::Absent, Some((file, _))) => Location::File(file.to_owned()),
            (Origin::Bytes(bytes), Some((file, text))) => {
                let (line, column) = position(text, bytes.start);
                Location::Line { file: file.to_owned(), line, column }
            }
        }
    }
}

/// Line and column of the byte at `offset`, both from 1; offsets past the end mean the end.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn rest(unlisted: usize) -> String {
    if unlisted == 0 { String::new() } else { format!("\nand {unlisted} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_of_problems_count_from_one() {
        let text = "a = 1\nbé = 2\n";
        let at = |needle: &str| position(text, text.find(needle).expect("is there"));
        assert_eq!((at("a"), at("b"), at("2")), ((1, 1), (2, 1), (2, 6)));
        assert_eq!(position(text, 1000), (3, 1));
        assert_eq!(position(text, text.find('é').expect("is there") + 1), (2, 3));
    }

    #[test]
    fn configuration_problems_are_ordered_by_place_and_limited_in_number() {
        let text = "\n".repeat(100);
        let mut problems = Problems::new(Some(("a.toml", &text)));
        for line in (0..50).rev() {
            problems.add(&Origin::Bytes(line..line), format!("wrong {line}"));
        }
        let error = problems.finish().expect_err("there are problems");
        assert_eq!((error.problems.len(), error.unlisted), (PROBLEMS_MAX, 30));
        assert_eq!(error.problems[0].to_string(), "a.toml:31:1: wrong 30");
        assert!(error.to_string().ends_with("a.toml:50:1: wrong 49\nand 30 more"));
    }
}
