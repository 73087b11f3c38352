//! Scatter plots.

use super::Axis;
use super::frame::{Frame, Head, LEFT};

/// Points in one frame, both axes from 0.
#[derive(Clone, Debug)]
pub(crate) struct Dots<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Height of the chart's frame, in pixels.
    pub(crate) height: f64,
    pub(crate) colour: &'static str,
    pub(crate) points: &'a [[f64; 2]],
}

impl Dots<'_> {
    pub(crate) fn svg(&self) -> String {
        let head = Head { title: self.title, note: "", names: Vec::new() };
        let mut frame = Frame::open(&head, LEFT, self.height);
        frame.y_axis(&self.y);
        frame.x_axis(&self.x, true);
        frame.edges();
        for &[x, y] in self.points {
            let (x, y) = (frame.x(&self.x, x), frame.y(&self.y, y));
            frame.add(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{}\"/>",
                self.colour
            ));
        }
        frame.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_a_scatter_plot_are_where_both_axes_say() {
        let dots = Dots {
            title: "t",
            x: Axis::shares("a"),
            y: Axis::shares("b"),
            height: 100.0,
            colour: "#0072b2",
            points: &[[0.0, 0.0], [1.0, 1.0]],
        };
        let svg = dots.svg();
        crate::chart::assert_well_formed(&svg);
        assert!(
            svg.contains("cx=\"60.0\" cy=\"134.0\"") && svg.contains("cx=\"836.0\" cy=\"34.0\""),
            "{svg}"
        );
    }
}
