//! Miss ratio curves of what passes by: how many gets would have missed, had there been so many
//! bytes.
//!
//! A cache can tell how it fares at the size it has. What it would do at another size has to be
//! known before memory is moved, or whoever moves it gropes. For a cache that evicts the least
//! recent item one pass answers for every size at once (Mattson, Gecsei, Slutz and Traiger,
//! *Evaluation techniques for storage hierarchies*, IBM Systems Journal 1970): a get hits at every
//! size that holds the key and all that was used since the key's last use. The bytes of those are
//! its *reuse distance*, and the share of distances up to a size is the hit ratio there.
//!
//! Keeping them for every key costs more than many caches have to spare. Waldspurger, Park,
//! Garthwaite and Ahmad (*Efficient MRC Construction with SHARDS*, FAST 2015) keep them for the
//! keys whose hash is below a threshold only: a share R of the keys, of which all uses are seen.
//! Distances among them are R times the real ones.
//!
//! Three things that follow from the paper, and where this differs:
//!
//! - *Count correction*. Under skew the sampled keys do not get a share R of the gets: a single hot
//!   key is in the sample or not. The paper (SHARDS-adj, section 3) adds the difference between the
//!   gets expected, R times all of them, and those seen to the shortest distances, where hot keys
//!   are; without it, curves of Zipf traffic are points wrong, up to tens of them. But where no key
//!   is hot, the difference only says how many keys there happen to be in the sample, and what is
//!   added to short distances is an error of its own. So here each distance takes the part that its
//!   keys are likely to have in the difference; [`Curve`] says how. The number of all gets has to
//!   be known; a cache counts them anyway.
//! - *Fixed memory* (section 2.3 there). When the sample outgrows its memory the threshold is
//!   halved and half of the keys go. The paper lowers it key by key, with a heap of hashes; halving
//!   needs no heap and costs nothing between times. Unlike there, keys deeper than
//!   [`GhostOptions::depth_bytes`] are forgotten first: a daemon meets new keys for ever. And the
//!   threshold rises again, up to what was asked for, while the sample fills less than a quarter of
//!   its memory.
//! - *No pauses*. What concerns all sampled keys is done 64 slots at a time by the accesses that
//!   follow, for a thread that serves thousands of clients must not think about a million keys at
//!   once. While half of the keys are on their way out, the weights of both halves stand for those
//!   that stay, at half of their sum: distances are as precise as before.
//! - *Fading*. Counts are halved each time that 16,384 sampled gets, or four for each sampled key
//!   if that is more, have been counted, so the curve is that of the last one to two such spans.
//!   Studies of a whole trace switch it off.
//!
//! Distances are in bytes: each key weighs what it was charged when last stored. The weight of the
//! key itself is exact, only that of the others is scaled.
//!
//! # What counts
//!
//! The miss ratio is that of gets, as in [`Usage`](crate::Usage): a get is an access, whether it
//! hits or not. A store (the fill after a miss as well as an overwrite) is none; it makes its key
//! the most recent and says what it weighs, as it does in the cache. So a key that is asked for and
//! never stored misses at every size and weighs nothing. A key that was deleted misses at every
//! size until it is stored again. Expiry is not followed: that an item died of age is no lack of
//! bytes, so a get that finds it dead counts by its distance like any other. And a get that leaves
//! the recency as it is ([`AccessFlags::KEEP_RECENCY`](crate::AccessFlags::KEEP_RECENCY)) is a get
//! like any other here.
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

/// What a [`Ghost`] keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GhostOptions {
    /// Share of the keys that are sampled, above 0 and at most 1 (exact). Lowered while
    /// `memory_bytes` demand it.
    pub rate: f64,
    /// Distances beyond this many bytes are misses at every size, and keys that deep are forgotten.
    pub depth_bytes: u64,
    /// What it may take, in bytes; at least about 28 KiB are taken where the depth is that of a
    /// whole trace. As much address space is reserved from the start, unless it is without limit,
    /// so that growing moves nothing.
    pub memory_bytes: usize,
    /// Whether old counts fade.
    pub fades: bool,
}

impl GhostOptions {
    /// Every key, at any depth, for ever: what a study of a trace wants. About 45 to 90 bytes a
    /// key.
    #[must_use]
    pub const fn exact() -> Self {
        Self { rate: 1.0, depth_bytes: u64::MAX, memory_bytes: usize::MAX, fades: false }
    }
}

/// The reuse distances of one stream of gets and stores.
///
/// Keys are 64-bit hashes that should be uniform; two keys with one hash are one key. Only the
/// upper half chooses the sample. A get or a store of a sampled key takes O(log n) in the number n
/// of sampled keys, at worst too: some 20 microseconds with a million of them, where memory is
/// limited. For others there is nothing to do but the comparison of [`Self::samples`], which
/// callers may make on their own.
///
/// `gets` of the methods is the number of all gets so far, sampled or not, the present one
/// included. It is only asked for at the rare moments when it matters.
#[derive(Clone, Debug)]
pub struct Ghost {
    options: GhostOptions,
    /// Keys are sampled whose upper 32 bits are below it: 0 to 2^32.
    threshold: u64,
    stack: Stack,
    reuses: Histogram,
    /// Up to `marked` gets, as far as the expected ones are concerned.
    tally: Tally,
    marked: u64,
    /// Sampled gets until counts are halved next, and all gets when they were halved last.
    until_fading: u64,
    faded_at: u64,
}

