//! Checks that pure rooms only decide: their code uses no part of the standard library that
//! accesses the machine.
//!
//! Clippy denies the functions and types listed in `clippy.toml`. This rule covers what clippy
//! cannot: whole modules, so that new functions are included, other names for the standard library,
//! and attributes that lift clippy's ban. External crates are checked by [`rooms`](crate::rooms).
//! Test code is exempt: see [`product`](crate::product).

use crate::code;

/// Macros that print to the terminal. `clippy.toml` could list them, but then every test and
/// example that prints would have to be exempted.
const PRINTING: &[&str] = &["print!", "println!", "eprint!", "eprintln!"];

/// Parts of the standard library that access the machine, and ways to rename them.
const FORBIDDEN_PATHS: &[&str] =
    &["std::net", "std::fs", "std::env", "std::thread", "std::process", "std::os", "std::self", "std::*"];

/// Attributes that exempt code from a lint.
const LIFTS: &[&str] = &["allow", "expect"];

/// Returns a sentence for every name in `code` that is forbidden in pure crates; `code` belongs to
/// the [`product`](crate::product).
#[must_use]
pub fn violations(path: &str, code: &str) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for &name in PRINTING {
        found.extend(code::occurrences(code, name).into_iter().map(|at| (at, name.to_owned())));
    }
    for at in code::occurrences(code, "std") {
        let rest = &code[at + "std".len()..];
        if rest.starts_with(" as ") {
            found.push((at, "std as".to_owned()));
        } else if rest.starts_with("::") {
            let mut paths = Vec::new();
            expand("std", rest, &mut paths);
            let forbidden = FORBIDDEN_PATHS
                .iter()
                .filter(|&forbidden| paths.iter().any(|path| is_below(path, forbidden)));
            found.extend(forbidden.map(|&forbidden| (at, forbidden.to_owned())));
        }
    }
    for &lift in LIFTS {
        let lifted =
            code::occurrences(code, lift).into_iter().filter(|&at| lifts_the_ban(code, at + lift.len()));
        found.extend(lifted.map(|at| (at, format!("{lift}(clippy::disallowed…)"))));
    }
    found.sort();
    found
        .into_iter()
        .map(|(at, word)| format!("{path}:{}: `{word}` in a pure room", code::line_of(code, at)))
        .collect()
}

/// Returns true when the attribute whose bracket is at `open` names a lint that forbids methods or
/// types.
fn lifts_the_ban(code: &str, open: usize) -> bool {
    code[open..].starts_with('(') && code::bracketed(code, open).contains("clippy::disallowed")
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Adds to `paths` every path that an import or expression denotes: `tree` follows `path`, such as
/// `::{fs, io::{Read, stdin}}`.
fn expand(path: &str, tree: &str, paths: &mut Vec<String>) {
    let Some(next) = tree.trim_start().strip_prefix("::").map(str::trim_start) else {
        paths.push(path.to_owned());
        return;
    };
    if next.starts_with('{') {
        for item in top_level(code::bracketed(next, 0)) {
            let item = item.trim();
            expand(path, &format!("::{item}"), paths);
        }
        return;
    }
    let end = next.find(|c: char| !code::is_word(c) && c != '*').unwrap_or(next.len());
    expand_word(path, next.split_at(end), paths);
}

fn expand_word(path: &str, (word, rest): (&str, &str), paths: &mut Vec<String>) {
    if word.is_empty() {
        paths.push(path.to_owned());
    } else {
        expand(&format!("{path}::{word}"), rest, paths);
    }
}

/// Splits an import group into its items; nested groups stay whole.
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
    use crate::product::product;

    fn found(source: &str) -> Vec<String> {
        product(&[("a.rs", source.to_owned())])
            .iter()
            .flat_map(|(path, code)| violations(path, code))
            .collect()
    }

    #[test]
    fn path_forbidden_in_pure_crates_is_found_with_its_line() {
        assert_eq!(found("use std::fs;\n"), ["a.rs:1: `std::fs` in a pure room"]);
        assert_eq!(found("use std::os::fd::AsRawFd;\n"), ["a.rs:1: `std::os` in a pure room"]);
        assert_eq!(found("\nlet t = std::thread::spawn(f);"), ["a.rs:2: `std::thread` in a pure room"]);
        assert!(found("use std::environment; use std::ops::Add; let x = my_std::fs;").is_empty());
    }

    #[test]
    fn forbidden_path_in_an_import_group_is_found() {
        let source = "use std::{collections::{BTreeMap}, thread::{self}};";
        assert_eq!(found(source), ["a.rs:1: `std::thread` in a pure room"]);
        assert!(found("use std::{io::{fs, Read}, fmt, *const};").is_empty());
    }

    #[test]
    fn printing_macro_in_a_pure_crate_is_found() {
        assert_eq!(found("println!(\"a\")"), ["a.rs:1: `println!` in a pure room"]);
        assert_eq!(found("eprint!(\"a\")"), ["a.rs:1: `eprint!` in a pure room"]);
        assert!(found("my_println!(); fn print() {}").is_empty());
    }

    #[test]
    fn renamed_standard_library_in_a_pure_crate_is_found() {
        assert_eq!(found("use ::std as s;"), ["a.rs:1: `std as` in a pure room"]);
        assert_eq!(found("extern crate std as s;"), ["a.rs:1: `std as` in a pure room"]);
        assert_eq!(found("use std::{self as s};"), ["a.rs:1: `std::self` in a pure room"]);
        assert_eq!(found("use std::*;"), ["a.rs:1: `std::*` in a pure room"]);
    }

    #[test]
    fn attribute_that_lifts_the_ban_of_impure_code_is_found() {
        for lift in LIFTS {
            let source = format!("#![{lift}(\n    clippy::disallowed_methods, reason = \"because\")]");
            assert_eq!(found(&source), [format!("a.rs:1: `{lift}(clippy::disallowed…)` in a pure room")]);
        }
        assert!(found("fn allow(&self) { self.x.expect(\"clippy::disallowed\") }").is_empty());
    }

    #[test]
    fn comments_and_tests_of_pure_crates_may_name_forbidden_paths() {
        let source = "// no std::net here\nuse a::B; /// std::fs is the driver's\n#[cfg(test)]\nmod tests { use std::thread; }";
        assert!(found(source).is_empty());
    }

    #[test]
    fn code_after_a_test_module_is_checked_for_forbidden_paths() {
        let source = "#[cfg(test)]\nuse a::B;\n#[cfg(test)]\nmod tests { use std::fs; }\nuse std::env;";
        assert_eq!(found(source), ["a.rs:5: `std::env` in a pure room"]);
    }
}
