//! Bytes held for clients, bounded over the whole process.
//!
//! What one request may hold has a bound of its own, and so has the number of connections; but the
//! product of the two is more than any machine has. So the bodies of requests, values on their way
//! into answers, and the texts of answers share one budget. Whoever finds it spent is told so at
//! once: nothing waits for others to let go, and so nothing waits for ever.
//!
//! The buffers of listeners' connections are bounded each, and only counted here: with the budget
//! they are what the process holds beside its cache for the clients' sake ([`Buffers::bytes`]),
//! which is nothing that evicting could mend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use crate::config::ByteSize;
use sherwood_listener::BufferBytes;

/// The bytes that a [`Hold`] takes from the budget beyond its need, so that a value is not an
/// access to a counter that all threads change. Chosen: with every connection in use it adds up to
/// a fraction of the least budget.
const STEP_BYTES: u64 = 16 << 10;

/// The budget of one process, and what is held. All figures are bytes.
#[derive(Debug)]
pub(crate) struct Buffers {
    bytes_max: u64,
    held: AtomicU64,
    refused: AtomicU64,
    connections: AtomicU64,
}

impl Buffers {
    /// A budget of `bytes_max` of which nothing is held.
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            held: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        })
    }

    /// The budget.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the bytes held now, the buffers of connections included.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.load(Relaxed).saturating_add(self.connections.load(Relaxed))
    }

    /// Returns the number of refusals for want of budget since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Why somebody was refused, and what to do about it.
    pub(crate) fn spent(&self) -> String {
        format!(
            "the node holds as many bytes for requests and answers as it may, {}; ask again later, or raise buffers in [memory]",
            ByteSize(self.bytes_max)
        )
    }

    /// A hold on nothing yet.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        Hold { buffers: Arc::clone(self), held: 0, spare: 0 }
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        self.held.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    buffers: Arc<Buffers>,
    /// All that was taken from the budget.
    held: u64,
    /// The free part of that.
    spare: u64,
}

impl Hold {
    /// Takes `bytes` more if the budget has them; else nothing changes, but it is counted.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        if let Some(spare) = self.spare.checked_sub(bytes) {
            self.spare = spare;
            return true;
        }
        let missing = bytes - self.spare;
        // Towards the end of the budget there may be room for what is needed and for nothing more.
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

    /// `bytes` that give this hold back when the last of their clones is dropped.
    pub(crate) fn guard(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
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
    }

    fn subtract(&self, bytes: u64) {
        self.connections.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_budget_is_spent_to_the_last_byte_and_refusals_are_counted() {
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
    fn guarded_bytes_hold_until_the_last_clone_is_gone() {
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
    fn connections_are_counted_beside_the_budget() {
        let buffers = Buffers::new(10);
        buffers.add(100);
        assert!(buffers.hold().take(10), "they take nothing from the budget");
        assert_eq!(buffers.bytes(), 100);
        buffers.subtract(60);
        assert_eq!(buffers.bytes(), 40);
    }

    proptest! {
        #[test]
        fn what_is_held_is_what_was_granted_and_never_over_the_budget(
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
