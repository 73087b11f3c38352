//! Accounting of the bytes that the buffers of clients' connections hold.
//!
//! Each buffer has its own bound, so nothing is refused here. The sum is the memory that the
//! process uses for its clients beside the cache, which eviction cannot reduce.

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
}

/// Counts the bytes in buffers with a plain atomic counter.
impl BufferBytes for AtomicU64 {
    fn add(&self, bytes: u64) {
        self.fetch_add(bytes, Relaxed);
    }

    fn subtract(&self, bytes: u64) {
        self.fetch_sub(bytes, Relaxed);
    }
}

/// The bytes that one connection or thread has added to [`BufferBytes`], subtracted on drop.
pub(super) struct Account {
    total: Arc<dyn BufferBytes>,
    bytes: usize,
}

impl Account {
    /// Creates an account that holds nothing yet.
    pub(super) fn new(total: Arc<dyn BufferBytes>) -> Self {
        Self { total, bytes: 0 }
    }

    /// Records that the buffers of this account hold `bytes` now. Costs nothing if the number is
    /// unchanged, the usual case.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.total.add((bytes - self.bytes) as u64);
        } else if bytes < self.bytes {
            self.total.subtract((self.bytes - bytes) as u64);
        }
        self.bytes = bytes;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
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
}
