//! Which object of a catalogue is asked for.

use std::sync::Arc;

use crate::draw::uniform;

/// Zipf-like popularity of ranks 0 (most popular) to N-1, by the closed form of the bounded Pareto distribution.
///
/// With U uniform in [0, 1) and exponent a, the rank is floor((1 + U ((N+1)^(1-a) - 1))^(1/(1-a))) - 1. That form *is*
/// the definition, in the workload model's file format too: samplers called "Zipf" differ in the head of the
/// distribution, and with it in every hit ratio. a = 0 is uniform; at a = 1 the form has the limit (N+1)^U, which is
/// used within 1e-6 of 1, where the powers would lose their digits. Constant time, one draw per rank.
///
/// Most draws need no power: the unit interval is cut into up to 65,536 equal cells, 4 bytes each, and a cell in which every
/// draw stands for the same rank says which. One that two ranks share says (in 8 bytes more) where the second begins, to a few
/// parts of 65,536, and only the draws between are worked out. So the ranks are those of the closed form, to the last draw.
///
/// ```
/// use sherwood_workload::Popularity;
/// assert_eq!(Popularity::new(100, 0.9).rank(0.0), 0);
/// assert_eq!(Popularity::new(4, 0.0).rank(0.5), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Popularity {
    objects: u64,
    shape: Shape,
    /// The rank that all draws of a cell stand for, [`MIXED`], or [`SPLIT`] and the number of its split.
    cells: Arc<[u32]>,
    splits: Arc<[Split]>,
}

/// Where in a cell of two ranks the second begins: not before `from`, and by `to`, in parts of [`PARTS`].
#[derive(Clone, Copy, Debug)]
struct Split {
    rank: u32,
    from: u16,
    to: u16,
}

/// Cells at most, a power of two so that a draw's cell is exact.
const CELLS_MAX: u64 = 1 << 16;
/// Cells for each rank, where there are few ranks.
const CELLS_PER_RANK: u64 = 8;
/// Marks a cell whose draws stand for more than two ranks.
const MIXED: u32 = u32::MAX;
/// Marks a cell whose draws stand for two ranks.
const SPLIT: u32 = 1 << 31;
/// Parts of a cell.
const PARTS: f64 = 65_536.0;
/// How far from a whole number the ends of a cell must lie for it to have one rank: a million times the error of a power.
const MARGIN: f64 = 1e-9;

#[derive(Clone, Debug)]
enum Shape {
    /// (N+1)^(1-a) - 1 and 1/(1-a).
    Power { span: f64, inverse: f64 },
    /// ln(N+1), for a = 1.
    Exponential { span: f64 },
}

impl Popularity {
    /// Popularity over `objects` ranks with exponent `alpha`, at least 0.
    ///
    /// # Panics
    /// Without objects, with more than 2^52 of them, or with an exponent that is negative or not finite; the options
    /// that lead here are validated.
    #[must_use]
    pub fn new(objects: u64, alpha: f64) -> Self {
        assert!((1..=1 << 52).contains(&objects), "a popularity law needs 1 to 2^52 objects, not {objects}");
        assert!(alpha >= 0.0 && alpha.is_finite(), "a popularity exponent is 0 or more, not {alpha}");
        let ends = (objects + 1) as f64;
        let shape = if (alpha - 1.0).abs() < 1e-6 {
            Shape::Exponential { span: libm::log(ends) }
        } else {
            Shape::Power { span: libm::pow(ends, 1.0 - alpha) - 1.0, inverse: 1.0 / (1.0 - alpha) }
        };
        let (cells, splits) = cells(objects, &shape);
        Self { objects, shape, cells, splits }
    }

    /// The number of ranks, N.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    /// The rank that the uniform draw `u` in [0, 1) stands for, 0 to N-1.
    #[must_use]
    pub fn rank(&self, u: f64) -> u64 {
        // Exact, as the number of cells is a power of two.
        let at = u * self.cells.len() as f64;
        match self.cells.get(at as usize) {
            Some(&rank) if rank < SPLIT => u64::from(rank),
            Some(&MIXED) | None => self.exact_rank(u),
            Some(&split) => {
                let Split { rank, from, to } = self.splits[(split - SPLIT) as usize];
                let part = ((at - (at as usize) as f64) * PARTS) as u16;
                if part < from {
                    u64::from(rank)
                } else if part >= to {
                    u64::from(rank) + 1
                } else {
                    self.exact_rank(u)
                }
            }
        }
    }

