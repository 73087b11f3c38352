//! Estimation of a popularity law from a miss ratio curve.
//!
//! A node measures the miss ratio at each cache size, but knows neither the number of objects nor
//! their popularity. Under a given law the miss ratio of an LRU follows from Che's approximation
//! (Che, Tung and Wang, *Hierarchical Web Caching Systems*, 2002): an object is in the cache if it
//! was accessed within the last T accesses, where T is such that these objects fill the cache. The
//! law whose curve is closest to the measured one is chosen.

use crate::popularity::shares;

/// A popularity law fitted to a measured miss ratio curve, and the error of the fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Number of objects of the catalogue.
    pub objects: u64,
    /// Exponent of the objects' [`crate::Popularity`].
    pub zipf_alpha: f64,
    /// Share of the accesses to objects that are accessed only once.
    pub unique_fraction: f64,
    /// Root of the mean squared difference of the two curves' miss ratios.
    pub error: f64,
}

/// Largest number of points of the measured miss ratio curve that are compared.
const POINTS_MAX: usize = 32;
/// Least number of points of a miss ratio curve for a fit.
const POINTS_MIN: usize = 3;
/// Number of points at which a law's miss ratio curve is computed, each for one characteristic time
/// T of Che's approximation.
const TIMES: i32 = 40;

/// Returns the law that best explains the miss ratios of an LRU at these `bytes` (ascending), with
/// items of `item_bytes`; none with fewer than 3 points, or if everything misses at every size.
///
/// Evaluates some 2,500 laws at 40 sizes each, which takes about a tenth of a second.
#[must_use]
pub fn fit(bytes: &[u64], miss_ratio: &[f64], item_bytes: f64) -> Option<Fit> {
    let measured = points(bytes, miss_ratio, item_bytes);
    let (&(items_max, least), _) = measured.split_last()?;
    if measured.len() < POINTS_MIN || least >= 1.0 {
        return None;
    }
    let mut best = Fit { objects: 1, zipf_alpha: 0.0, unique_fraction: 0.0, error: f64::INFINITY };
    let mut attempt = |objects: f64, zipf_alpha: f64, unique_fraction: f64| {
        let objects = objects.clamp(1.0, 1e12) as u64;
        let law = Fit { objects, zipf_alpha, unique_fraction, error: 0.0 };
        let error = law.distance(&measured);
        if error < best.error {
            best = Fit { error, ..law };
        }
        best
    };
    for size in 0..24 {
        let objects = items_max * libm::pow(1.5, f64::from(size) - 6.0);
        for tenths in 0..17 {
            for quarters in 0..5 {
                attempt(objects, f64::from(tenths) / 10.0, least * f64::from(quarters) / 4.0);
            }
        }
    }
    let rough = attempt(1.0, 0.0, 0.0);
    for step in -4..=4 {
        let objects = rough.objects as f64 * libm::pow(1.5, f64::from(step) / 4.0);
        for hundredths in -5..=5 {
            let alpha = (rough.zipf_alpha + f64::from(hundredths) / 50.0).max(0.0);
            for eighths in -2..=2 {
                let unique = rough.unique_fraction + least * f64::from(eighths) / 16.0;
                attempt(objects, alpha, unique.clamp(0.0, least));
            }
        }
    }
    Some(attempt(1.0, 0.0, 0.0))
}

/// The points of a miss ratio curve as (items, miss ratio), thinned to at most [`POINTS_MAX`].
fn points(bytes: &[u64], miss_ratio: &[f64], item_bytes: f64) -> Vec<(f64, f64)> {
    let all: Vec<(f64, f64)> = bytes
        .iter()
        .zip(miss_ratio)
        .filter(|&(&bytes, _)| bytes > 0)
        .map(|(&bytes, &miss)| ((bytes as f64 / item_bytes).max(1e-3), miss))
        .collect();
    let step = all.len().div_ceil(POINTS_MAX).max(1);
    let last = all.len().saturating_sub(1) % step;
    all.into_iter().skip(last).step_by(step).collect()
}

