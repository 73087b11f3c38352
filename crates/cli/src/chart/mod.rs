//! Pictures of figures, as SVG that needs nothing beside it, and the pages that they stand on.
//!
//! What a picture says must survive a printer without colours and eyes that tell few of them apart:
//! colours are of a palette that was made for that (Okabe and Ito's), and lines differ in their
//! dashes too. Everything drawn is a function of what is given, so equal results are equal files.

mod areas;
mod axis;
mod bars;
mod frame;
mod lines;
mod page;
mod pen;
mod ranges;
#[cfg(test)]
mod sound;

pub(crate) use areas::{Areas, Column};
pub(crate) use axis::{Axis, decimal_step};
pub(crate) use bars::{Bar, Bars, Group};
pub(crate) use lines::{Line, Lines, Mark};
pub(crate) use page::{Cell, number, page, table, word};
pub(crate) use pen::{COLOURS, OTHERS, Pen, assigned};
pub(crate) use ranges::{Panel, Range, Ranges};
#[cfg(test)]
pub(crate) use sound::assert_sound;

/// `text` as it may stand between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Room that `text` takes, in pixels: about.
fn width_of(text: &str) -> f64 {
    6.6 * text.chars().count() as f64
}
