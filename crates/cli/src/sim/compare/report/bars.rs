//! Shares of a whole, as stacked bars in SVG.

use std::fmt::Write;

use super::chart::{BOTTOM, HEIGHT, LEFT, TOP, WIDTH, legend, opened};

/// Bars in groups, each a stack of shares.
#[derive(Clone, Debug)]
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    /// What the shares are of, and their colours, from the bottom.
    pub(super) parts: Vec<(String, &'static str)>,
    pub(super) groups: Vec<Group>,
}

/// Bars side by side under one name.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// A name and one share, 0 to 1, for each part.
    pub(super) bars: Vec<(String, Vec<f64>)>,
}

const RIGHT: f64 = 20.0;

impl Bars<'_> {
    pub(super) fn svg(&self) -> String {
        let mut svg = opened(self.title);
        legend(&mut svg, self.parts.iter().map(|(name, colour)| (name.as_str(), *colour)));
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for percent in [0, 25, 50, 75, 100] {
            let y = bottom - f64::from(percent) / 100.0 * (bottom - TOP);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{percent}%</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let width = (right - LEFT) / self.groups.len().max(1) as f64;
        for (index, group) in self.groups.iter().enumerate() {
            self.group(&mut svg, group, LEFT + index as f64 * width, width);
        }
        svg + "</svg>\n"
    }

    fn group(&self, svg: &mut String, group: &Group, left: f64, width: f64) {
        let bottom = HEIGHT - BOTTOM;
        let step = width / (group.bars.len() as f64 + 0.5);
        for (index, (name, shares)) in group.bars.iter().enumerate() {
            let x = left + (index as f64 + 0.35) * step;
            let mut y = bottom;
            for (share, (part, colour)) in shares.iter().zip(&self.parts) {
                let height = share * (bottom - TOP);
                y -= height;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\">\
                     <title>{part}: {:.0}%</title></rect>",
                    step * 0.8,
                    share * 100.0
                );
            }
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\">{name}</text>",
                x + step * 0.4,
                bottom + 12.0
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + width / 2.0,
            HEIGHT - 12.0,
            group.name
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_the_whole_is_as_high_as_the_frame() {
        let bars = Bars {
            title: "t",
            parts: vec![("a".to_owned(), "#000"), ("b".to_owned(), "#111")],
            groups: vec![Group { name: "g".to_owned(), bars: vec![("bar".to_owned(), vec![0.25, 0.75])] }],
        };
        let svg = bars.svg();
        assert!(svg.contains(&format!("y=\"{TOP:.1}\"")), "{svg}");
        assert!(svg.contains("<title>b: 75%</title>"));
    }
}
