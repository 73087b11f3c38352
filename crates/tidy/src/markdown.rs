//! Reads links and anchors of the repository's Markdown pages.
//!
//! Only relative links are checked: other machines are not under this repository's control, and
//! tests must not need a network.

/// Returns the relative links of a Markdown page as `(line, target)`, except those in code.
#[must_use]
pub fn relative_links(page: &str) -> Vec<(usize, String)> {
    prose_lines(page)
        .flat_map(|(line, text)| targets(&text).into_iter().map(move |target| (line, target)))
        .filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// Returns the anchors of a page's headings as GitHub and mdBook derive them: lower case, blanks
/// replaced by hyphens, other punctuation removed.
#[must_use]
pub fn anchors(page: &str) -> Vec<String> {
    let headings = prose_lines(page).filter_map(|(_, text)| {
        let title = text.trim_start_matches('#');
        (title.len() < text.len() && title.starts_with(' ')).then(|| title.trim().to_owned())
    });
    headings.map(|title| anchor(&title)).collect()
}

/// Returns the paths of the pages that a page of the book includes, each by a line of its own.
pub fn included(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.lines().filter_map(|line| line.strip_prefix("{{#include ")?.strip_suffix("}}"));
    targets.filter(|target| target.ends_with(".md"))
}

/// Returns a sentence for every page of the book that is missing in its table of contents, and thus
/// not built. Paths are relative to the book's folder.
#[must_use]
pub fn unlisted_pages(summary: &str, pages: &[&str]) -> Vec<String> {
    let listed: Vec<String> = relative_links(summary).into_iter().map(|(_, target)| target).collect();
    let missing =
        pages.iter().filter(|page| **page != "SUMMARY.md" && !listed.iter().any(|one| one == *page));
    missing.map(|page| format!("docs/src/SUMMARY.md: {page} is not listed, so the book lacks it")).collect()
}

/// Resolves the link `target`, relative to the page `from`, to a path from the repository's root;
/// none when the link leaves the repository.
#[must_use]
pub fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the lines of a page outside fenced code, numbered from 1, with brackets in code spans
/// removed.
pub(crate) fn prose_lines(page: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    page.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then(|| (at + 1, without_code_links(line)))
    })
}

/// Removes the brackets inside code spans of a line, so that code is never taken for a link while
/// headings keep their words.
fn without_code_links(line: &str) -> String {
    let spans = line.split('`').enumerate();
    spans.map(|(at, span)| if at % 2 == 1 { span.replace(['[', ']'], "") } else { span.to_owned() }).collect()
}

fn targets(text: &str) -> Vec<String> {
    let after = text.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_links_of_a_page_are_found_outside_code() {
        let page = "see [a](b.md) and [c](https://d/e)\n```\n[f](g)\n```\n`[h](i)` [j](#k)";
        assert_eq!(relative_links(page), [(1, "b.md".to_owned()), (5, "#k".to_owned())]);
    }

    #[test]
    fn anchors_of_a_page_are_derived_from_its_headings() {
        let page = "# A `b` page\n```\n# not one\n```\n## What's new, really?\n#hash";
        assert_eq!(anchors(page), ["a-b-page", "whats-new-really"]);
    }

    #[test]
    fn pages_that_a_page_includes_are_found_but_not_included_files() {
        let page = "# A\n\n```json\n{{#include ../a.json}}\n```\n{{#include ../b.md}}\n";
        assert_eq!(included(page).collect::<Vec<_>>(), ["../b.md"]);
    }

    #[test]
    fn page_that_the_table_of_contents_lacks_is_found() {
        let found = unlisted_pages("[A](a.md)\n\n- [B](b.md)", &["SUMMARY.md", "a.md", "b.md", "c.md"]);
        assert_eq!(found, ["docs/src/SUMMARY.md: c.md is not listed, so the book lacks it"]);
    }

    #[test]
    fn link_targets_are_resolved_relative_to_their_page() {
        assert_eq!(resolve("docs/src/a.md", "../b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(resolve("README.md", "./docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("README.md", "../a"), None);
    }
}