    fn exact_rank(&self, u: f64) -> u64 {
        // Rounding may carry a draw just below 1 to N+1.
        (self.shape.position(u) as u64).saturating_sub(1).min(self.objects - 1)
    }

    /// A rank drawn with one output of `rng`.
    #[must_use]
    pub fn draw(&self, rng: &mut impl rand_core::Rng) -> u64 {
        self.rank(uniform(rng))
    }
}

impl Shape {
    /// One more than the rank of `u`, not rounded down yet; rises with `u`.
    fn position(&self, u: f64) -> f64 {
        match *self {
            Self::Power { span, inverse } => libm::pow(1.0 + u * span, inverse),
            Self::Exponential { span } => libm::exp(u * span),
        }
    }

    /// The draw of a position, within rounding.
    fn draw(&self, position: f64) -> f64 {
        match *self {
            Self::Power { span, inverse } => (libm::pow(position, 1.0 / inverse) - 1.0) / span,
            Self::Exponential { span } => libm::log(position) / span,
        }
    }
}

/// A catalogue cut into runs of ranks that are about equally popular, most popular first: how many objects each has, and its share of
/// the draws. Runs grow by a third, so there are some 70 for a billion objects.
pub(crate) fn shares(objects: u64, alpha: f64) -> Vec<(f64, f64)> {
    let end = (objects + 1) as f64;
    // Draws up to a position, all of them being `below(end)`.
    let below = |position: f64| {
        if (alpha - 1.0).abs() < 1e-6 {
            libm::log(position)
        } else {
            (libm::pow(position, 1.0 - alpha) - 1.0) / (1.0 - alpha)
        }
    };
    let (mut runs, mut first) = (Vec::new(), 1.0);
    while first < end {
        let next = libm::floor(first * (4.0 / 3.0)).max(first + 1.0).min(end);
        runs.push((next - first, (below(next) - below(first)) / below(end)));
        first = next;
    }
    runs
}

/// What each cell's draws stand for.
fn cells(objects: u64, shape: &Shape) -> (Arc<[u32]>, Arc<[Split]>) {
    let count = objects.saturating_mul(CELLS_PER_RANK).min(CELLS_MAX).next_power_of_two();
    let edges = (0..=count).map(|edge| shape.position(edge as f64 / count as f64));
    let edges: Vec<f64> = edges.collect();
    let mut splits = Vec::new();
    let cell = |(cell, ends): (usize, &[f64])| {
        let (first, last) = (rank_above(ends[0]), rank_below(ends[1]));
        if last >= objects || last >= u64::from(SPLIT) {
            return MIXED;
        }
        match last - first {
            0 => first as u32,
            1 => match split(cell, count, first, shape) {
                Some(split) => {
                    splits.push(split);
                    SPLIT | (splits.len() - 1) as u32
                }
                None => MIXED,
            },
            _ => MIXED,
        }
    };
    let cells = edges.windows(2).enumerate().map(cell).collect();
    (cells, splits.into())
}

/// The least rank that draws at a position and beyond stand for, however it was rounded.
fn rank_above(position: f64) -> u64 {
    // What rounds to 1 from below belongs to rank 0, as in `exact_rank`.
    ((position * (1.0 - MARGIN)) as u64).saturating_sub(1)
}

/// The greatest rank that draws up to a position stand for.
fn rank_below(position: f64) -> u64 {
    ((position * (1.0 + MARGIN)) as u64).saturating_sub(1)
}

