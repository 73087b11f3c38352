//! Parts of which the picture is made: rows that are divided, and figures and styles of its lists.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget, Wrap};

use crate::policy::plain;
use crate::words;

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(super) const HEADING: Style = DIM.add_modifier(Modifier::UNDERLINED);
pub(super) const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Widest name that is shown whole.
pub(super) const NAME_MAX: usize = 24;

/// The rows of an area that are not used yet.
pub(super) struct Lines {
    pub(super) area: Rect,
}

impl Lines {
    /// Takes rows from the top, as many as there are.
    pub(super) fn take(&mut self, rows: u16) -> Rect {
        let height = rows.min(self.area.height);
        let taken = Rect { height, ..self.area };
        self.area = Rect { y: self.area.y + height, height: self.area.height - height, ..self.area };
        taken
    }

    /// Takes rows from the bottom.
    pub(super) fn take_last(&mut self, rows: u16) -> Rect {
        let height = rows.min(self.area.height);
        self.area.height -= height;
        Rect { y: self.area.y + self.area.height, height, ..self.area }
    }
}

/// Says, under the heads if there are any, why there are no rows.
pub(super) fn nothing(area: Rect, buf: &mut Buffer, why: &str) {
    let place = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if area.height > 1 {
        Paragraph::new(Line::styled(why.to_owned(), DIM)).wrap(Wrap { trim: true }).render(place, buf);
    }
}

/// Returns the columns of a list's names, and of their head of so many.
pub(super) fn name_width<'a>(names: impl Iterator<Item = &'a str>, least: usize) -> u16 {
    names.map(|name| words::width(&plain(name))).max().unwrap_or(0).clamp(least, NAME_MAX) as u16
}

/// Time since a start, in its largest unit.
pub(super) fn up(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Formats a rate per second in few columns.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        ..99.95 => format!("{per_s:.1}"),
        ..99_999.5 => words::count(per_s.round() as u64),
        _ => format!("{:.0}k", per_s / 1e3),
    }
}
