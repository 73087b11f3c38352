//! Bytes held for clients, bounded over the whole process.
//!
//! The memory of one request is bounded, and so is the number of connections, but their product is
//! more than any machine has. Bodies of requests, values held for answers, and the texts of answers
//! therefore share one budget. A request that exceeds it is refused at once: nothing waits for
//! memory, so there are no deadlocks.
//!
//! Memory that the listeners keep for clients between commands (watched keys, queued commands) is
//! taken from the same budget, at most half of it (`KEPT_DIVISOR`), so that it leaves room for
//! answers.
//!
//! Each buffer of a listener's connection has its own bound; these buffers are only counted here.
//! The buffers of HTTP and TLS belong to libraries that do not report their size, so their upper
//! bounds are counted instead ([`Uncounted`]). Budget and connection buffers together are the
//! memory that the process holds for clients beside its cache ([`Buffers::bytes`]); evicting items
//! would not free it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use sherwood_config::ByteSize;
use sherwood_listener::BufferBytes;

/// Spare bytes that a [`Hold`] takes from the budget in advance, so that not every value changes
/// the shared counter. Chosen: with every connection in use, the spare bytes of all of them are a
/// fraction of the smallest budget.
const STEP_BYTES: u64 = 16 << 10;

/// Watched keys and queued commands may take the budget divided by this number.
const KEPT_DIVISOR: u64 = 2;

/// The budget of bytes that the process may hold for clients, and its use.
#[derive(Debug)]
pub struct Buffers {
    bytes_max: u64,
    /// Bytes taken from the budget, those of `kept` included.
    held: AtomicU64,
    /// Bytes that listeners keep for clients between commands.
    kept: AtomicU64,
    refused: AtomicU64,
    connections: AtomicU64,
    /// Sum of the upper bounds of buffers whose exact size is unknown, bytes.
    uncounted: AtomicU64,
    /// The peak of bytes held for clients since the last call of [`most_bytes`](Self::most_bytes).
    most: AtomicU64,
}

impl Buffers {
    /// Creates an unused budget of `bytes_max`.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            held: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            uncounted: AtomicU64::new(0),
            most: AtomicU64::new(0),
        })
    }

    /// Returns the size of the budget, bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the bytes held now, including the buffers of connections whose size is known.
    pub fn bytes(&self) -> u64 {
        self.held.load(Relaxed).saturating_add(self.connections.load(Relaxed))
    }

    /// Returns the bytes that listeners keep for clients between commands.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    /// Returns the peak of bytes held for clients since the last call. It includes the upper bounds
    /// of buffers whose exact size is unknown, so it is never less than what clients occupy.
    pub fn most_bytes(&self) -> u64 {
        let now = self.with_uncounted();
        self.most.swap(now, Relaxed).max(now)
    }

    /// Counts `bytes_max`, the upper bound of buffers whose exact size is unknown, until the result
    /// is dropped.
    pub fn uncounted(self: &Arc<Self>, bytes_max: usize) -> Uncounted {
        let uncounted = Uncounted { buffers: Arc::clone(self), bytes: AtomicU64::new(0) };
        uncounted.set(bytes_max);
        uncounted
    }

    fn with_uncounted(&self) -> u64 {
        self.bytes().saturating_add(self.uncounted.load(Relaxed))
    }

    fn note_most(&self) {
        let now = self.with_uncounted();
        if now > self.most.load(Relaxed) {
            self.most.fetch_max(now, Relaxed);
        }
    }

    /// Returns the number of requests refused since the start because the budget was used up.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the error text for a request that is refused because the budget is used up, with the
    /// remedy.
    pub fn spent(&self) -> String {
        format!(
            "the node holds as many bytes for requests and answers as it may, {}; ask again later, or raise buffers in [memory]",
            ByteSize(self.bytes_max)
        )
    }

    /// Creates an empty hold, which can take bytes from the budget.
    pub fn hold(self: &Arc<Self>) -> Hold {
        Hold { buffers: Arc::clone(self), held: 0, spare: 0 }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = add_within(&self.held, bytes, self.bytes_max);
        if taken {
            self.note_most();
        }
        taken
    }
}

