//! The frontier as a picture: one SVG file that needs nothing beside it.
//!
//! A panel for each condition, a row for each policy. A row has a dot at the hardest condition that keeps the promise with every
//! seed, and a line from there to the mildest that breaks it with every one. Axes are logarithmic: a step is a step wherever it is.

use std::fmt::Write;

/// What is drawn.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

/// One condition.
pub(super) struct Panel {
    pub(super) name: &'static str,
    pub(super) rows: Vec<Row>,
}

/// One policy under a condition.
pub(super) struct Row {
    pub(super) policy: String,
    /// None where it does not even keep the promise at the mildest condition.
    pub(super) kept: Option<f64>,
    /// None where it does not even break it at the hardest.
    pub(super) broken: Option<f64>,
    /// As the table has it.
    pub(super) words: String,
}

const WIDTH: f64 = 860.0;
/// Room for the policies' names, and around.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 34.0;
/// Between panels.
const GAP: f64 = 26.0;
const ROW: f64 = 24.0;
/// Places that may be labelled, while they are so many pixels apart.
const TICKS: [f64; 15] = [0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0];
const APART: f64 = 30.0;
const COLOUR: &str = "#0072b2";

impl Plot {
    pub(super) fn svg(&self) -> String {
        let rows = self.panels.first().map_or(&[][..], |panel| &panel.rows);
        let height = TOP + rows.len() as f64 * ROW + BOTTOM;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"10\" y=\"20\" font-size=\"15\">{title}</text>\n",
            title = escaped(&self.title),
        );
        for (index, row) in rows.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 10.0,
                middle(index) + 4.0,
                escaped(&row.policy)
            );
        }
        let panels = self.panels.len().max(1) as f64;
        let width = (WIDTH - LEFT - RIGHT - GAP * (panels - 1.0)) / panels;
        for (index, panel) in self.panels.iter().enumerate() {
            let scale = Scale::of(panel, LEFT + index as f64 * (width + GAP), width);
            draw(&mut svg, panel, &scale);
        }
        svg + "</svg>\n"
    }
}

/// A logarithmic axis.
struct Scale {
    left: f64,
    width: f64,
    low: f64,
    high: f64,
}

impl Scale {
    /// As wide as what is on it, and 1.
    fn of(panel: &Panel, left: f64, width: f64) -> Self {
        let values = || panel.rows.iter().flat_map(|row| [row.kept, row.broken]).flatten();
        let (low, high) = (values().fold(1.0, f64::min) / 1.1, values().fold(1.0, f64::max) * 1.1);
        Self { left, width, low, high }
    }

    fn at(&self, value: f64) -> f64 {
        self.left + (value / self.low).ln() / (self.high / self.low).ln() * self.width
    }

    /// 1, and what else has room.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks = vec![1.0];
        for tick in TICKS.into_iter().filter(|tick| (self.low..=self.high).contains(tick)) {
            if ticks.iter().all(|&other| (self.at(other) - self.at(tick)).abs() >= APART) {
                ticks.push(tick);
            }
        }
        ticks
    }
}

/// Height of the middle of a row.
fn middle(row: usize) -> f64 {
    TOP + (row as f64 + 0.5) * ROW
}

fn draw(svg: &mut String, panel: &Panel, scale: &Scale) {
    let bottom = TOP + panel.rows.len() as f64 * ROW;
    let Scale { left, width, .. } = *scale;
    let right = left + width;
    let _ =
        writeln!(svg, "<text x=\"{left:.1}\" y=\"{:.1}\" fill=\"#555\">{}</text>", TOP - 12.0, panel.name);
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let dashes = if tick == 1.0 { "stroke=\"#555\" stroke-dasharray=\"5 4\"" } else { "stroke=\"#ddd\"" };
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {TOP}V{bottom}\" {dashes}/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 17.0
        );
    }
    let _ = writeln!(svg, "<path d=\"M{left:.1} {TOP}V{bottom}H{right:.1}\" fill=\"none\" stroke=\"#222\"/>");
    for (index, row) in panel.rows.iter().enumerate() {
        let y = middle(index);
        let mut label = left + 6.0;
        let _ = writeln!(svg, "<g><title>{}: {}</title>", escaped(&row.policy), escaped(&row.words));
        if let Some(kept) = row.kept {
            let from = scale.at(kept);
            let to = row.broken.map_or(from, |broken| scale.at(broken));
            let _ = writeln!(
                svg,
                "<path d=\"M{from:.1} {y:.1}H{to:.1}\" stroke=\"{COLOUR}\" stroke-width=\"3\" opacity=\"0.5\"/>\
                 <circle cx=\"{from:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{COLOUR}\"/>"
            );
            label = from.max(to) + 8.0;
        }
        // Where there is no room to the right, to the left.
        let room = right - label >= LABEL;
        let (x, anchor) = match row.kept {
            Some(kept) if !room => {
                let to = row.broken.map_or(f64::INFINITY, |broken| scale.at(broken));
                (scale.at(kept).min(to) - 8.0, "end")
            }
            _ => (label, "start"),
        };
        let words =
            row.kept.filter(|_| row.broken.is_some()).map_or(row.words.clone(), |kept| kept.to_string());
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" stroke=\"#fff\" stroke-width=\"3\" \
             paint-order=\"stroke\">{}</text></g>",
            y + 4.0,
            escaped(&words)
        );
    }
}

/// Room for a number.
const LABEL: f64 = 58.0;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, kept: Option<f64>, broken: Option<f64>, words: &str) -> Row {
        Row { policy: policy.to_owned(), kept, broken, words: words.to_owned() }
    }

    #[test]
    fn a_picture_of_what_is_kept_and_broken() {
        let panel = |name| Panel {
            name,
            rows: vec![
                row("robinhood", Some(1.477), Some(1.71), "1.477 .. 1.71"),
                row("a<b", None, Some(0.065), "< 0.06507"),
                row("best", Some(15.37), None, ">= 15.37"),
            ],
        };
        let plot =
            Plot { title: "onerf-spikes & co".to_owned(), panels: vec![panel("depth"), panel("load")] };
        insta::assert_snapshot!(plot.svg());
    }

    #[test]
    fn one_is_always_on_the_axis_and_ticks_do_not_collide() {
        for (kept, broken) in [(0.91, 0.95), (1.0, 1.05), (2.0, 15.0), (0.07, 0.1), (0.065, 15.3)] {
            let panel = Panel { name: "load", rows: vec![row("p", Some(kept), Some(broken), "")] };
            let scale = Scale::of(&panel, 0.0, 200.0);
            let ticks = scale.ticks();
            assert!(ticks.contains(&1.0) && ticks.len() <= 7, "{ticks:?}");
            for &value in ticks.iter().chain(&[kept, broken]) {
                assert!((0.0..=200.0).contains(&scale.at(value)), "{value} of {kept} {broken}");
            }
        }
    }
}
