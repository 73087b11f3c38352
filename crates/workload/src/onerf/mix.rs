//! Requests drawn from the model.

use sherwood_model::BackendId;

use super::model::{Batching, Model};
use crate::draw::{normal_from_bits, uniform};
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
/// Memory: 2 KiB for each batch of the request types and one [`Popularity`] per backend. Time: linear in the queries of a request.
#[derive(Clone, Debug)]
pub struct RequestMix {
    /// Probability that a request's type is at most the one at the same index; the last is the sum of all.
    cumulative: Vec<f64>,
    types: Vec<Vec<Sizes>>,
    catalogues: Vec<Catalogue>,
    drawn: Drawn,
}

/// The catalogue objects of a batch so far, in a hash table of twice as many places as the largest batch had objects. Each place
/// says of which batch it is, so that the next one finds it empty.
#[derive(Clone, Debug, Default)]
struct Drawn {
    /// The batch's number and the object, by the hash of the object.
    places: Vec<(u32, u64)>,
    batch: u32,
}

/// How many objects a batch asks for.
///
/// Few draws of a log-normal law need its functions: those whose first bits leave more than one size.
#[derive(Clone, Debug)]
struct Sizes {
    law: Batching,
    max_batch: u32,
    /// The size that all draws with these first bits stand for, or [`MIXED`].
    cells: [u32; CELLS],
}

const CELLS: usize = 1 << 9;
/// The bits of a draw that are not its cell's.
const CELL_BITS: u32 = u64::BITS - CELLS.trailing_zeros();
/// Marks a cell whose draws have several sizes, all of which are 1 or more.
const MIXED: u32 = 0;

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
        let sizes = |law: &Batching| Sizes::new(*law, model.max_batch());
        let types = model.request_types().iter().map(|of| of.1.iter().map(sizes).collect());
        Self {
            cumulative: cumulative.collect(),
            types: types.collect(),
            catalogues: catalogues.collect(),
            drawn: Drawn::default(),
        }
    }

    /// The next request: one batch for each backend it asks, at least one.
    pub fn next_request(&mut self, rng: &mut impl rand_core::Rng) -> Vec<Batch> {
        let request_type = self.draw_type(rng);
        let batches = &self.types[request_type];
        let Self { catalogues, drawn, .. } = self;
        let batch = |sizes: &Sizes| {
            let (count, backend) = (sizes.draw(rng), sizes.law.backend());
            Batch { backend, objects: catalogues[backend.index()].draw_distinct(count, drawn, rng) }
        };
        batches.iter().map(batch).collect()
    }

    fn draw_type(&self, rng: &mut impl rand_core::Rng) -> usize {
        let total = *self.cumulative.last().expect("a valid model has request types");
        let drawn = uniform(rng) * total;
        self.cumulative.partition_point(|&upper| upper <= drawn).min(self.types.len() - 1)
    }
}

impl Sizes {
    fn new(law: Batching, max_batch: u32) -> Self {
        let mut sizes = Self { law, max_batch, cells: [MIXED; CELLS] };
        for cell in 0..CELLS {
            let first = (cell as u64) << CELL_BITS;
            let last = first | ((1 << CELL_BITS) - 1);
            if let Batching::LogNormal { median, sigma, .. } = law {
                // A size rises with its bits; the margins are a thousand times the error of the functions.
                let least = sizes.whole(log_normal(median, sigma, first) * (1.0 - 1e-12));
                let most = sizes.whole(log_normal(median, sigma, last) * (1.0 + 1e-12));
                sizes.cells[cell] = if least == most { least } else { MIXED };
            }
        }
        sizes
    }

    fn draw(&self, rng: &mut impl rand_core::Rng) -> u32 {
        match self.law {
            Batching::Fixed { objects, .. } => objects,
            Batching::LogNormal { median, sigma, .. } => {
                let bits = rng.next_u64();
                match self.cells[(bits >> CELL_BITS) as usize] {
                    MIXED => self.whole(log_normal(median, sigma, bits)),
                    size => size,
                }
            }
        }
    }

    fn whole(&self, objects: f64) -> u32 {
        libm::round(objects).clamp(1.0, f64::from(self.max_batch)) as u32
    }
}

fn log_normal(median: f64, sigma: f64, bits: u64) -> f64 {
    median * libm::exp(sigma * normal_from_bits(bits))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A generator that brings one draw.
    struct Once(u64);

    impl rand_core::TryRng for Once {
        type Error = std::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(self.0 as u32)
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0)
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
            bytes.fill(self.0 as u8);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn cells_say_what_the_law_says(
            median in 0.1f64..100.0, sigma in 0.0f64..3.0, max_batch in 1u32..200, draws in prop::collection::vec(any::<u64>(), 64)
        ) {
            let sizes = Sizes::new(Batching::LogNormal { backend: 1, median, sigma }, max_batch);
            for bits in draws {
                let drawn = libm::round(log_normal(median, sigma, bits)).clamp(1.0, f64::from(max_batch));
                prop_assert_eq!(sizes.draw(&mut Once(bits)), drawn as u32);
            }
        }
    }

    #[test]
    fn few_draws_of_small_batches_need_the_law() {
        let sizes = Sizes::new(Batching::LogNormal { backend: 1, median: 5.0, sigma: 0.8 }, 100);
        let mixed = sizes.cells.iter().filter(|&&size| size == MIXED).count();
        assert!(mixed * 8 < CELLS, "{mixed}");
    }
}
