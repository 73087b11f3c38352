//! Popularity of the objects of a catalogue.

use std::sync::Arc;

use crate::draw::uniform;

/// Zipf-like popularity of ranks 0 (most popular) to N-1, by the closed form of the bounded Pareto
/// distribution.
///
/// With U uniform in [0, 1) and exponent a, the rank is
///
/// ```text
/// floor((1 + U ((N+1)^(1-a) - 1))^(1/(1-a))) - 1
/// ```
///
/// This formula is the definition, also in the workload model's file format: samplers called "Zipf"
/// differ in the head of the distribution, and therefore in every hit ratio. a = 0 is uniform; at
/// a = 1 the formula has the limit (N+1)^U, which is used within 1e-6 of 1, where the powers would
/// lose precision. Constant time, one draw per rank.
///
/// Few draws compute a power: the unit interval is divided into at most 512 equal pieces, each with
/// a cubic that approximates the closed form within a known error (40 bytes per piece, so that the
/// tables of many catalogues fit into the processor's caches). If all positions within that error
/// have one rank, it is the rank; draws close to the boundary of a rank are computed exactly. In
/// catalogues of up to a hundred million objects with exponents up to 1.2, these are at most 7%; of
/// a billion objects up to a fifth, and of a trillion most, since their ranks are narrower than the
/// error. All ranks are therefore exactly those of the closed form.
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
    /// Cubics that approximate the rank of a uniform draw, for equal pieces of the unit interval.
    pieces: Arc<[Piece]>,
}

/// A cubic that approximates the unrounded rank of a draw, in the distance from the middle of a
/// piece of the unit interval, in pieces; off by at most `error`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    cubic: [f64; 4],
    error: f64,
}

/// Largest number of pieces of the unit interval, a power of two so that the piece of a draw is
/// computed exactly.
const PIECES_MAX: u64 = 1 << 9;
/// Pieces of the unit interval per rank in small catalogues.
const PIECES_PER_RANK: u64 = 8;
/// Relative error allowed for an unrounded rank: more than the rounding error of the closed form
/// with exact terms and of its cubic.
const ROUNDING: f64 = 1e-13;

#[derive(Clone, Debug)]
enum Shape {
    /// The terms (N+1)^(1-a) - 1 and 1/(1-a) of the closed form, for exponents a other than 1.
    Power { span: f64, inverse: f64 },
    /// The term ln(N+1) of the closed form's limit for the exponent 1.
    Exponential { span: f64 },
}

impl Popularity {
    /// Returns the popularity of `objects` ranks with exponent `alpha`, at least 0.
    ///
    /// # Panics
    /// If `objects` is 0 or above 2^52, or `alpha` is negative or not finite; callers validate
    /// both.
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
        let pieces = pieces(objects, &shape);
        Self { objects, shape, pieces }
    }

    /// The number of ranks, N.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    /// The rank of the uniform draw `u` in [0, 1), from 0 to N-1.
    #[must_use]
    pub fn rank(&self, u: f64) -> u64 {
        self.easy_rank(u).unwrap_or_else(|| self.exact_rank(u))
    }

    /// The rank of `u`, if the cubic of its piece determines it.
    #[inline]
    fn easy_rank(&self, u: f64) -> Option<u64> {
        // Exact, since the number of pieces is a power of two.
        let at = u * self.pieces.len() as f64;
        let piece = at as usize;
        let Piece { cubic, error } = self.pieces.get(piece)?;
        let x = at - piece as f64 - 0.5;
        let position = cubic[0] + x * (cubic[1] + x * (cubic[2] + x * cubic[3]));
        let (low, high) = ((position - error) as u64, (position + error) as u64);
        (low == high).then(|| self.rank_at(low))
    }

    fn exact_rank(&self, u: f64) -> u64 {
        self.rank_at(self.shape.position(u) as u64)
    }

    /// Returns the rank of a draw whose rank plus one rounds down to `position`. For a draw just
    /// below 1, rounding errors may give N+1.
    fn rank_at(&self, position: u64) -> u64 {
        position.saturating_sub(1).min(self.objects - 1)
    }

    /// Draws a rank with one output of `rng`.
    #[must_use]
    pub fn draw(&self, rng: &mut impl rand_core::Rng) -> u64 {
        self.rank(uniform(rng))
    }
}

impl Shape {
    /// The rank of `u` plus one, before rounding down; non-decreasing in `u`.
    fn position(&self, u: f64) -> f64 {
        match *self {
            Self::Power { span, inverse } => libm::pow(1.0 + u * span, inverse),
            Self::Exponential { span } => libm::exp(u * span),
        }
    }

    /// The coefficients of the Taylor series of the unrounded rank at `u`, orders 0 to 4, in pieces
    /// of this `width`.
    fn series(&self, u: f64, width: f64) -> [f64; 5] {
        let mut terms = [self.position(u); 5];
        for order in 1..terms.len() {
            let taken = (order - 1) as f64;
            let growth = match *self {
                Self::Power { span, inverse } => (inverse - taken) * span / (1.0 + u * span),
                Self::Exponential { span } => span,
            };
            terms[order] = terms[order - 1] * growth * width / order as f64;
        }
        terms
    }

    /// Relative rounding error of the unrounded rank at `u`.
    fn rounding(&self, u: f64) -> f64 {
        match *self {
            // A power multiplies the relative error of its base by its exponent; the base shrinks
            // below 1 for a negative span, which increases its relative error.
            Self::Power { span, inverse } => ROUNDING * (1.0 + inverse.abs() / (1.0 + u * span).min(1.0)),
            // An exponential has the absolute error of its argument as relative error.
            Self::Exponential { span } => ROUNDING * (1.0 + span),
        }
    }
}

