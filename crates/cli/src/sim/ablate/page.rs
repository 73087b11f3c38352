//! The tables as a self-contained HTML page.

use std::fmt::Write;

use super::table::{HEAD, Row, Table};
use crate::chart::{Cell, escaped, number, page, table, word};
use crate::sim::flags::Flags;

/// Formats the page of a table; `flags` apply to all of its runs.
pub(super) fn of(found: &Table, flags: &Flags) -> String {
    let mut body = preface(found, flags);
    let head: Vec<Cell> = [word("what was changed")].into_iter().chain(HEAD.map(number)).collect();
    for rows in found.scenarios() {
        let row = |row: &Row| [word(&row.change)].into_iter().chain(row.cells().map(number)).collect();
        let rows_of: Vec<Vec<Cell>> = rows.iter().map(row).collect();
        let _ = writeln!(body, "<h2>{}</h2>", escaped(&rows[0].scenario));
        body += &table(&head, &rows_of);
    }
    page("RobinHood, changed one thing at a time", &body)
}

fn preface(found: &Table, flags: &Flags) -> String {
    let settings = flags.all_settings();
    let settings = if settings.is_empty() { "none".to_owned() } else { escaped(&settings.join(", ")) };
    let seeds: Vec<String> = found.seeds.iter().map(u64::to_string).collect();
    format!(
        "<p>Simulated by Sherwood {} at scale {}; settings of all runs: {settings}; seeds: {}. With one seed, all meet the \
         same requests at the same times, and “more” is more than unchanged with the same seed. Where there are several \
         seeds, ± or a range in brackets is the 95% confidence interval of the mean.</p>\n",
        env!("CARGO_PKG_VERSION"),
        flags.scale(),
        seeds.join(", "),
    )
}
