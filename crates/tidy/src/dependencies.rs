//! Checks that crates use their dependencies.
//!
//! An unused dependency costs compile time and audits, and adds an arrow to the table of rooms that
//! does not exist. A dependency used only by tests belongs to the development dependencies.

use serde_json::Value;

use crate::code;
use crate::product::product;

/// Dependencies of a package of the workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependencies {
    /// Name of the package's folder below `crates/`.
    pub room: String,
    /// Names of the normal dependencies, which the product uses.
    pub product: Vec<String>,
    /// Names of the development dependencies.
    pub development: Vec<String>,
}

/// Reads the output of `cargo metadata --format-version 1 --no-deps`, without dependencies of build
/// scripts.
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

/// Returns a sentence for every unused dependency. `sources` are the paths and texts of the
/// package's Rust files. A dependency must be named by the product, a development dependency
/// anywhere.
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
    fn unused_dependency_is_found() {
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
    fn normal_dependency_used_only_by_tests_is_found() {
        let sources = [
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod tests { use b; }"),
            ("crates/a/tests/c.rs", "use b; use c;"),
        ];
        assert_eq!(verdict(&["b"], &[], &sources).len(), 1);
        assert!(verdict(&[], &["b", "c"], &sources).is_empty());
    }

    #[test]
    fn cargo_metadata_is_read_with_kinds_and_renamed_dependencies() {
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