impl Fit {
    /// Root mean squared difference between the law's miss ratio curve and the measured one.
    fn distance(&self, measured: &[(f64, f64)]) -> f64 {
        let curve = self.curve();
        let squares = measured.iter().map(|&(items, miss)| {
            let difference = at(&curve, items) - miss;
            difference * difference
        });
        libm::sqrt(squares.sum::<f64>() / measured.len() as f64)
    }

    /// The law's miss ratio curve by Che's approximation: (items of an LRU, its miss ratio),
    /// ascending.
    fn curve(&self) -> Vec<(f64, f64)> {
        let again = 1.0 - self.unique_fraction;
        let shares = shares(self.objects, self.zipf_alpha);
        let times = (0..TIMES).map(|step| libm::pow(2.0, f64::from(step)));
        let point = |accesses: f64| {
            let (mut items, mut hits) = (self.unique_fraction * accesses, 0.0);
            for &(objects, share) in &shares {
                let known = 1.0 - libm::exp(-again * share / objects * accesses);
                items += objects * known;
                hits += again * share * known;
            }
            (items, 1.0 - hits)
        };
        times.map(point).collect()
    }
}

/// The miss ratio of an LRU of `items`: linear between two points, 1 at 0 items.
fn at(curve: &[(f64, f64)], items: f64) -> f64 {
    let after = curve.partition_point(|&(known, _)| known < items);
    let before = if after == 0 { (0.0, 1.0) } else { curve[after - 1] };
    let Some(&next) = curve.get(after) else { return before.1 };
    let way = if next.0 > before.0 { (items - before.0) / (next.0 - before.0) } else { 1.0 };
    before.1 + (next.1 - before.1) * way
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Popularity, rng_from_seed, uniform};

    /// Miss ratios of an LRU, counted by stack distances, after a warm-up.
    fn counted(objects: u64, alpha: f64, unique: f64, sizes: &[u64]) -> Vec<f64> {
        let (popularity, mut rng) = (Popularity::new(objects, alpha), rng_from_seed(3));
        let (mut order, mut next): (Vec<u64>, u64) = (Vec::new(), objects);
        let (mut misses, mut accesses) = (vec![0.0; sizes.len()], 0.0);
        for number in 0..30_000 {
            let object = if uniform(&mut rng) < unique {
                next += 1;
                next
            } else {
                popularity.draw(&mut rng)
            };
            let depth = order.iter().rev().take(2_000).position(|&seen| seen == object);
            if number > 10_000 {
                accesses += 1.0;
                for (missed, &size) in misses.iter_mut().zip(sizes) {
                    *missed += f64::from(u8::from(depth.is_none_or(|depth| depth as u64 >= size)));
                }
            }
            if let Some(depth) = depth {
                order.remove(order.len() - 1 - depth);
            }
            order.push(object);
        }
        misses.into_iter().map(|missed| missed / accesses).collect()
    }

    #[test]
    fn fit_recovers_the_popularity_law_of_generated_accesses() {
        let sizes = [1, 3, 10, 30, 100, 200, 400, 800, 1_200, 1_600];
        let bytes = sizes.map(|items| items * 500);
        for (objects, alpha, unique) in [(1_000, 0.9, 0.05), (1_500, 0.6, 0.0)] {
            let fit = fit(&bytes, &counted(objects, alpha, unique, &sizes), 500.0).expect("there is a law");
            assert!(fit.error < 0.02, "{fit:?}");
            assert!((fit.zipf_alpha - alpha).abs() <= 0.12, "{fit:?}");
            assert!((fit.unique_fraction - unique).abs() <= 0.03, "{fit:?}");
            assert!((0.6..1.7).contains(&(fit.objects as f64 / objects as f64)), "{fit:?}");
        }
    }

    #[test]
    fn popularity_fit_of_too_few_points_or_of_misses_only_is_none() {
        assert_eq!(fit(&[0], &[1.0], 500.0), None);
        assert_eq!(fit(&[0, 500, 1_000, 2_000], &[1.0; 4], 500.0), None);
        assert_eq!(fit(&[], &[], 500.0), None);
    }
}
