//! Checks of comments and pages: their width, and the first words of doc comments.
//!
//! Code blocks, tables and headings may be wide, and so may a line that cannot be broken: a link, a
//! code span or a long word.

use crate::markdown::prose_lines;

/// Widest line of a comment or page, in characters.
pub const COLUMNS_MAX: usize = 100;

/// First words of doc comments that are understood only by readers of the code.
const OPENINGS: &[&str] = &[
    "What",
    "Who",
    "Whom",
    "Whose",
    "Whether",
    "How",
    "Where",
    "Those",
    "One",
    "Nobody",
    "Somebody",
    "Its",
    "As long as",
    "So many",
];

/// Attributes that turn the preceding doc comment into help text of the command line, for which
/// other rules apply.
const HELP: &[&str] = &["#[arg(", "#[command(", "#[value("];

/// Returns a sentence for every comment of `source` that has a line of its own and is too wide.
#[must_use]
pub fn wide_comments(path: &str, source: &str) -> Vec<String> {
    let mut fenced = false;
    let too_wide = source.lines().enumerate().filter(|(_, line)| {
        let Some((marker, text)) = comment(line) else {
            fenced = false;
            return false;
        };
        let fence = marker != "//" && text.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced && is_too_wide(line, text)
    });
    too_wide.map(|(at, line)| sentence(path, at + 1, line)).collect()
}

/// Returns a sentence for every line of text in the Markdown page `page` that is too wide.
#[must_use]
pub fn wide_lines(path: &str, page: &str) -> Vec<String> {
    let lines: Vec<&str> = page.lines().collect();
    let lines = prose_lines(page).map(|(at, _)| (at, lines[at - 1]));
    lines.filter(|(_, line)| is_too_wide(line, line)).map(|(at, line)| sentence(path, at, line)).collect()
}

/// Returns a sentence for every doc comment of `source` that begins with an unclear word.
#[must_use]
pub fn unclear_openings(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut previous = "";
    let lines: Vec<&str> = source.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let (marker, text) = comment(line).unwrap_or_default();
        if marker != previous && matches!(marker, "///" | "//!") && !is_help(&lines[at..]) {
            let opening = OPENINGS.iter().find(|opening| starts_with_words(text.trim_start(), opening));
            let sentence = |opening: &&str| {
                format!(
                    "{path}:{}: the doc comment begins with \"{opening}\": begin with a verb or a noun",
                    at + 1
                )
            };
            found.extend(opening.map(sentence));
        }
        previous = marker;
    }
    found
}

/// Returns marker and text of the comment that `line` consists of; none for other lines.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker))?;
    Some((marker, &line[marker.len()..]))
}

/// Returns true when `lines` begin with a comment and an attribute that makes the comment a help
/// text of the command line.
fn is_help(lines: &[&str]) -> bool {
    let mut after = lines.iter().map(|line| line.trim_start()).skip_while(|line| line.starts_with("//"));
    after.next().is_some_and(|line| HELP.iter().any(|attribute| line.starts_with(attribute)))
}

fn starts_with_words(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn is_too_wide(line: &str, text: &str) -> bool {
    let text = text.trim_start();
    let is_kept = text.starts_with('|') || text.starts_with('#');
    line.chars().count() > COLUMNS_MAX && !is_kept && can_be_broken(text)
}

/// Returns true when `text` has at least two words, so that a line break fits between them. A code
/// span or a link counts as one word, the mark of a list or quotation as none.
fn can_be_broken(text: &str) -> bool {
    let unmarked = text.trim_start_matches(['-', '*', '>']).trim();
    let mut code = false;
    let mut depth = 0_usize;
    for c in unmarked.chars() {
        match c {
            '`' => code = !code,
            '[' | '(' if !code => depth += 1,
            ']' | ')' if !code => depth = depth.saturating_sub(1),
            ' ' if !code && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

fn sentence(path: &str, at: usize, line: &str) -> String {
    format!("{path}:{at}: {} columns, at most {COLUMNS_MAX}: wrap it", line.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(words: usize) -> String {
        "word ".repeat(words).trim_end().to_owned()
    }

    #[test]
    fn width_of_comments_is_counted_in_characters() {
        let fits = format!("/// {}{}", long(18), "ä".repeat(7));
        assert_eq!(fits.chars().count(), COLUMNS_MAX);
        assert!(wide_comments("a.rs", &fits).is_empty());
        let found = wide_comments("a.rs", &format!("fn f() {{}}\n{fits}ä"));
        assert_eq!(found, ["a.rs:2: 101 columns, at most 100: wrap it"]);
    }

    #[test]
    fn code_blocks_tables_and_unbreakable_lines_keep_their_width() {
        let line = long(30);
        let source =
            format!("//! ```\n//! {line}\n//! ```\n//! | {line} |\n//! - `{line}`\nlet a = \"{line}\";");
        assert!(wide_comments("a.rs", &source).is_empty());
        let page =
            format!("# {line}\n```\n{line}\n```\n| {line} |\n[{line}](x)\n<https://{}>", "x".repeat(100));
        assert!(wide_lines("a.md", &page).is_empty());
    }

    #[test]
    fn too_wide_line_of_text_in_a_page_is_found() {
        let page = format!("```\n```\n- `a b` {}", long(20));
        assert_eq!(wide_lines("a.md", &page), ["a.md:3: 107 columns, at most 100: wrap it"]);
        let source = format!("/// ```\nfn f() {{}}\n    // {}", long(20));
        assert_eq!(wide_comments("a.rs", &source), ["a.rs:3: 106 columns, at most 100: wrap it"]);
    }

    #[test]
    fn unclear_word_is_found_only_at_the_beginning_of_a_doc_comment() {
        let source = "//! What it is.\n//! How it is.\n\n/// Returns one.\n/// One line.\nfn f() {}\n/// As long as it is.\n// Who\n";
        let found = unclear_openings("a.rs", source);
        let expected = [(1, "What"), (7, "As long as")].map(|(line, opening)| {
            format!("a.rs:{line}: the doc comment begins with \"{opening}\": begin with a verb or a noun")
        });
        assert_eq!(found, expected);
        assert!(unclear_openings("a.rs", "/// However.\n/// `One` is a variant.").is_empty());
    }

    #[test]
    fn help_text_of_the_command_line_may_begin_with_any_word() {
        let source = "/// How long to watch\n/// at most\n#[arg(long)]\nfor_: u8,";
        assert!(unclear_openings("a.rs", source).is_empty());
    }
}
