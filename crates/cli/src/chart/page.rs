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
figcaption { color: #555 }";

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
