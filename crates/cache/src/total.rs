//! The total of the cache, and its changes.

use std::sync::atomic::Ordering::Relaxed;

use sherwood_model::CachePlan;
use thiserror::Error;

use crate::engine::Cache;
use crate::ledger::PlanError;
use crate::memory::held_max;
use crate::options::SHARD_BYTES_LIMIT;

/// Reason why the total was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResizeError {
    /// The total is out of the range of this cache.
    #[error(
        "a total of {total_bytes} bytes: a cache that started with so few shards can have 1 to {bytes_max}; start it anew \
         with that total"
    )]
    Total {
        /// The total given.
        total_bytes: u64,
        /// Largest total of the cache: 16 GiB for each of its shards.
        bytes_max: u64,
    },
    /// The plan does not fit the total.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Cache {
    /// Changes the total, and puts a plan for it in force. O(partitions); no item moves. A cache
    /// over its new total shrinks by [`Self::step`] and by later stores. One that grows keeps the
    /// number of its shards; its miss ratio curves reach to the new sizes as keys return.
    ///
    /// # Errors
    /// If the plan does not fit the total, or if a shard would exceed 16 GiB. Nothing has changed
    /// then.
    pub fn resize(&self, total_bytes: u64, plan: &CachePlan) -> Result<(), ResizeError> {
        self.check_total(total_bytes)?;
        self.ledger.resize(total_bytes, plan)?;
        self.held_max.store(held_max(total_bytes), Relaxed);
        self.ghosts.deepen(total_bytes);
        Ok(())
    }

    /// Checks that the cache can have this total.
    ///
    /// # Errors
    /// As those of [`Self::resize`] for any plan.
    pub fn check_total(&self, total_bytes: u64) -> Result<(), ResizeError> {
        let bytes_max = u64::from(self.options.shards) * SHARD_BYTES_LIMIT;
        let is_possible = (1..=bytes_max).contains(&total_bytes);
        if is_possible { Ok(()) } else { Err(ResizeError::Total { total_bytes, bytes_max }) }
    }

    /// The total in force: the bytes that keys, values, index and metadata may take.
    #[inline]
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.ledger.total_bytes()
    }

    #[inline]
    pub(crate) fn held_max(&self) -> u64 {
        self.held_max.load(Relaxed)
    }
}
