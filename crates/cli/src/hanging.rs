//! Texts of several lines on a screen, each with a head that the further lines are indented by.

use std::iter::Peekable;

use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Rows};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use crate::words;

/// Draws texts, each behind its head, one below the other in as many lines as they need. What the
/// last row has no room for is cut.
pub(crate) fn draw(area: Rect, buf: &mut Buffer, texts: impl IntoIterator<Item = (String, String)>) {
    let mut rows = area.rows().peekable();
    for (head, text) in texts {
        if rows.peek().is_none() {
            return;
        }
        draw_one(&mut rows, buf, &head, &text);
    }
}

fn draw_one(rows: &mut Peekable<Rows>, buf: &mut Buffer, head: &str, text: &str) {
    let indent = " ".repeat(words::width(head));
    let Some(columns) = rows.peek().map(|row| usize::from(row.width).saturating_sub(indent.len())) else {
        return;
    };
    let lines = words::wrapped(text, columns);
    for at in 0..lines.len() {
        let Some(row) = rows.next() else { return };
        let text = if rows.peek().is_none() { lines[at..].join(" ") } else { lines[at].clone() };
        let head = if at == 0 { head } else { &indent };
        let text = words::shortened(&text, columns);
        let dim = Style::new().add_modifier(Modifier::DIM);
        Line::from(vec![Span::styled(head, dim), Span::raw(text)]).render(row, buf);
    }
}
