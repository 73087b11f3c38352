//! The screen as a whole, line by line.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::super::live::Live;
use super::layout::Layout;
use super::slowdowns::Slowdowns;
use super::{backends, plot};
use crate::{hanging, words};

/// Draws the whole screen at any size.
pub(super) fn render(area: Rect, buf: &mut Buffer, live: &Live, slowdowns: &Slowdowns) {
    let layout = Layout::new(area, live.backends.len());
    header(layout.header, buf, live);
    progress(layout.progress, buf, live);
    verdict(layout.verdict, buf, live);
    plot::render(layout.plot, buf, live, slowdowns);
    backends::render(layout.backends, buf, live, layout.backend_columns);
    events(layout.events, buf, &live.events);
    footer(layout.footer, buf, live);
}

/// Returns true during the warm-up of the run.
pub(super) fn is_warming_up(live: &Live) -> bool {
    live.elapsed < live.length.0
}

/// Minutes of the scenario that are measured.
pub(super) const SCENARIO_MINUTES: f64 = 180.0;

fn header(area: Rect, buf: &mut Buffer, live: &Live) {
    let run = match live.run {
        (_, ..2) => live.policy.clone(),
        (run, runs) => format!("{}, run {run} of {runs}", live.policy),
    };
    let run = if live.share.is_partial() { format!("{run}, {}", live.share) } else { run };
    let left = Line::from(vec![Span::styled("Sherwood demo: ", BOLD), Span::styled(run, BOLD)]);
    let (ended, failed) = live.requests;
    let errors = Span::styled(words::counted(failed, "error"), if failed > 0 { BAD } else { Style::new() });
    let short = Line::from(errors.clone());
    let right = Line::from(vec![Span::raw(words::counted(ended, "request")), Span::raw(", "), errors]);
    ends(area, buf, left, [right, short]);
}

fn progress(area: Rect, buf: &mut Buffer, live: &Live) {
    let left = if is_warming_up(live) {
        "warming up ".to_owned()
    } else {
        let minute = live.minute.clamp(0.0, SCENARIO_MINUTES);
        format!("minute {minute:.0} of {SCENARIO_MINUTES:.0} ")
    };
    let whole = live.length.0 + live.length.1;
    let right = words::left(whole.saturating_sub(live.elapsed));
    let columns = usize::from(area.width).saturating_sub(words::width(&left) + words::width(&right) + 1);
    let ratio = |part: Duration| part.as_secs_f64() / whole.as_secs_f64().max(1e-3);
    let middle = progress_bar(ratio(live.length.0), ratio(live.elapsed), columns);
    ends(area, buf, Line::from(vec![Span::raw(left), middle]), [Line::raw(right)]);
}

/// Formats the progress of the run: the warm-up is lighter than the measurement, the rest dotted.
fn progress_bar<'a>(warm_up: f64, done: f64, columns: usize) -> Span<'a> {
    let column = |ratio: f64| ((ratio * columns as f64).round() as usize).min(columns);
    let (warm_up, done) = (column(warm_up), column(done));
    let glyph = |at: usize| match at {
        at if at >= done => '·',
        at if at < warm_up => '▒',
        _ => '█',
    };
    Span::styled((0..columns).map(glyph).collect::<String>(), Style::new().fg(Color::Cyan))
}

fn verdict(area: Rect, buf: &mut Buffer, live: &Live) {
    let bound = words::duration(live.bound);
    let (p99, said, style) = match live.current {
        None => ("not known yet".to_owned(), "", Style::new()),
        Some(p99) if p99 > live.bound => (words::duration(p99), ": VIOLATED", BAD),
        Some(p99) => (words::duration(p99), ": kept", GOOD),
    };
    let long = format!(" P99 {p99}, bound {bound}{said} ");
    let fits = words::width(&long) <= area.width.into();
    let text = if fits { long } else { format!(" P99 {p99}{said} ") };
    let style = style.add_modifier(Modifier::REVERSED).add_modifier(Modifier::BOLD);
    let badge = Rect { width: area.width.min(words::width(&text) as u16), ..area };
    buf.set_style(badge, style);
    let line = Rect { y: area.y + area.height / 2, height: area.height.min(1), ..area };
    ends(line, buf, Line::styled(text, style), so_far(live).map(Line::raw));
}

/// Describes the share of SLO violations so far, in a long and a short form.
fn so_far(live: &Live) -> [String; 2] {
    if is_warming_up(live) {
        return ["not measured yet".to_owned(), "warm-up".to_owned()];
    }
    match live.violation_ratio * 100.0 {
        percent if !percent.is_finite() => [String::new(), String::new()],
        percent if percent <= 0.0 => ["never violated so far".to_owned(), "never violated".to_owned()],
        percent => [format!("violated {percent:.1}% of the time so far"), format!("{percent:.1}% violated")],
    }
}

/// Draws the events, latest first, because that is the most important.
fn events(area: Rect, buf: &mut Buffer, events: &[String]) {
    const HEADS: [&str; 3] = ["latest: ", "before: ", "before: "];
    let latest = HEADS.into_iter().zip(events.iter().rev());
    hanging::draw(area, buf, latest.map(|(head, event)| (head.to_owned(), event.clone())));
}

/// Draws the dashboard's address and the legend. While the load is late, a warning replaces both,
/// because the figures are not reliable.
fn footer(area: Rect, buf: &mut Buffer, live: &Live) {
    let quits = |more: &str| Line::from(vec![Span::styled("q", BOLD), Span::raw(format!(" quits{more}"))]);
    if let Some(late) = live.late.map(words::duration) {
        let short = format!("load {late} late");
        let long = format!("the load is sent {late} late: something else keeps this machine busy");
        return ends(area, buf, quits(""), [long, short].map(|warning| Line::styled(warning, BAD)));
    }
    let left = Some(quits(&format!(", dashboard: {}", live.dashboard)))
        .filter(|line| line.width() <= usize::from(area.width))
        .unwrap_or_else(|| quits(""));
    let wait = "wait: calls queued at the backend";
    let hints = [format!("P99: 99 of 100 are faster, in ms; {wait}"), wait.to_owned()];
    ends(area, buf, left, hints.map(|hint| Line::styled(hint, DIM)));
}

/// Draws a line with text at both ends: at the right the first of `rights` that fits, if any.
fn ends<'a>(area: Rect, buf: &mut Buffer, left: Line<'_>, rights: impl IntoIterator<Item = Line<'a>>) {
    if area.is_empty() {
        return;
    }
    let room = usize::from(area.width).saturating_sub(left.width() + 1);
    Paragraph::new(left).render(area, buf);
    if let Some(right) = rights.into_iter().find(|right| right.width() <= room) {
        right.right_aligned().render(area, buf);
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const GOOD: Style = Style::new().fg(Color::Green);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
