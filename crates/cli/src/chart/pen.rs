//! Pens: colour, dashes and width of lines and areas.

/// A colour and a line style.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pen {
    pub(crate) colour: &'static str,
    /// Lengths of dashes and gaps; empty for a solid line.
    pub(crate) dashes: &'static str,
    /// Line width in pixels.
    pub(crate) width: f64,
}

/// A palette for colour-blind readers: that of Okabe and Ito, with olive in place of their yellow,
/// which is too pale for a line on white.
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c1a", "#000000"];

/// The pen of series that are not distinguished from each other.
pub(crate) const OTHERS: Pen = Pen { colour: "#d9d9d9", dashes: "", width: 1.6 };

const DASHES: [&str; 4] = ["", "7 3", "2 2", "8 2 2 2"];

impl Pen {
    /// Creates a pen with a solid line.
    pub(crate) const fn solid(colour: &'static str) -> Self {
        Self { colour, dashes: "", width: 1.6 }
    }

    /// The pen of the `index`-th of many series. The first series, as many as there are
    /// combinations of colour and dashes, have different pens.
    pub(crate) fn of(index: usize) -> Self {
        let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
        Self { colour: COLOURS[index % COLOURS.len()], dashes, width: 1.6 }
    }

    /// Formats the pen as SVG attributes.
    pub(super) fn stroke(&self) -> String {
        let Self { colour, dashes, width } = self;
        let dashes =
            if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        format!("stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}")
    }
}

/// Returns a pen for each series number: its own, or the next free one where two would share a
/// colour. So a series usually keeps its colour from picture to picture, and no two in one picture
/// share one while there are enough.
pub(crate) fn assigned(numbers: &[usize]) -> Vec<Pen> {
    let mut taken: Vec<&str> = Vec::new();
    let pen = |&number: &usize| {
        let candidates = (number..number + COLOURS.len()).map(|number| Pen::of(number % COLOURS.len()));
        let free = candidates.clone().find(|pen| !taken.contains(&pen.colour));
        let pen = free.unwrap_or_else(|| Pen::of(number));
        taken.push(pen.colour);
        pen
    };
    numbers.iter().map(pen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_chart_have_different_colours() {
        let pens = assigned(&[0, 7, 8, 15, 1]);
        assert_eq!((pens[0].colour, pens[1].colour), (COLOURS[0], COLOURS[7]), "their own");
        for (index, pen) in pens.iter().enumerate() {
            assert!(pens[..index].iter().all(|other| other.colour != pen.colour), "{pens:?}");
        }
    }

    #[test]
    fn many_series_of_a_chart_have_different_pens() {
        let pens: Vec<Pen> = (0..32).map(Pen::of).collect();
        for (index, pen) in pens.iter().enumerate() {
            assert!(!pens[..index].contains(pen), "{index}");
        }
    }
}
