//! The tables as one page of HTML that needs nothing beside it.

use std::fmt::Write;

use super::table::{HEAD as COLUMNS, Table};
use crate::sim::flags::Flags;

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>RobinHood, changed one thing at a time</title>
<style>
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
</style>
</head>
<body>
<h1>RobinHood, changed one thing at a time</h1>
";

/// The page of a table; `flags` hold for all of its runs.
pub(super) fn of(table: &Table, flags: &Flags) -> String {
    let mut page = HEAD.to_owned();
    page += &preface(table, flags);
    for rows in table.scenarios() {
        let _ = writeln!(page, "<h2>{}</h2>\n<table>", escaped(&rows[0].scenario));
        page += &row("th", "what was changed", &COLUMNS.map(str::to_owned));
        for one in rows {
            page += &row("td", &one.change, &one.cells());
        }
        page += "</table>\n";
    }
    page + "</body>\n</html>\n"
}

fn preface(table: &Table, flags: &Flags) -> String {
    let settings = flags.all_settings();
    let settings = if settings.is_empty() { "none".to_owned() } else { escaped(&settings.join(", ")) };
    let seeds: Vec<String> = table.seeds.iter().map(u64::to_string).collect();
    format!(
        "<p>Simulated by Sherwood {} at scale {}; settings of all runs: {settings}; seeds: {}. With one seed, all meet the \
         same requests at the same times, and “more” is more than unchanged with the same seed. Where there are several \
         seeds, ± is the 95% confidence interval of the mean.</p>\n",
        env!("CARGO_PKG_VERSION"),
        flags.scale,
        seeds.join(", "),
    )
}

fn row(tag: &str, first: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
    format!("<tr><{tag}>{}</{tag}>{cells}</tr>\n", escaped(first))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
