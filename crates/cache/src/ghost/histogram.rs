//! Counts of distances in buckets whose width grows with the distance.

/// Numbers of gets by reuse distance, in buckets. The width of buckets doubles every 32 of them;
/// below 64 each holds one distance. A bucket's width is at most 1/32 of its distances.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Counts by bucket, up to the last bucket that has any.
    counts: Vec<Count>,
}

/// Counts of one bucket; fractions result from scaling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count {
    /// Number of reuse distances in the bucket.
    pub(super) gets: f64,
    /// Their share of the sum of squares of the gets per key.
    pub(super) squares: f64,
}

const STEPS_BITS: u32 = 5;
const STEPS: u64 = 1 << STEPS_BITS;

impl Histogram {
    pub(super) fn add(&mut self, distance: u64, squares: f64) {
        let bucket = bucket(distance);
        if bucket >= self.counts.len() {
            self.counts.reserve_exact(bucket + 1 - self.counts.len());
            self.counts.resize(bucket + 1, Count::default());
        }
        self.counts[bucket].gets += 1.0;
        self.counts[bucket].squares += squares;
    }

    pub(super) fn scale(&mut self, gets: f64, squares: f64) {
        for count in &mut self.counts {
            count.gets *= gets;
            count.squares *= squares;
        }
    }

    /// The buckets with counts, shortest distances first: the largest size at which all of a
    /// bucket's distances miss, the smallest at which all hit, and their count.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (u64, u64, Count)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| count.gets > 0.0);
        counted.map(|(bucket, &count)| (least(bucket).saturating_sub(1), least(bucket + 1) - 1, count))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<Count>()
    }

    /// Largest memory of a histogram while no distance exceeds `depth`, in bytes.
    pub(super) fn bytes_at_most(depth: u64) -> usize {
        (bucket(depth) + 1) * size_of::<Count>()
    }
}

fn bucket(distance: u64) -> usize {
    let exponent = distance.max(STEPS).ilog2() - STEPS_BITS;
    (u64::from(exponent) * STEPS + (distance >> exponent)) as usize
}

/// The shortest distance of a bucket; `u64::MAX` after the last.
fn least(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let exponent = (bucket / STEPS).saturating_sub(1);
    let steps = bucket - exponent * STEPS;
    if exponent as u32 > u64::BITS - 1 - STEPS_BITS { u64::MAX } else { steps << exponent }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reuse_distance_lies_within_its_histogram_bucket(distance: u64, shift in 0_u32..64) {
            let distance = distance >> shift;
            let bucket = bucket(distance);
            prop_assert!(least(bucket) <= distance);
            prop_assert!(distance < least(bucket + 1) || least(bucket + 1) == u64::MAX);
            prop_assert!(least(bucket + 1) - least(bucket) <= 1.max(distance / 32));
        }
    }

    #[test]
    fn histogram_buckets_give_sizes_at_which_their_distances_miss_and_hit() {
        let mut histogram = Histogram::default();
        [0, 63, 64, 65, 200].into_iter().for_each(|distance| histogram.add(distance, 3.0));
        histogram.scale(0.5, 0.25);
        let found: Vec<_> = histogram.buckets().collect();
        let counts = |count: f64| Count { gets: 0.5 * count, squares: 0.75 * count };
        let expected =
            [(0, 0, counts(1.0)), (62, 63, counts(1.0)), (63, 65, counts(2.0)), (199, 203, counts(1.0))];
        assert_eq!(found, expected);
        assert!(histogram.memory_bytes() <= Histogram::bytes_at_most(200));
    }
}
