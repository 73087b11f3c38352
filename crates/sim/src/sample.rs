//! A share of the key space that stands for all of it.
//!
//! Full runs of a large system take long because of their keys. In a sample of one in k, each object that is left stands for k alike:
//! requests are k times rarer and keep their shape, caches hold a k-th, so that a cache refills in the time it would, and hits as it
//! would. Requests that merely lost the keys that are not in the sample would be another workload: batches of 25 would be of three,
//! most batches of one would be gone, and a request is as slow as the slowest of its keys.
//!
//! Where popularity is known, the k objects that stand next to each other in it are alike but for the very first, and a hash says which
//! one of them is left. So the sample has its part of the popularity exactly, where a hash alone would find the most popular objects in
//! it or not.
//!
//! Backends cannot be a k-th: a queue in front of one worker is no eighth of a queue in front of eight. They keep their workers, and each
//! call comes to them with k - 1 echoes, calls that nobody waits for, at random moments of the next [`ECHOES_WITHIN`].

use std::time::Duration;

use sherwood_model::SplitMix64;
use sherwood_workload::onerf::{Batch, Model};

/// Time over which echoes of a call are spread: long, so that they come as independently as calls of other requests, and short
/// beside the minutes in which the load changes.
pub(crate) const ECHOES_WITHIN: Duration = Duration::from_secs(10);

/// One in so many objects at most.
pub(crate) const SAMPLE_MAX: u32 = 1_024;

/// Which objects of the drawn ones are left.
#[derive(Clone)]
pub(crate) struct Sample {
    one_in: u64,
    /// Objects of each backend's catalogue.
    catalogues: Vec<u64>,
}

impl Sample {
    /// None where all objects are.
    pub(crate) fn new(model: &Model, profile: &str, one_in: u32) -> Option<Self> {
        let objects = |backend: &sherwood_workload::onerf::Backend| {
            backend.objects.get(profile).copied().unwrap_or_default()
        };
        (one_in > 1).then(|| Self {
            one_in: one_in.into(),
            catalogues: model.backends().iter().map(objects).collect(),
        })
    }

    /// Replaces the objects of a batch by those that stand for them. Objects are numbered by popularity; the brand-new ones beyond the
    /// catalogue stand for themselves.
    pub(crate) fn stand_in(&self, batch: &mut Batch) {
        let catalogue = self.catalogues[batch.backend.index()];
        for object in &mut batch.objects {
            if *object < catalogue {
                let first = *object - *object % self.one_in;
                let alike = self.one_in.min(catalogue - first);
                let mark = SplitMix64::new(u64::from(batch.backend.0) << 48 ^ first).next_u64();
                *object = first + mark % alike;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherwood_model::BackendId;

    #[test]
    fn neighbours_in_popularity_have_one_stand_in_and_new_objects_themselves() {
        let model = Model::onerf();
        let sample = Sample::new(&model, "s100", 8).expect("a sample");
        let mut batch = Batch { backend: BackendId(0), objects: (0..9_300).collect() };
        sample.stand_in(&mut batch);
        for (object, &stand_in) in (0..).zip(&batch.objects) {
            if object < 9_257 {
                assert!(stand_in / 8 == object / 8 && stand_in < 9_257, "{object}: {stand_in}");
            } else {
                assert_eq!(stand_in, object);
            }
        }
        batch.objects.dedup();
        assert_eq!(batch.objects.len(), 9_257_usize.div_ceil(8) + 43);
        assert!((0..8).all(|place| batch.objects.iter().any(|object| object % 8 == place)), "by a hash");
        assert!(Sample::new(&model, "s100", 1).is_none());
    }
}
