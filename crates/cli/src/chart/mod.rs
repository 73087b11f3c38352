//! Charts as self-contained SVG, and the HTML pages that show them.
//!
//! Pictures must stay readable in black and white and for colour-blind readers: the palette is that
//! of Okabe and Ito, which was designed for this, and lines differ in their dashes too. A picture
//! depends on its input alone, so equal results give equal files.

mod areas;
mod axis;
mod bars;
mod dots;
mod frame;
mod lines;
mod page;
mod pen;
mod ranges;
#[cfg(test)]
mod well_formed;

pub(crate) use areas::{Areas, Column};
pub(crate) use axis::{Axis, decimal_step};
pub(crate) use bars::{Bar, Bars, Group};
pub(crate) use dots::Dots;
pub(crate) use lines::{ChartLine, Lines, Mark, highest};
pub(crate) use page::{Cell, Compared, comparison, figure, number, page, table, verdict, word};
pub(crate) use pen::{COLOURS, OTHERS, Pen, assigned};
pub(crate) use ranges::{Panel, Range, Ranges};
#[cfg(test)]
pub(crate) use well_formed::assert_well_formed;

/// Escapes `text` for use between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Approximate width of `text` in pixels.
fn width_of(text: &str) -> f64 {
    6.6 * text.chars().count() as f64
}
