//! Separation of product code from test code.
//!
//! Tests may do things that the product must not, such as starting threads or using crates that
//! draw inputs. Rules about the product need this distinction and must err on the side of the
//! product: product code is never taken for test code, and an unrecognised test module is reported.
//! So a module counts as test code only if its parent declares it as `#[cfg(test)] mod name`, and
//! only its own file, folder or body.

use crate::code;

/// Returns the product code of `sources` (paths with `/`, texts). Files of test modules are left
/// out; the others are stripped of prose ([`code::without_prose`]) and of the bodies of test
/// modules. Line numbers do not change.
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

/// Returns the paths, without `.rs`, of the test modules that the file at `path` declares in
/// separate files.
fn modules_in_files(path: &str, code: &str) -> Vec<String> {
    let module = path.trim_end_matches(".rs");
    let folder = match module.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder,
        _ => module,
    };
    let in_file = declarations(code).filter(|declaration| declaration.delimiter == ';');
    in_file.map(|declaration| format!("{folder}/{}", declaration.name)).collect()
}

/// Replaces the bodies of test modules in `code` by blanks.
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

/// A declaration of a module behind `#[cfg(test)]`.
struct Declaration<'a> {
    name: &'a str,
    /// `{` before the module's body, `;` when the module is a file.
    delimiter: char,
    /// Offset of the delimiter in the code.
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
    fn files_of_a_test_module_are_left_out_of_the_product() {
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
    fn product_file_named_like_a_test_module_elsewhere_is_kept() {
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
    fn product_code_around_a_test_module_is_kept() {
        let source =
            "use a;\n#[cfg(test)]\nmod tests {\n    fn f() { g(); }\n}\nuse b;\n#[cfg(test)]\nuse c;";
        let [(_, code)] = &kept(&[("a.rs", source)])[..] else { panic!("one file") };
        let squeezed: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(squeezed.join(" "), "use a; #[cfg(test)] mod tests { } use b; #[cfg(test)] use c;");
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn nested_and_unterminated_test_modules_are_left_out_of_the_product() {
        let nested = "#[cfg(test)] mod a { #[cfg(test)] mod b { c } d } e";
        let code = kept(&[("a.rs", nested)]).remove(0).1;
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), "#[cfg(test)] mod a { } e");
        assert_eq!(
            kept(&[("a.rs", "#[cfg(test)] mod a { b")]).remove(0).1.trim_end(),
            "#[cfg(test)] mod a {"
        );
    }
}
