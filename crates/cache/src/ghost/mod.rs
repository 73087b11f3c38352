//! Miss ratio curves: the share of gets that would miss at each cache size.
//!
//! The miss ratio at other sizes must be known before memory is moved. For a cache that evicts the
//! least recently used item one pass computes it for every size at once (Mattson, Gecsei, Slutz and
//! Traiger, *Evaluation techniques for storage hierarchies*, IBM Systems Journal 1970): a get hits
//! at every size that holds the key and everything used since the key's last use. The bytes of
//! these are its *reuse distance*, and the share of distances up to a size is the hit ratio there.
//!
//! Tracking every key costs more than many caches can spare. Waldspurger, Park, Garthwaite and
//! Ahmad (*Efficient MRC Construction with SHARDS*, FAST 2015) track only keys whose hash is below
//! a threshold: a share R of the keys, with all their uses. Distances among them are R times the
//! real ones.
//!
//! Differences from the paper and their reasons:
//!
//! - *Count correction*. Under skew the sampled keys do not get a share R of the gets, since a
//!   single hot key is either in the sample or not. The paper (SHARDS-adj, section 3) adds the
//!   difference between the expected gets, R times all, and the sampled ones to the shortest
//!   distances, where hot keys are; without it, curves of Zipf traffic are wrong by up to tens of
//!   percentage points. Without hot keys, however, the difference only reflects the number of keys
//!   in the sample, and adding it to short distances is an error of its own. Here each distance
//!   receives the part that its keys are likely to have in the difference, see [`Curve`]. The
//!   number of all gets must be known; a cache counts them anyway.
//! - *Fixed memory* (section 2.3 of the paper). When the sample outgrows its memory the threshold
//!   is halved and half of the keys are dropped. The paper lowers it key by key with a heap of
//!   hashes; halving needs no heap and costs nothing in between. Keys deeper than
//!   [`GhostOptions::depth_bytes`] are dropped first, since a daemon sees new keys indefinitely.
//!   The threshold is raised again, up to the configured rate, while the sample fills less than a
//!   quarter of its memory.
//! - *No pauses*. Operations on all sampled keys are done 64 slots at a time by subsequent
//!   accesses, because a thread that serves thousands of clients must not process a million keys at
//!   once. While half of the keys are being dropped, the remaining ones are estimated at half of
//!   the weight of both halves, so distances keep their precision.
//! - *Fading*. Counts are halved each time that 16,384 sampled gets, or four per sampled key if
//!   that is more, have been counted, so the curve covers the last one to two such spans. A caller
//!   may halve them more often, so that the curve covers a span of time
//!   ([`Cache::fade_curves`](crate::Cache::fade_curves)). Studies of a whole trace disable it.
//!
//! Distances are in bytes: a key weighs its charge when last stored. The weight of the key itself
//! is exact; only that of the others is scaled.
//!
//! # Definition of gets
//!
//! The miss ratio is that of gets, as in [`Usage`](crate::Usage). A store (the fill after a miss or
//! an overwrite) is not a get; it makes its key the most recent and sets its weight, as in the
//! cache. A key that is read but never stored misses at every size and weighs nothing. A deleted
//! key misses at every size until it is stored again. Expiry is ignored, because an expired item
//! does not indicate a lack of bytes: a get that finds it dead counts by its distance like any
//! other. A get that leaves the recency unchanged
//! ([`AccessFlags::KEEP_RECENCY`](crate::AccessFlags::KEEP_RECENCY)) counts like any other, too.
//!
//! ```
//! use sherwood_cache::{Ghost, GhostOptions};
//!
//! // Two keys of 100 bytes in turn: 200 bytes hold both, less than that holds neither in time.
//! let mut ghost = Ghost::new(GhostOptions::exact());
//! for gets in 0..1_000 {
//!     let key = [3_u64 << 40, 5 << 40][gets as usize % 2];
//!     ghost.get(key, || gets + 1);
//!     ghost.store(key, 100, || gets + 1);
//! }
//! let curve = ghost.curve(1_000);
//! assert!(curve.at(190) > 0.999 && curve.at(300) < 0.003);
//! ```

mod curve;
mod histogram;
mod index;
mod partitions;
mod stack;
#[cfg(test)]
mod tests;

pub use curve::Curve;
pub(crate) use partitions::Ghosts;

use histogram::Histogram;
use stack::Stack;

