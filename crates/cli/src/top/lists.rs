//! The lists of backends and of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as TableRow, Table, Widget};

use super::parts::{HEADING, name_width, nothing, rate};
use super::seen::{Seen, Share};
use super::state::{BackendRow, State};
use crate::policy::plain;
use crate::words;

/// Columns of a figure.
const FIGURE: u16 = 10;
/// Columns of a share, which may be a range.
const SHARE: u16 = 12;

/// Draws the backends that have replicas: what these do now, and what became of the keys asked for
/// since the answers before.
pub(super) fn backends(area: Rect, buf: &mut Buffer, state: &State) {
    let rows = &state.backends[state.offset.min(state.backends.len())..];
    let name = name_width(state.backends.iter().map(|row| row.name.as_str()), 7);
    let heads = ["backend", "up", "in flight", "waiting", "keys/s", "failed/s", "rejected/s", "stale/s"];
    let row = |row: &BackendRow| {
        let counts =
            [format!("{} of {}", row.up, row.replicas), row.in_flight.to_string(), row.waiting.to_string()];
        let rates = row.per_s.map(|per_s| per_s.map_or_else(|| words::NONE.to_owned(), rate));
        let figures = counts.into_iter().chain(rates).map(|text| Cell::from(Line::raw(text).right_aligned()));
        let name = Cell::from(words::shortened(&plain(&row.name), name.into()));
        TableRow::new([name].into_iter().chain(figures).collect::<Vec<_>>())
    };
    let head = |(index, text): (usize, &&'static str)| {
        let line = Line::styled(*text, HEADING);
        Cell::from(if index == 0 { line } else { line.right_aligned() })
    };
    let header = TableRow::new(heads.iter().enumerate().map(head).collect::<Vec<_>>());
    let widths = [name].into_iter().chain([FIGURE; 7]).map(Constraint::Length);
    Table::new(rows.iter().map(row), widths).header(header).column_spacing(1).render(area, buf);
    if state.backends.is_empty() {
        nothing(area, buf, "no backends that the node asks");
    }
}

/// Draws the keys that are read most, those of each partition together.
pub(super) fn keys(area: Rect, buf: &mut Buffer, state: &State, seen: &Seen) {
    let all = match &seen.hot_keys {
        Some(Ok(keys)) => keys,
        Some(Err(why)) => return nothing(area, buf, &words::escaped(why)),
        None => return nothing(area, buf, "asking"),
    };
    let rows: Vec<(&str, &Share)> =
        all.iter().flat_map(|of| of.keys.iter().map(|key| (&*of.partition, key))).collect();
    let name = name_width(all.iter().map(|of| of.partition.as_str()), 9);
    let room = area.width.saturating_sub(name + SHARE + 2);
    let row = |(partition, share): &(&str, &Share)| {
        TableRow::new([
            Cell::from(words::shortened(&plain(partition), name.into())),
            Cell::from(Line::raw(percent_of(share)).right_aligned()),
            Cell::from(words::shortened(&key_of(share), room.into())),
        ])
    };
    let heads = [
        Line::styled("partition", HEADING),
        Line::styled("of reads", HEADING).right_aligned(),
        Line::styled("key, of a sample of the last minutes", HEADING),
    ];
    let widths = [name, SHARE, room].map(Constraint::Length);
    let shown = rows[state.offset.min(rows.len())..].iter().map(row);
    Table::new(shown, widths).header(TableRow::new(heads)).column_spacing(1).render(area, buf);
    if rows.is_empty() {
        nothing(area, buf, "no reads lately");
    }
}

/// Returns the share of a key's reads, as a range where it may be much less.
fn percent_of(share: &Share) -> String {
    let most = words::percent(share.share_ratio);
    if share.error_ratio <= share.share_ratio / 10.0 {
        return most;
    }
    format!("{} to {most}", words::percent(share.share_ratio - share.error_ratio))
}

fn key_of(share: &Share) -> String {
    let key = words::escaped(&share.key);
    if share.encoding == "utf8" { key } else { format!("{key} ({})", share.encoding) }
}
