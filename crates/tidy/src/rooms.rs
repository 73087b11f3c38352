//! Dependencies between crates, as ARCHITECTURE.md states them.
//!
//! The table of rooms lists every crate with the rooms it knows. A room may only know rooms listed
//! above it, so all arrows point one way. Development dependencies are exempt: a test may combine
//! rooms that must not know each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// External crates that pure rooms may use: data structures, arithmetic and codecs, none of which
/// accesses the machine.
pub const PURE_DEPENDENCIES: &[&str] = &[
    "base64",
    "bytes",
    "crc32fast",
    "hashbrown",
    "histogram",
    "itoa",
    "libm",
    "lzma-rs",
    "memchr",
    "rand_core",
    "rand_xoshiro",
    "rapidhash",
    "schemars",
    "serde",
    "serde_json",
    "smallvec",
    "thiserror",
    "toml",
];

/// The rooms (crates of the workspace) and their dependencies according to ARCHITECTURE.md.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RoomPlan {
    /// Names of the rooms that each room may depend on.
    pub knows: BTreeMap<String, BTreeSet<String>>,
    /// Names of the pure rooms, which use no I/O, clock or randomness.
    pub pure: BTreeSet<String>,
}

impl RoomPlan {
    /// Reads the table below the heading "Rooms" and the sentence that starts with "**Pure rooms**
    /// are".
    ///
    /// # Errors
    /// A sentence when a row names an unknown room or one that is listed below it, or when the
    /// table or the sentence is missing.
    pub fn read(architecture: &str) -> Result<Self, String> {
        let section = architecture.split("\n## ").find_map(|section| section.strip_prefix("Rooms\n"));
        let section = section.ok_or("ARCHITECTURE.md has no section \"Rooms\"")?;
        let knows = read_table(section)?;
        let (_, after) =
            section.split_once("**Pure rooms** are").ok_or("ARCHITECTURE.md does not name the pure rooms")?;
        let sentence = after.split_once('.').map_or(after, |(sentence, _)| sentence);
        let pure: BTreeSet<String> = quoted(sentence).map(str::to_owned).collect();
        match pure.iter().find(|room| !knows.contains_key(*room)) {
            Some(unknown) => {
                Err(format!("ARCHITECTURE.md calls `{unknown}` pure, but its table has no such room"))
            }
            None => Ok(Self { knows, pure }),
        }
    }
}

/// A package of the workspace with its dependencies, except development dependencies.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// Name of the package's folder under `crates/`.
    pub room: String,
    /// Rooms that the package depends on.
    pub rooms: Vec<String>,
    /// External crates that the package depends on.
    pub external: Vec<String>,
}

/// Reads the packages of the workspace from the output of `cargo metadata --format-version 1
/// --no-deps`.
#[must_use]
pub fn packages(metadata: &Value) -> Vec<Package> {
    array(&metadata["packages"]).map(package).collect()
}

/// Returns a sentence for every package that is missing from the plan, depends on a room it must
/// not know, or is pure and uses an unlisted crate; and for every planned room without a package.
#[must_use]
pub fn violations(plan: &RoomPlan, packages: &[Package]) -> Vec<String> {
    let absent = plan.knows.keys().filter(|room| packages.iter().all(|package| package.room != **room));
    let absent =
        absent.map(|room| format!("ARCHITECTURE.md lists room `{room}`, but crates/{room} is no package"));
    packages.iter().flat_map(|package| package_violations(plan, package)).chain(absent).collect()
}

fn package_violations(plan: &RoomPlan, package: &Package) -> Vec<String> {
    let Package { room, rooms, external } = package;
    let Some(allowed) = plan.knows.get(room) else {
        return vec![format!("crates/{room} is not in the table of rooms in ARCHITECTURE.md")];
    };
    let strangers = rooms.iter().filter(|other| !allowed.contains(*other));
    let strangers = strangers.map(|other| format!("`{room}` depends on `{other}`, which it must not know"));
    let impure = external
        .iter()
        .filter(|name| plan.pure.contains(room) && !PURE_DEPENDENCIES.contains(&name.as_str()));
    let impure =
        impure.map(|name| format!("pure room `{room}` depends on `{name}`, which is not on the list"));
    strangers.chain(impure).collect()
}

fn package(package: &Value) -> Package {
    let (mut rooms, mut external) = (Vec::new(), Vec::new());
    for dependency in array(&package["dependencies"]).filter(|dependency| dependency["kind"] != "dev") {
        match dependency["path"].as_str() {
            Some(path) => rooms.push(last_segment(path)),
            None => external.push(dependency["name"].as_str().unwrap_or_default().to_owned()),
        }
    }
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let folder = manifest.strip_suffix("/Cargo.toml").unwrap_or(manifest);
    Package { room: last_segment(folder), rooms, external }
}

