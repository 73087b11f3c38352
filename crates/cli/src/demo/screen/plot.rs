//! The SLO's percentile over time, with the slowdowns under it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Context, Line};

use super::super::live::Live;
use super::slowdowns::{Period, Slowdowns};
use super::view::{SCENARIO_MINUTES, is_warming_up};
use crate::words;

/// Draws the curve, a line at the bound, the periods of slowdowns, and the scenario's minutes.
///
/// The time axis covers the whole measurement, so that the picture shows the progress too; the
/// warm-up has an axis of its own. The latency axis reaches from 0 to 1.5, 2, 3 or 4 times the
/// bound, as the curve requires; higher values are drawn as an arrow.
pub(super) fn render(area: Rect, buf: &mut Buffer, live: &Live, slowdowns: &Slowdowns) {
    if area.height < 4 || area.width < GUTTER + 8 {
        return;
    }
    let inner = Rect { x: area.x + GUTTER, width: area.width - GUTTER, ..area };
    let axes = Axes::new(Rect { height: area.height - 2, ..inner }, live);
    bound(buf, &axes, area.x);
    curve(buf, &axes, &live.curve);
    periods(buf, &axes, area.x, slowdowns.periods());
    minutes(buf, &axes, live);
}

/// Mapping between values and cells of the plot.
struct Axes {
    area: Rect,
    /// Seconds since the run began, at the left and the right edge.
    seconds: (f64, f64),
    bound_ms: f64,
    top_ms: f64,
}

impl Axes {
    fn new(area: Rect, live: &Live) -> Self {
        let (warm_up, measured) = (live.length.0.as_secs_f64(), live.length.1.as_secs_f64());
        let (left, right) = if is_warming_up(live) { (0.0, warm_up) } else { (warm_up, warm_up + measured) };
        let bound_ms = (live.bound.as_secs_f64() * 1e3).max(1e-3);
        let mut axes = Self { area, seconds: (left, right.max(left + 1e-3)), bound_ms, top_ms: bound_ms };
        let highest = axes.inside(&live.curve).map(|(_, ms)| ms).fold(0.0, f64::max);
        let multiple = MULTIPLES.into_iter().find(|multiple| highest <= bound_ms * multiple);
        axes.top_ms = bound_ms * multiple.unwrap_or(MULTIPLES[MULTIPLES.len() - 1]);
        axes
    }

    /// Returns the points of `curve` within the axes.
    fn inside(&self, curve: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
        let (left, right) = self.seconds;
        curve.iter().copied().filter(move |&(s, ms)| (left..=right).contains(&s) && ms >= 0.0)
    }

    /// Returns the column of the plot for a time in seconds, clamped to the edges.
    fn column(&self, second: f64) -> u16 {
        let (left, right) = self.seconds;
        let ratio = ((second - left) / (right - left)).clamp(0.0, 1.0);
        self.area.x + (ratio * f64::from(self.area.width - 1)).round() as u16
    }

    /// Returns the row in which the canvas draws the SLO's bound: it has four dots a row, the first
    /// at the top.
    fn bound_row(&self) -> u16 {
        let dots = f64::from(self.area.height * 4 - 1);
        self.area.y + ((1.0 - self.bound_ms / self.top_ms) * dots) as u16 / 4
    }
}

fn bound(buf: &mut Buffer, axes: &Axes, gutter: u16) {
    let label = |ms: f64| words::duration(std::time::Duration::from_secs_f64(ms / 1e3));
    let mut write = |row: u16, text: &str, style: Style| {
        buf.set_stringn(gutter, row, format!("{text:>7}"), usize::from(GUTTER) - 1, style);
    };
    write(axes.area.y, &label(axes.top_ms), DIM);
    write(axes.area.bottom() - 1, "0", DIM);
    write(axes.bound_row(), "bound", BOUND);
    let line = "╌".repeat(axes.area.width.into());
    buf.set_string(axes.area.x, axes.bound_row(), line, BOUND);
}

