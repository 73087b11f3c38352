//! Range charts: intervals of several subjects under several conditions.

use super::frame::{Frame, Head, RIGHT, WIDTH};
use super::{Axis, Pen, width_of};

/// Panels beside each other, with a row for each subject. The axes are logarithmic, and each
/// includes 1.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<'a> {
    pub(crate) title: &'a str,
    /// A line under the title, or nothing.
    pub(crate) note: &'a str,
    /// Names of the rows, one for each subject.
    pub(crate) rows: Vec<String>,
    pub(crate) panels: Vec<Panel>,
}

/// A condition under which the subjects have ranges, and a range for each.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) name: &'static str,
    /// A range for each row.
    pub(crate) ranges: Vec<Range>,
}

/// A dot at the start and a line to the end, which may be on either side; values are above 0.
/// Without a start nothing is drawn, and without an end only the dot.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) from: Option<f64>,
    pub(crate) to: Option<f64>,
    /// Text drawn beside the range.
    pub(crate) label: String,
    /// Text of the range's tooltip.
    pub(crate) words: String,
}

const ROW: f64 = 24.0;
/// Distance between panels, in pixels.
const GAP: f64 = 30.0;
const PEN: Pen = Pen { width: 3.0, ..Pen::solid(super::COLOURS[0]) };
/// Values of a logarithmic axis that may be labelled, and their least distance in pixels.
const TICKS: [f64; 15] = [0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0];
const APART: f64 = 30.0;

impl Ranges<'_> {
    pub(crate) fn svg(&self) -> String {
        let widest = self.rows.iter().map(|name| width_of(name)).fold(30.0, f64::max);
        let left = 24.0 + widest;
        let head = Head { title: self.title, note: self.note, names: Vec::new() };
        let mut frame = Frame::open(&head, left, self.rows.len() as f64 * ROW);
        for (row, name) in self.rows.iter().enumerate() {
            let y = middle(&frame, row) + 4.0;
            frame.label(left - 10.0, y, "end", name);
        }
        let panels = self.panels.len().max(1) as f64;
        let width = (WIDTH - RIGHT - left - GAP * (panels - 1.0)) / panels;
        for (index, panel) in self.panels.iter().enumerate() {
            frame.left = (left + index as f64 * (width + GAP)).round();
            frame.right = frame.left + width.floor();
            panel.draw(&mut frame);
        }
        frame.close()
    }
}

/// Y coordinate of the middle of a row.
fn middle(frame: &Frame, row: usize) -> f64 {
    frame.top + (row as f64 + 0.5) * ROW
}

/// A logarithmic axis that is drawn.
struct Scale {
    low: f64,
    axis: Axis,
}

impl Scale {
    /// Creates an axis that covers all values of the panel and 1, with ticks at 1 and wherever a
    /// label fits into `width` pixels.
    fn of(panel: &Panel, width: f64) -> Self {
        let values = || panel.ranges.iter().flat_map(|range| [range.from, range.to]).flatten();
        let (low, high) = (values().fold(1.0, f64::min) / 1.1, values().fold(1.0, f64::max) * 1.1);
        let end = (high / low).ln();
        let on = |value: f64| (value / low).ln();
        let mut ticks = vec![1.0];
        for tick in TICKS.into_iter().filter(|tick| (low..=high).contains(tick)) {
            if ticks.iter().all(|&other| (on(other) - on(tick)).abs() / end * width >= APART) {
                ticks.push(tick);
            }
        }
        let ticks = ticks.into_iter().map(|tick| (on(tick), tick.to_string())).collect();
        Self { low, axis: Axis { name: panel.name.to_owned(), end, ticks } }
    }

    fn at(&self, frame: &Frame, value: f64) -> f64 {
        frame.x(&self.axis, (value / self.low).ln())
    }
}

impl Panel {
    fn draw(&self, frame: &mut Frame) {
        let scale = Scale::of(self, frame.right - frame.left);
        frame.x_axis(&scale.axis, true);
        let (one, top, bottom) = (scale.at(frame, 1.0), frame.top, frame.bottom);
        frame.add(format_args!(
            "<path d=\"M{one:.1} {top}V{bottom}\" stroke=\"#555\" stroke-dasharray=\"5 4\"/>"
        ));
        frame.edges();
        for (row, range) in self.ranges.iter().enumerate() {
            range.draw(frame, &scale, middle(frame, row));
        }
    }
}

impl Range {
    fn draw(&self, frame: &mut Frame, scale: &Scale, y: f64) {
        frame.add(format_args!("<g><title>{}</title>", super::escaped(&self.words)));
        let (mut first, mut last) = (frame.left, frame.left);
        if let Some(from) = self.from {
            let from = scale.at(frame, from);
            let to = self.to.map_or(from, |to| scale.at(frame, to));
            frame.add(format_args!(
                "<path d=\"M{from:.1} {y:.1}H{to:.1}\" {} opacity=\"0.5\"/>\
                 <circle cx=\"{from:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{}\"/>",
                PEN.stroke(),
                PEN.colour
            ));
            (first, last) = (from.min(to), from.max(to));
        }
        // The label goes to the left when it does not fit on the right.
        if frame.right - last - 8.0 < width_of(&self.label) && first > frame.left {
            frame.label(first - 8.0, y + 4.0, "end", &self.label);
        } else {
            frame.label(last + 8.0, y + 4.0, "start", &self.label);
        }
        frame.add("</g>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: Option<f64>, to: Option<f64>, label: &str) -> Range {
        Range { from, to, label: label.to_owned(), words: format!("a<b: {label}") }
    }

    #[test]
    fn range_chart_matches_its_snapshot() {
        let panel = |name| Panel {
            name,
            ranges: vec![
                range(Some(1.477), Some(1.71), "1.477"),
                range(None, Some(0.065), "< 0.06507"),
                range(Some(15.37), None, ">= 15.37"),
            ],
        };
        let rows = ["robinhood", "a<b", "best"].map(str::to_owned).into();
        let panels = vec![panel("depth"), panel("load")];
        let svg = Ranges { title: "spikes & co", note: "a dot", rows, panels }.svg();
        crate::chart::assert_well_formed(&svg);
        insta::assert_snapshot!(svg);
    }

    #[test]
    fn logarithmic_axis_includes_one_and_its_tick_labels_do_not_overlap() {
        for (from, to) in [(0.91, 0.95), (1.0, 1.05), (2.0, 15.0), (0.07, 0.1), (0.065, 15.3)] {
            let panel = Panel { name: "load", ranges: vec![range(Some(from), Some(to), "")] };
            let Scale { low, axis } = Scale::of(&panel, 200.0);
            assert!(axis.ticks.iter().any(|(_, label)| label == "1") && axis.ticks.len() <= 7, "{axis:?}");
            for value in axis.ticks.iter().map(|(at, _)| *at).chain([from, to].map(|v| (v / low).ln())) {
                assert!((0.0..=axis.end).contains(&value), "{value} of {from} {to}");
            }
        }
    }
}
