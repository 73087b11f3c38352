//! Keys that only some of the replicas have, or whose latest value only some of them have.

use std::hash::Hash;

use sherwood_dispatch::Holders;
use sherwood_model::{Demand, Instant};

use super::Backend;
use super::key::FetchKey;

/// Keys with the same holders (replicas that have them), each with its waiter.
pub(super) struct PlacedFetch<K, W> {
    holders: Holders,
    /// Sequence number of the latest write that the answers must reflect.
    after: u64,
    keys: Vec<(FetchKey<K>, W)>,
}

impl<K, W> PlacedFetch<K, W> {
    /// Adds a key to the fetch from its holders, or begins one. O(fetches).
    pub(super) fn add(fetches: &mut Vec<Self>, holders: Holders, after: u64, key: FetchKey<K>, waiter: W) {
        match fetches.iter_mut().find(|fetch| fetch.holders == holders && fetch.after == after) {
            Some(fetch) => fetch.keys.push((key, waiter)),
            None => fetches.push(Self { holders, after, keys: vec![(key, waiter)] }),
        }
    }
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Fetches keys from the replicas that have them, in one fetch for each set of replicas.
    pub(super) fn fetch_where_placed(
        &mut self,
        now: Instant,
        demand: &Demand,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) {
        let mut fetches = Vec::new();
        for (key, waiter) in keys {
            let holders = self.holders(&key.key);
            PlacedFetch::add(&mut fetches, holders, demand.after, key, waiter);
        }
        self.fetch_placed(now, demand, fetches, entropy);
    }

    pub(super) fn fetch_placed(
        &mut self,
        now: Instant,
        demand: &Demand,
        fetches: Vec<PlacedFetch<K, W>>,
        entropy: u64,
    ) {
        for PlacedFetch { holders, after, keys } in fetches {
            let demand = Demand { after, ..*demand };
            self.dispatch.handle_fetch_from(now, holders, &demand, keys, entropy);
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
