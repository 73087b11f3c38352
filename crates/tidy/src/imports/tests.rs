use super::*;

fn read(sources: &[(&str, &str)]) -> Imports {
    let sources: Vec<(&str, String)> =
        sources.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
    Imports::read("s/", &sources)
}

/// Returns the imports between `sources`, each as `importer definer name`, with files without
/// folder and extension.
fn edges(sources: &[(&str, &str)]) -> Vec<String> {
    let imports = read(sources);
    let short = |file: usize| imports.files[file].trim_start_matches("s/").trim_end_matches(".rs");
    let lines = imports.names.iter().flat_map(|(&(from, to), names)| {
        names.iter().map(move |name| format!("{} {} {name}", short(from), short(to)))
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn import_of_a_reexported_name_counts_for_the_file_that_defines_it() {
    let sources = [
        ("s/lib.rs", "mod a; mod user;"),
        ("s/a/mod.rs", "mod part; mod deep; pub(crate) use part::Name as Known; pub use deep::*;"),
        ("s/a/part.rs", "pub struct Name;"),
        ("s/a/deep.rs", "pub use super::part::Name; pub fn run() {}"),
        ("s/user.rs", "use crate::a::{Known, run};"),
    ];
    assert_eq!(edges(&sources), ["user a/deep run", "user a/part Name"]);
}

#[test]
fn qualified_paths_in_code_count_like_imports() {
    let sources = [
        ("s/main.rs", "mod a; mod b; const LIMIT: usize = 1; fn main() { a::run(); }"),
        (
            "s/a/mod.rs",
            "mod part; use crate::b; use part as p; pub fn run() { b::go(p::X); self::part::y() }",
        ),
        ("s/a/part.rs", "pub const X: u8 = 1; fn f() -> usize { super::super::LIMIT } pub fn y() {}"),
        ("s/b.rs", "pub fn go() { super::a::run::<u8>(); }"),
    ];
    let expected = [
        "a/mod a/part X",
        "a/mod a/part y",
        "a/mod b go",
        "a/part main LIMIT",
        "b a/mod run",
        "main a/mod run",
    ];
    assert_eq!(edges(&sources), expected);
}

#[test]
fn names_from_a_glob_import_count_where_they_are_used() {
    let sources = [
        ("s/lib.rs", "mod a; mod user;"),
        ("s/a.rs", "pub struct Used; pub struct Unused;"),
        ("s/user.rs", "use crate::a::*; fn f(x: Used) {}"),
    ];
    assert_eq!(edges(&sources), ["user a Used"]);
}

#[test]
fn names_of_other_crates_do_not_count_as_imports() {
    let sources = [
        ("s/lib.rs", "mod a; mod http; use std::sync::Arc;"),
        (
            "s/a.rs",
            "use super::Arc; use ::http::Method; use bytes::Bytes; fn f() { Self::http::x; y.http::<u8>() }",
        ),
        ("s/http.rs", "pub struct Method;"),
    ];
    assert_eq!(edges(&sources), [""; 0]);
}

#[test]
fn import_of_a_name_that_a_macro_defines_counts_for_its_module() {
    let sources = [
        ("s/lib.rs", "mod ids; mod user;"),
        ("s/ids.rs", "macro_rules! id { () => {} } id!(KeyId);"),
        ("s/user.rs", "use crate::ids::KeyId; fn f() { KeyId::new() }"),
    ];
    assert_eq!(edges(&sources), ["user ids KeyId"]);
}

#[test]
fn imports_of_an_inline_module_count_for_its_file() {
    let sources = [
        ("s/lib.rs", "mod a; mod user;"),
        ("s/a.rs", "pub mod inner { use super::super::user::U; pub struct X; }"),
        ("s/user.rs", "use crate::a::inner::X; pub struct U;"),
    ];
    assert_eq!(edges(&sources), ["a user U", "user a X"]);
}

#[test]
fn imports_in_test_code_do_not_count() {
    let sources = [
        ("s/lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
        (
            "s/a.rs",
            "#[cfg(test)]\n#[rustfmt::skip]\npub(crate) use crate::b::{X, Y};\n#[cfg(test)] fn f() { crate::b::X; }\n\
                    struct S { #[cfg(test)] pub(crate) field: crate::b::X, other: crate::b::Y }",
        ),
        ("s/b.rs", "pub struct X; pub struct Y; #[cfg(test)] mod tests { use crate::a::S; }"),
        ("s/tests.rs", "use crate::a::S;"),
    ];
    assert_eq!(edges(&sources), ["a b Y"]);
}

#[test]
fn circle_of_use_declarations_does_not_loop_forever() {
    let sources = [
        ("s/lib.rs", "mod a; mod b;"),
        ("s/a.rs", "pub use crate::b::X; pub use crate::b::*; fn f() { X::y() }"),
        ("s/b.rs", "pub use crate::a::X; pub use crate::a::*;"),
    ];
    assert_eq!(read(&sources).largest_circle().size(), 0);
}

#[test]
fn circle_of_imports_above_the_ceiling_is_described() {
    let imports = read(&[
        ("s/lib.rs", "mod a; mod b; mod c; mod d;"),
        ("s/a.rs", "use crate::{b::B, d::D}; pub struct A;"),
        ("s/b.rs", "use crate::c::{C, E}; pub struct B;"),
        ("s/c.rs", "use crate::a::A; pub struct C; pub struct E;"),
        ("s/d.rs", "pub struct D;"),
    ]);
    assert_eq!(violation("x", &imports, 3), None);
    assert_eq!(
        violation("x", &imports, 2).expect("three files are in a circle"),
        "crates/x: 3 files import each other in a circle, at most 2; its files, and the names that each imports from \
         the others:\ns/a.rs\n    s/b.rs: B\ns/b.rs\n    s/c.rs: C, E\ns/c.rs\n    s/a.rs: A\n"
    );
}
