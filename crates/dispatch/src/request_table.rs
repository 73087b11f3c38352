//! The replicas that work for requests.

use std::collections::VecDeque;

use hashbrown::HashMap;
use sherwood_model::{Instant, ReplicaId, RequestId, SeededState};
use smallvec::SmallVec;

use crate::fetch::ATTEMPTS_MAX;

/// Most entries of a table. Beyond it the oldest ones leave.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// The replicas that calls of a request were started at, until the entry expires. Constant time a
/// call on average.
#[derive(Clone, Debug)]
pub(crate) struct RequestTable {
    requests: HashMap<RequestId, Entry, SeededState>,
    /// The requests by the time at which an entry may expire, once for each call.
    expiries: VecDeque<(Instant, RequestId)>,
}

#[derive(Clone, Debug)]
struct Entry {
    replicas: SmallVec<[ReplicaId; 2]>,
    expires_at: Instant,
}

impl RequestTable {
    pub(crate) fn new(hash: SeededState) -> Self {
        Self { requests: HashMap::with_hasher(hash), expiries: VecDeque::new() }
    }

    /// Notes that a call of a request starts at a replica. The entry expires at `expires_at`, no
    /// earlier than those before it.
    pub(crate) fn note(&mut self, now: Instant, request: RequestId, replica: ReplicaId, expires_at: Instant) {
        while let Some(&(at, _)) = self.expiries.front()
            && (at <= now || self.expiries.len() >= ENTRIES_MAX)
        {
            self.remove_first();
        }
        let none = || Entry { replicas: SmallVec::new(), expires_at };
        let entry = self.requests.entry(request).or_insert_with(none);
        entry.expires_at = expires_at;
        if entry.replicas.len() < ATTEMPTS_MAX && !entry.replicas.contains(&replica) {
            entry.replicas.push(replica);
        }
        self.expiries.push_back((expires_at, request));
    }

    /// Removes the first expiry, and its request unless later calls have kept it.
    fn remove_first(&mut self) {
        if let Some((at, request)) = self.expiries.pop_front()
            && self.requests.get(&request).is_some_and(|entry| entry.expires_at <= at)
        {
            self.requests.remove(&request);
        }
    }

    /// Returns the replicas that work for a request.
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
    fn replicas_of_a_request_are_known_until_its_last_call_expires() {
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
    fn oldest_requests_leave_a_full_table() {
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
