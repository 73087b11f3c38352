//! Keys that only some of the replicas have, or whose latest value only some of them have.

use std::hash::Hash;

use sherwood_dispatch::Holders;
use sherwood_model::{Demand, Instant};

use super::Backend;
use super::key::FetchKey;

/// Keys with the same holders (replicas that have them), each with its waiter.
type PlacedKeys<K, W> = Vec<(FetchKey<K>, W)>;

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Fetches keys from the replicas that have them, in one fetch for each set of replicas.
    pub(super) fn fetch_where_placed(
        &mut self,
        now: Instant,
        demand: &Demand,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) {
        let mut fetches: Vec<(Holders, PlacedKeys<K, W>)> = Vec::new();
        for (key, waiter) in keys {
            let holders = self.holders(&key.key);
            match fetches.iter_mut().find(|(of, _)| *of == holders) {
                Some((_, keys)) => keys.push((key, waiter)),
                None => fetches.push((holders, vec![(key, waiter)])),
            }
        }
        for (holders, keys) in fetches {
            self.dispatch.handle_fetch_from(now, holders, demand, keys, entropy);
        }
    }

    /// Returns the replicas that may be asked for a key.
    fn holders(&self, key: &K) -> Holders {
        if let Some(replica) = self.acknowledged.get(key) {
            return Holders::One(*replica);
        }
        let placed = self.options.placement.holders(key.as_ref());
        if !self.options.replicas_may_lag() || !self.fences.is_fenced(key) {
            return placed;
        }
        placed.replicas(self.options.replicas).next().map_or(placed, Holders::One)
    }
}
