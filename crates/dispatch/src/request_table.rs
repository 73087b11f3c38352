//! The table of replicas that work for each request.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use sherwood_model::{Instant, ReplicaId, RequestId, SeededState};
use smallvec::SmallVec;

use crate::rules::ATTEMPTS_MAX;

/// Maximum number of entries of a table. Beyond it, the entries that expire first are dropped.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// Records for each request the replicas at which its calls were started, until the last of these
/// calls expires. Every call of a method takes time logarithmic in the number of entries. Leases
/// last longer than fetches, so entries do not expire in the order in which they were added.
#[derive(Clone, Debug)]
pub(crate) struct RequestTable {
    requests: HashMap<RequestId, Entry, SeededState>,
    /// The requests by the time at which their entries expire.
    expiries: BTreeSet<(Instant, RequestId)>,
}

#[derive(Clone, Debug)]
struct Entry {
    replicas: SmallVec<[ReplicaId; 2]>,
    expires_at: Instant,
}

impl RequestTable {
    pub(crate) fn new(hash: SeededState) -> Self {
        Self { requests: HashMap::with_hasher(hash), expiries: BTreeSet::new() }
    }

    /// Records that a call of a request starts at a replica. The request's entry expires at
    /// `expires_at`, or later if an earlier call of the request expires later.
    pub(crate) fn note(&mut self, now: Instant, request: RequestId, replica: ReplicaId, expires_at: Instant) {
        self.expire(now);
        if self.requests.len() >= ENTRIES_MAX && !self.requests.contains_key(&request) {
            self.remove_first();
        }
        let none = || Entry { replicas: SmallVec::new(), expires_at };
        let entry = self.requests.entry(request).or_insert_with(none);
        self.expiries.remove(&(entry.expires_at, request));
        entry.expires_at = entry.expires_at.max(expires_at);
        self.expiries.insert((entry.expires_at, request));
        if entry.replicas.len() < ATTEMPTS_MAX && !entry.replicas.contains(&replica) {
            entry.replicas.push(replica);
        }
    }

    /// Removes the entries that have expired, and returns true if there were any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let before = self.requests.len();
        while self.next_timeout().is_some_and(|at| at <= now) {
            self.remove_first();
        }
        self.requests.len() < before
    }

    /// Returns the time at which the next entry expires.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    fn remove_first(&mut self) {
        if let Some((_, request)) = self.expiries.pop_first() {
            self.requests.remove(&request);
        }
    }

    /// Returns the replicas that work for a request, as far as its entry has not expired.
    pub(crate) fn replicas(&self, now: Instant, request: RequestId) -> &[ReplicaId] {
        let entry = self.requests.get(&request).filter(|entry| entry.expires_at > now);
        entry.map_or(&[], |entry| &entry.replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u64) -> RequestId {
        RequestId::new(number).unwrap()
    }

    #[test]
    fn replicas_that_worked_for_a_request_are_remembered_until_its_last_call_expires() {
        let mut table = RequestTable::new(SeededState::new(1));
        let at = Instant::from_millis;
        table.note(at(0), request(1), ReplicaId(3), at(10));
        table.note(at(4), request(1), ReplicaId(5), at(14));
        table.note(at(4), request(1), ReplicaId(5), at(14));
        assert_eq!(table.replicas(at(13), request(1)), [ReplicaId(3), ReplicaId(5)]);
        assert_eq!(table.replicas(at(14), request(1)), []);
        assert_eq!(table.replicas(at(4), request(2)), []);
        table.note(at(20), request(2), ReplicaId(1), at(30));
        assert_eq!((table.requests.len(), table.expiries.len()), (1, 1));
    }

    #[test]
    fn long_call_keeps_its_request_in_the_table_without_delaying_the_expiry_of_others() {
        let mut table = RequestTable::new(SeededState::new(1));
        let at = Instant::from_millis;
        table.note(at(0), request(1), ReplicaId(3), at(90));
        table.note(at(1), request(2), ReplicaId(4), at(11));
        table.note(at(2), request(1), ReplicaId(5), at(12));
        assert_eq!(table.next_timeout(), Some(at(11)));
        assert!(!table.expire(at(10)) && table.expire(at(12)));
        assert_eq!(table.requests.len(), 1);
        assert_eq!(table.replicas(at(89), request(1)), [ReplicaId(3), ReplicaId(5)]);
        // It is not the one that leaves a full table.
        for number in 2..=ENTRIES_MAX as u64 + 1 {
            table.note(at(20), request(number), ReplicaId(0), at(30));
        }
        assert_eq!((table.requests.len(), table.expiries.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(table.replicas(at(21), request(1)), [ReplicaId(3), ReplicaId(5)]);
        assert_eq!(table.replicas(at(21), request(2)), []);
    }

    #[test]
    fn full_table_drops_the_requests_that_expire_first() {
        let mut table = RequestTable::new(SeededState::new(1));
        let (now, later) = (Instant::ZERO, Instant::from_secs(9));
        for number in 1..=ENTRIES_MAX as u64 + 2 {
            table.note(now, request(number), ReplicaId(0), later);
        }
        assert_eq!((table.requests.len(), table.expiries.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(table.replicas(now, request(2)), []);
        assert_eq!(table.replicas(now, request(3)), [ReplicaId(0)]);
    }
}
