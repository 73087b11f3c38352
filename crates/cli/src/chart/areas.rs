//! Stacked area charts: parts of a whole over time.

use std::fmt::Write;

use super::frame::{Frame, Head, LEFT};
use super::{Axis, Pen};

/// Stacked areas in one frame, both axes from 0.
#[derive(Clone, Debug)]
pub(crate) struct Areas<'a> {
    pub(crate) title: &'a str,
    /// A line under the title, or nothing.
    pub(crate) note: &'a str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Height of the chart's frame, in pixels.
    pub(crate) height: f64,
    /// Names of the stacked parts, from the bottom.
    pub(crate) parts: Vec<(String, Pen)>,
    pub(crate) columns: Vec<Column>,
    /// Horizontal reference lines and their labels.
    pub(crate) marks: Vec<(f64, String)>,
}

/// The values of all parts at one position of the x axis.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) x: f64,
    /// A value for each part, at least 0.
    pub(crate) values: Vec<f64>,
}

impl Areas<'_> {
    pub(crate) fn svg(&self) -> String {
        let names = self.parts.iter().map(|(name, pen)| (name.as_str(), *pen)).collect();
        let mut frame = Frame::open(&Head { title: self.title, note: self.note, names }, LEFT, self.height);
        frame.y_axis(&self.y);
        for (index, (_, pen)) in self.parts.iter().enumerate() {
            let path = self.path(&frame, index);
            frame.add(format_args!(
                "<path d=\"{path}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.6\"/>",
                pen.colour
            ));
        }
        frame.x_axis(&self.x, false);
        frame.edges();
        for (value, name) in &self.marks {
            let y = frame.y(&self.y, *value);
            let Frame { left, right, .. } = frame;
            frame.add(format_args!(
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#222\" stroke-dasharray=\"6 4\"/>"
            ));
            frame.label(right - 2.0, y - 5.0, "end", name);
        }
        frame.close()
    }

    /// Outline of a part's area: along its upper edge to the right, then back along its lower edge.
    fn path(&self, frame: &Frame, part: usize) -> String {
        let mut path = String::new();
        let below = |column: &Column, parts: usize| column.values.iter().take(parts).sum::<f64>();
        let upper = self.columns.iter().map(|column| (column.x, below(column, part + 1)));
        let lower = self.columns.iter().rev().map(|column| (column.x, below(column, part)));
        for (x, y) in upper.chain(lower) {
            let pen = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{pen}{:.1} {:.1}", frame.x(&self.x, x), frame.y(&self.y, y));
        }
        path + "Z"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_area_chart_are_stacked() {
        let areas = Areas {
            title: "t",
            note: "",
            x: Axis::of("minutes", 1.0),
            y: Axis::shares("share"),
            height: 100.0,
            parts: vec![("a".to_owned(), Pen::of(0)), ("b".to_owned(), Pen::of(1))],
            columns: [0.0, 1.0].map(|x| Column { x, values: vec![0.25, 0.75] }).to_vec(),
            marks: vec![(1.0, "one cache".to_owned())],
        };
        let svg = areas.svg();
        crate::chart::assert_well_formed(&svg);
        assert!(svg.contains("M60.0 127.0L836.0 127.0L836.0 152.0L60.0 152.0Z"), "{svg}");
        assert!(svg.contains("M60.0 52.0L836.0 52.0L836.0 127.0L60.0 127.0Z"), "{svg}");
        assert!(svg.contains(">one cache</text>"), "{svg}");
    }
}
