//! Pure rooms decide and do nothing else: their sources name no clock, socket, file, thread, environment or entropy.
//!
//! Clippy denies the calls it knows by path; this rule denies the words, so that a new function of the standard
//! library is covered the day it appears. Test code is exempt: a test may well start threads to see two of them meet.

use crate::code;

/// Words that pure code has no use for.
const FORBIDDEN: &[&str] = &[
    "tokio",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "std::process",
    "Instant::now",
    "SystemTime",
    "RandomState",
    "getrandom",
];

/// One sentence for every forbidden word in the code of `source`, tests left out.
#[must_use]
pub fn violations(path: &str, source: &str) -> Vec<String> {
    let code = code::without_prose(source);
    let code = &code[..tests_start(&code)];
    let words = FORBIDDEN.iter().flat_map(|&word| {
        let grouped = word.strip_prefix("std::").map(|name| grouped_imports(code, name)).unwrap_or_default();
        code::occurrences(code, word).into_iter().chain(grouped).map(move |at| (at, word))
    });
    let lifted = code::occurrences(code, "allow").into_iter().filter_map(|at| {
        let open = at + "allow".len();
        let lints = code[open..].starts_with('(').then(|| code::bracketed(code, open))?;
        lints.contains("clippy::disallowed").then_some((at, "allow(clippy::disallowed…)"))
    });
    words
        .chain(lifted)
        .map(|(at, word)| format!("{path}:{}: `{word}` in a pure room", code::line_of(code, at)))
        .collect()
}

/// Names of the modules that `source` declares as test code in a file of their own: `#[cfg(test)] mod name;`.
#[must_use]
pub fn test_modules(source: &str) -> Vec<String> {
    let code = code::without_prose(source);
    let in_file = test_declarations(&code).filter(|(_, _, delimiter)| *delimiter == ';');
    in_file.map(|(_, name, _)| name.to_owned()).collect()
}

/// Where the test module at the end of `code` starts; the end where there is none.
fn tests_start(code: &str) -> usize {
    test_declarations(code).find(|(_, _, delimiter)| *delimiter == '{').map_or(code.len(), |(at, _, _)| at)
}

/// Modules behind `#[cfg(test)]`: offset, name, and whether a body (`{`) or a file (`;`) follows.
fn test_declarations(code: &str) -> impl Iterator<Item = (usize, &str, char)> {
    code.match_indices(TEST_ONLY).filter_map(|(at, _)| {
        let declaration = code[at + TEST_ONLY.len()..].trim_start().strip_prefix("mod ")?;
        let name = declaration.split(|c| !code::is_word(c)).next()?;
        let delimiter = declaration[name.len()..].trim_start().chars().next()?;
        Some((at, name, delimiter))
    })
}

const TEST_ONLY: &str = "#[cfg(test)]";

/// Offsets of groups like `std::{fs, io}` that import `name`.
fn grouped_imports(code: &str, name: &str) -> Vec<usize> {
    let imports = |&at: &usize| {
        let group = code::bracketed(code, at + "std::".len());
        top_level(group).any(|item| item.split("::").next().is_some_and(|first| first.trim() == name))
    };
    code.match_indices("std::{").map(|(at, _)| at).filter(imports).collect()
}

/// The items of an import group, nested groups left whole.
fn top_level(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    group.split(move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_path_is_found_with_its_line() {
        assert_eq!(violations("a.rs", "use std::fs;\n"), ["a.rs:1: `std::fs` in a pure room"]);
        assert_eq!(
            violations("a.rs", "\nlet t = Instant::now();"),
            ["a.rs:2: `Instant::now` in a pure room"]
        );
    }

    #[test]
    fn a_grouped_import_is_found() {
        let found = violations("a.rs", "use std::{collections::{BTreeMap}, thread::{self}};");
        assert_eq!(found, ["a.rs:1: `std::thread` in a pure room"]);
        assert!(violations("a.rs", "use std::{io::{fs, Read}, fmt};").is_empty());
    }

    #[test]
    fn lifting_the_ban_is_found() {
        let source = "#![allow(\n    clippy::disallowed_methods, reason = \"because\")]";
        assert_eq!(violations("a.rs", source), ["a.rs:1: `allow(clippy::disallowed…)` in a pure room"]);
        assert!(violations("a.rs", "fn allow(&self) {}").is_empty());
    }

    #[test]
    fn prose_and_tests_are_exempt() {
        let source = "// no std::net here\nuse a::B; /// tokio drives us\n#[cfg(test)]\nmod tests { use std::thread; }";
        assert!(violations("a.rs", source).is_empty());
    }

    #[test]
    fn code_after_a_test_only_import_is_not_exempt() {
        let source = "#[cfg(test)]\nuse a::B;\n#[cfg(test)]\nmod tests;\nuse std::env;";
        assert_eq!(violations("a.rs", source), ["a.rs:5: `std::env` in a pure room"]);
    }

    #[test]
    fn test_modules_in_files_are_named() {
        assert_eq!(test_modules("mod a;\n#[cfg(test)]\nmod b_tests;\nmod c;"), ["b_tests"]);
        assert!(test_modules("#[cfg(test)]\nmod tests { fn f() { g(); } }").is_empty());
        assert!(test_modules("#[cfg(test)]\nuse a::B;\nmod c;").is_empty());
    }
}
