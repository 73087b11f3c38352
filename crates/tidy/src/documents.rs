//! Checks of manifests, the changelog and the list of dependencies.

/// Returns a sentence when the crate with this manifest does not inherit the workspace's lints.
#[must_use]
pub fn missing_lints(path: &str, manifest: &str) -> Option<String> {
    let lints =
        manifest.split("\n[lints]\n").nth(1).is_some_and(|table| table.starts_with("workspace = true"));
    (!lints).then(|| format!("{path}: no `[lints] workspace = true`, so nothing is denied here"))
}

/// Returns a sentence when the changelog has no section for unreleased changes.
#[must_use]
pub fn missing_unreleased(changelog: &str) -> Option<String> {
    let present = changelog.lines().any(|line| line == "## [Unreleased]");
    (!present).then(|| "CHANGELOG.md: no section `## [Unreleased]`".to_owned())
}

/// Returns a sentence for every external dependency in the workspace's `manifest` without a row in
/// the page `dependencies`.
#[must_use]
pub fn undocumented_dependencies(manifest: &str, dependencies: &str) -> Vec<String> {
    let (_, after) = manifest.split_once("\n[workspace.dependencies]\n").unwrap_or_default();
    let table = after.split("\n[").next().unwrap_or_default();
    let names =
        table.lines().filter(|line| !line.contains("path =")).filter_map(|line| line.split_once(" = "));
    let unexplained = names.filter(|(name, _)| !dependencies.contains(&format!("\n| {name} |")));
    unexplained.map(|(name, _)| format!("docs/dependencies.md: no row says why there is `{name}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_that_does_not_inherit_the_lints_is_found() {
        assert_eq!(missing_lints("Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n"), None);
        assert!(missing_lints("Cargo.toml", "[package]\n").is_some());
    }

    #[test]
    fn changelog_without_a_section_unreleased_is_found() {
        assert_eq!(missing_unreleased("# Changelog\n\n## [Unreleased]\n"), None);
        assert!(missing_unreleased("# Changelog\n\n## [0.1.0]\n").is_some());
    }

    #[test]
    fn dependency_missing_from_the_documented_list_is_found() {
        let manifest = "a = 1\n[workspace.dependencies]\nours = { path = \"o\" }\nb = \"1\"\nbc = { version = \"1\" }\n\n[d]\ne = 1";
        let found = undocumented_dependencies(manifest, "\n| bc | why |");
        assert_eq!(found, ["docs/dependencies.md: no row says why there is `b`"]);
    }
}
