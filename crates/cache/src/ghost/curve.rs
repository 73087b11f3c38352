//! A miss ratio curve as points.

use super::histogram::Histogram;

/// Miss ratios by size, as far as they were measured: 1 at 0 bytes, straight between two points, constant after the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Sizes in bytes, ascending; the first is 0.
    pub bytes: Vec<u64>,
    /// The share of gets that miss at each of these sizes, 0 to 1, never rising.
    pub miss_ratio: Vec<f64>,
    /// Gets that the curve is of, those of unsampled keys too; old ones count less where counts fade.
    pub gets: f64,
    /// How many of them were looked at. The sampling error is about one in their square root, at best.
    pub sampled_gets: f64,
    /// Share of the keys that were sampled lately.
    pub rate: f64,
    /// Keys known at present, an estimate unless the rate is 1.
    pub keys: u64,
}

impl Curve {
    /// The curve of these reuses among `counted` gets of sampled keys, where `expected` were due to the sample.
    pub(super) fn new(reuses: &Histogram, counted: f64, expected: f64, rate: f64, keys: usize) -> Self {
        let (mut bytes, mut miss_ratio) = (vec![0], vec![1.0]);
        // The count correction: gets that hot keys outside the sample had, or that those inside had too many.
        let mut hits = expected - counted;
        for (missed_at, hit_at, count) in reuses.buckets() {
            if bytes.last().is_some_and(|&last| last < missed_at) {
                // The shortest distances are those of the hot keys: at smaller sizes nothing is known to hit.
                let before = if bytes.len() == 1 { 1.0 } else { miss_ratio_of(hits, expected) };
                bytes.push(missed_at);
                miss_ratio.push(before);
            }
            hits += count;
            if hit_at > 0 {
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

    /// The miss ratio at a size. O(log points).
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let after = self.bytes.partition_point(|&size| size <= bytes);
        // The first size is 0, so there is one at or below every size.
        let before = after - 1;
        if after == self.bytes.len() {
            return self.miss_ratio[before];
        }
        let way = (bytes - self.bytes[before]) as f64 / (self.bytes[after] - self.bytes[before]) as f64;
        self.miss_ratio[before] + (self.miss_ratio[after] - self.miss_ratio[before]) * way
    }
}

fn miss_ratio_of(hits: f64, gets: f64) -> f64 {
    if gets > 0.0 { (1.0 - hits / gets).clamp(0.0, 1.0) } else { 1.0 }
}
