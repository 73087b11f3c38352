//! Requests drawn from the model.

use sherwood_model::BackendId;

use super::model::{Batching, Model};
use crate::draw::{standard_normal, uniform};
use crate::popularity::Popularity;

/// What one request asks of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Who is asked.
    pub backend: BackendId,
    /// Ids of the objects asked for, distinct, at least one. Ids from the catalogue size on are
    /// brand-new.
    pub objects: Vec<u64>,
}

/// A stream of requests of one profile. Requests without queries are left out.
///
/// The draws of a request, in order: one for its type, then for each of the type's batches one for
/// its size (none where the size is fixed), and for each object one that decides whether it is
/// brand-new and, if not, one to four that pick it from the catalogue; an object drawn for the
/// fourth time within its batch is dropped. Brand-new objects are numbered N, N+1, … by a counter
/// of this stream, so two streams of one model repeat each other's.
///
/// Memory: the request types and one [`Popularity`] per backend. Time: linear in the queries of a
/// request.
#[derive(Clone, Debug)]
pub struct RequestMix {
    /// Probability that a request's type is at most the one at the same index; the last is the sum
    /// of all.
    cumulative: Vec<f64>,
    types: Vec<Vec<Batching>>,
    catalogues: Vec<Catalogue>,
    max_batch: u32,
    drawn: Drawn,
}

/// The catalogue objects of a batch so far, in a hash table of twice as many places as the largest
/// batch had objects. Each place says of which batch it is, so that the next one finds it empty.
#[derive(Clone, Debug, Default)]
struct Drawn {
    /// The batch's number and the object, by the hash of the object.
    places: Vec<(u32, u64)>,
    batch: u32,
}

#[derive(Clone, Debug)]
struct Catalogue {
    popularity: Popularity,
    unique_fraction: f64,
    next_unique: u64,
}

/// Draws an object may take before it is dropped.
const DRAWS_MAX: usize = 4;

impl RequestMix {
    /// `profile` names one of the model's.
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

    /// The next request: one batch for each backend it asks, at least one.
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
    /// Begins the next batch, of so many objects at most, of which nothing is drawn.
    fn begin(&mut self, objects: u32) {
        let places = (2 * objects as usize).max(2);
        self.batch = self.batch.wrapping_add(1);
        if self.batch == 0 || places > self.places.len() {
            let places = places.next_power_of_two().max(self.places.len());
            (self.places, self.batch) = (vec![(0, 0); places], 1);
        }
    }

    /// Whether the object was not drawn in this batch yet; now it is.
    fn insert(&mut self, object: u64) -> bool {
        let mask = self.places.len() - 1;
        let mut at = (object.wrapping_mul(SPREAD) >> 40) as usize & mask;
        // Half of the places are empty at least.
        while self.places[at].0 == self.batch {
            if self.places[at].1 == object {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.places[at] = (self.batch, object);
        true
    }
}

/// 2^64 over the golden ratio: neighbours come to lie far apart.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