fn curve(buf: &mut Buffer, axes: &Axes, points: &[(f64, f64)]) {
    let points: Vec<(f64, f64)> = axes.inside(points).collect();
    let paint = |context: &mut Context<'_>| {
        // Parts above the bound are drawn last, because a cell has only one colour.
        for above in [false, true] {
            for pair in points.windows(2) {
                if let Some(line) = piece(axes, pair[0], pair[1], above) {
                    context.draw(&line);
                }
            }
        }
    };
    Canvas::default()
        .marker(Marker::Braille)
        .x_bounds([axes.seconds.0, axes.seconds.1])
        .y_bounds([0.0, axes.top_ms])
        .paint(paint)
        .render(axes.area, buf);
    for (second, _) in points.iter().filter(|(_, ms)| *ms > axes.top_ms) {
        buf.set_string(axes.column(*second), axes.area.y, "▲", ABOVE);
    }
}

/// Returns the part of a line segment that lies above the SLO's bound, or the part that does not.
fn piece(axes: &Axes, from: (f64, f64), to: (f64, f64), above: bool) -> Option<Line> {
    let cap = |(second, ms): (f64, f64)| (second, ms.min(axes.top_ms));
    let (from, to) = (cap(from), cap(to));
    let crossing = || {
        let ratio = (axes.bound_ms - from.1) / (to.1 - from.1);
        (from.0 + (to.0 - from.0) * ratio, axes.bound_ms)
    };
    let on_side = |point: (f64, f64)| (point.1 > axes.bound_ms) == above;
    let (from, to) = match (on_side(from), on_side(to)) {
        (true, true) => (from, to),
        (true, false) => (from, crossing()),
        (false, true) => (crossing(), to),
        (false, false) => return None,
    };
    Some(Line::new(from.0, from.1, to.0, to.1, if above { Color::Red } else { Color::Green }))
}

/// Draws a bar with the backend's name for each slowdown. Overlapping slowdowns share a bar that
/// names all of them.
fn periods(buf: &mut Buffer, axes: &Axes, gutter: u16, periods: &[Period]) {
    let row = axes.area.bottom();
    buf.set_string(gutter, row, format!("{:>7}", "slowed"), DIM);
    let mut bars: Vec<(u16, u16, Vec<&str>)> = Vec::new();
    let (left, right) = axes.seconds;
    for period in periods.iter().filter(|period| period.until_s >= left && period.from_s <= right) {
        let (from, until) = (axes.column(period.from_s), axes.column(period.until_s));
        match bars.last_mut() {
            Some((_, end, names)) if from <= *end => {
                *end = until.max(*end);
                if !names.contains(&period.name.as_str()) {
                    names.push(&period.name);
                }
            }
            _ => bars.push((from, until, vec![&period.name])),
        }
    }
    for (from, until, names) in bars {
        let columns = usize::from(until - from) + 1;
        let names = format!(" {} ", names.join(", "));
        let inside = words::width(&names) + 2 <= columns;
        // A name too long for its bar follows it; a later bar is drawn over it.
        let bar = if inside { format!("{names:▂^columns$}") } else { "▂".repeat(columns) + &names };
        buf.set_stringn(from, row, bar, usize::from(axes.area.right() - from), SLOWED);
    }
}

fn minutes(buf: &mut Buffer, axes: &Axes, live: &Live) {
    let row = axes.area.bottom() + 1;
    let mut write = |ratio: f64, text: &str| {
        let width = words::width(text) as u16;
        let room = axes.area.width.saturating_sub(width);
        let centre = (ratio * f64::from(axes.area.width - 1)) as u16;
        let x = axes.area.x + centre.saturating_sub(width / 2).min(room);
        buf.set_stringn(x, row, text, axes.area.width.into(), DIM);
    };
    if is_warming_up(live) {
        write(0.0, "caches fill");
        write(1.0, "measuring begins");
        return;
    }
    let steps = if axes.area.width >= 100 { 6 } else { 3 };
    for step in 0..=steps {
        let ratio = f64::from(step) / f64::from(steps);
        let minute = SCENARIO_MINUTES * ratio;
        let text = if step == steps { format!("minute {minute:.0}") } else { format!("{minute:.0}") };
        write(ratio, &text);
    }
}

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOUND: Style = Style::new().add_modifier(Modifier::BOLD);
const ABOVE: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const SLOWED: Style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);

/// Heights of the latency axis as multiples of the SLO's bound: values near the bound fill the
/// picture, and larger ones still fit.
const MULTIPLES: [f64; 4] = [1.5, 2.0, 3.0, 4.0];

/// Columns left of the plot for the labels of its rows.
const GUTTER: u16 = 8;