/// Where in a cell the rank after `rank` begins; none where that is too near to its ends to tell.
fn split(cell: usize, count: u64, rank: u64, shape: &Shape) -> Option<Split> {
    let begins = shape.draw((rank + 2) as f64) * count as f64 - cell as f64;
    let part = (begins * PARTS) as u16;
    let (from, to) = (part.checked_sub(1)?, part.checked_add(2)?);
    let position = |part: u16| shape.position((cell as f64 + f64::from(part) / PARTS) / count as f64);
    let holds = rank_below(position(from)) == rank && rank_above(position(to)) == rank + 1;
    holds.then_some(Split { rank: rank as u32, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_follow_the_closed_form() {
        // N = 9, a = 1/2: the rank is floor((1 + U (sqrt(10) - 1))^2) - 1.
        let popularity = Popularity::new(9, 0.5);
        let root = 10f64.sqrt() - 1.0;
        for rank in 0..9u32 {
            let first = (f64::from(rank + 1).sqrt() - 1.0) / root;
            assert_eq!(popularity.rank(first + 1e-9), u64::from(rank));
        }
    }

    #[test]
    fn exponent_one_is_the_limit_of_its_neighbours() {
        let (at, near) = (Popularity::new(1_000, 1.0), Popularity::new(1_000, 1.000_01));
        for step in 0..1_000 {
            let u = f64::from(step) / 1_000.0;
            assert!(at.rank(u).abs_diff(near.rank(u)) <= 1, "{u}");
        }
    }

    #[test]
    fn shares_are_those_of_the_draws() {
        for alpha in [0.0, 0.7, 1.0, 1.3] {
            let (popularity, shares) = (Popularity::new(5_000, alpha), shares(5_000, alpha));
            let (mut rank, mut share) = (0.0, 0.0);
            for (objects, part) in shares {
                (rank, share) = (rank + objects, share + part);
                let found = popularity.rank((share - 1e-9).max(0.0)) as f64;
                assert!((found - (rank - 1.0)).abs() < 1.0, "{alpha}: {found} {rank}");
            }
            assert!((share - 1.0).abs() < 1e-9 && rank == 5_000.0);
        }
    }

    #[test]
    fn one_object_is_always_rank_zero() {
        assert_eq!(Popularity::new(1, 0.99).rank(1.0 - f64::EPSILON / 2.0), 0);
    }

    #[test]
    fn most_draws_from_a_catalogue_find_their_rank_in_a_cell() {
        let popularity = Popularity::new(9_257, 0.85);
        let mixed = popularity.cells.iter().filter(|&&rank| rank == MIXED).count();
        assert!(mixed * 1_000 < popularity.cells.len(), "{mixed} of {}", popularity.cells.len());
    }

    #[test]
    fn draws_beside_the_beginning_of_a_rank_are_those_of_the_closed_form() {
        let popularity = Popularity::new(35_276, 0.6);
        let cells = popularity.cells.len() as f64;
        for (cell, &split) in popularity.cells.iter().enumerate().step_by(7) {
            if !(SPLIT..MIXED).contains(&split) {
                continue;
            }
            let Split { from, to, .. } = popularity.splits[(split - SPLIT) as usize];
            for part in [from.saturating_sub(1), from, from + 1, to - 1, to, to.saturating_add(1)] {
                for beside in [-1e-12, 0.0, 1e-12] {
                    let u = (cell as f64 + f64::from(part) / PARTS) / cells + beside;
                    assert_eq!(popularity.rank(u), popularity.exact_rank(u), "{u}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn cells_say_what_the_closed_form_says(objects in 1u64..100_000, alpha in 0.0f64..1.5, u in 0.0f64..1.0) {
            let popularity = Popularity::new(objects, alpha);
            prop_assert_eq!(popularity.rank(u), popularity.exact_rank(u));
        }

        #[test]
        fn ranks_stay_within_the_catalogue_and_rise_with_the_draw(
            objects in 1u64..1 << 40, alpha in 0.0f64..3.0, low in 0.0f64..1.0, high in 0.0f64..1.0
        ) {
            let popularity = Popularity::new(objects, alpha);
            let (low, high) = if low < high { (low, high) } else { (high, low) };
            prop_assert!(popularity.rank(low) <= popularity.rank(high));
            prop_assert!(popularity.rank(high) < objects);
        }
    }
}
