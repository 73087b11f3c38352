//! Parts that all pictures share: a title, a legend, a frame with axes.

use std::fmt::Write;

use super::pen::Pen;
use super::{Axis, escaped, width_of};

pub(super) const WIDTH: f64 = 860.0;
/// Room for labels around the frame.
pub(super) const LEFT: f64 = 60.0;
pub(super) const RIGHT: f64 = 24.0;
pub(super) const BOTTOM: f64 = 46.0;

/// Height of a row of the legend, in pixels.
const ROW: f64 = 18.0;

/// A picture that is being drawn: its SVG and the frame of its axes.
pub(super) struct Frame {
    svg: String,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Title and legend above a frame.
pub(super) struct Head<'a> {
    pub(super) title: &'a str,
    /// A line under the title, or nothing.
    pub(super) note: &'a str,
    /// The legend: names and their pens.
    pub(super) names: Vec<(&'a str, Pen)>,
}

impl Frame {
    /// Begins a picture with a frame of `height` that extends from `left` to the right margin.
    pub(super) fn open(head: &Head<'_>, left: f64, height: f64) -> Self {
        let places = places(&head.names, left);
        let note = if head.note.is_empty() { 0.0 } else { ROW };
        let rows = places.last().map_or(0.0, |place| place.1 + 1.0);
        let top = 34.0 + note + rows * ROW;
        let bottom = top + height;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" width=\"{WIDTH}\" \
             height=\"{total}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
             <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{left}\" y=\"20\" font-size=\"15\">{title}</text>\n",
            total = bottom + BOTTOM,
            title = escaped(head.title),
        );
        if !head.note.is_empty() {
            let _ = writeln!(svg, "<text x=\"{left}\" y=\"39\" fill=\"#555\">{}</text>", escaped(head.note));
        }
        for ((name, pen), (x, row)) in head.names.iter().zip(places) {
            let y = 22.0 + note + (row + 1.0) * ROW;
            let stroke = Pen { width: 3.0, ..*pen }.stroke();
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {:.1}h22\" {stroke}/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 4.0,
                x + 28.0,
                escaped(name)
            );
        }
        Self { svg, left, right: WIDTH - RIGHT, top, bottom }
    }

    /// Adds one SVG element, or several, to the picture.
    pub(super) fn add(&mut self, element: impl std::fmt::Display) {
        let _ = writeln!(self.svg, "{element}");
    }

    /// Draws horizontal lines and labels at the ticks of `y`.
    pub(super) fn y_axis(&mut self, y: &Axis) {
        let Self { left, right, .. } = *self;
        for (value, label) in &y.ticks {
            let at = self.y(y, *value);
            self.add(format_args!(
                "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 6.0,
                at + 4.0
            ));
        }
        self.add(format_args!(
            "<text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (self.top + self.bottom) / 2.0,
            escaped(&y.name)
        ));
    }

    /// Draws labels at the ticks of `x` and, with `grid`, a vertical line at each.
    pub(super) fn x_axis(&mut self, x: &Axis, grid: bool) {
        let Self { left, right, top, bottom, .. } = *self;
        for (value, label) in &x.ticks {
            let at = self.x(x, *value);
            if grid {
                self.add(format_args!("<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"#ddd\"/>"));
            }
            self.add(format_args!(
                "<path d=\"M{at:.1} {bottom}v4\" stroke=\"#222\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 17.0
            ));
        }
        self.add(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (left + right) / 2.0,
            bottom + 36.0,
            escaped(&x.name)
        ));
    }

    /// Draws the left and the lower edge of the frame.
    pub(super) fn edges(&mut self) {
        let Self { left, right, top, bottom, .. } = *self;
        self.add(format_args!("<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>"));
    }

    /// Draws text with an outline, so that it stays legible on lines and areas.
    pub(super) fn label(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" stroke=\"#fff\" stroke-width=\"3\" \
             paint-order=\"stroke\">{}</text>",
            escaped(text)
        ));
    }

    pub(super) fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.share(value) * (self.right - self.left)
    }

    pub(super) fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom - axis.share(value) * (self.bottom - self.top)
    }

    pub(super) fn close(self) -> String {
        self.svg + "</svg>\n"
    }
}

/// Lays out the legend from `left` on: the x coordinate and the row of each name.
fn places(names: &[(&str, Pen)], left: f64) -> Vec<(f64, f64)> {
    let (mut x, mut row) = (left, 0.0);
    let place = |(name, _): &(&str, Pen)| {
        let width = 46.0 + width_of(name);
        if x > left && x + width > WIDTH {
            (x, row) = (left, row + 1.0);
        }
        let place = (x, row);
        x += width;
        place
    };
    names.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_legend_of_a_chart_moves_the_frame_down() {
        let one = Head { title: "t", note: "", names: vec![("robinhood", Pen::of(0))] };
        let names = (0..20).map(|index| ("cliffhanger", Pen::of(index))).collect();
        let many = Head { title: "t", note: "n", names };
        let [one, many] = [one, many].map(|head| Frame::open(&head, LEFT, 100.0));
        assert_eq!((one.top, one.bottom), (52.0, 152.0));
        assert_eq!((many.top, many.bottom), (52.0 + 4.0 * ROW, 152.0 + 4.0 * ROW));
        assert!(many.svg.contains("height=\"270\""), "{}", many.svg);
    }
}
