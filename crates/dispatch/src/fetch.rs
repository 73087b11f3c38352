//! The two records behind a call: the fetch that wants keys, and its attempts at replicas.

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};
use smallvec::SmallVec;

use crate::replica::Replica;
use crate::slab::Id;
use crate::{AttemptKind, Failure, FetchError, Holders, Payer, WaitingId};

/// Keys that are fetched together, until each has ended and no attempt is live.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    /// The keys. The id of a key that has ended stays in the list and is invalid.
    pub(crate) keys: Vec<Id>,
    /// Number of keys of the fetch that have not ended.
    pub(crate) open: usize,
    /// The demands (deadline, class, urgency) of all waiters, combined.
    pub(crate) demand: Demand,
    /// The time at which the keys were asked for.
    pub(crate) asked_at: Instant,
    /// The end of the backend's timeout, when keys without an answer time out. The deadline of
    /// `demand` is the callers' and does not move it.
    pub(crate) expires_at: Instant,
    /// The replicas that may be asked for the keys.
    pub(crate) holders: Holders,
    /// Attempts of the fetch that are queued or started, at most
    /// [`ATTEMPTS_MAX`](crate::rules::ATTEMPTS_MAX).
    pub(crate) live: SmallVec<[Id; 2]>,
    /// Number of attempts that were given to a replica, the queued ones included.
    pub(crate) made: u32,
    /// Number of attempts that were started as calls.
    pub(crate) started: u32,
    /// Number of attempts in `made` that were retries.
    pub(crate) retries: u32,
    /// The time at which further attempts are made, and which ones.
    pub(crate) later: Option<(Instant, Later)>,
    /// True if no further copies of this fetch are made, because the replication rule cancelled
    /// them when an attempt started.
    pub(crate) is_tied: bool,
    /// The replica at which the last attempt failed. A retry that waits for any replica does not
    /// start there.
    pub(crate) avoids: Option<ReplicaId>,
    /// The lease, if this is one (a fetch without keys).
    pub(crate) lease: Option<Lease>,
    /// State of the fetch at the rate of its tenant.
    pub(crate) paid: Paid,
    /// Keys that a replica did not have, while others were still asked for them, if such an answer
    /// is not enough ([`Options::misses_wait`](crate::Options::misses_wait)).
    pub(crate) missed: Vec<Id>,
    /// The failures of attempts. Boxed since they are rare.
    pub(crate) failures: Option<Box<Failures>>,
}

/// The failures of a fetch's attempts.
#[derive(Clone, Debug)]
pub(crate) struct Failures {
    pub(crate) latest: Failure,
    /// The replicas at which attempts have failed. Copies do not go there.
    at: SmallVec<[ReplicaId; 2]>,
}

/// A lease: a slot that a connection holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub(crate) connection: Id,
    /// The maximum duration.
    pub(crate) lasts: Duration,
}

/// Attempts that are planned for a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// Copies, this number at most, beside the attempts that are live.
    Copies(u8),
    /// A retry of a fetch without live attempts, which is paid from the budget already.
    Retry,
    /// The end of a lease.
    EndLease,
}

/// State of a fetch at the rate of its tenant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paid {
    /// The number of the fetch while it waits for units.
    pub(crate) waiting: Option<WaitingId>,
    /// The source of its units.
    pub(crate) payer: Payer,
}

/// An attempt to fetch keys from one replica, or to hold one of its slots.
#[derive(Clone, Debug)]
pub(crate) struct Attempt<K> {
    pub(crate) fetch: Id,
    /// The number of earlier attempts of the fetch.
    pub(crate) number: u32,
    pub(crate) kind: AttemptKind,
    /// The attempt's replica; none while the attempt waits in the queue of the tier.
    pub(crate) replica: Option<ReplicaId>,
    /// The time at which the keys were asked for, or a further attempt was made.
    pub(crate) since: Instant,
    pub(crate) state: AttemptState,
    /// The time of the start, or of the latest report of progress.
    pub(crate) progress_at: Instant,
    /// The longest time between two reports of progress, or the start and the first.
    pub(crate) longest_gap: Duration,
    /// The keys to ask for; moved into the call when the attempt starts.
    pub(crate) keys: Vec<K>,
    /// The ids of `keys`; none if they are all keys of the fetch.
    pub(crate) asked: Option<Vec<Id>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptState {
    /// The attempt waits in the queue of its replica or of the tier.
    Queued,
    /// The attempt was sent to the replica as a call at this time; [`Instant::NEVER`] while the
    /// call waits for a turn that a scheduler elsewhere gives.
    Started(Instant),
}

impl<K> Attempt<K> {
    /// Returns the replica of a started attempt. Panics if the attempt has none yet.
    pub(crate) fn server(&self) -> ReplicaId {
        self.replica.expect("a started attempt has a replica")
    }
}

impl Fetch {
    /// Returns a fetch without keys.
    pub(crate) fn new(asked_at: Instant, expires_at: Instant, holders: Holders, demand: &Demand) -> Self {
        Self {
            keys: Vec::new(),
            open: 0,
            demand: *demand,
            asked_at,
            expires_at,
            holders,
            live: SmallVec::new(),
            made: 0,
            started: 0,
            retries: 0,
            later: None,
            is_tied: false,
            avoids: None,
            lease: None,
            paid: Paid::default(),
            missed: Vec::new(),
            failures: None,
        }
    }

    /// Returns true if a waiting attempt of this fetch may start at `replica`, one of `replicas` of
    /// them, once it has room.
    pub(crate) fn may_wait_for(&self, replica: &Replica, replicas: usize) -> bool {
        let is_avoided = self.avoids == Some(replica.id);
        replica.holds(self.holders, replicas) && !is_avoided && replica.is_usable(self.holders)
    }

    /// Returns the demand with the end of the timeout as the deadline, if it has none.
    pub(crate) fn due(&self) -> Demand {
        Demand { deadline: Some(self.demand.deadline.unwrap_or(self.expires_at)), ..self.demand }
    }

    /// Notes the failure of an attempt.
    pub(crate) fn note_failure(&mut self, replica: ReplicaId, failure: Failure) {
        let mut at = self.failures.take().map_or_else(SmallVec::new, |failures| failures.at);
        if !at.contains(&replica) {
            at.push(replica);
        }
        self.failures = Some(Box::new(Failures { latest: failure, at }));
    }

    /// The replicas at which attempts have failed.
    pub(crate) fn failed_at(&self) -> &[ReplicaId] {
        self.failures.as_ref().map_or(&[], |failures| &failures.at)
    }

    /// Returns the error of the fetch's failed attempts; none if no attempt has failed.
    pub(crate) fn failed(&self) -> Option<FetchError> {
        self.failures.as_ref().map(|failures| self.error(failures.latest.clone()))
    }

    /// Returns `failure` as the error of a key.
    pub(crate) fn error(&self, Failure { kind, reason }: Failure) -> FetchError {
        FetchError::Failed { kind, reason, attempts: self.started }
    }
}
