//! Accounting of the bytes that the buffers of clients' connections hold.
//!
//! Each buffer has its own bound, so an [`Account`] refuses nothing. The sum is the memory that the
//! process uses for its clients beside the cache, which eviction cannot reduce. Memory for what the
//! listener keeps for a client between commands is taken from a budget instead
//! ([`Kept`](super::kept::Kept)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of copies of a fetched value that a connection's output may hold: the output is a
/// buffer that doubles as it grows.
pub const FETCHED_COPIES: usize = 2;

/// A count of the bytes in the buffers of all connections.
pub trait BufferBytes: Send + Sync {
    /// Adds `bytes` to the count.
    fn add(&self, bytes: u64);

    /// Subtracts `bytes` from the count; never more than were added.
    fn subtract(&self, bytes: u64);

    /// Adds an upper bound, in bytes, for memory of a connection whose exact size is unknown.
    fn add_uncounted(&self, bytes_max: u64);

    /// Subtracts a bound that [`add_uncounted`](Self::add_uncounted) has added.
    fn subtract_uncounted(&self, bytes_max: u64);

    /// Takes `bytes` from the budget for watched keys and queued commands; returns false if less is
    /// left. The caller does not [`add`](Self::add) these bytes as well.
    fn take_kept(&self, bytes: u64) -> bool;

    /// Returns to the budget `bytes` taken by [`take_kept`](Self::take_kept).
    fn return_kept(&self, bytes: u64);

    /// Returns the size of the budget for watched keys and queued commands of all clients, bytes.
    fn kept_bytes_max(&self) -> u64;
}

/// A plain atomic counter: grants any amount, and ignores memory whose exact size is unknown.
impl BufferBytes for AtomicU64 {
    fn add(&self, bytes: u64) {
        self.fetch_add(bytes, Relaxed);
    }

    fn subtract(&self, bytes: u64) {
        self.fetch_sub(bytes, Relaxed);
    }

    fn add_uncounted(&self, _: u64) {}

    fn subtract_uncounted(&self, _: u64) {}

    fn take_kept(&self, bytes: u64) -> bool {
        self.add(bytes);
        true
    }

    fn return_kept(&self, bytes: u64) {
        self.subtract(bytes);
    }

    fn kept_bytes_max(&self) -> u64 {
        u64::MAX
    }
}

/// The bytes that one connection or thread has added to [`BufferBytes`], subtracted on drop.
pub(super) struct Account {
    total: Arc<dyn BufferBytes>,
    bytes: usize,
    /// Upper bound of memory whose exact size is unknown, bytes.
    uncounted: u64,
}

impl Account {
    /// Creates an account that holds nothing yet.
    pub(super) fn new(total: Arc<dyn BufferBytes>) -> Self {
        Self { total, bytes: 0, uncounted: 0 }
    }

    /// Also counts `bytes_max`, the upper bound of further memory whose exact size is unknown.
    pub(super) fn with_uncounted(mut self, bytes_max: usize) -> Self {
        self.uncounted += bytes_max as u64;
        self.total.add_uncounted(bytes_max as u64);
        self
    }

    /// Records that the buffers of this account hold `bytes` now. Costs nothing if the number is
    /// unchanged, the usual case.
    #[inline]
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.change(bytes);
        }
    }

    fn change(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.total.add((bytes - self.bytes) as u64);
        } else {
            self.total.subtract((self.bytes - bytes) as u64);
        }
        self.bytes = bytes;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
        self.total.subtract_uncounted(self.uncounted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_accounts_add_up_and_are_zero_when_dropped() {
        let total = Arc::new(AtomicU64::new(0));
        let account = || Account::new(Arc::clone(&total) as Arc<dyn BufferBytes>);
        let (mut one, mut two) = (account(), account());
        one.set(100);
        two.set(7);
        one.set(50);
        assert_eq!(total.load(Relaxed), 57);
        drop(one);
        assert_eq!(total.load(Relaxed), 7);
    }
    #[test]
    fn upper_bound_of_uncounted_memory_is_included_until_the_account_is_dropped() {
        let total = Arc::new(crate::tests::Bounded::new(0));
        let mut account = Account::new(Arc::clone(&total) as Arc<dyn BufferBytes>).with_uncounted(30);
        account.set(7);
        assert_eq!(total.buffers(), (7, 30));
        drop(account);
        assert_eq!(total.buffers(), (0, 0));
    }
}