fn read_table(section: &str) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let rows: Vec<(&str, &str)> = section.lines().filter_map(row).collect();
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    if names.is_empty() {
        return Err("ARCHITECTURE.md has no table of rooms".to_owned());
    }
    let entry = |(at, (name, known)): (usize, &(&str, &str))| {
        Ok(((*name).to_owned(), read_known(name, known, &names[..at])?))
    };
    rows.iter().enumerate().map(entry).collect()
}

/// Returns the first and the last cell of a table row whose first cell is a name in backticks.
fn row(line: &str) -> Option<(&str, &str)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let name = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
    Some((name, cells.last()?))
}

/// Parses a cell of the column with the rooms that `room` knows: "–", "all", "all but a, b" or a
/// list of rooms.
fn read_known(room: &str, known: &str, above: &[&str]) -> Result<BTreeSet<String>, String> {
    let (but, listed) = match known.strip_prefix("all") {
        Some(rest) => (true, rest.trim().trim_start_matches("but")),
        None => (false, known.trim_matches('–')),
    };
    let listed: Vec<&str> = listed.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(other) = listed.iter().find(|name| !above.contains(*name)) {
        return Err(format!("ARCHITECTURE.md: `{room}` names `{other}`, which is no room listed above it"));
    }
    let chosen = above.iter().filter(|name| listed.contains(*name) != but);
    Ok(chosen.map(|name| (*name).to_owned()).collect())
}

/// Returns the words of `text` in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn last_segment(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n## Rooms\n| crate | holds | knows |\n|---|---|---|\n| `low` | a | – |\n| `mid` | b | low |\n\
        | `high` | c | all but low |\n| `top` | d | all |\n\n**Pure rooms** are `low` and `mid`. They `decide`.\n## B\n";

    fn plan() -> RoomPlan {
        RoomPlan::read(PAGE).expect("the page is well formed")
    }

    fn uses(room: &str, rooms: &[&str], external: &[&str]) -> Package {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Package { room: room.to_owned(), rooms: owned(rooms), external: owned(external) }
    }

    #[test]
    fn table_of_rooms_in_the_architecture_page_is_read() {
        let RoomPlan { knows, pure } = plan();
        let names = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        let known: Vec<String> =
            knows.iter().map(|(room, known)| format!("{room}: {}", names(known))).collect();
        assert_eq!(known, ["high: mid", "low: ", "mid: low", "top: high low mid"]);
        assert_eq!(names(&pure), "low mid");
    }

    #[test]
    fn table_with_a_room_that_knows_a_lower_room_is_refused() {
        let page = PAGE.replace("| a | – |", "| a | mid |");
        let refused = RoomPlan::read(&page).expect_err("the arrow points up");
        assert_eq!(refused, "ARCHITECTURE.md: `low` names `mid`, which is no room listed above it");
    }

    #[test]
    fn dependency_that_the_table_of_rooms_does_not_allow_is_found() {
        let packages = [
            uses("low", &["mid"], &[]),
            uses("mid", &["low"], &[]),
            uses("high", &[], &[]),
            uses("top", &[], &[]),
        ];
        assert_eq!(violations(&plan(), &packages), ["`low` depends on `mid`, which it must not know"]);
    }

    #[test]
    fn external_dependency_of_a_pure_room_that_is_not_listed_is_found() {
        let packages = [
            uses("low", &[], &["libm", "socket2"]),
            uses("mid", &[], &[]),
            uses("high", &[], &["socket2"]),
            uses("top", &[], &[]),
        ];
        let found = violations(&plan(), &packages);
        assert_eq!(found, ["pure room `low` depends on `socket2`, which is not on the list"]);
    }

    #[test]
    fn package_missing_from_the_table_of_rooms_is_found() {
        let found = violations(&plan(), &[uses("new", &[], &[])]);
        assert_eq!(found.len(), 5, "{found:?}");
        assert_eq!(found[0], "crates/new is not in the table of rooms in ARCHITECTURE.md");
    }

    #[test]
    fn cargo_metadata_is_read_without_development_dependencies() {
        let metadata = serde_json::json!({"packages": [{
            "manifest_path": "/a/crates/cli/Cargo.toml",
            "dependencies": [
                {"name": "sherwood-node", "path": "/a/crates/node", "kind": null},
                {"name": "libc", "kind": null},
                {"name": "cc", "kind": "build"},
                {"name": "insta", "kind": "dev"},
            ],
        }]});
        assert_eq!(packages(&metadata), [uses("cli", &["node"], &["libc", "cc"])]);
    }
}
