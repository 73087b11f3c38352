//! Slope of the hit ratio per additional byte, measured on two simulated caches.
//!
//! One policy (`crit_path_w_delta` of RobinHood's authors) weighs a backend's blocking count by the
//! slope of its hit ratio. The slope is measured as in their implementation: the accesses run
//! through two LRUs without values, one of the present budgets and one in which every partition has
//! a hundredth of the total more. Theirs simulate all accesses; here only a hash-sampled share of
//! the keys does, with budgets scaled alike, so that memory stays small whatever the cache's size:
//! the budgets of the smaller one sum to at most [`BYTES_MAX`], metadata included.
//!
//! It covers accesses through the gateway and the dispatchers, and only while a policy needs it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use sherwood_cache::{Access, Cache, Eviction, NewItem, Options, OptionsError, Partition};
use sherwood_model::{CachePlan, Instant, PartitionId, SeededState};
use sherwood_policy::{SLOPE_STEP_RATIO, hit_ratio_slope};

/// Budget of the simulated cache of the present size, after sampling.
const BYTES_MAX: u64 = 64 << 20;
/// Minimum of sampled look-ups of a partition since the last round; with fewer, the slope of its
/// hit ratio is kept.
const LOOK_UPS_MIN: u64 = 200;
/// Weight of the old value in the moving average of a slope.
const OLD_RATIO: f64 = 0.8;

/// Two simulated caches, one with larger budgets, and each partition's hit ratio gained per byte
/// between them.
pub(crate) struct Shadow {
    enabled: AtomicBool,
    hash: SeededState,
    partitions: Vec<Partition>,
    simulated: RwLock<Simulated>,
}

/// The two caches of one total.
struct Simulated {
    /// Inverse of the sampled share of keys: a power of two.
    one_in: u64,
    step_bytes: u64,
    present: Cache,
    larger: Cache,
    slopes: Mutex<Slopes>,
}

/// Counts up to the last round, and the slopes derived from them.
struct Slopes {
    counted: Vec<[(u64, u64); 2]>,
    slopes: Vec<Option<f64>>,
}

impl Shadow {
    /// Creates the simulation of a cache of `total_bytes` with these partitions, idle until slopes
    /// are requested.
    pub(crate) fn new(
        total_bytes: u64,
        partitions: &[Partition],
        hash: SeededState,
    ) -> Result<Self, OptionsError> {
        let partitions: Vec<_> = partitions.iter().map(|one| Partition { budget_bytes: 0, ..*one }).collect();
        let simulated = RwLock::new(Simulated::new(total_bytes, &partitions, hash)?);
        Ok(Self { enabled: AtomicBool::new(false), hash, partitions, simulated })
    }

    /// Begins anew for another total.
    ///
    /// # Errors
    /// If there cannot be such a cache; then the present ones stay.
    pub(crate) fn resize(&self, total_bytes: u64) -> Result<(), OptionsError> {
        let simulated = Simulated::new(total_bytes, &self.partitions, self.hash)?;
        let mut present = self.simulated.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *present, simulated);
        drop(present);
        // Freed outside of the lock.
        drop(old);
        Ok(())
    }

    fn simulated(&self) -> RwLockReadGuard<'_, Simulated> {
        self.simulated.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates an access to `key`, whose value has `bytes` bytes.
    pub(crate) fn access(&self, now: Instant, partition: PartitionId, key: &[u8], bytes: usize) {
        if self.enabled.load(Relaxed) {
            self.simulated().access(now, partition, (key, self.hash.hash_bytes(key)), bytes);
        }
    }

    /// Returns the slope of every partition's hit ratio per byte at these budgets, none with too
    /// few look-ups so far. Starts an idle simulation.
    pub(crate) fn slopes(&self, budgets: &[u64]) -> Vec<Option<f64>> {
        self.enabled.store(true, Relaxed);
        self.simulated().slopes(budgets)
    }

    /// Stops the simulation of the two caches and frees what it holds.
    pub(crate) fn rest(&self, now: Instant) {
        if self.enabled.swap(false, Relaxed) {
            self.simulated().caches().into_iter().for_each(|cache| cache.flush(None, now, now));
        }
    }

    /// Reclaims what the simulated caches no longer need; true when there is more to do.
    pub(crate) fn step(&self, now: Instant, items_max: usize) -> bool {
        self.simulated().caches().map(|cache| cache.step(now, items_max)).contains(&true)
    }
}

