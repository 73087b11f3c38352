//! A sample of the key space that represents all of it.
//!
//! Full runs of a large system take long because of their keys. In a sample of one in k, each
//! remaining object represents k similar ones: requests are k times rarer and keep their shape, and
//! caches have a k-th of the size, so that a cache refills in the same time and has the same hit
//! ratio. Merely dropping the other keys from requests would change the workload: batches of 25
//! would become batches of three, most batches of one would vanish, and a request is as slow as the
//! slowest of its keys.
//!
//! If popularity is known, k objects of adjacent ranks are similar except for the very first ones,
//! and a hash selects which of them remains. The sample then has exactly its part of the
//! popularity, whereas a hash alone might or might not include the most popular objects.
//!
//! A batch reads distinct objects, and its cost depends on their number: two objects with one
//! representative would be fetched once. If two objects of a batch share a representative, the
//! second one gets the next representative not used by the batch, which is nearly as popular. This
//! affects the most popular objects, which are cached like their neighbours; a catalogue with fewer
//! representatives than a batch has objects uses all of them.
//!
//! Backends cannot be scaled to a k-th: a queue with one worker behaves differently from a queue
//! with eight. They keep their workers, and each call is followed by k - 1 echoes, calls whose
//! answers are discarded, at random times within [`ECHOES_WITHIN`].

use std::time::Duration;

use sherwood_model::{BackendId, SplitMix64};
use sherwood_workload::onerf::{Batch, Model};

/// Time over which the echoes of a call are spread: long, since echoes multiply the random
/// fluctuations of the sampled calls, which average out over time, and queues near saturation
/// amplify them; and short compared with the minutes in which hit ratios change.
pub(crate) const ECHOES_WITHIN: Duration = Duration::from_secs(60);

/// Largest k of a sample of one in k objects.
pub(crate) const SAMPLE_MAX: u32 = 1_024;

/// Mapping of drawn objects to their representatives.
#[derive(Clone)]
pub(crate) struct Sample {
    one_in: u64,
    /// Number of objects in each backend's catalogue.
    catalogues: Vec<u64>,
}

impl Sample {
    /// Returns a sample of one in `one_in`; none if all objects are simulated.
    pub(crate) fn new(model: &Model, profile: &str, one_in: u32) -> Option<Self> {
        let objects = |backend: &sherwood_workload::onerf::BackendModel| {
            backend.objects.get(profile).copied().unwrap_or_default()
        };
        (one_in > 1).then(|| Self {
            one_in: one_in.into(),
            catalogues: model.backends().iter().map(objects).collect(),
        })
    }

    /// Replaces the objects of a batch by their representatives, as many as there were. Objects are
    /// numbered by popularity; new objects beyond the catalogue represent themselves. O(n log n)
    /// for n objects.
    pub(crate) fn stand_in(&self, batch: &mut Batch) {
        let Batch { backend, objects } = batch;
        let catalogue = self.catalogues[backend.index()];
        let groups = catalogue.div_ceil(self.one_in);
        let mut positions: Vec<usize> =
            (0..objects.len()).filter(|&position| objects[position] < catalogue).collect();
        let Some(mut last) = groups.checked_sub(positions.len() as u64) else { return };
        positions.sort_unstable_by_key(|&position| objects[position]);
        let mut first = 0;
        for position in positions {
            // A group already used is replaced by the next one, leaving enough groups for the
            // objects after it.
            let group = (objects[position] / self.one_in).clamp(first, last);
            objects[position] = self.member(*backend, catalogue, group);
            (first, last) = (group + 1, last + 1);
        }
    }

    /// Returns the representative of a group of objects with neighbouring popularity.
    fn member(&self, backend: BackendId, catalogue: u64, group: u64) -> u64 {
        let first = group * self.one_in;
        let alike = self.one_in.min(catalogue - first);
        let mark = SplitMix64::new(u64::from(backend.0) << 48 ^ first).next_u64();
        first + mark % alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sample {
        Sample::new(&Model::onerf(), "s100", 8).expect("a sample")
    }

    #[test]
    fn objects_of_similar_popularity_share_a_representative_and_new_ones_represent_themselves() {
        let sample = sample();
        let stand_in = |object: u64| {
            let mut batch = Batch { backend: BackendId(0), objects: vec![object] };
            sample.stand_in(&mut batch);
            batch.objects[0]
        };
        let mut stand_ins: Vec<u64> = (0..9_300).map(stand_in).collect();
        for (object, &stand_in) in (0..).zip(&stand_ins) {
            if object < 9_257 {
                assert!(stand_in / 8 == object / 8 && stand_in < 9_257, "{object}: {stand_in}");
            } else {
                assert_eq!(stand_in, object);
            }
        }
        stand_ins.dedup();
        assert_eq!(stand_ins.len(), 9_257_usize.div_ceil(8) + 43);
        assert!((0..8).all(|position| stand_ins.iter().any(|object| object % 8 == position)), "by a hash");
        assert!(Sample::new(&Model::onerf(), "s100", 1).is_none());
    }

    #[test]
    fn sampled_batch_keeps_its_number_of_objects() {
        let sample = sample();
        let groups = |objects: &[u64]| {
            let mut batch = Batch { backend: BackendId(0), objects: objects.to_vec() };
            sample.stand_in(&mut batch);
            batch.objects.iter().map(|object| object / 8).collect::<Vec<_>>()
        };
        assert_eq!(groups(&[800, 17, 0, 7, 3, 900]), [100, 3, 0, 2, 1, 112], "in the order of the batch");
        assert_eq!(groups(&[9_250, 9_256, 9_249, 1, 9_300]), [1_156, 1_157, 1_155, 0, 1_162]);
    }

    #[test]
    fn objects_of_a_sampled_batch_stay_distinct_also_in_a_small_catalogue() {
        let model = Model::onerf();
        let mut mix = model.mix("s100").expect("it is built in");
        let mut draws = sherwood_workload::rng_from_seed(1);
        for one_in in [2, 8, 1_024] {
            let sample = Sample::new(&model, "s100", one_in).expect("a sample");
            for mut batch in (0..300).flat_map(|_| mix.next_request(&mut draws)) {
                let (drawn, catalogue) = (batch.objects.clone(), sample.catalogues[batch.backend.index()]);
                sample.stand_in(&mut batch);
                let known = |objects: &[u64]| objects.iter().filter(|&&object| object < catalogue).count();
                assert_eq!(known(&batch.objects), known(&drawn));
                batch.objects.sort_unstable();
                batch.objects.dedup();
                assert_eq!(batch.objects.len(), drawn.len(), "{one_in}");
            }
        }
    }
}