/// What was seen of the sampled keys, and what of it was to be expected. Faded.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Gets.
    counted: f64,
    /// What `counted` would be if these keys got their share of all gets.
    expected: f64,
    /// The sum, over the keys, of the squares of their gets.
    squares: f64,
}

/// Sampled gets from one halving of the counts to the next, at least: their sampling error is below
/// a point.
const FADING_GETS_MIN: u64 = 1 << 14;
/// The same for each sampled key: a key that is used as often as the mean is seen four times.
const FADING_GETS_PER_KEY: u64 = 4;
/// Halvings that nobody noticed are made up for up to this many: nothing remains of a count after
/// them.
const FADINGS_MAX: u32 = 64;
/// All hashes' upper halves are below this.
const EVERY: u64 = 1 << 32;

impl Ghost {
    /// One that has seen nothing.
    ///
    /// # Panics
    /// When the rate is not above 0 and at most 1; the options that lead here are validated.
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

    /// Whether the key is one of those looked at.
    #[must_use]
    pub const fn samples(&self, hash: u64) -> bool {
        hash >> 32 < self.threshold
    }

    /// Keys are sampled if the upper 32 bits of their hash are below this.
    pub(crate) const fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Share of the keys that are sampled at present.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / EVERY as f64
    }

    /// Counts a get. A key that is not sampled is passed over.
    pub fn get(&mut self, hash: u64, gets: impl FnOnce() -> u64) {
        if !self.samples(hash) {
            return;
        }
        self.tally.counted += 1.0;
        let seen = self.stack.refresh(hash);
        // The squares of a key's uses are the sums of the odd numbers.
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

    /// Makes a key the most recent, with `bytes` (at least 1, at most 2^32 - 1) as its weight.
    /// Counts no get. A key that is not sampled is passed over.
    pub fn store(&mut self, hash: u64, bytes: u64, gets: impl FnOnce() -> u64) {
        if !self.samples(hash) {
            return;
        }
        self.stack.put(hash, u32::try_from(bytes).unwrap_or(u32::MAX).max(1));
        self.tend(gets);
    }

    /// Forgets a key: it is a miss at every size until it is stored again.
    pub fn remove(&mut self, hash: u64) {
        self.stack.remove(hash);
    }

    /// Forgets all keys; what was counted stays.
    pub fn clear(&mut self) {
        self.stack.clear();
    }

    /// The curve at this moment. O(buckets), of which there are 32 for each doubling of the bytes.
    #[must_use]
    pub fn curve(&mut self, gets: u64) -> Curve {
        // Where hardly any key is sampled, or none is asked for any more, nobody else notices that
        // time goes by.
        let due = gets.saturating_sub(self.faded_at) as f64 * self.rate() / (2 * self.fading_gets()) as f64;
        for _ in 0..(due as u32).min(FADINGS_MAX) {
            self.fade(gets);
        }
        self.mark(gets);
        Curve::new(&self.reuses, &self.tally, self.rate(), self.stack.len())
    }

    /// Bytes taken at present.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes() + self.reuses.memory_bytes()
    }

    fn tend(&mut self, gets: impl FnOnce() -> u64) {
        if self.until_fading == 0 || self.stack.is_due() {
            self.maintain(gets);
        }
    }

    /// Does a little of what is to be done.
    #[cold]
    fn maintain(&mut self, gets: impl FnOnce() -> u64) {
        if self.until_fading == 0 {
            return self.fade(gets());
        }
        if self.stack.sweep(self.sampled_depth()) && self.stack.is_crowded() && !self.stack.grow() {
            self.halve(gets());
        }
    }

    /// Halves the sample.
    fn halve(&mut self, gets: u64) {
        self.mark(gets);
        self.threshold /= 2;
        self.scale(0.5, 0.5);
        self.stack.halve(self.threshold);
    }

    /// Halves the counts, and doubles the rate if it was lowered and there is room for twice the
    /// keys and more.
    fn fade(&mut self, gets: u64) {
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

    /// Sampled gets from one halving of the counts to the next.
    fn fading_gets(&self) -> u64 {
        FADING_GETS_MIN.max(self.stack.len() as u64 * FADING_GETS_PER_KEY)
    }

    /// Settles what was expected up to now, before rate or weights change.
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

    /// The depth in bytes of sampled keys.
    fn sampled_depth(&self) -> u64 {
        (self.options.depth_bytes as f64 * self.rate()) as u64
    }
}

fn asked_threshold(rate: f64) -> u64 {
    ((rate * EVERY as f64) as u64).max(1)
}
