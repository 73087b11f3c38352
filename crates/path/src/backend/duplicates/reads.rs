//! Reads of a replicated store: sent to the duplicates that may be asked.

use std::collections::VecDeque;
use std::hash::Hash;

use sherwood_dispatch::{FetchError, Holders, Waiters};
use sherwood_model::{Demand, Instant};

use super::parked::ParkedRead;
use super::{Consistency, Duplicates, Session};
use crate::backend::placed::PlacedFetch;
use crate::backend::{Action, AnswerCache, Backend, FetchKey};

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Duplicates<K, V, W> {
    /// Returns the partition of a key, and the number that a duplicate must have applied for a read
    /// of the key in a session.
    pub(super) fn needed(&self, key: &K, session: Session) -> (usize, u64) {
        let partition = self.options.partition(key.as_ref());
        let stamp = match self.options.consistency {
            Consistency::Eventual => 0,
            Consistency::ReadYourWrites | Consistency::Causal => {
                session.stamp_in(self.epoch.1..=self.epoch.0)
            }
        };
        if stamp == 0 {
            return (partition, 0);
        }
        (partition, self.logs[partition].needed(key, |change| change.stamp <= stamp))
    }

    /// Returns the session of a client that has just read, or whose change was acknowledged.
    pub(super) fn session(&self) -> Session {
        Session { epoch: self.epoch.0, stamp: self.stamp }
    }
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Fetches a query's misses as [`handle_fetch`](Self::handle_fetch) does. The values reflect
    /// what the session has done and seen, as the store's [`Consistency`] says: a key whose latest
    /// changes no duplicate has applied yet waits, at most for the timeout.
    pub fn handle_fetch_in_session(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        demand: &Demand,
        session: Session,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) {
        self.advance(now, cache);
        self.fetch_in_session(now, demand, session, keys, entropy);
        self.keep_answers(now, cache);
    }

    /// Returns the session of a client that has read all it asked for by now; none if the store has
    /// no duplicates, or reads do not count.
    #[must_use]
    pub fn session_of_reader(&self) -> Option<Session> {
        let duplicates = self.duplicates.as_ref()?;
        (duplicates.options.consistency == Consistency::Causal).then(|| duplicates.session())
    }

    /// Fetches keys in a session, in one fetch for each partition and change that is needed there.
    pub(in crate::backend) fn fetch_in_session(
        &mut self,
        now: Instant,
        demand: &Demand,
        session: Session,
        keys: impl IntoIterator<Item = (FetchKey<K>, W)>,
        entropy: u64,
    ) {
        let Some(duplicates) = &mut self.duplicates else {
            return self.fetch(now, demand, keys, entropy);
        };
        let (timeout, most) = (self.options.dispatch.timeout, self.options.dispatch.waiters_max as usize);
        let mut fetches: Vec<PlacedFetch<K, W>> = Vec::new();
        for (key, waiter) in keys {
            let (partition, after) = duplicates.needed(&key.key, session);
            let demand = Demand { after, ..*demand };
            let log = &duplicates.logs[partition];
            // What belongs to another store is never read, whatever comes.
            if log.foreign().is_some() || log.is_readable(after) || duplicates.parked.len() >= most {
                let holders = Holders::Partition(partition as u32);
                PlacedFetch::add(&mut fetches, holders, after, key, waiter);
            } else {
                let expires_at = now + timeout;
                duplicates.parked.0.push_back(ParkedRead {
                    partition,
                    key,
                    waiter,
                    demand,
                    asked_at: now,
                    expires_at,
                });
                self.due = Instant::ZERO;
            }
        }
        self.fetch_placed(now, demand, fetches, entropy);
    }

    /// Sends the reads of a partition that have waited for changes which a duplicate has now.
    pub(super) fn resume_reads(&mut self, now: Instant, partition: usize) {
        let Some(duplicates) = &mut self.duplicates else { return };
        let (parked, log) = (&mut duplicates.parked.0, &duplicates.logs[partition]);
        let may_go =
            |read: &ParkedRead<K, W>| read.partition == partition && log.is_readable(read.demand.after);
        if !parked.iter().any(may_go) {
            return;
        }
        let holders = Holders::Partition(partition as u32);
        let (ready, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(parked).into_iter().partition(may_go);
        *parked = rest;
        for ParkedRead { key, waiter, demand, asked_at, .. } in ready {
            self.dispatch.handle_fetch_since(now, asked_at, holders, &demand, [(key, waiter)], 0);
        }
    }

    /// Ends the reads that have waited for the timeout.
    pub(super) fn end_parked_reads(&mut self, now: Instant) {
        let Some(duplicates) = &mut self.duplicates else { return };
        while duplicates.parked.next_due().is_some_and(|due| due <= now)
            && let Some(ParkedRead { key, waiter, .. }) = duplicates.parked.0.pop_front()
        {
            let result = Err(FetchError::Timeout { timeout: self.options.dispatch.timeout });
            self.actions.push_back(Action::Deliver { key, result, waiters: Waiters::new(waiter) });
        }
    }
}
