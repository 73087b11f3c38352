//! A crate depends on what it names, and on nothing else.
//!
//! A dependency that nothing uses is compiled by everybody, audited by somebody, and in the table
//! of rooms it is an arrow that is not there. One that only tests use belongs to the development
//! dependencies.

use serde_json::Value;

use crate::code;
use crate::product::product;

/// What one package of the workspace depends on.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependencies {
    /// Folder of the package, its last part.
    pub room: String,
    /// Names of what the product needs.
    pub product: Vec<String>,
    /// Names of what its tests need besides.
    pub development: Vec<String>,
}

/// The packages in the output of `cargo metadata --format-version 1 --no-deps`, dependencies of
/// build scripts left out.
#[must_use]
pub fn read(metadata: &Value) -> Vec<Dependencies> {
    metadata["packages"].as_array().into_iter().flatten().map(package).collect()
}

fn package(package: &Value) -> Dependencies {
    let named = |kind: Option<&str>| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let of_kind = dependencies.filter(|dependency| dependency["kind"].as_str() == kind);
        of_kind.filter_map(|one| one["rename"].as_str().or(one["name"].as_str()).map(str::to_owned)).collect()
    };
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let room = manifest.rsplit('/').nth(1).unwrap_or_default().to_owned();
    Dependencies { room, product: named(None), development: named(Some("dev")) }
}

/// One sentence for every dependency that is named nowhere in `sources`, the paths and texts of the
/// package's Rust files: nowhere in the product's part of `src/`, or for development dependencies
/// nowhere at all.
#[must_use]
pub fn unused(dependencies: &Dependencies, sources: &[(&str, String)]) -> Vec<String> {
    let Dependencies { room, product: needed, development } = dependencies;
    let library: Vec<(&str, String)> =
        sources.iter().filter(|(path, _)| path.contains("/src/")).cloned().collect();
    let library: Vec<String> = product(&library).into_iter().map(|(_, code)| code).collect();
    let everything: Vec<String> = sources.iter().map(|(_, text)| code::without_prose(text)).collect();
    let needless = needed.iter().filter(|name| !is_named(name, &library));
    let needless = needless.map(|name| {
        format!("crates/{room} depends on `{name}` and its product never names it: remove it, or make it a dev-dependency")
    });
    let idle = development.iter().filter(|name| !is_named(name, &everything));
    let idle = idle
        .map(|name| format!("crates/{room} has the dev-dependency `{name}` and never names it: remove it"));
    needless.chain(idle).collect()
}

fn is_named(dependency: &str, codes: &[String]) -> bool {
    let name = dependency.replace('-', "_");
    codes.iter().any(|code| !code::occurrences(code, &name).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(product: &[&str], development: &[&str], sources: &[(&str, &str)]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let dependencies =
            Dependencies { room: "a".to_owned(), product: owned(product), development: owned(development) };
        let sources: Vec<(&str, String)> =
            sources.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        unused(&dependencies, &sources)
    }

    #[test]
    fn a_dependency_that_is_named_nowhere_is_found() {
        let source = "use some_crate::X; // libm is slow\nfn f() { \"libm\"; my_libm(); }";
        assert_eq!(
            verdict(&["some-crate", "libm"], &["insta"], &[("crates/a/src/lib.rs", source)]),
            [
                "crates/a depends on `libm` and its product never names it: remove it, or make it a dev-dependency",
                "crates/a has the dev-dependency `insta` and never names it: remove it",
            ]
        );
    }

    #[test]
    fn what_only_tests_name_is_no_dependency_of_the_product() {
        let sources = [
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod tests { use b; }"),
            ("crates/a/tests/c.rs", "use b; use c;"),
        ];
        assert_eq!(verdict(&["b"], &[], &sources).len(), 1);
        assert!(verdict(&[], &["b", "c"], &sources).is_empty());
    }

    #[test]
    fn metadata_is_read_with_kinds_and_other_names() {
        let metadata = serde_json::json!({"packages": [{
            "manifest_path": "/w/crates/cli/Cargo.toml",
            "dependencies": [
                {"name": "sherwood-node", "path": "/w/crates/node", "kind": null},
                {"name": "long-name", "rename": "short", "kind": null},
                {"name": "cc", "kind": "build"},
                {"name": "insta", "kind": "dev"},
            ],
        }]});
        let expected = Dependencies {
            room: "cli".to_owned(),
            product: vec!["sherwood-node".to_owned(), "short".to_owned()],
            development: vec!["insta".to_owned()],
        };
        assert_eq!(read(&metadata), [expected]);
    }
}
