//! Miss ratios of an LRU by Che's approximation.
//!
//! A key of popularity `p` is in the cache with probability `1 - exp(-p·T)`, where `T` is the time,
//! in requests, for which a key stays; `T` is the one at which the expected number of keys in the
//! cache is its size. Che, Tung, Wang, "Hierarchical Web Caching Systems", 2002.

/// Keys of which each has its own popularity; the others are put into groups.
const SINGLE: u64 = 1_000;
/// Keys in a group, as a part of those before it.
const GROUP_PARTS: u64 = 100;
const HALVINGS: usize = 100;

/// Popularity of keys.
#[derive(Debug)]
pub(crate) struct Popularity {
    /// Groups of equally popular keys: (keys, popularity of each); popularities sum to 1.
    groups: Vec<(f64, f64)>,
}

impl Popularity {
    /// Returns `keys` keys of equal popularity.
    pub(crate) fn uniform(keys: u64) -> Self {
        Self { groups: vec![(keys as f64, 1.0 / keys as f64)] }
    }

    /// Returns `keys` keys, the k-th of popularity in proportion to `k^-theta`.
    pub(crate) fn zipf(keys: u64, theta: f64) -> Self {
        if theta == 0.0 {
            return Self::uniform(keys);
        }
        let mut groups = Vec::new();
        let mut first = 1;
        while first <= keys {
            let count = if first <= SINGLE { 1 } else { (first / GROUP_PARTS).min(keys - first + 1) };
            let middle = first as f64 + (count - 1) as f64 / 2.0;
            groups.push((count as f64, libm::pow(middle, -theta)));
            first += count;
        }
        let sum: f64 = groups.iter().map(|(count, weight)| count * weight).sum();
        groups.iter_mut().for_each(|(_, weight)| *weight /= sum);
        Self { groups }
    }

    /// The miss ratio of a cache for `size` keys.
    pub(crate) fn miss_ratio(&self, size: f64) -> f64 {
        let keys: f64 = self.groups.iter().map(|(count, _)| count).sum();
        if size >= keys {
            return 0.0;
        }
        let held =
            |time: f64| self.groups.iter().map(|(count, p)| -count * libm::expm1(-p * time)).sum::<f64>();
        let mut high = 1.0;
        while held(high) < size {
            high *= 2.0;
        }
        let mut low = 0.0;
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if held(middle) < size { low = middle } else { high = middle }
        }
        self.groups.iter().map(|(count, p)| count * p * libm::exp(-p * high)).sum()
    }
}
