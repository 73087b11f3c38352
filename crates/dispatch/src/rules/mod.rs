//! The four rules of a dispatcher: the order of a queue, the choice of replicas, admission, and the
//! number of attempts.
//!
//! The dispatcher knows the possible choices: the replicas that are up and have room, the live
//! attempts, the budget. A rule chooses among them. Each rule has a file here and a name in the
//! configuration ([`names`]); the dispatcher holds one rule of each kind as an enum, so that a rule
//! costs no allocation and no indirect call.
//!
//! A rule is pure: time and randomness are arguments. It may keep state.

mod best;
mod c3;
mod deadline;
mod delay;
mod edf;
mod fifo;
mod fixed;
mod hedge;
mod idle;
pub(crate) mod names;
mod one;
mod open;
mod peak_ewma;
mod power_of_two;
mod prequal;
mod random;
mod round_robin;
mod shares;
mod speeds;
mod tickets;
mod tied;
mod tokens;

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use smallvec::SmallVec;

use crate::Estimate;

/// The load of a replica that is up and has room for one more attempt (call).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaLoad {
    pub(crate) replica: ReplicaId,
    /// Calls in flight to the replica from this dispatcher.
    pub(crate) in_flight_calls: u32,
    /// Attempts of this dispatcher that wait in the replica's queue.
    pub(crate) queued_calls: u32,
    /// Expectation of the replica's queue about the attempt; none if no rule uses it.
    pub(crate) estimate: Option<Estimate>,
}

impl ReplicaLoad {
    /// Calls in flight to the replica and attempts queued for it.
    pub(crate) fn calls(&self) -> u64 {
        u64::from(self.in_flight_calls) + u64::from(self.queued_calls)
    }
}

/// Position of an attempt in a replica's queue: the least starts first, equal ones in the order of
/// arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Class of the attempt, compared first.
    pub(crate) class: u8,
    /// Time of the attempt, compared within a class.
    pub(crate) at: Instant,
}

/// Maximum number of live attempts of one fetch, and of replicas that are picked together.
pub(crate) const ATTEMPTS_MAX: usize = 8;

/// Replicas that a [`Balancer`] picks, each once.
pub(crate) type Picks = SmallVec<[ReplicaId; ATTEMPTS_MAX]>;

/// Decides which attempt a replica's queue starts next.
pub(crate) trait QueueOrder {
    /// Returns the rank of an attempt that arrives at `now`, of class 0 or 1.
    fn rank(&self, now: Instant, demand: &Demand) -> Rank;

    /// Returns a later rank for the head of a queue that is not worth starting now; none if it is.
    /// It `arrived` at the queue then. `quickest` is a time that few of such calls stay below. An
    /// attempt is deferred once.
    fn defer(&self, now: Instant, arrived: Instant, demand: &Demand, quickest: Duration) -> Option<Rank> {
        let _ = (now, arrived, demand, quickest);
        None
    }
}

/// Chooses the replicas of attempts.
pub(crate) trait Balancer {
    /// Pushes at most `want` replicas of `usable` onto `picks`, the best first. No pick at all
    /// refuses the fetch. `usable` has at least one replica and ascends by replica; `entropy` is 64
    /// fresh random bits.
    fn choose(
        &mut self,
        now: Instant,
        demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    );

    /// Notifies the balancer that an attempt is given to `replica`, which it has chosen. Of the
    /// chosen replicas some may be left out, for example when the budget is empty.
    #[inline]
    fn asked(&mut self, now: Instant, replica: ReplicaId) {
        let _ = (now, replica);
    }

    /// Notifies the balancer of what a replica says about itself.
    #[inline]
    fn said(&mut self, now: Instant, replica: ReplicaId, figures: &Figures) {
        let _ = (now, replica, figures);
    }

    /// Notifies the balancer that a call of `replica` has ended, or made progress.
    #[inline]
    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        let _ = (replica, completion);
    }
}

/// Figures that a server tells about itself, with its answers or when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Calls of all clients that wait at the server or are served by it.
    pub calls: u32,
    /// Time that the latest calls spent at the server; for `c3`, without waiting.
    pub latency: Duration,
}

/// The time, duration and outcome of a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) at: Instant,
    /// Time between the start and the end of the call.
    pub(crate) took: Duration,
    /// Time between the last report of the call's progress, or its start, and its end.
    pub(crate) gap: Duration,
    /// The longest time without progress, of which `gap` is the last.
    pub(crate) longest_gap: Duration,
    pub(crate) end: CallEnd,
}

impl Completion {
    /// Returns the completion of a call that reported no progress.
    pub(crate) fn of(at: Instant, took: Duration, end: CallEnd) -> Self {
        Self { at, took, gap: took, longest_gap: took, end }
    }
}

/// The way in which a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The replica has answered.
    Answered,
    /// The call ended without an answer.
    Failed,
    /// The call was cancelled, because of the timeout or because its answer was no longer needed.
    Cancelled,
}

/// Decides whether a fetch is admitted.
pub(crate) trait Admission {
    /// Admits or refuses a fetch before its first attempts. `picked` are the replicas that these
    /// would go to.
    fn judge(&mut self, now: Instant, demand: &Demand, picked: &[ReplicaLoad]) -> Verdict;
}

/// Decision of [`Admission`] about a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admit,
    /// Refuses the fetch before anything is sent.
    Reject {
        /// The time after which an attempt would have been expected to end.
        expected: Duration,
    },
}

