//! Configurations in the book and the README, checked by the program.

use std::path::Path;
use std::process::Command;

use crate::page::blocks;

/// Root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Returns the configurations of a page: blocks in ```` ```toml ````, except those marked as
/// ```` ```toml part ````, and files that commands write from a document that ends with `TOML`.
fn configurations(page: &'static str) -> Vec<&'static str> {
    let written = |text: &'static str| {
        let after = text.split("<<'TOML'\n").skip(1);
        after.map(|file| file.split_once("\nTOML\n").expect("a document ends").0)
    };
    let of = |block: &crate::page::Block| match (block.language, block.note) {
        ("toml", "part") => Vec::new(),
        ("toml", _) => vec![block.text],
        ("sh", _) => written(block.text).collect(),
        _ => Vec::new(),
    };
    blocks(page).iter().flat_map(of).collect()
}

#[test]
fn configurations_in_pages_are_valid() {
    let root = Path::new(ROOT);
    let mut pages: Vec<_> =
        std::fs::read_dir(root.join("docs/src")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    let directory = tempfile::tempdir().unwrap();
    let (mut checked, mut refused) = (0, Vec::new());
    for page in pages.iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        let text: &'static str = std::fs::read_to_string(page).unwrap().leak();
        for file in configurations(text).into_iter().filter(|file| !file.starts_with("{{#include")) {
            let path = directory.path().join("sherwood.toml");
            std::fs::write(&path, file).unwrap();
            let mut check = Command::new(env!("CARGO_BIN_EXE_sherwood"));
            let output = check.arg("check-config").arg(&path).output().unwrap();
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                refused.push(format!("{}:\n{file}\n{said}", page.display()));
            }
            checked += 1;
        }
    }
    assert!(refused.is_empty(), "not valid, and not marked as `toml part`:\n{}", refused.join("\n"));
    assert!(checked > 20, "{checked} configurations were found");
}

#[test]
fn configurations_of_a_page_are_its_blocks_and_the_files_that_it_writes() {
    let page = "```toml\na = 1\n```\n```toml part\nb = 2\n```\n```sh\ncat > c <<'TOML'\nc = 3\nTOML\n```\n";
    assert_eq!(configurations(page), ["a = 1\n", "c = 3"]);
}
