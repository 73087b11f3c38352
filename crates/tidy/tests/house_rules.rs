//! The house rules, applied to this repository.

use sherwood_tidy::imports::{self, Imports};
use sherwood_tidy::product::product;
use sherwood_tidy::rooms::{self, RoomPlan};
use sherwood_tidy::tree::Tree;
use sherwood_tidy::{comments, dependencies, documents, files, markdown, purity};

/// Files above 1 MiB that may be in the repository, each with its reason.
const LARGE_FILES: &[&str] = &[];

/// Most files of one crate that may import each other in a circle.
const CIRCLE_MAX: usize = 8;

/// Crates with a limit of their own: the largest circle of imports that they had when the rule was
/// made. A figure may only go down.
const CIRCLES: &[(&str, usize)] = &[
    ("cli", 2),
    ("dispatch", 2),
    ("model", 0),
    ("path", 0),
    ("policy", 7),
    ("sim", 3),
    ("store", 4),
    ("tidy", 0),
    ("wire", 0),
    ("workload", 7),
];

fn tree() -> Tree {
    Tree::open().expect("the tests run in a clone")
}

fn assert_none(violations: impl IntoIterator<Item = String>) {
    let violations: Vec<String> = violations.into_iter().collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn crates_depend_only_on_crates_above_them_in_the_architecture_table() {
    let tree = tree();
    let plan = RoomPlan::read(&tree.text("ARCHITECTURE.md")).expect("the page lists the rooms");
    let packages = rooms::packages(&tree.metadata().expect("cargo knows the workspace"));
    assert_none(rooms::violations(&plan, &packages));
}

#[test]
fn pure_crates_use_no_io_clock_or_randomness() {
    let tree = tree();
    let plan = RoomPlan::read(&tree.text("ARCHITECTURE.md")).expect("the page lists the rooms");
    for room in &plan.pure {
        let folder = format!("crates/{room}/src/");
        let sources: Vec<(&str, String)> = tree.texts(&folder, ".rs").collect();
        assert_none(product(&sources).iter().flat_map(|(path, code)| purity::violations(path, code)));
    }
}

#[test]
fn circles_of_imports_are_within_the_limit_of_their_crate() {
    let tree = tree();
    assert_none(tree.crates().filter_map(|name| {
        let root = format!("crates/{name}/src/");
        let sources: Vec<(&str, String)> = tree.texts(&root, ".rs").collect();
        let ceiling = CIRCLES.iter().find(|(known, _)| *known == name).map_or(CIRCLE_MAX, |&(_, most)| most);
        imports::violation(name, &Imports::read(&root, &sources), ceiling)
    }));
}

#[test]
fn comments_and_pages_fit_into_100_columns() {
    let tree = tree();
    let comments = tree.texts("", ".rs").flat_map(|(path, text)| comments::wide_comments(path, &text));
    let pages = tree.texts("", ".md").flat_map(|(path, text)| comments::wide_lines(path, &text));
    assert_none(comments.chain(pages));
}

#[test]
fn doc_comments_begin_with_a_verb_or_a_noun() {
    let tree = tree();
    assert_none(tree.texts("", ".rs").flat_map(|(path, text)| comments::unclear_openings(path, &text)));
}

#[test]
fn files_are_within_the_limits_on_bytes_and_lines() {
    let tree = tree();
    let large = tree.files.iter().filter_map(|file| files::oversized(file, tree.bytes(file), LARGE_FILES));
    let long = tree.texts("", ".rs").filter_map(|(path, text)| files::overlong(path, &text));
    assert_none(large.chain(long));
}

#[test]
fn every_crate_inherits_the_lints() {
    let tree = tree();
    let manifests = tree.texts("crates/", "/Cargo.toml");
    assert_none(manifests.filter_map(|(path, text)| documents::missing_lints(path, &text)));
}

/// Anchors of a page, or of the page that it includes.
fn anchors(tree: &Tree, page: &str) -> Vec<String> {
    let text = tree.text(page);
    let included = markdown::included(&text).and_then(|target| markdown::resolve(page, target));
    markdown::anchors(&included.map_or(text, |path| tree.text(&path)))
}

#[test]
fn links_of_markdown_pages_have_existing_targets() {
    let tree = tree();
    for (page, text) in tree.texts("", ".md") {
        assert_none(markdown::relative_links(&text).into_iter().filter_map(|(line, target)| {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() { Some(page.to_owned()) } else { markdown::resolve(page, path) };
            let dead = match file {
                Some(file) if anchor.is_empty() || !file.ends_with(".md") => !tree.exists(&file),
                Some(file) => {
                    !tree.exists(&file) || !anchors(&tree, &file).iter().any(|known| known == anchor)
                }
                None => true,
            };
            dead.then(|| format!("{page}:{line}: the link to {target} leads nowhere"))
        }));
    }
}

#[test]
fn pages_of_the_book_are_listed_and_link_within_it() {
    let tree = tree();
    let folder = "docs/src/";
    let pages: Vec<(&str, String)> = tree.texts(folder, ".md").collect();
    let names: Vec<&str> = pages.iter().filter_map(|(path, _)| path.strip_prefix(folder)).collect();
    assert_none(markdown::unlisted_pages(&tree.text("docs/src/SUMMARY.md"), &names));
    assert_none(pages.iter().flat_map(|(page, text)| {
        markdown::relative_links(text).into_iter().filter_map(move |(line, target)| {
            let path = target.split('#').next().filter(|path| !path.is_empty())?;
            let within = markdown::resolve(page, path).is_some_and(|file| file.starts_with(folder));
            (!within).then(|| format!("{page}:{line}: {target} is not in {folder}, so the book lacks it"))
        })
    }));
}

#[test]
fn changelog_has_an_unreleased_section() {
    assert_none(documents::missing_unreleased(&tree().text("CHANGELOG.md")));
}

#[test]
fn every_dependency_has_a_documented_reason() {
    let tree = tree();
    assert_none(documents::undocumented_dependencies(
        &tree.text("Cargo.toml"),
        &tree.text("docs/dependencies.md"),
    ));
}

#[test]
fn every_dependency_is_used_by_its_crate() {
    let tree = tree();
    let packages = dependencies::read(&tree.metadata().expect("cargo knows the workspace"));
    assert_none(packages.iter().flat_map(|package| {
        let sources: Vec<(&str, String)> = tree.texts(&format!("crates/{}/", package.room), ".rs").collect();
        dependencies::unused(package, &sources)
    }));
}