/// Adds `bytes` to a count unless it would exceed `bytes_max`; returns true if they were added.
fn add_within(count: &AtomicU64, bytes: u64, bytes_max: u64) -> bool {
    let more = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= bytes_max);
    count.fetch_update(Relaxed, Relaxed, more).is_ok()
}

/// The upper bound of buffers whose exact size is unknown, counted until this is dropped.
#[derive(Debug)]
pub struct Uncounted {
    buffers: Arc<Buffers>,
    bytes: AtomicU64,
}

impl Uncounted {
    /// Changes the bound to `bytes_max`.
    pub fn set(&self, bytes_max: usize) {
        let bytes_max = bytes_max as u64;
        let before = self.bytes.swap(bytes_max, Relaxed);
        if bytes_max >= before {
            self.buffers.add_uncounted(bytes_max - before);
        } else {
            self.buffers.subtract_uncounted(before - bytes_max);
        }
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A part of the buffer budget, given back when it is dropped.
#[derive(Debug)]
pub struct Hold {
    buffers: Arc<Buffers>,
    /// Bytes taken from the buffer budget.
    held: u64,
    /// The unused part of `held`.
    spare: u64,
}

impl Hold {
    /// Takes `bytes` more from the budget and returns true; if too few are left, counts a refusal
    /// and returns false.
    pub fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        if let Some(spare) = self.spare.checked_sub(bytes) {
            self.spare = spare;
            return true;
        }
        let missing = bytes - self.spare;
        // Near the end of the budget there may be no room for bytes in advance.
        for spare in [STEP_BYTES, 0] {
            if self.buffers.take(missing.saturating_add(spare)) {
                self.held += missing + spare;
                self.spare = spare;
                return true;
            }
        }
        self.buffers.refused.fetch_add(1, Relaxed);
        false
    }

    /// Attaches this hold to `bytes`: it is returned to the budget when the last clone of the
    /// result is dropped. Spare bytes taken in advance are returned at once.
    pub fn guard(mut self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        let spare = std::mem::take(&mut self.spare);
        self.held -= spare;
        self.buffers.held.fetch_sub(spare, Relaxed);
        Bytes::from_owner(Guarded { bytes, _hold: self })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.buffers.held.fetch_sub(self.held, Relaxed);
    }
}

struct Guarded<B> {
    bytes: B,
    _hold: Hold,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Guarded<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl BufferBytes for Buffers {
    fn add(&self, bytes: u64) {
        self.connections.fetch_add(bytes, Relaxed);
        self.note_most();
    }

    fn subtract(&self, bytes: u64) {
        self.connections.fetch_sub(bytes, Relaxed);
    }

    fn add_uncounted(&self, bytes_max: u64) {
        self.uncounted.fetch_add(bytes_max, Relaxed);
        self.note_most();
    }

    fn subtract_uncounted(&self, bytes_max: u64) {
        self.uncounted.fetch_sub(bytes_max, Relaxed);
    }

    fn take_kept(&self, bytes: u64) -> bool {
        let taken = add_within(&self.kept, bytes, self.kept_bytes_max());
        if taken && self.take(bytes) {
            return true;
        }
        if taken {
            self.kept.fetch_sub(bytes, Relaxed);
        }
        self.refused.fetch_add(1, Relaxed);
        false
    }

    fn return_kept(&self, bytes: u64) {
        self.kept.fetch_sub(bytes, Relaxed);
        self.held.fetch_sub(bytes, Relaxed);
    }

    fn kept_bytes_max(&self) -> u64 {
        self.bytes_max / KEPT_DIVISOR
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_buffer_budget_can_be_taken_and_refusals_are_counted() {
        let buffers = Buffers::new(STEP_BYTES + 10);
        let (mut one, mut two) = (buffers.hold(), buffers.hold());
        assert!(one.take(10), "with a step to spare");
        assert_eq!(buffers.bytes(), STEP_BYTES + 10);
        assert!(!two.take(1) && two.take(0));
        assert!(one.take(STEP_BYTES as usize) && !one.take(1));
        assert_eq!(buffers.refused(), 2);
        drop(one);
        assert!(two.take(STEP_BYTES as usize + 10) && !two.take(usize::MAX));
        drop(two);
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn memory_kept_between_commands_takes_at_most_half_of_the_buffer_budget() {
        let buffers = Buffers::new(100);
        assert!(buffers.take_kept(50) && !buffers.take_kept(1));
        let mut hold = buffers.hold();
        assert!(hold.take(50) && !hold.take(1));
        buffers.return_kept(30);
        assert!(hold.take(30), "the budget is one");
        assert!(!buffers.take_kept(1), "also if its part is not used up");
        assert_eq!((buffers.kept_bytes(), buffers.bytes(), buffers.refused()), (20, 100, 3));
        drop(hold);
        buffers.return_kept(20);
        assert_eq!((buffers.kept_bytes(), buffers.bytes()), (0, 0));
    }

    #[test]
    fn most_bytes_returns_the_peak_since_its_last_call() {
        let buffers = Buffers::new(100);
        assert!(buffers.hold().take(60));
        let uncounted = buffers.uncounted(7);
        uncounted.set(5);
        buffers.add(10);
        assert_eq!((buffers.most_bytes(), buffers.most_bytes(), buffers.bytes()), (60, 15, 10));
        drop(uncounted);
        assert!(buffers.take_kept(8));
        buffers.return_kept(8);
        assert_eq!((buffers.most_bytes(), buffers.most_bytes()), (18, 10));
    }

    #[test]
    fn guard_returns_the_unused_part_of_its_hold_to_the_buffer_budget() {
        let buffers = Buffers::new(1 << 20);
        let mut hold = buffers.hold();
        assert!(hold.take(100));
        let bytes = hold.guard(vec![0; 100]);
        assert_eq!(buffers.bytes(), 100);
        drop(bytes);
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn dropping_the_last_clone_of_guarded_bytes_returns_them_to_the_buffer_budget() {
        let buffers = Buffers::new(100);
        let mut hold = buffers.hold();
        assert!(hold.take(100));
        let bytes = hold.guard(b"value".to_vec());
        let part = bytes.slice(1..3);
        drop(bytes);
        assert_eq!((&part[..], buffers.bytes()), (&b"al"[..], 100));
        drop(part);
        assert_eq!(buffers.bytes(), 0);
    }

    #[test]
    fn connection_buffers_are_counted_but_do_not_use_the_buffer_budget() {
        let buffers = Buffers::new(10);
        buffers.add(100);
        assert!(buffers.hold().take(10), "they take nothing from the budget");
        assert_eq!(buffers.bytes(), 100);
        buffers.subtract(60);
        assert_eq!(buffers.bytes(), 40);
    }

    proptest! {
        #[test]
        fn bytes_taken_from_the_buffer_budget_cover_all_grants_and_stay_within_it(
            bytes_max in 0..100_000u64,
            takes in prop::collection::vec((0..4usize, 0..50_000usize, any::<bool>()), 0..40),
        ) {
            let buffers = Buffers::new(bytes_max);
            let mut holds = [(); 4].map(|()| (buffers.hold(), 0));
            for (who, bytes, ends) in takes {
                if ends {
                    holds[who] = (buffers.hold(), 0);
                }
                if holds[who].0.take(bytes) {
                    holds[who].1 += bytes as u64;
                }
                let granted: u64 = holds.iter().map(|hold| hold.1).sum();
                prop_assert!((granted..=bytes_max).contains(&buffers.bytes()));
            }
            drop(holds);
            prop_assert_eq!(buffers.bytes(), 0);
        }
    }
}
