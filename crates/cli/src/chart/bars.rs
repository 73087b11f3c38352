//! Bar charts that compare several subjects.

use super::frame::{Frame, Head};
use super::{Axis, Pen, escaped, width_of};

/// Horizontal bars in groups; each bar is a stack of parts.
#[derive(Clone, Debug)]
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    /// A line under the title, or nothing.
    pub(crate) note: &'a str,
    /// Names of the parts of each bar, from the left.
    pub(crate) parts: Vec<(String, Pen)>,
    pub(crate) axis: Axis,
    pub(crate) groups: Vec<Group>,
}

/// Bars with a common heading.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// A bar with its values.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// A value for each part, at least 0.
    pub(crate) values: Vec<f64>,
    /// Text at the end of the bar.
    pub(crate) note: String,
}

/// Distance between the tops of two bars, and the thickness of a bar, in pixels.
const STEP: f64 = 19.0;
const THICK: f64 = 13.0;
/// Height of a group's heading.
const NAME: f64 = 24.0;
/// Room for the notes at the ends of bars.
const NOTE: f64 = 96.0;

impl Bars<'_> {
    pub(crate) fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let widest = bars().map(|bar| width_of(&bar.name)).fold(30.0, f64::max);
        let height = self.groups.len() as f64 * NAME + bars().count() as f64 * STEP + 6.0;
        let names = self.parts.iter().map(|(name, pen)| (name.as_str(), *pen)).collect();
        let head = Head { title: self.title, note: self.note, names };
        let mut frame = Frame::open(&head, 20.0 + widest, height);
        frame.right -= NOTE;
        frame.x_axis(&self.axis, true);
        let mut y = frame.top;
        for group in &self.groups {
            y += NAME;
            let (left, name) = (frame.left, escaped(&group.name));
            frame.add(format_args!(
                "<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"bold\" stroke=\"#fff\" stroke-width=\"3\" \
                 paint-order=\"stroke\">{name}</text>",
                y - 6.0
            ));
            for bar in &group.bars {
                self.bar(&mut frame, bar, y);
                y += STEP;
            }
        }
        frame.edges();
        frame.close()
    }

    fn bar(&self, frame: &mut Frame, bar: &Bar, y: f64) {
        let mut sum = 0.0;
        for (value, (part, pen)) in bar.values.iter().zip(&self.parts) {
            let from = frame.x(&self.axis, sum);
            sum += value;
            let width = frame.x(&self.axis, sum) - from;
            if width > 0.05 {
                frame.add(format_args!(
                    "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{THICK}\" fill=\"{}\" \
                     stroke=\"#fff\" stroke-width=\"0.6\"><title>{}: {value:.3}</title></rect>",
                    pen.colour,
                    escaped(part)
                ));
            }
        }
        let base = y + THICK - 2.5;
        frame.add(format_args!(
            "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text>",
            frame.left - 6.0,
            escaped(&bar.name)
        ));
        let end = frame.x(&self.axis, sum) + 6.0;
        frame.add(format_args!(
            "<text x=\"{end:.1}\" y=\"{base:.1}\" fill=\"#555\">{}</text>",
            escaped(&bar.note)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_whose_parts_sum_to_one_fills_the_frame() {
        let bar = Bar { name: "bar".to_owned(), values: vec![0.25, 0.75], note: "b 75%".to_owned() };
        let bars = Bars {
            title: "t",
            note: "",
            parts: vec![("a".to_owned(), Pen::of(0)), ("b".to_owned(), Pen::of(1))],
            axis: Axis::shares("share"),
            groups: vec![Group { name: "g".to_owned(), bars: vec![bar] }],
        };
        let svg = bars.svg();
        crate::chart::assert_well_formed(&svg);
        // The axis spans 50 to 740: a quarter is 172.5 wide, the rest 517.5.
        assert!(svg.contains("x=\"50.0\"") && svg.contains("width=\"172.5\""), "{svg}");
        assert!(svg.contains("x=\"222.5\"") && svg.contains("width=\"517.5\""), "{svg}");
        assert!(svg.contains("<title>b: 0.750</title>") && svg.contains(">b 75%</text>"), "{svg}");
    }
}
