//! The picture: the SLO and the latencies above, a list below, and the keys.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Cell, Clear, Paragraph, Row as TableRow, Sparkline, SparklineBar, Table, Widget,
};

use super::parts::{BAD, DIM, HEADING, Lines, NAME_MAX, rate, up};
use super::seen::{Event, Seen, last};
use super::state::{List, Row, Sort, State};
use super::{lists, nodes};
use crate::policy::plain;
use crate::{hanging, words};

/// Draws the whole screen at any size.
pub(super) fn render(area: Rect, buf: &mut Buffer, state: &State) {
    let mut lines = Lines { area };
    header(lines.take(1), buf, state);
    verdict(lines.take(1), buf, state);
    let Some(seen) = &state.seen else { return };
    requests(lines.take(1), buf, seen);
    let footer = lines.take_last(1);
    if area.height >= ROOMY_ROWS {
        classes(lines.take(seen.slo.classes.len().min(CLASSES_MAX) as u16), buf, seen);
        curve(lines.take(1), lines.take(CURVE_ROWS), buf, seen);
        if state.list != List::Events {
            events(lines.take_last(EVENTS), buf, seen, 0);
        }
    }
    list(lines.take(u16::MAX), buf, state, seen);
    Paragraph::new(Line::styled(KEYS, DIM)).render(footer, buf);
    if state.shows_help {
        help(area, buf);
    }
}

