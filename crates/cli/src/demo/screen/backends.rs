//! The table of backends: shares of the cache, waiting calls, slowdowns.

use std::cmp::Reverse;

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, Widget};

use super::super::live::{Live, LiveBackend};
use super::slowdowns::is_slowed;
use crate::words;

/// Draws the backends in `columns` columns under a common heading. When rows are scarce,
/// slowed-down backends come first, then the largest; those shown keep their order.
pub(super) fn render(area: Rect, buf: &mut Buffer, live: &Live, columns: usize) {
    let rows = usize::from(area.height.saturating_sub(1));
    let shown = chosen(&live.backends, rows * columns);
    if shown.is_empty() {
        return;
    }
    let largest = live.backends.iter().map(|backend| backend.bytes).max().unwrap_or(0).max(1);
    let gaps = GAP * (columns as u16 - 1);
    let width = area.width.saturating_sub(gaps) / columns as u16;
    let fields = Fields::new(width, &shown);
    for (column, part) in shown.chunks(shown.len().div_ceil(columns)).enumerate() {
        let x = area.x + (width + GAP) * column as u16;
        let left_out = live.backends.len() - shown.len();
        fields.table(part, largest, live, left_out).render(Rect { x, width, ..area }, buf);
    }
}

fn chosen(backends: &[LiveBackend], room: usize) -> Vec<&LiveBackend> {
    let mut order: Vec<usize> = (0..backends.len()).collect();
    order.sort_by_key(|&at| (Reverse(is_slowed(&backends[at])), Reverse(backends[at].bytes)));
    order.truncate(room);
    order.sort_unstable();
    order.into_iter().map(|at| &backends[at]).collect()
}

/// The columns of one table of backends.
struct Fields {
    /// True when there is room for units and whole words.
    roomy: bool,
    /// Widths of the name, the bar and the five figures; 0 leaves a column out.
    widths: [u16; 7],
}

impl Fields {
    fn new(width: u16, shown: &[&LiveBackend]) -> Self {
        let roomy = width >= ROOMY_COLUMNS;
        let name = shown.iter().map(|backend| words::width(&backend.name)).max().unwrap_or(0).clamp(1, 12);
        let name = if roomy { (name as u16).max(7) } else { name as u16 };
        let mut figures = if roomy { [9, 9, 9, 9, 13] } else { [4, 4, 4, 4, 6] };
        let taken =
            |figures: &[u16; 5]| name + figures.iter().filter(|f| **f > 0).map(|f| f + 1).sum::<u16>();
        // Columns are dropped in order of importance; the slowdown stays longest.
        for drop in [1, 2, 0, 3] {
            if taken(&figures) + BAR_MIN + 1 > width {
                figures[drop] = 0;
            }
        }
        let bar = width.saturating_sub(taken(&figures) + 1).min(BAR_MAX);
        let [bytes, hits, waiting, p99, slowed] = figures;
        Self { roomy, widths: [name, bar, bytes, hits, waiting, p99, slowed] }
    }

    fn table<'a>(&self, part: &[&'a LiveBackend], largest: u64, live: &Live, left_out: usize) -> Table<'a> {
        let rows = part.iter().map(|backend| self.row(backend, largest, live));
        let widths = self.kept(self.widths).map(Constraint::Length);
        Table::new(rows, widths).header(self.heading(live, left_out)).column_spacing(1)
    }

    fn heading<'a>(&self, live: &Live, left_out: usize) -> Row<'a> {
        let total = words::mebibytes(live.total_bytes);
        let [name, bar, bytes, hits, waiting, p99, slowed] = if self.roomy {
            ["backend", "share of the cache", "holds", "hit ratio", "waiting", "P99", "is slowed"]
        } else {
            ["", "cache", "MiB", "hits", "wait", "P99", "slowed"]
        };
        let bar = match (self.roomy, left_out) {
            (true, 0) => format!("{bar} ({total} MiB), scaled to the largest"),
            (false, 0) => bar.to_owned(),
            (true, left_out) => format!("{bar} ({total} MiB), {left_out} more not shown"),
            (false, left_out) => format!("+{left_out} more"),
        };
        let right = |text: &'static str| Line::from(text).alignment(Alignment::Right);
        let lines = [
            Line::from(name),
            Line::from(words::shortened(&bar, self.widths[1].into())),
            right(bytes),
            right(hits),
            right(waiting),
            right(p99),
            Line::from(slowed),
        ];
        Row::new(self.kept(lines)).style(HEADING)
    }

    fn row<'a>(&self, backend: &'a LiveBackend, largest: u64, live: &Live) -> Row<'a> {
        let slowed = is_slowed(backend);
        let late = backend.query_p99.is_some_and(|p99| p99 > live.bound);
        let bar = words::bar(backend.bytes as f64 / largest as f64, self.widths[1].into());
        let right = |text: String| Span::raw(text).into_right_aligned_line();
        let lines = [
            Line::from(words::shortened(&backend.name, self.widths[0].into())),
            Line::styled(bar, if slowed { SLOWED } else { BAR }),
            right(self.bytes(backend.bytes)),
            right(words::percent(backend.hit_ratio)),
            right(backend.waiting.to_string()).style(if backend.waiting > 0 { BOLD } else { DIM }),
            right(self.p99(backend)).style(if late { LATE } else { Style::new() }),
            Line::from(self.slowed(backend)).style(SLOWED.add_modifier(Modifier::REVERSED)),
        ];
        let row = Row::new(self.kept(lines).map(Cell::from));
        if slowed { row.style(SLOWED) } else { row }
    }

    fn bytes(&self, bytes: u64) -> String {
        let mebibytes = words::mebibytes(bytes);
        if self.roomy { format!("{mebibytes} MiB") } else { mebibytes }
    }

    fn p99(&self, backend: &LiveBackend) -> String {
        match backend.query_p99 {
            Some(p99) if self.roomy => words::duration(p99),
            Some(p99) => words::short_duration(p99),
            None => words::NONE.to_owned(),
        }
    }

    fn slowed(&self, backend: &LiveBackend) -> String {
        let to = words::percent(backend.limit);
        match (is_slowed(backend), self.roomy) {
            (false, _) => String::new(),
            (true, true) => format!("slowed to {to}"),
            (true, false) => format!("to {to}"),
        }
    }

    /// Returns the cells of the columns that are not left out.
    fn kept<T>(&self, cells: [T; 7]) -> impl Iterator<Item = T> {
        cells.into_iter().zip(self.widths).filter(|(_, width)| *width > 0).map(|(cell, _)| cell)
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEADING: Style = DIM.add_modifier(Modifier::UNDERLINED);
const BAR: Style = Style::new().fg(Color::Cyan);
const SLOWED: Style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
const LATE: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Gap between two columns of backends.
const GAP: u16 = 2;

/// Least length of a bar that allows a comparison.
const BAR_MIN: u16 = 5;

/// Greatest length of a bar; a longer one makes it hard to find the figures of the same row.
const BAR_MAX: u16 = 72;

/// Width from which figures have units and headings are whole words.
const ROOMY_COLUMNS: u16 = 80;
