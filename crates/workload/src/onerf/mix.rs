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
    /// Ids of the objects asked for, distinct, at least one. Ids from the catalogue size on are brand-new.
    pub objects: Vec<u64>,
}

/// A stream of requests of one profile. Requests without queries are left out.
///
/// The draws of a request, in order: one for its type, then for each of the type's batches one for its size (none
/// where the size is fixed), and for each object one that decides whether it is brand-new and, if not, one to four that
/// pick it from the catalogue; an object drawn for the fourth time within its batch is dropped. Brand-new objects
/// are numbered N, N+1, … by a counter of this stream, so two streams of one model repeat each other's.
///
/// Memory: the request types and one [`Popularity`] per backend. Time: linear in the queries of a request, but for
/// the search for repeats, which is quadratic in the batch (at most `max_batch`).
#[derive(Clone, Debug)]
pub struct RequestMix {
    /// Probability that a request's type is at most the one at the same index; the last is the sum of all.
    cumulative: Vec<f64>,
    types: Vec<Vec<Batching>>,
    catalogues: Vec<Catalogue>,
    max_batch: u32,
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
        }
    }

    /// The next request: one batch for each backend it asks, at least one.
    pub fn next_request(&mut self, rng: &mut impl rand_core::Rng) -> Vec<Batch> {
        let request_type = self.draw_type(rng);
        let batchings = &self.types[request_type];
        let catalogues = &mut self.catalogues;
        let batch = |batching: &Batching| {
            let count = batch_size(*batching, self.max_batch, rng);
            let backend = batching.backend();
            Batch { backend, objects: catalogues[backend.index()].draw_distinct(count, rng) }
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
    fn draw_distinct(&mut self, count: u32, rng: &mut impl rand_core::Rng) -> Vec<u64> {
        let mut objects = Vec::with_capacity(count as usize);
        for _ in 0..count {
            if uniform(rng) < self.unique_fraction {
                objects.push(self.next_unique);
                self.next_unique += 1;
            } else {
                let fresh =
                    (0..DRAWS_MAX).map(|_| self.popularity.draw(rng)).find(|drawn| !objects.contains(drawn));
                objects.extend(fresh);
            }
        }
        objects
    }
}