/// Returns the picture as lines of text with all rows of the list, without the keys.
pub(super) fn text(state: &State, columns: u16) -> String {
    let rows = u16::try_from(state.list_rows()).unwrap_or(u16::MAX).saturating_add(ROOMY_ROWS);
    let area = Rect::new(0, 0, columns, rows.min(u16::MAX / columns));
    let mut buffer = Buffer::empty(area);
    render(area, &mut buffer, state);
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines = (0..area.height - 1).map(|y| line(y).trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

fn header(area: Rect, buf: &mut Buffer, state: &State) {
    let left = Line::styled(format!("Sherwood at {}", words::escaped(&state.url)), BOLD);
    let right = state.seen.as_ref().map(|seen| {
        let control = &seen.control;
        let between = control.between.as_ref().map(|between| format!("{} between tenants, ", plain(between)));
        let dry = if control.dry_run { ", dry run" } else { "" };
        let frozen = control.guard.as_ref().and_then(|guard| guard.frozen_s).map_or("", |_| ", frozen");
        let up = up(seen.uptime());
        let (policy, version) = (plain(&control.policy), plain(&seen.history.version));
        format!("{}{policy}{dry}{frozen}  {version}, up {up}", between.unwrap_or_default())
    });
    ends(area, buf, left, right.map(Line::raw));
}

fn verdict(area: Rect, buf: &mut Buffer, state: &State) {
    let badge = |text: String, style: Style| Line::styled(text, style.add_modifier(Modifier::REVERSED));
    if let Some(reason) = &state.away {
        return Paragraph::new(badge(format!(" away: {} ", words::escaped(reason)), BAD)).render(area, buf);
    }
    let Some(slo) = state.seen.as_ref().map(|seen| &seen.slo) else { return };
    let (text, style) = judged(slo.percentile, slo.current_ms, slo.bound_ms);
    let so_far = match slo.violation_ratio * 100.0 {
        percent if percent > 0.0 => format!("violated {percent:.1}% of the time"),
        _ => "never violated".to_owned(),
    };
    let right = if state.is_paused { "PAUSED: p resumes".to_owned() } else { so_far };
    ends(area, buf, badge(format!(" {text} "), style), Some(Line::raw(right)));
}

/// Says whether a percentile keeps its bound.
fn judged(percentile: f64, current_ms: Option<f64>, bound_ms: f64) -> (String, Style) {
    let bound = milliseconds(Some(bound_ms));
    let head = |current| format!("P{percentile} {current}, bound {bound}");
    match current_ms {
        None => (head("not known yet".to_owned()), Style::new()),
        Some(ms) if ms > bound_ms => (format!("{}: VIOLATED", head(milliseconds(Some(ms)))), BAD),
        Some(ms) => (format!("{}: kept", head(milliseconds(Some(ms)))), GOOD),
    }
}

fn requests(area: Rect, buf: &mut Buffer, seen: &Seen) {
    let requests = &seen.history.requests;
    let per_s = last(&requests.per_s).unwrap_or(0.0);
    let percentiles = [("P50", &requests.p50_ms), ("P90", &requests.p90_ms), ("P99", &requests.p99_ms)];
    let percentiles = percentiles.map(|(name, column)| format!("  {name} {}", milliseconds(last(column))));
    let used: u64 = seen.partitions.iter().map(|partition| partition.used_bytes).sum();
    let (used, total) = (words::mebibytes(used), words::mebibytes(seen.history.cache_total_bytes));
    let left = Line::raw(format!("{} requests/s{}", rate(per_s), percentiles.concat()));
    ends(area, buf, left, Some(Line::raw(format!("{used} of {total} MiB used"))));
}

fn classes(area: Rect, buf: &mut Buffer, seen: &Seen) {
    for (row, class) in area.rows().zip(&seen.slo.classes) {
        let (text, style) = judged(class.percentile, class.current_ms, class.bound_ms);
        Line::from(vec![Span::raw(format!("class {}: ", plain(&class.name))), Span::styled(text, style)])
            .render(row, buf);
    }
}

/// Draws the P99 of requests over time under its title, one column a second, the latest at the
/// right.
fn curve(title: Rect, area: Rect, buf: &mut Buffer, seen: &Seen) {
    let column = &seen.history.requests.p99_ms;
    let shown = &column[column.len().saturating_sub(area.width.into())..];
    let bound = seen.slo.bound_ms;
    let largest = shown.iter().flatten().copied().fold(bound, f64::max);
    let said = format!(
        "P99 of the last {} s, of {} at full height; red: above the bound",
        shown.len(),
        milliseconds(Some(largest))
    );
    Line::styled(said, DIM).render(title, buf);
    // The widget draws whole numbers.
    let scaled = |ms: f64| (ms * 1000.0) as u64;
    let bar = |ms: &Option<f64>| {
        let style = if ms.is_some_and(|ms| ms > bound) { BAD } else { CURVE };
        SparklineBar::from(ms.map(scaled)).style(Some(style))
    };
    let width = (shown.len() as u16).min(area.width);
    let place = Rect { x: area.x + area.width - width, width, ..area };
    Sparkline::default().data(shown.iter().map(bar)).max(scaled(largest).max(1)).render(place, buf);
}

fn list(area: Rect, buf: &mut Buffer, state: &State, seen: &Seen) {
    match state.list {
        List::Partitions => partitions(area, buf, state),
        List::Backends => lists::backends(area, buf, state),
        List::Keys => lists::keys(area, buf, state, seen),
        List::Tenants => tenants(area, buf, state, seen),
        List::Nodes => nodes::draw(area, buf, state.offset, seen),
        List::Events => events(area, buf, seen, state.offset),
    }
}

fn partitions(area: Rect, buf: &mut Buffer, state: &State) {
    let rows: Vec<&Row> = state.rows.iter().skip(state.offset).take(area.height.into()).collect();
    let name = state.rows.iter().map(|row| words::width(&plain(&row.name))).max().unwrap_or(0);
    let name = name.clamp(9, NAME_MAX) as u16;
    let widths = fitting([name, 11, 6, 9, 9, 9, 8], area.width);
    let bar = area.width.saturating_sub(taken(&widths)).min(BAR_MAX);
    let most = state.rows.iter().map(|row| row.blocking).fold(1.0, f64::max);
    let head = |sort, text: &'static str| {
        let style = if state.sort == sort { BOLD.add_modifier(Modifier::UNDERLINED) } else { HEADING };
        Cell::from(Line::styled(text, style))
    };
    let right = |sort, text: &'static str| {
        let style = if state.sort == sort { BOLD.add_modifier(Modifier::UNDERLINED) } else { HEADING };
        Cell::from(Line::styled(text, style).right_aligned())
    };
    let header = [
        head(Sort::Name, "partition"),
        right(Sort::Size, "size"),
        Cell::from(Line::styled("used", HEADING).right_aligned()),
        Cell::from(Line::styled("hits", HEADING).right_aligned()),
        right(Sort::Misses, "misses/s"),
        right(Sort::P99, "query P99"),
        right(Sort::Blocking, "blocking"),
    ];
    let figures = |row: &Row| {
        let used = row.used_bytes as f64 / row.allocated_bytes.max(1) as f64;
        let cells = [
            format!("{} MiB", words::mebibytes(row.allocated_bytes)),
            words::percent(used),
            row.hit_ratio.map_or_else(|| words::NONE.to_owned(), words::percent),
            row.misses_per_s.map_or_else(|| words::NONE.to_owned(), rate),
            milliseconds(row.query_p99_ms),
            words::count(row.blocking as u64),
        ];
        let name = Cell::from(words::shortened(&plain(&row.name), name.into()));
        let bar = Cell::from(Line::styled(words::bar(row.blocking / most, bar.into()), CURVE));
        let figures = cells.map(|text| Cell::from(Line::raw(text).right_aligned()));
        let cells = [name].into_iter().chain(figures);
        TableRow::new(kept(cells, &widths).chain([bar]).collect::<Vec<_>>())
    };
    let header = TableRow::new(kept(header, &widths).collect::<Vec<_>>());
    let constraints = kept(widths, &widths).chain([bar]).map(Constraint::Length);
    Table::new(rows.into_iter().map(figures), constraints).header(header).column_spacing(1).render(area, buf);
}

