//! Requests drawn at random from the workload model.

use sherwood_model::BackendId;

use super::model::{Batching, Model};
use crate::draw::{standard_normal, uniform};
use crate::popularity::Popularity;

/// Objects that one request reads from one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Backend that is queried.
    pub backend: BackendId,
    /// Ids of the objects, distinct, at least one. Ids from the catalogue size on are new objects.
    pub objects: Vec<u64>,
}

/// A stream of requests of one profile, without those that have no queries.
///
/// The draws of a request, in order: one for its type; for each of the type's batches one for its
/// size (none if the size is fixed); for each object one that decides whether it is new and, if
/// not, one to four that pick it from the catalogue. An object drawn for the fourth time within its
/// batch is dropped. New objects are numbered N, N+1, … by a counter of this stream, so two streams
/// of one model use the same numbers.
///
/// Memory: the request types and one [`Popularity`] per backend. Time: linear in the queries of a
/// request.
#[derive(Clone, Debug)]
pub struct RequestMix {
    /// Cumulative probability of the request types up to each index; the last element is the sum of
    /// all.
    cumulative: Vec<f64>,
    types: Vec<Vec<Batching>>,
    catalogues: Vec<Catalogue>,
    max_batch: u32,
    drawn: Drawn,
}

/// The catalogue objects of a batch so far, in a hash table with at least twice as many slots as
/// the largest batch had objects. Each slot records the batch it belongs to, so that the table is
/// empty for the next one without being cleared.
#[derive(Clone, Debug, Default)]
struct Drawn {
    /// Number of the batch and object, by the hash of the object.
    slots: Vec<(u32, u64)>,
    batch: u32,
}

#[derive(Clone, Debug)]
struct Catalogue {
    popularity: Popularity,
    unique_fraction: f64,
    next_unique: u64,
}

/// Largest number of draws for an object before it is dropped.
const DRAWS_MAX: usize = 4;

impl RequestMix {
    /// Returns the stream of `profile`, which must be one of the model's.
    pub(super) fn new(model: &Model, profile: &str) -> Self {
        let mut sum = 0.0;
        let cumulative = model.request_types().iter().map(|request_type| {
            sum += request_type.0;
            sum
        });
        let catalogues = model.backends().iter().map(|backend| {
            let objects = backend.objects[profile];
            Catalogue {
                popularity: Popularity::new(objects, backend.zipf_alpha.unwrap_or_default()),
                unique_fraction: backend.unique_fraction.unwrap_or_default(),
                next_unique: objects,
            }
        });
        Self {
            cumulative: cumulative.collect(),
            types: model.request_types().iter().map(|request_type| request_type.1.clone()).collect(),
            catalogues: catalogues.collect(),
            max_batch: model.max_batch(),
            drawn: Drawn::default(),
        }
    }

    /// Returns the next request: one batch for each backend it queries, at least one.
    pub fn next_request(&mut self, rng: &mut impl rand_core::Rng) -> Vec<Batch> {
        let request_type = self.draw_type(rng);
        let batchings = &self.types[request_type];
        let Self { catalogues, drawn, .. } = self;
        let batch = |batching: &Batching| {
            let count = batch_size(*batching, self.max_batch, rng);
            let backend = batching.backend();
            Batch { backend, objects: catalogues[backend.index()].draw_distinct(count, drawn, rng) }
        };
        batchings.iter().map(batch).collect()
    }

    fn draw_type(&self, rng: &mut impl rand_core::Rng) -> usize {
        let total = *self.cumulative.last().expect("a valid model has request types");
        let drawn = uniform(rng) * total;
        self.cumulative.partition_point(|&upper| upper <= drawn).min(self.types.len() - 1)
    }
}

fn batch_size(batching: Batching, max_batch: u32, rng: &mut impl rand_core::Rng) -> u32 {
    match batching {
        Batching::Fixed { objects, .. } => objects,
        Batching::LogNormal { median, sigma, .. } => {
            let drawn = libm::round(median * libm::exp(sigma * standard_normal(rng)));
            drawn.clamp(1.0, f64::from(max_batch)) as u32
        }
    }
}

impl Catalogue {
    fn draw_distinct(&mut self, count: u32, drawn: &mut Drawn, rng: &mut impl rand_core::Rng) -> Vec<u64> {
        let mut objects = Vec::with_capacity(count as usize);
        drawn.begin(count);
        for _ in 0..count {
            if uniform(rng) < self.unique_fraction {
                objects.push(self.next_unique);
                self.next_unique += 1;
            } else {
                let fresh =
                    (0..DRAWS_MAX).map(|_| self.popularity.draw(rng)).find(|&object| drawn.insert(object));
                objects.extend(fresh);
            }
        }
        objects
    }
}

impl Drawn {
    /// Begins the next batch of distinct objects, at most `objects` of them.
    fn begin(&mut self, objects: u32) {
        let slots = (2 * objects as usize).max(2);
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 || slots > self.slots.len() {
            let slots = slots.next_power_of_two().max(self.slots.len());
            (self.slots, self.batch) = (vec![(0, 0); slots], 1);
        }
    }

    /// Inserts the object into the batch; true if it was not in this batch yet.
    fn insert(&mut self, object: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = (object.wrapping_mul(SPREAD) >> 40) as usize & mask;
        // At least half of the slots are empty.
        while self.slots[at].0 == self.batch {
            if self.slots[at].1 == object {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = (self.batch, object);
        true
    }
}

/// 2^64 divided by the golden ratio, which spreads neighbouring numbers.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
