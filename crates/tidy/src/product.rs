//! Which code is the product's, and which only tests it.
//!
//! Tests may do what the product must not: start threads to see two of them meet, bring in a crate
//! that draws inputs. A rule about the product therefore has to tell them apart, and to err towards
//! the product: a test module that is not recognised is reported, product code that is taken for a
//! test never is. So a module counts as test code only where its parent says
//! `#[cfg(test)] mod name` and nothing else, and only the file, folder or body of that very module.

use crate::code;

/// What is the product's of `sources` (paths with `/`, text): files that hold test modules left
/// out, and of the others the code, without prose ([`code::without_prose`]) and without test
/// modules' bodies; lines keep their numbers.
#[must_use]
pub fn product<'a>(sources: &[(&'a str, String)]) -> Vec<(&'a str, String)> {
    let codes: Vec<(&str, String)> =
        sources.iter().map(|(path, source)| (*path, code::without_prose(source))).collect();
    let tests: Vec<String> = codes.iter().flat_map(|(path, code)| modules_in_files(path, code)).collect();
    let is_test = |path: &str| {
        let inside = |module: &String| {
            path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        tests.iter().any(inside)
    };
    let kept = codes.into_iter().filter(|(path, _)| !is_test(path));
    kept.map(|(path, code)| (path, without_bodies(&code))).collect()
}

/// The test modules that `code`, the file at `path`, declares in files of their own: their paths
/// without `.rs`.
fn modules_in_files(path: &str, code: &str) -> Vec<String> {
    let module = path.trim_end_matches(".rs");
    let folder = match module.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder,
        _ => module,
    };
    let in_file = declarations(code).filter(|declaration| declaration.delimiter == ';');
    in_file.map(|declaration| format!("{folder}/{}", declaration.name)).collect()
}

/// `code` with the bodies of its test modules turned into blanks.
fn without_bodies(code: &str) -> String {
    let mut product = String::with_capacity(code.len());
    let mut done = 0;
    for Declaration { open, .. } in declarations(code).filter(|declaration| declaration.delimiter == '{') {
        if open < done {
            continue;
        }
        let body = code::bracketed(code, open);
        product.push_str(&code[done..=open]);
        product.extend(body.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        done = open + 1 + body.len();
    }
    product.push_str(&code[done..]);
    product
}

/// A module behind `#[cfg(test)]`.
struct Declaration<'a> {
    name: &'a str,
    /// `{` before a body, `;` where a file follows.
    delimiter: char,
    /// Where the delimiter is.
    open: usize,
}

fn declarations(code: &str) -> impl Iterator<Item = Declaration<'_>> {
    code.match_indices(TEST_ONLY).filter_map(|(at, _)| {
        let declaration = code[at + TEST_ONLY.len()..].trim_start().strip_prefix("mod ")?;
        let name = declaration.split(|c| !code::is_word(c)).next()?;
        let rest = declaration[name.len()..].trim_start();
        Some(Declaration { name, delimiter: rest.chars().next()?, open: code.len() - rest.len() })
    })
}

const TEST_ONLY: &str = "#[cfg(test)]";

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(sources: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let sources: Vec<(&str, String)> =
            sources.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        product(&sources)
    }

    fn kept_paths(sources: &[(&'static str, &str)]) -> Vec<&'static str> {
        kept(sources).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn a_test_module_in_files_is_left_out_where_its_parent_has_it() {
        let sources = [
            ("s/lib.rs", "mod a;\nmod model;\n#[cfg(test)]\nmod checks;"),
            ("s/a.rs", "#[cfg(test)]\nmod model;"),
            ("s/a/model.rs", ""),
            ("s/a/model/deep.rs", ""),
            ("s/checks/mod.rs", ""),
        ];
        assert_eq!(kept_paths(&sources), ["s/lib.rs", "s/a.rs"]);
    }

    #[test]
    fn a_product_file_named_like_another_modules_tests_is_kept() {
        let sources = [
            ("s/lib.rs", "mod a; mod model; mod b;"),
            ("s/a/mod.rs", "#[cfg(test)] mod model;"),
            ("s/a/models.rs", ""),
            ("s/model.rs", ""),
            ("s/b/model.rs", ""),
            ("s/model/part.rs", ""),
        ];
        assert_eq!(kept_paths(&sources), sources.map(|(path, _)| path));
    }

    #[test]
    fn only_the_test_module_itself_is_left_out() {
        let source =
            "use a;\n#[cfg(test)]\nmod tests {\n    fn f() { g(); }\n}\nuse b;\n#[cfg(test)]\nuse c;";
        let [(_, code)] = &kept(&[("a.rs", source)])[..] else { panic!("one file") };
        let squeezed: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(squeezed.join(" "), "use a; #[cfg(test)] mod tests { } use b; #[cfg(test)] use c;");
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn test_modules_inside_test_modules_and_open_ended_ones_do_not_confuse_it() {
        let nested = "#[cfg(test)] mod a { #[cfg(test)] mod b { c } d } e";
        let code = kept(&[("a.rs", nested)]).remove(0).1;
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), "#[cfg(test)] mod a { } e");
        assert_eq!(
            kept(&[("a.rs", "#[cfg(test)] mod a { b")]).remove(0).1.trim_end(),
            "#[cfg(test)] mod a {"
        );
    }
}