/// Leaves out columns that do not fit, the least important first, by a width of 0.
fn fitting(mut widths: [u16; 7], columns: u16) -> [u16; 7] {
    const USED: usize = 2;
    const HITS: usize = 3;
    const MISSES: usize = 4;
    for left_out in [USED, MISSES, HITS] {
        if taken(&widths) > columns + 1 {
            widths[left_out] = 0;
        }
    }
    widths
}

/// Columns that are taken with a gap after each.
fn taken(widths: &[u16; 7]) -> u16 {
    widths.iter().filter(|&&width| width > 0).map(|width| width + 1).sum()
}

/// Returns the cells of the columns that are not left out.
fn kept<T>(cells: impl IntoIterator<Item = T>, widths: &[u16; 7]) -> impl Iterator<Item = T> {
    cells.into_iter().zip(*widths).filter(|(_, width)| *width > 0).map(|(cell, _)| cell)
}

fn tenants(area: Rect, buf: &mut Buffer, state: &State, seen: &Seen) {
    let tenants = &seen.history.tenants;
    let rows = &tenants[state.offset.min(tenants.len())..];
    let name = tenants.iter().map(|tenant| words::width(&plain(&tenant.name))).max().unwrap_or(0);
    let name = name.clamp(6, NAME_MAX) as u16;
    let bar = area.width.saturating_sub(name + 30).min(BAR_MAX);
    let row = |tenant: &super::seen::Tenant| {
        let gain = last(&tenant.normalized);
        let style = if gain.is_some_and(|gain| gain < 1.0) { BAD } else { Style::new() };
        let text = gain.map_or_else(|| words::NONE.to_owned(), |gain| format!("{gain:.2}"));
        TableRow::new([
            Cell::from(words::shortened(&plain(&tenant.name), name.into())),
            Cell::from(Line::styled(text, style).right_aligned()),
            Cell::from(Line::styled(words::bar(gain.unwrap_or(0.0) / 2.0, bar.into()), CURVE)),
        ])
    };
    let header =
        TableRow::new(["tenant", "throughput of its baseline"].map(|text| Line::styled(text, HEADING)));
    let widths = [name, 26, bar].map(Constraint::Length);
    Table::new(rows.iter().map(row), widths).header(header).column_spacing(1).render(area, buf);
    if tenants.is_empty() && area.height > 1 {
        let line = Rect { y: area.y + 1, height: 1, ..area };
        Line::styled("no tenants with a measured throughput", DIM).render(line, buf);
    }
}

/// Draws the events, latest first, without the first `offset`.
fn events(area: Rect, buf: &mut Buffer, seen: &Seen, offset: usize) {
    let text = |event: &Event| {
        let ago = Duration::from_millis(seen.history.now_ms.saturating_sub(event.unix_ms));
        (format!("{:>6} ago  ", up(ago)), words::escaped(&event.message))
    };
    hanging::draw(area, buf, seen.history.events.iter().rev().skip(offset).map(text));
}

fn help(area: Rect, buf: &mut Buffer) {
    let width = HELP.iter().map(|line| words::width(line)).max().unwrap_or(0) as u16 + 4;
    let (width, height) = (width.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buf);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(format!(" {line}"))).collect();
    Paragraph::new(lines).block(Block::bordered().title(" keys ")).render(place, buf);
}

/// Draws a line with text at both ends: at the right only if it fits.
fn ends(area: Rect, buf: &mut Buffer, left: Line<'_>, right: Option<Line<'_>>) {
    let room = usize::from(area.width).saturating_sub(left.width() + 1);
    Paragraph::new(left).render(area, buf);
    if let Some(right) = right.filter(|right| right.width() <= room) {
        right.right_aligned().render(area, buf);
    }
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or_else(
        || words::NONE.to_owned(),
        |ms| words::duration(Duration::from_secs_f64(ms.max(0.0) / 1e3)),
    )
}

const KEYS: &str = "q quits  p pauses  Tab: other lists  ? more keys";
const HELP: [&str; 8] = [
    "q, Esc     quit",
    "p, space   pause and go on",
    "Tab        partitions, backends, hot keys, tenants, nodes, events",
    "b s m l n  sort partitions by blocking, size,",
    "           misses, latency, name",
    "arrows, j k, PgUp, PgDn, Home   scroll",
    "?          these keys",
    "blocking: requests near P99 whose last query was the backend's",
];

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const GOOD: Style = Style::new().fg(Color::Green);
const CURVE: Style = Style::new().fg(Color::Cyan);

/// Rows from which there is room for the curve, classes and events beside the list.
const ROOMY_ROWS: u16 = 18;
const CURVE_ROWS: u16 = 3;
const CLASSES_MAX: usize = 3;
/// Events below the list.
const EVENTS: u16 = 3;
/// Longest bar.
const BAR_MAX: u16 = 40;
