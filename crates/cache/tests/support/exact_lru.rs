//! An exact least-recently-used cache, written independently of the engine: a map, an order, a sum.

use std::collections::BTreeMap;

/// Keys with their charges, at most `budget` bytes of them.
#[derive(Debug)]
pub(crate) struct ExactLru<K> {
    budget: u64,
    used: u64,
    uses: u64,
    /// Last use of each key, and its charge.
    keys: BTreeMap<K, (u64, u64)>,
    /// Keys by their last use.
    order: BTreeMap<u64, K>,
}

impl<K: Clone + Ord> ExactLru<K> {
    /// Returns an empty cache of `budget` bytes.
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, used: 0, uses: 0, keys: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// True if the key is present; it is then the most recent.
    pub(crate) fn get(&mut self, key: &K) -> bool {
        let charge = self.remove(key);
        if let Some(charge) = charge {
            self.push(key.clone(), charge);
        }
        charge.is_some()
    }

    /// Inserts a key as the most recent and removes the least recent ones while the budget is
    /// exceeded. A key with a charge above the budget is not inserted, but its older entry is
    /// removed.
    pub(crate) fn set(&mut self, key: K, charge: u64) {
        self.remove(&key);
        if charge > self.budget {
            return;
        }
        self.push(key, charge);
        while self.used > self.budget {
            let (_, oldest) = self.order.pop_first().expect("bytes belong to keys");
            let (_, charge) = self.keys.remove(&oldest).expect("both maps hold the same keys");
            self.used -= charge;
        }
    }

    /// Removes a key; returns its charge.
    pub(crate) fn remove(&mut self, key: &K) -> Option<u64> {
        let (used_at, charge) = self.keys.remove(key)?;
        self.order.remove(&used_at);
        self.used -= charge;
        Some(charge)
    }

    /// Sum of the charges of the keys present.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    fn push(&mut self, key: K, charge: u64) {
        self.uses += 1;
        self.used += charge;
        self.order.insert(self.uses, key.clone());
        self.keys.insert(key, (self.uses, charge));
    }
}
