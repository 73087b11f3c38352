//! Memory that the listener keeps for a client between commands: watched keys, commands queued by
//! `MULTI`, and keys and writes that wait for a backend.
//!
//! Such memory is held for as long as the client likes, and its bound times the number of clients
//! is more than any machine has. So all clients share one budget ([`BufferBytes::take_kept`]), and
//! a command that would exceed it is refused. The first [`OWN_BYTES`] of each client do not count
//! towards the budget: a client that watches a few keys is not refused because of others.

use std::sync::Arc;

use sherwood_model::units::ByteSize;

use super::account::BufferBytes;

/// Bytes that each client may have kept in addition to the shared budget; they are counted like the
/// buffers of its connection. Chosen: room for a usual transaction; with every connection in use, a
/// fraction of the smallest budget.
pub(super) const OWN_BYTES: usize = 4 << 10;
/// Granularity at which a client takes and returns bytes of the budget, so that not every command
/// changes the shared counter.
const STEP_BYTES: usize = 4 << 10;

/// The part of the shared budget that one client has taken, given back on drop.
pub(super) struct KeptMemory {
    buffers: Arc<dyn BufferBytes>,
    taken: usize,
}

impl KeptMemory {
    /// Creates the part of a new client, which has taken nothing from the budget.
    pub(super) fn new(buffers: Arc<dyn BufferBytes>) -> Self {
        Self { buffers, taken: 0 }
    }

    /// Takes from the budget what the client needs to keep `bytes` in all. Returns false, and takes
    /// nothing, if too little of the budget is left.
    #[must_use]
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let shared = shared_part(bytes);
        if shared > self.taken {
            if !self.buffers.take_kept((shared - self.taken) as u64) {
                return false;
            }
            self.taken = shared;
        }
        true
    }

    /// Returns true if the client has taken nothing from the budget.
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Returns to the budget what a client that now keeps `bytes` in all does not need.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let shared = shared_part(bytes).min(self.taken);
        if shared < self.taken {
            self.buffers.return_kept((self.taken - shared) as u64);
            self.taken = shared;
        }
    }

    /// Returns the error text for a refusal, without a code: the bound and the remedy.
    pub(super) fn refusal(&self) -> String {
        format!(
            "the node keeps as many watched keys, queued commands and writes in flight as it may, {} of all clients \
             beyond {} of each; send fewer at once, try again later, or raise buffers in [memory]",
            ByteSize(self.buffers.kept_bytes_max()),
            ByteSize(OWN_BYTES as u64)
        )
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Returns the bytes that a client which keeps `bytes` takes from the shared budget.
fn shared_part(bytes: usize) -> usize {
    bytes.saturating_sub(OWN_BYTES).next_multiple_of(STEP_BYTES)
}

/// Returns the memory that an allocation of `bytes` takes: allocators round sizes up, by less than
/// an eighth and to at least 16 bytes.
pub(super) fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + bytes / 8).next_multiple_of(16) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::tests::Bounded;

    #[test]
    fn bytes_above_a_clients_free_allowance_are_taken_from_the_shared_budget_and_returned() {
        let budget = Arc::new(Bounded::new(2 * STEP_BYTES as u64));
        let client = || KeptMemory::new(Arc::clone(&budget) as Arc<dyn BufferBytes>);
        let (mut one, mut two) = (client(), client());
        assert!(one.grow_to(OWN_BYTES) && two.grow_to(OWN_BYTES));
        assert_eq!(budget.kept(), 0);
        assert!(one.grow_to(OWN_BYTES + 1) && two.grow_to(OWN_BYTES + STEP_BYTES));
        assert!(!one.grow_to(OWN_BYTES + STEP_BYTES + 1), "the budget is used up");
        assert!(one.grow_to(OWN_BYTES + STEP_BYTES), "the step is its own");
        assert_eq!(budget.kept(), 2 * STEP_BYTES as u64);
        two.shrink_to(7);
        assert!(one.grow_to(OWN_BYTES + STEP_BYTES + 1));
        drop(one);
        assert_eq!(budget.kept(), 0);
        let refusal = two.refusal();
        assert!(
            refusal.contains("8KiB of all clients") && refusal.contains("buffers in [memory]"),
            "{refusal}"
        );
    }

    #[test]
    fn allocation_size_includes_the_rounding_by_the_allocator() {
        assert_eq!([0, 1, 16, 250, 4096].map(allocated), [0, 16, 32, 288, 4608]);
    }

    #[test]
    fn plain_counter_grants_any_amount_of_kept_memory() {
        let counter = Arc::new(AtomicU64::new(0));
        let mut kept = KeptMemory::new(Arc::clone(&counter) as Arc<dyn BufferBytes>);
        assert!(kept.grow_to(1 << 30));
        assert_eq!(counter.load(Relaxed), (1 << 30) - OWN_BYTES as u64);
        drop(kept);
        assert_eq!(counter.load(Relaxed), 0);
    }
}
