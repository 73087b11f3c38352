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
/// draw stands for the same rank says which. So the ranks are those of the closed form, to the last draw.
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
    /// The rank that all draws of a cell stand for, or [`MIXED`].
    cells: Arc<[u32]>,
}

/// Cells at most, a power of two so that a draw's cell is exact.
const CELLS_MAX: u64 = 1 << 16;
/// Cells for each rank, where there are few ranks.
const CELLS_PER_RANK: u64 = 8;
/// Marks a cell whose draws stand for different ranks.
const MIXED: u32 = u32::MAX;
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
        let cells = cells(objects, &shape);
        Self { objects, shape, cells }
    }

    /// The number of ranks, N.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    /// The rank that the uniform draw `u` in [0, 1) stands for, 0 to N-1.
    #[must_use]
    pub fn rank(&self, u: f64) -> u64 {
        match self.cells.get((u * self.cells.len() as f64) as usize) {
            Some(&rank) if rank != MIXED => u64::from(rank),
            _ => self.exact_rank(u),
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
fn cells(objects: u64, shape: &Shape) -> Arc<[u32]> {
    let count = objects.saturating_mul(CELLS_PER_RANK).min(CELLS_MAX).next_power_of_two();
    let edges = (0..=count).map(|edge| shape.position(edge as f64 / count as f64));
    let edges: Vec<f64> = edges.collect();
    let rank = |ends: &[f64]| {
        let (low, high) = (ends[0] * (1.0 - MARGIN), ends[1] * (1.0 + MARGIN));
        // Ends that round to 1 from below belong to rank 0, as in `exact_rank`.
        let (first, last) = ((low as u64).max(1), (high as u64).max(1));
        let one = first == last && last <= objects;
        if one { u32::try_from(first - 1).unwrap_or(MIXED) } else { MIXED }
    };
    edges.windows(2).map(rank).collect()
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
        let found = popularity.cells.iter().filter(|&&rank| rank != MIXED).count();
        assert!(found * 5 > popularity.cells.len() * 4, "{found} of {}", popularity.cells.len());
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
