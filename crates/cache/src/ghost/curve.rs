//! A miss ratio curve as points.

use sherwood_model::DemandCurve;

use super::Tally;
use super::histogram::{Count, Histogram};

/// Miss ratios by size, as measured: 1 at 0 bytes, linear between two points, constant after the
/// last.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Sizes in bytes, ascending; the first is 0.
    pub bytes: Vec<u64>,
    /// The share of gets that miss at each of these sizes, 0 to 1, non-increasing.
    pub miss_ratio: Vec<f64>,
    /// Number of gets that the curve covers, including those of unsampled keys; older ones count
    /// less if counts fade.
    pub gets: f64,
    /// Number of gets that were sampled. The relative sampling error is at best one over its square
    /// root.
    pub sampled_gets: f64,
    /// Share of the keys that are sampled at present, 0 to 1.
    pub rate: f64,
    /// Number of keys known at present, an estimate unless the rate is 1.
    pub keys: u64,
}

impl Curve {
    pub(super) fn new(reuses: &Histogram, tally: &Tally, rate: f64, keys: usize) -> Self {
        let Tally { counted, expected, .. } = *tally;
        let correction = Correction::new(tally, rate, keys);
        let (mut bytes, mut miss_ratio) = (vec![0], vec![1.0]);
        let mut hits = correction.shortest;
        for (missed_at, hit_at, count) in reuses.buckets() {
            let [missed_at, hit_at] = [missed_at, hit_at].map(|bytes| correction.size(bytes));
            if bytes.last().is_some_and(|&last| last < missed_at) {
                // No get is known to hit at sizes below the shortest distance.
                let before = if bytes.len() == 1 { 1.0 } else { miss_ratio_of(hits, expected) };
                bytes.push(missed_at);
                miss_ratio.push(before);
            }
            hits += correction.gets(count);
            if bytes.last().is_some_and(|&last| last < hit_at) {
                bytes.push(hit_at);
                miss_ratio.push(miss_ratio_of(hits, expected));
            }
        }
        let scaled = |count: f64| if rate > 0.0 { count / rate } else { 0.0 };
        Self {
            bytes,
            miss_ratio,
            gets: scaled(expected),
            sampled_gets: counted,
            rate,
            keys: scaled(keys as f64) as u64,
        }
    }

    /// The points as misses per get.
    #[must_use]
    pub fn misses(&self) -> DemandCurve {
        DemandCurve::new(self.bytes.iter().copied().zip(self.miss_ratio.iter().copied()))
    }

    /// The miss ratio at a size. O(log points).
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let after = self.bytes.partition_point(|&size| size <= bytes);
        // The first size is 0, so every size has a point at or below it.
        let before = after - 1;
        if after == self.bytes.len() {
            return self.miss_ratio[before];
        }
        let way = (bytes - self.bytes[before]) as f64 / (self.bytes[after] - self.bytes[before]) as f64;
        self.miss_ratio[before] + (self.miss_ratio[after] - self.miss_ratio[before]) * way
    }
}

/// Correction for the difference between the number of sampled gets and its expectation.
///
/// Each key is in the sample by chance, so a key with f gets adds f² to the variance of the number
/// of sampled gets. Given the difference, the best estimate (linear regression of one sum over keys
/// on the other) is that each key contributed in proportion to f²: under skew nearly all of it
/// comes from hot keys, in uniform traffic equally much from each key. The sums of squares are
/// taken from the sample. A key so hot that it would explain the difference alone, but is not in
/// the sample, is missing in them; the part of the difference beyond two standard deviations is
/// therefore added to the shortest distances, as in the paper. By the same regression the number of
/// sampled keys, and with it every distance, is off by a part of the difference: by all of it in
/// uniform traffic, by nearly nothing under skew.
struct Correction {
    /// Gets to add to a bucket of the histogram per unit of its sum of squares.
    per_square: f64,
    /// Gets to add to the shortest reuse distances.
    shortest: f64,
    /// Factor by which all reuse distances are multiplied.
    stretch: f64,
}

/// Largest part of the difference between sampled and expected gets that is attributed to sampled
/// keys, in standard deviations.
const DEVIATIONS_MAX: f64 = 2.0;

impl Correction {
    fn new(tally: &Tally, rate: f64, keys: usize) -> Self {
        let Tally { counted, expected, squares } = *tally;
        if counted <= 0.0 || expected <= 0.0 || squares <= 0.0 || keys == 0 {
            return Self { per_square: 0.0, shortest: expected - counted, stretch: 1.0 };
        }
        let lacking = expected - counted;
        let likely = DEVIATIONS_MAX * (squares * (1.0 - rate)).sqrt();
        let explained = lacking.clamp(-likely, likely);
        // The keys' part: the regression of their number on that of their gets.
        let slope = (counted * counted / (keys as f64 * squares)).min(1.0);
        Self {
            per_square: explained / squares,
            shortest: lacking - explained,
            stretch: 1.0 / (1.0 - slope * explained / expected).max(0.5),
        }
    }

    fn gets(&self, count: Count) -> f64 {
        (count.gets + self.per_square * count.squares).max(0.0)
    }

    fn size(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.stretch) as u64
    }
}

fn miss_ratio_of(hits: f64, gets: f64) -> f64 {
    if gets > 0.0 { (1.0 - hits / gets).clamp(0.0, 1.0) } else { 1.0 }
}