/// Divides a catalogue into runs of about equally popular ranks, most popular first, and returns
/// the number of objects and the share of draws of each. Runs grow by a third, so there are about
/// 70 for a billion objects.
pub(crate) fn shares(objects: u64, alpha: f64) -> Vec<(f64, f64)> {
    let end = (objects + 1) as f64;
    // Unnormalised share of the draws up to a position.
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

/// Cubics for all pieces of the unit interval.
fn pieces(objects: u64, shape: &Shape) -> Arc<[Piece]> {
    let count = objects.saturating_mul(PIECES_PER_RANK).min(PIECES_MAX).next_power_of_two();
    (0..count).map(|piece| self::piece(piece as f64, 1.0 / count as f64, shape)).collect()
}

/// The cubic of one piece of this `width`.
fn piece(number: f64, width: f64, shape: &Shape) -> Piece {
    let [a, b, c, d, _] = shape.series((number + 0.5) * width, width);
    let ends = [number * width, (number + 1.0) * width];
    // Lagrange's remainder: the fourth derivative has no extremum within a piece, so it is largest
    // at one of its ends.
    let remainder = |u: f64| shape.series(u, width)[4].abs() / 16.0;
    let rounding = |u: f64| shape.position(u) * shape.rounding(u);
    // The greater of two, or NaN if either is NaN, which `f64::max` would ignore.
    let greatest = |[a, b]: [f64; 2]| if a > b || a.is_nan() { a } else { b };
    let error = greatest(ends.map(remainder)) + greatest(ends.map(rounding));
    match [a, b, c, d, error].iter().all(|number| number.is_finite()) {
        true => Piece { cubic: [a, b, c, d], error },
        // No approximation: every draw is computed exactly.
        false => Piece { cubic: [0.0; 4], error: f64::INFINITY },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zipf_ranks_follow_the_closed_form() {
        // N = 9, a = 1/2: the rank is floor((1 + U (sqrt(10) - 1))^2) - 1.
        let popularity = Popularity::new(9, 0.5);
        let root = 10f64.sqrt() - 1.0;
        for rank in 0..9u32 {
            let first = (f64::from(rank + 1).sqrt() - 1.0) / root;
            assert_eq!(popularity.rank(first + 1e-9), u64::from(rank));
        }
    }

    #[test]
    fn zipf_ranks_at_exponent_one_are_close_to_those_at_exponents_near_one() {
        let (at, near) = (Popularity::new(1_000, 1.0), Popularity::new(1_000, 1.000_01));
        for step in 0..1_000 {
            let u = f64::from(step) / 1_000.0;
            assert!(at.rank(u).abs_diff(near.rank(u)) <= 1, "{u}");
        }
    }

    #[test]
    fn shares_of_runs_of_equally_popular_ranks_match_the_draws() {
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
    fn only_object_of_a_catalogue_is_always_rank_zero() {
        assert_eq!(Popularity::new(1, 0.99).rank(1.0 - f64::EPSILON / 2.0), 0);
    }

    /// Number of draws, of `draws` evenly spaced ones, whose rank no cubic determines, so that the
    /// closed form is computed.
    fn exact_draws(popularity: &Popularity, draws: u32) -> u32 {
        let is_exact = |&draw: &u32| popularity.easy_rank(f64::from(draw) / f64::from(draws)).is_none();
        (0..draws).filter(is_exact).count() as u32
    }

    #[test]
    fn few_zipf_draws_need_the_closed_form() {
        for (objects, alpha) in
            [(9_257, 0.85), (35_276, 0.6), (3_527_600, 0.6), (400_000, 1.0), (70_000, 1.2)]
        {
            let found = exact_draws(&Popularity::new(objects, alpha), 100_003);
            assert!(found < 2_000, "{objects}, {alpha}: {found}");
        }
    }

    #[test]
    fn zipf_draws_near_a_rank_boundary_equal_the_closed_form() {
        for (objects, alpha) in [(35_276, 0.6), (9_257, 0.85), (2_000, 1.0), (70_000, 1.3)] {
            let popularity = Popularity::new(objects, alpha);
            let begins = |rank: u64| match popularity.shape {
                Shape::Power { span, inverse } => (libm::pow((rank + 1) as f64, 1.0 / inverse) - 1.0) / span,
                Shape::Exponential { span } => libm::log((rank + 1) as f64) / span,
            };
            for rank in (0..objects).step_by(17) {
                for beside in [-1e-9, -1e-12, -1e-15, 0.0, 1e-15, 1e-12, 1e-9] {
                    let u = (begins(rank) + beside).clamp(0.0, 1.0 - f64::EPSILON);
                    assert_eq!(popularity.rank(u), popularity.exact_rank(u), "{u}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn zipf_ranks_by_cubic_interpolation_equal_the_closed_form(objects in 1u64..1 << 40, alpha in 0.0f64..3.0, u in 0.0f64..1.0) {
            let popularity = Popularity::new(objects, alpha);
            prop_assert_eq!(popularity.rank(u), popularity.exact_rank(u));
        }

        #[test]
        fn zipf_ranks_stay_in_the_catalogue_and_are_monotonic(
            objects in 1u64..1 << 40, alpha in 0.0f64..3.0, low in 0.0f64..1.0, high in 0.0f64..1.0
        ) {
            let popularity = Popularity::new(objects, alpha);
            let (low, high) = if low < high { (low, high) } else { (high, low) };
            prop_assert!(popularity.rank(low) <= popularity.rank(high));
            prop_assert!(popularity.rank(high) < objects);
        }
    }
}