/// Admits best effort, and a fetch for which one of the picked replicas is `acceptable`. A replica
/// without an estimate is.
fn reject_unless(
    now: Instant,
    demand: &Demand,
    picked: &[ReplicaLoad],
    acceptable: impl Fn(&Estimate) -> bool,
) -> Verdict {
    let is_acceptable = |load: &ReplicaLoad| load.estimate.as_ref().is_none_or(&acceptable);
    if demand.best_effort || picked.iter().any(is_acceptable) {
        return Verdict::Admit;
    }
    let ends = picked.iter().filter_map(|load| load.estimate).map(|estimate| estimate.completes_at);
    ends.min().map_or(Verdict::Admit, |end| Verdict::Reject { expected: end - now })
}

/// Decides how many attempts a fetch gets besides retries.
pub(crate) trait Replication {
    /// Plans the attempts of a new fetch.
    fn plan(&mut self, demand: &Demand, tier: &Tier) -> AttemptPlan;

    /// Notifies the rule that a call has ended.
    #[inline]
    fn completed(&mut self, completion: &Completion) {
        let _ = completion;
    }

    /// Notifies the rule that a lease has ended, which held its slot for `took`.
    #[inline]
    fn held(&mut self, took: Duration) {
        let _ = took;
    }

    /// Returns the time after which a fetch gets the copies that were planned for later, counted
    /// from a report of progress; none leaves the planned time as it is.
    #[inline]
    fn progressed(&self) -> Option<Duration> {
        None
    }

    /// Decides what happens to the other attempts of a fetch when attempt `number` starts.
    #[inline]
    fn started(&mut self, demand: &Demand, number: u32) -> AtStart {
        let _ = (demand, number);
        AtStart::KeepOthers
    }
}

/// The state of a backend's replicas when attempts are planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tier {
    pub(crate) now: Instant,
    /// Calls that may be in flight at all replicas together.
    pub(crate) slots: u64,
    /// Number of attempts in the common queue of the tier, which wait for any replica.
    pub(crate) waiting: u32,
}

/// The treatment of the other attempts of a fetch when one attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtStart {
    /// The other attempts continue.
    KeepOthers,
    /// The queued attempts are cancelled, and no further copies are made.
    CancelQueued,
}

/// The attempts of a fetch. Extra attempts are left out if no other replica is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptPlan {
    /// Number of attempts that are made at once, 1 to 8.
    pub(crate) now: u8,
    /// Time after which attempts are added if the fetch has not ended, and their number.
    pub(crate) later: Option<(Duration, u8)>,
    pub(crate) terms: CopyTerms,
}

impl AttemptPlan {
    /// A single attempt.
    pub(crate) const ONE: Self = Self { now: 1, later: None, terms: CopyTerms::Budget };
}

/// Conditions under which the copies of an [`AttemptPlan`] are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyTerms {
    /// They are paid from the budget of extra attempts, and left out if it is empty.
    Budget,
    /// They are part of the plan and cost the budget nothing.
    Planned,
    /// As `Budget`, and only at replicas where nothing waits or runs.
    Idle,
}

/// Treatment of the remaining attempts of a fetch whose keys all have their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CancelRule {
    /// The remaining attempts start and run as if they were needed.
    Never,
    /// Remaining attempts that are queued leave the queue, started ones run on (sPARE, section 2:
    /// at latencies of milliseconds cancelling costs more than it saves).
    #[default]
    Queued,
    /// All remaining attempts are cancelled.
    Always,
}

/// Place of copies in the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtraOrder {
    /// Copies start when nothing else waits.
    #[default]
    Behind,
    /// Copies wait like first attempts.
    Equal,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns loads of replicas, given as number and calls in flight.
    pub(crate) fn loads_of(replicas: &[(u16, u32)]) -> Vec<ReplicaLoad> {
        let load = |&(replica, in_flight_calls)| ReplicaLoad {
            replica: ReplicaId(replica),
            in_flight_calls,
            queued_calls: 0,
            estimate: None,
        };
        replicas.iter().map(load).collect()
    }

    /// Returns the numbers of the replicas that the balancer `rule` picks.
    pub(crate) fn picked(
        rule: &mut impl Balancer,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
    ) -> Vec<u16> {
        let mut picks = Picks::new();
        rule.choose(Instant::ZERO, &Demand::default(), usable, want, entropy, &mut picks);
        picks.as_slice().iter().map(|replica| replica.0).collect()
    }

    /// A balancer that records the outcomes of calls, and picks the replica with the shortest last
    /// latency; replicas without a latency come first.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Learning {
        pub(crate) seen: Vec<(ReplicaId, Completion)>,
    }

    impl Balancer for Learning {
        fn choose(
            &mut self,
            _: Instant,
            _: &Demand,
            usable: &[ReplicaLoad],
            want: usize,
            _: u64,
            picks: &mut Picks,
        ) {
            let last = |load: &ReplicaLoad| {
                let seen = self.seen.iter().rev().find(|(replica, _)| *replica == load.replica);
                seen.map(|(_, completion)| completion.took)
            };
            let mut loads = usable.to_vec();
            loads.sort_by_key(last);
            picks.extend(loads.iter().take(want).map(|load| load.replica));
        }

        fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
            self.seen.push((replica, *completion));
        }
    }
}
