//! Lines over an axis, as SVG.

use std::fmt::Write;

/// Lines in one frame, both axes from 0. What is above the frame is cut off at its edge.
#[derive(Clone, Debug)]
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) x: Axis<'a>,
    pub(super) y: Axis<'a>,
    pub(super) lines: Vec<Line>,
    /// A value worth comparing with, and its name.
    pub(super) mark: Option<(f64, &'a str)>,
}

/// An axis from 0 to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    pub(super) end: f64,
}

/// A line through points; where there is none it breaks.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) points: Vec<(f64, Option<f64>)>,
}

pub(super) const WIDTH: f64 = 860.0;
pub(super) const HEIGHT: f64 = 340.0;
pub(super) const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
pub(super) const TOP: f64 = 56.0;
pub(super) const BOTTOM: f64 = 44.0;
/// Ticks on an axis, about.
const TICKS: f64 = 8.0;

impl Chart<'_> {
    pub(super) fn svg(&self) -> String {
        let mut svg = opened(self.title);
        legend(&mut svg, self.lines.iter().map(|line| (line.name.as_str(), line.colour)));
        self.axes(&mut svg);
        if let Some((value, name)) = self.mark.filter(|(value, _)| *value <= self.y.end) {
            let y = self.y_at(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#b00\" stroke-dasharray=\"6 4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#b00\">{name}</text>",
                WIDTH - RIGHT,
                WIDTH - RIGHT,
                y - 4.0,
            );
        }
        for line in &self.lines {
            let path = self.path(line);
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
                line.colour
            );
        }
        svg + "</svg>\n"
    }

    fn axes(&self, svg: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for value in ticks(self.y.end) {
            let y = self.y_at(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for value in ticks(self.x.end) {
            let x = self.x_at(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {bottom}v4\" stroke=\"#222\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
                bottom + 16.0
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 10.0,
            self.x.name,
            (TOP + bottom) / 2.0,
            self.y.name,
        );
    }

    fn path(&self, line: &Line) -> String {
        let mut path = String::new();
        let mut pen = 'M';
        for &(x, y) in &line.points {
            let Some(y) = y else {
                pen = 'M';
                continue;
            };
            let _ = write!(path, "{pen}{:.1} {:.1}", self.x_at(x), self.y_at(y));
            pen = 'L';
        }
        path
    }

    fn x_at(&self, value: f64) -> f64 {
        LEFT + (value / self.x.end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y_at(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value / self.y.end).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The head of a picture with a title.
pub(super) fn opened(title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#222\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"15\">{title}</text>\n"
    )
}

/// Names with their colours in a row under the title.
pub(super) fn legend<'a>(svg: &mut String, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut x = LEFT;
    for (name, colour) in names {
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} 37h16\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{:.1}\" y=\"41\">{name}</text>",
            x + 21.0
        );
        // About as wide as its letters.
        x += 37.0 + 6.8 * name.len() as f64;
    }
}

/// Values along an axis from 0 to `end`, at steps of 1, 2 or 5 times a power of ten.
pub(super) fn ticks(end: f64) -> impl Iterator<Item = f64> {
    let power = 10f64.powf((end / TICKS).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| end / step <= TICKS);
    let step = step.unwrap_or(end);
    let count = (end / step + 1e-9).floor() as u32;
    // To the digits of the step, lest 0.30000000000000004 be written.
    (0..=count).map(move |i| (f64::from(i) * step * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(180.0).collect::<Vec<_>>(), [0.0, 50.0, 100.0, 150.0]);
        assert_eq!(ticks(0.7).last(), Some(0.7));
        for end in [0.013, 1.0, 7.7, 50.0, 400.0, 123_456.0] {
            assert!((3..=9).contains(&ticks(end).count()), "{end}");
        }
    }

    #[test]
    fn a_line_breaks_where_nothing_was_observed() {
        let line = Line {
            name: "robinhood".to_owned(),
            colour: "#000",
            points: vec![(0.0, Some(0.0)), (1.0, None), (2.0, Some(5.0)), (3.0, Some(50.0))],
        };
        let axis = |end| Axis { name: "a", end };
        let chart = Chart { title: "t", x: axis(3.0), y: axis(10.0), lines: vec![line.clone()], mark: None };
        let path = chart.path(&line);
        assert_eq!(path.matches('M').count(), 2);
        assert!(path.ends_with(&format!("L{:.1} {TOP:.1}", WIDTH - RIGHT)), "cut off at the edge: {path}");
        assert!(chart.svg().contains(&path));
    }
}