/// Options of a [`Ghost`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GhostOptions {
    /// Share of the keys that are sampled, above 0 and at most 1 (exact). Lowered while
    /// `memory_bytes` require it.
    pub rate: f64,
    /// Largest distance in bytes: longer ones are misses at every size, and keys that deep are
    /// dropped.
    pub depth_bytes: u64,
    /// Memory limit in bytes; the least memory is about 28 KiB with the depth of a whole trace.
    /// That much address space is reserved at the start, unless it is unlimited, so that growing
    /// moves nothing.
    pub memory_bytes: usize,
    /// True if counts are halved from time to time, so that old gets count less.
    pub fades: bool,
}

impl GhostOptions {
    /// Returns options for a study of a trace: every key, at any depth, without fading. About 45 to
    /// 90 bytes per key.
    #[must_use]
    pub const fn exact() -> Self {
        Self { rate: 1.0, depth_bytes: u64::MAX, memory_bytes: usize::MAX, fades: false }
    }
}

/// Reuse distances of one stream of gets and stores.
///
/// Keys are 64-bit hashes that should be uniform; two keys with one hash are one key. Only the
/// upper half of a hash selects the sample. A get or a store of a sampled key takes O(log n) for n
/// sampled keys, also in the worst case: about 20 microseconds with a million of them, if memory is
/// limited. For other keys only the comparison of [`Self::samples`] is made, which callers may make
/// themselves.
///
/// The parameter `gets` returns the number of all gets so far, sampled or not, including the
/// present one. It is called rarely.
#[derive(Clone, Debug)]
pub struct Ghost {
    options: GhostOptions,
    /// Sampling threshold, 0 to 2^32: keys are sampled if the upper 32 bits of their hash are below
    /// it.
    threshold: u64,
    stack: Stack,
    reuses: Histogram,
    /// Actual and expected gets of the sampled keys. The expected ones are those of the first
    /// `marked` gets of all keys.
    tally: Tally,
    marked: u64,
    /// Sampled gets until counts are halved next, and all gets when they were last halved.
    until_fading: u64,
    faded_at: u64,
}

/// Actual and expected gets of the sampled keys, faded.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Number of gets of sampled keys.
    counted: f64,
    /// Expectation of `counted` if the sampled keys got their share of all gets.
    expected: f64,
    /// Sum over the sampled keys of the squares of their gets.
    squares: f64,
}

/// Least number of sampled gets between two halvings of the counts, for a sampling error below a
/// percentage point.
const FADING_GETS_MIN: u64 = 1 << 14;
/// Least number of sampled gets between two halvings of the counts, per sampled key: a key with the
/// mean number of uses is seen four times.
const FADING_GETS_PER_KEY: u64 = 4;
/// Largest number of missed halvings that are made up for: they reduce every count to nothing.
const FADINGS_MAX: u32 = 64;
/// Sampling threshold above the upper halves of all hashes: every key is sampled.
const EVERY: u64 = 1 << 32;

impl Ghost {
    /// Returns a ghost that has counted nothing.
    ///
    /// # Panics
    /// If the rate is not above 0 and at most 1; callers validate it.
    #[must_use]
    pub fn new(options: GhostOptions) -> Self {
        let GhostOptions { rate, depth_bytes, memory_bytes, .. } = options;
        assert!(rate > 0.0 && rate <= 1.0, "a sampling rate is above 0 and at most 1, not {rate}");
        let histogram_bytes = Histogram::bytes_at_most(depth_bytes);
        Self {
            options,
            threshold: asked_threshold(rate),
            stack: Stack::new(memory_bytes.saturating_sub(histogram_bytes)),
            reuses: Histogram::default(),
            tally: Tally::default(),
            marked: 0,
            until_fading: FADING_GETS_MIN,
            faded_at: 0,
        }
    }

    /// True if the key is sampled.
    #[must_use]
    pub const fn samples(&self, hash: u64) -> bool {
        hash >> 32 < self.threshold
    }

