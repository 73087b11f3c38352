//! A share of the key space that stands for all of it.
//!
//! Full runs of a large system take long because of their keys. In a sample of one in k, each
//! object that is left stands for k alike: requests are k times rarer and keep their shape, caches
//! hold a k-th, so that a cache refills in the time it would, and hits as it would. Requests that
//! merely lost the keys that are not in the sample would be another workload: batches of 25 would
//! be of three, most batches of one would be gone, and a request is as slow as the slowest of its
//! keys.
//!
//! Where popularity is known, the k objects that stand next to each other in it are alike but for
//! the very first, and a hash says which one of them is left. So the sample has its part of the
//! popularity exactly, where a hash alone would find the most popular objects in it or not.
//!
//! A batch asks for distinct objects, and what it costs hangs on how many: two that one object
//! stands for would be fetched once. So of two neighbours in one batch the second has the next
//! stand-in that the batch has not, which is nearly as popular. That happens among the most popular
//! objects, which are in the cache as well as their neighbours are; a catalogue with fewer
//! stand-ins than a batch has objects lends all it has.
//!
//! Backends cannot be a k-th: a queue in front of one worker is no eighth of a queue in front of
//! eight. They keep their workers, and each call comes to them with k - 1 echoes, calls that nobody
//! waits for, at random moments of the next [`ECHOES_WITHIN`].

use std::time::Duration;

use sherwood_model::{BackendId, SplitMix64};
use sherwood_workload::onerf::{Batch, Model};

/// Time over which echoes of a call are spread: long, since they follow the luck of the calls that
/// were drawn, which evens out with time, and queues that have little room make much of it; and
/// short beside the minutes in which hit ratios change.
pub(crate) const ECHOES_WITHIN: Duration = Duration::from_secs(60);

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
        let objects = |backend: &sherwood_workload::onerf::BackendModel| {
            backend.objects.get(profile).copied().unwrap_or_default()
        };
        (one_in > 1).then(|| Self {
            one_in: one_in.into(),
            catalogues: model.backends().iter().map(objects).collect(),
        })
    }

    /// Replaces the objects of a batch by those that stand for them, as many as there were. Objects
    /// are numbered by popularity; the brand-new ones beyond the catalogue stand for themselves.
    /// O(n log n) for n objects.
    pub(crate) fn stand_in(&self, batch: &mut Batch) {
        let Batch { backend, objects } = batch;
        let catalogue = self.catalogues[backend.index()];
        let groups = catalogue.div_ceil(self.one_in);
        let mut places: Vec<usize> = (0..objects.len()).filter(|&place| objects[place] < catalogue).collect();
        let Some(mut last) = groups.checked_sub(places.len() as u64) else { return };
        places.sort_unstable_by_key(|&place| objects[place]);
        let mut first = 0;
        for place in places {
            // Whose group is taken has the next one, and leaves enough for those that come after.
            let group = (objects[place] / self.one_in).clamp(first, last);
            objects[place] = self.member(*backend, catalogue, group);
            (first, last) = (group + 1, last + 1);
        }
    }

    /// The object that is left of a group of neighbours.
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
    fn neighbours_in_popularity_have_one_stand_in_and_new_objects_themselves() {
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
        assert!((0..8).all(|place| stand_ins.iter().any(|object| object % 8 == place)), "by a hash");
        assert!(Sample::new(&Model::onerf(), "s100", 1).is_none());
    }

    #[test]
    fn a_batch_keeps_its_number_of_objects_and_neighbours_lend_theirs() {
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
    fn drawn_batches_stay_distinct_and_a_small_catalogue_lends_all_it_has() {
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
