//! What lines and areas are drawn with.

/// A colour and how its line is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pen {
    pub(crate) colour: &'static str,
    /// Lengths of dashes and gaps, empty for a line that is whole.
    pub(crate) dashes: &'static str,
    /// Of the line, in pixels.
    pub(crate) width: f64,
}

/// Colours that are told apart whatever one's eyes: those of Okabe and Ito, with an olive for their
/// yellow, which is too pale for a line on white.
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c1a", "#000000"];

/// Of what is not told apart.
pub(crate) const OTHERS: Pen = Pen { colour: "#d9d9d9", dashes: "", width: 1.6 };

const DASHES: [&str; 4] = ["", "7 3", "2 2", "8 2 2 2"];

impl Pen {
    /// A whole line.
    pub(crate) const fn solid(colour: &'static str) -> Self {
        Self { colour, dashes: "", width: 1.6 }
    }

    /// The pen of the `index`-th of many things; so many have one of their own as there are colours
    /// times ways to dash.
    pub(crate) fn of(index: usize) -> Self {
        let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
        Self { colour: COLOURS[index % COLOURS.len()], dashes, width: 1.6 }
    }

    /// As attributes of what is stroked.
    pub(super) fn stroke(&self) -> String {
        let Self { colour, dashes, width } = self;
        let dashes =
            if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        format!("stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}")
    }
}

/// Pens for the things with these numbers: each its own, or where two would share a colour the next
/// that is free. So a thing keeps its colour from picture to picture, mostly, and no two of one
/// picture have the same while there are enough.
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
    fn no_two_of_one_picture_share_a_colour() {
        let pens = assigned(&[0, 7, 8, 15, 1]);
        assert_eq!((pens[0].colour, pens[1].colour), (COLOURS[0], COLOURS[7]), "their own");
        for (index, pen) in pens.iter().enumerate() {
            assert!(pens[..index].iter().all(|other| other.colour != pen.colour), "{pens:?}");
        }
    }

    #[test]
    fn many_things_have_pens_of_their_own() {
        let pens: Vec<Pen> = (0..32).map(Pen::of).collect();
        for (index, pen) in pens.iter().enumerate() {
            assert!(!pens[..index].contains(pen), "{index}");
        }
    }
}