    /// Returns the sampling threshold: keys are sampled if the upper 32 bits of their hash are
    /// below it.
    pub(crate) const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Share of the keys that are sampled at present.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / EVERY as f64
    }

    /// Counts a get of a sampled key; ignores other keys.
    pub fn get(&mut self, hash: u64, gets: impl FnOnce() -> u64) {
        if !self.samples(hash) {
            return;
        }
        self.tally.counted += 1.0;
        let seen = self.stack.refresh(hash);
        // The square of a key's uses is the sum of the first odd numbers.
        let squares = seen.map_or(1.0, |seen| 2.0 * f64::from(seen.uses) + 1.0);
        self.tally.squares += squares;
        if let Some(seen) = seen {
            let distance = (seen.newer_bytes as f64 / self.rate()) as u64 + u64::from(seen.bytes);
            if distance <= self.options.depth_bytes {
                self.reuses.add(distance, squares);
            }
        }
        self.until_fading -= 1;
        self.tend(gets);
    }

    /// Makes a sampled key the most recent, with weight `bytes` (at least 1, at most 2^32 - 1),
    /// without counting a get; ignores other keys.
    pub fn store(&mut self, hash: u64, bytes: u64, gets: impl FnOnce() -> u64) {
        if !self.samples(hash) {
            return;
        }
        self.stack.put(hash, u32::try_from(bytes).unwrap_or(u32::MAX).max(1));
        self.tend(gets);
    }

    /// Drops a key, which then misses at every size until it is stored again.
    pub fn remove(&mut self, hash: u64) {
        self.stack.remove(hash);
    }

    /// Keeps keys down to a larger depth. Reuses beyond the earlier one are found as the dropped
    /// keys return, and earlier counts fade.
    pub(crate) fn deepen(&mut self, depth_bytes: u64) {
        self.options.depth_bytes = self.options.depth_bytes.max(depth_bytes);
    }

    /// Drops all keys but keeps the counts.
    pub fn clear(&mut self) {
        self.stack.clear();
    }

    /// Computes the present curve. O(buckets), of which there are 32 per doubling of the bytes.
    #[must_use]
    pub fn curve(&mut self, gets: u64) -> Curve {
        // If hardly any sampled key is accessed, no access triggers the halvings that are due.
        let due = gets.saturating_sub(self.faded_at) as f64 * self.rate() / (2 * self.fading_gets()) as f64;
        for _ in 0..(due as u32).min(FADINGS_MAX) {
            self.fade(gets);
        }
        self.mark(gets);
        Curve::new(&self.reuses, &self.tally, self.rate(), self.stack.len())
    }

    /// Bytes used at present.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes() + self.reuses.memory_bytes()
    }

    fn tend(&mut self, gets: impl FnOnce() -> u64) {
        if self.until_fading == 0 || self.stack.is_due() {
            self.maintain(gets);
        }
    }

    /// Does one step of the maintenance of the sample that is due, such as moving or dropping keys.
    #[cold]
    fn maintain(&mut self, gets: impl FnOnce() -> u64) {
        if self.until_fading == 0 {
            return self.fade(gets());
        }
        if self.stack.sweep(self.sampled_depth()) && self.stack.is_crowded() && !self.stack.grow() {
            self.halve(gets());
        }
    }

    /// Halves the sampling rate and drops half of the sampled keys.
    fn halve(&mut self, gets: u64) {
        self.mark(gets);
        self.threshold /= 2;
        self.scale(0.5, 0.5);
        self.stack.halve(self.threshold);
    }

    /// Halves the counts, and doubles a lowered sampling rate if there is room for more than twice
    /// the keys.
    pub(super) fn fade(&mut self, gets: u64) {
        self.until_fading = self.fading_gets();
        self.faded_at = gets;
        if !self.options.fades {
            return;
        }
        self.mark(gets);
        self.scale(0.5, 0.25);
        self.stack.fade();
        let asked = asked_threshold(self.options.rate);
        if self.threshold < asked && self.stack.is_sparse() {
            self.threshold = (self.threshold * 2).min(asked);
            self.scale(2.0, 2.0);
        }
    }

    /// Sampled gets between two halvings of the counts.
    fn fading_gets(&self) -> u64 {
        FADING_GETS_MIN.max(self.stack.len() as u64 * FADING_GETS_PER_KEY)
    }

    /// Adds the gets that the sampled keys are expected to have had up to now, before the sampling
    /// rate or the weights change.
    fn mark(&mut self, gets: u64) {
        self.tally.expected += gets.saturating_sub(self.marked) as f64 * self.rate();
        self.marked = gets;
    }

    fn scale(&mut self, gets: f64, squares: f64) {
        self.reuses.scale(gets, squares);
        self.tally.counted *= gets;
        self.tally.expected *= gets;
        self.tally.squares *= squares;
    }

    /// The depth limit, in bytes of sampled keys.
    fn sampled_depth(&self) -> u64 {
        (self.options.depth_bytes as f64 * self.rate()) as u64
    }
}

fn asked_threshold(rate: f64) -> u64 {
    ((rate * EVERY as f64) as u64).max(1)
}
