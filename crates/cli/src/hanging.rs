//! Texts of several lines on a screen, each with a head that the further lines are indented by.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use crate::words;

/// Draws texts, each behind its head, one below the other in as many lines as they need. What the
/// last row has no room for is cut.
pub(crate) fn draw(area: Rect, buf: &mut Buffer, texts: impl IntoIterator<Item = (String, String)>) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut rows = area.rows().peekable();
    for (head, text) in texts {
        if rows.peek().is_none() {
            return;
        }
        let indent = " ".repeat(words::width(&head));
        let columns = usize::from(area.width).saturating_sub(indent.len());
        let lines = words::wrapped(&text, columns);
        for at in 0..lines.len() {
            let Some(row) = rows.next() else { return };
            let text = if rows.peek().is_none() { lines[at..].join(" ") } else { lines[at].clone() };
            let head = if at == 0 { &head } else { &indent };
            let text = words::shortened(&text, columns);
            Line::from(vec![Span::styled(head, dim), Span::raw(text)]).render(row, buf);
        }
    }
}
