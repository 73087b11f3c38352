//! Self-contained HTML pages and their tables.

use std::fmt::Write;

use super::escaped;

const STYLE: &str =
    "body { font: 16px/1.5 sans-serif; max-width: 66em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
h2 { margin-top: 2.5em; border-bottom: 2px solid #222 }
nav a { margin-right: 1.2em; white-space: nowrap }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .2em .5em; text-align: right; border-bottom: 1px solid #ddd }
td { white-space: nowrap }
td.word { white-space: normal }
th { vertical-align: bottom }
th.word, td.word { text-align: left }
td.no { font-weight: bold }
figure { margin: 2em 0 }
figure svg { min-width: 640px; width: 100%; height: auto }
figcaption { color: #555 }
@media (prefers-color-scheme: dark) {
body { color: #ddd; background: #14181f }
h2 { border-color: #ddd }
a { color: #8ab4f8 }
th, td { border-color: #3a4150 }
figcaption { color: #a5adba }
svg { fill: #ddd }
svg > rect[fill=\"#fff\"] { fill: #14181f }
svg [fill=\"#555\"] { fill: #a5adba }
svg [stroke=\"#fff\"] { stroke: #14181f }
svg [stroke=\"#ddd\"] { stroke: #3a4150 }
svg [stroke=\"#222\"], svg [stroke=\"#555\"], svg [stroke=\"#000000\"] { stroke: #ddd }
svg [fill=\"#000000\"] { fill: #ddd }
}";

/// Formats a page from its title and its body, which is HTML.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// A cell of a table.
pub(crate) struct Cell {
    /// Classes of the cell in the style sheet.
    pub(crate) class: &'static str,
    pub(crate) text: String,
}

/// Creates a cell of text.
pub(crate) fn word(text: impl AsRef<str>) -> Cell {
    Cell { class: "word", text: text.as_ref().to_owned() }
}

/// Creates a cell of a number or the heading of a numeric column.
pub(crate) fn number(text: impl AsRef<str>) -> Cell {
    Cell { class: "", text: text.as_ref().to_owned() }
}

/// Creates a cell that says whether something holds.
pub(crate) fn verdict(holds: bool) -> Cell {
    if holds { word("holds") } else { Cell { class: "word no", ..word("no") } }
}

/// A figure of a paper beside ours.
pub(crate) struct Compared {
    /// The scenario or policy that has the figure.
    pub(crate) of: &'static str,
    pub(crate) what: &'static str,
    pub(crate) paper: &'static str,
    pub(crate) ours: String,
    /// The accepted range.
    pub(crate) required: String,
    pub(crate) holds: bool,
}

/// Formats the figures of a paper beside ours, with `of` as the heading of what has them; empty
/// without any.
pub(crate) fn comparison(paper: &str, of: &str, figures: &[Compared]) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let head = [of, "what"].map(word).into_iter().chain(["paper", "ours", "required"].map(number));
    let head: Vec<Cell> = head.chain([word("")]).collect();
    let row = |Compared { of, what, paper, ours, required, holds }: &Compared| {
        vec![word(of), word(what), number(paper), number(ours), number(required), verdict(*holds)]
    };
    let rows: Vec<Vec<Cell>> = figures.iter().map(row).collect();
    format!("<h2>What {}'s paper says</h2>\n{}", escaped(paper), table(&head, &rows))
}

/// Formats a picture, given as SVG, with its caption.
pub(crate) fn figure(svg: &str, caption: &str) -> String {
    let caption = escaped(caption);
    format!("<figure>\n<div class=\"wide\">\n{svg}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n")
}

/// Formats a table with a heading row.
pub(crate) fn table(head: &[Cell], rows: &[Vec<Cell>]) -> String {
    let cells = |tag: &str, cells: &[Cell]| {
        cells.iter().fold("<tr>".to_owned(), |mut row, Cell { class, text }| {
            let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
            let _ = write!(row, "<{tag}{class}>{}</{tag}>", escaped(text));
            row
        }) + "</tr>\n"
    };
    let rows: String = rows.iter().map(|row| cells("td", row)).collect();
    format!("<div class=\"wide\">\n<table>\n{}{rows}</table>\n</div>\n", cells("th", head))
}
