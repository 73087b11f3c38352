//! Line charts.

use std::fmt::Write;

use super::frame::{Frame, Head, LEFT};
use super::{Axis, Pen};

/// Lines in one frame, both axes from 0. Values above the frame are drawn at its upper edge.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    /// A line under the title, or nothing.
    pub(crate) note: &'a str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Height of the chart's frame, in pixels.
    pub(crate) height: f64,
    /// The lines; earlier ones are drawn over later ones.
    pub(crate) lines: Vec<ChartLine>,
    pub(crate) mark: Option<Mark<'a>>,
}

/// A line through points, with a gap where a value is missing. A line without a name is not in the
/// legend.
#[derive(Clone, Debug)]
pub(crate) struct ChartLine {
    pub(crate) name: String,
    pub(crate) pen: Pen,
    pub(crate) points: Vec<(f64, Option<f64>)>,
}

/// Returns the greatest value of the lines, or a little if all are 0.
pub(crate) fn highest(lines: &[ChartLine]) -> f64 {
    lines.iter().flat_map(|line| &line.points).filter_map(|point| point.1).fold(0.01, f64::max)
}

/// A labelled reference line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark<'a> {
    /// A horizontal line at this y value.
    Across(f64, &'a str),
    /// A vertical line at this x value.
    Up(f64, &'a str),
}

impl Lines<'_> {
    pub(crate) fn svg(&self) -> String {
        let named = self.lines.iter().filter(|line| !line.name.is_empty());
        let names = named.map(|line| (line.name.as_str(), line.pen)).collect();
        let head = Head { title: self.title, note: self.note, names };
        let mut frame = Frame::open(&head, LEFT, self.height);
        frame.y_axis(&self.y);
        frame.x_axis(&self.x, false);
        frame.edges();
        for line in self.lines.iter().rev() {
            let path = self.path(&frame, line);
            frame.add(format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke-linejoin=\"round\" {}/>",
                line.pen.stroke()
            ));
        }
        if let Some(mark) = self.mark {
            self.mark(&mut frame, mark);
        }
        frame.close()
    }

    fn mark(&self, frame: &mut Frame, mark: Mark<'_>) {
        const DASHED: &str = "stroke=\"#222\" stroke-dasharray=\"6 4\"";
        let Frame { left, right, top, bottom, .. } = *frame;
        match mark {
            Mark::Across(value, name) if value <= self.y.end => {
                let y = frame.y(&self.y, value);
                frame.add(format_args!("<path d=\"M{left} {y:.1}H{right}\" {DASHED}/>"));
                frame.label(right - 2.0, y - 5.0, "end", name);
            }
            Mark::Up(value, name) if value <= self.x.end => {
                let x = frame.x(&self.x, value);
                frame.add(format_args!("<path d=\"M{x:.1} {top}V{bottom}\" {DASHED}/>"));
                frame.label(x + 5.0, top + 12.0, "start", name);
            }
            Mark::Across(..) | Mark::Up(..) => {}
        }
    }

    /// Returns a line as an SVG path; points that coincide with the previous one are left out.
    fn path(&self, frame: &Frame, line: &ChartLine) -> String {
        let mut path = String::new();
        let mut before = String::new();
        for &(x, y) in &line.points {
            let Some(y) = y else {
                before.clear();
                continue;
            };
            let point = format!("{:.1} {:.1}", frame.x(&self.x, x), frame.y(&self.y, y));
            if point != before {
                let _ = write!(path, "{}{point}", if before.is_empty() { 'M' } else { 'L' });
                before = point;
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::frame::{RIGHT, WIDTH};

    #[test]
    fn missing_value_leaves_a_gap_in_the_line_of_a_chart() {
        let line = ChartLine {
            name: "robinhood".to_owned(),
            pen: Pen::of(0),
            points: vec![
                (0.0, Some(0.0)),
                (1.0, None),
                (2.0, Some(5.0)),
                (2.0, Some(5.0)),
                (3.0, Some(50.0)),
            ],
        };
        let lines = Lines {
            title: "t",
            note: "",
            x: Axis::of("a", 3.0),
            y: Axis::of("a", 10.0),
            height: 100.0,
            lines: vec![line.clone()],
            mark: Some(Mark::Across(5.0, "SLO")),
        };
        let head = Head { title: "t", note: "", names: vec![("robinhood", line.pen)] };
        let frame = Frame::open(&head, LEFT, 100.0);
        let path = lines.path(&frame, &line);
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
        assert!(path.ends_with(&format!("L{:.1} {:.1}", WIDTH - RIGHT, frame.top)), "cut off: {path}");
        let svg = lines.svg();
        crate::chart::assert_well_formed(&svg);
        assert!(svg.contains(&path) && svg.contains(">SLO</text>"), "{svg}");
    }
}