impl Simulated {
    /// Creates the caches of `total_bytes` and of more, with these partitions, which are empty.
    fn new(total_bytes: u64, partitions: &[Partition], hash: SeededState) -> Result<Self, OptionsError> {
        let one_in = total_bytes.div_ceil(BYTES_MAX).next_power_of_two();
        let step_bytes = (total_bytes as f64 * SLOPE_STEP_RATIO) as u64;
        let more = step_bytes * partitions.len() as u64;
        let simulated = |total: u64| {
            let options = Options {
                total_bytes: (total / one_in).max(1),
                item_bytes_max: 1 << 30,
                // As in the authors' implementation; and the hit ratio of an LRU has no steps.
                eviction: Eviction::Lru,
                ..Options::default()
            };
            Cache::new(options, partitions, hash)
        };
        let slopes =
            Slopes { counted: vec![[(0, 0); 2]; partitions.len()], slopes: vec![None; partitions.len()] };
        Ok(Self {
            one_in,
            step_bytes,
            present: simulated(total_bytes)?,
            larger: simulated(total_bytes.saturating_add(more))?,
            slopes: Mutex::new(slopes),
        })
    }

    fn caches(&self) -> [&Cache; 2] {
        [&self.present, &self.larger]
    }

    fn access(&self, now: Instant, partition: PartitionId, (key, hash): (&[u8], u64), bytes: usize) {
        if hash & (self.one_in - 1) != 0 {
            return;
        }
        let (access, bytes) = (Access::at(now), u32::try_from(bytes).unwrap_or(u32::MAX));
        for cache in self.caches() {
            if cache.get(partition, key, &access, |_| ()).is_none() {
                // An item larger than its budget is not stored and misses again.
                let _ = cache.set(partition, key, NewItem::declared(bytes), &access);
            }
        }
    }

    fn slopes(&self, budgets: &[u64]) -> Vec<Option<f64>> {
        let scaled = |more: u64| budgets.iter().map(|bytes| (bytes + more) / self.one_in).collect();
        for (cache, more) in [(&self.present, 0), (&self.larger, self.step_bytes)] {
            if let Err(error) = cache.apply(&CachePlan::Budgets(scaled(more))) {
                tracing::warn!("the simulated caches keep their sizes: {error}");
            }
        }
        let mut slopes = self.slopes.lock().expect("no panics while held");
        for (index, &budget) in budgets.iter().enumerate() {
            self.measure(&mut slopes, index, budget);
        }
        slopes.slopes.clone()
    }

    fn measure(&self, slopes: &mut Slopes, index: usize, budget: u64) {
        let now = self.caches().map(|cache| {
            let usage = cache.usage(PartitionId::from_index(index));
            (usage.hits, usage.hits + usage.misses)
        });
        let before = slopes.counted[index];
        if now[0].1 - before[0].1 < LOOK_UPS_MIN {
            return;
        }
        let ratio = |i: usize| (now[i].0 - before[i].0) as f64 / (now[i].1 - before[i].1).max(1) as f64;
        let slope = hit_ratio_slope((budget, ratio(0)), (budget + self.step_bytes, ratio(1)));
        slopes.counted[index] = now;
        let old = slopes.slopes[index].unwrap_or(slope);
        slopes.slopes[index] = Some(OLD_RATIO * old + (1.0 - OLD_RATIO) * slope);
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::{BackendId, TenantId};

    use super::*;

    /// Partition 0 cycles over keys that only the larger simulated cache holds completely,
    /// partition 1 over keys that both do.
    #[test]
    fn partition_that_nearly_fits_has_the_steeper_slope() {
        let partition = |id| Partition::new(TenantId(0), BackendId(id), 0);
        let shadow = Shadow::new(1 << 20, &[partition(0), partition(1)], SeededState::new(1)).unwrap();
        let budgets = [1 << 19, 1 << 19];
        assert_eq!(shadow.slopes(&budgets), [None, None], "nothing was seen yet");
        let step_bytes = shadow.simulated().step_bytes;
        let nearly = (budgets[0] + step_bytes / 2) / sherwood_cache::charge(8, 984);
        for round in 0..40 {
            let now = Instant::from_millis(round);
            for i in 0..nearly {
                shadow.access(now, PartitionId(0), &i.to_be_bytes(), 984);
                shadow.access(now, PartitionId(1), &(i % 10).to_be_bytes(), 984);
            }
        }
        let slopes = shadow.slopes(&budgets);
        assert!(slopes[0].unwrap() > 0.9 / step_bytes as f64, "{slopes:?}");
        assert_eq!(slopes[1], Some(0.0));
        shadow.resize(1 << 21).unwrap();
        assert_eq!(shadow.slopes(&[1 << 20, 1 << 20]), [None, None], "it begins anew");
        assert!(shadow.simulated().step_bytes > step_bytes);
        shadow.rest(Instant::from_secs(1));
        shadow.access(Instant::from_secs(2), PartitionId(0), b"k", 10);
        assert_eq!(
            shadow.simulated().present.peek(PartitionId(0), b"k", &Access::at(Instant::from_secs(2)), |_| ()),
            None
        );
    }
}
