//! Rules by name, as the configuration gives them.
//!
//! A new rule is a file beside this one, a variant of the choice and of the rule below, and its
//! name.

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId, StoreLayout, did_you_mean};
use thiserror::Error;

use super::c3::C3;
use super::deadline::Deadline;
use super::delay::Delay;
use super::edf::Edf;
use super::fifo::Fifo;
use super::fixed::Fixed;
use super::hedge::Hedge;
use super::idle::Idle;
use super::one::One;
use super::open::Open;
use super::peak_ewma::PeakEwma;
use super::power_of_two::PowerOfTwo;
use super::prequal::Prequal;
use super::random::Random;
use super::round_robin::RoundRobin;
use super::tickets::{AllTickets, Tickets};
use super::tied::Tied;
use super::tokens::Tokens;
use super::{
    Admission, AtStart, AttemptPlan, Balancer, Completion, Figures, Picks, QueueOrder, Rank, ReplicaLoad,
    Replication, Tier, Verdict,
};
use sherwood_model::Percent;

/// The order in which a replica's queue starts attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueChoice {
    /// First come, first served.
    #[default]
    Fifo,
    /// The earliest deadline first; a call without one ranks by its timeout, best effort last.
    Edf {
        /// The percentile of a server's latencies (α): a head of the queue with less time left than
        /// that is deferred.
        alpha: Percent,
    },
}

/// The way in which replicas are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BalanceChoice {
    /// The less loaded of two replicas drawn at random.
    #[default]
    PowerOfTwo,
    /// All replicas in turn.
    RoundRobin,
    /// A replica drawn at random.
    Random,
    /// The one of two replicas drawn at random whose queue expects to meet the deadline, or to end
    /// earlier.
    Tickets,
    /// The one of all replicas whose queue expects to meet the deadline, or to end earlier.
    AllTickets,
    /// The one with the least last latency of those that have a token, for which attempts wait
    /// together (TAD of sPARE). A token is a call that may be in flight at the replica
    /// ([`Options::in_flight_calls_max`](crate::Options::in_flight_calls_max)).
    Tokens {
        /// Number of replicas that are compared, drawn at random; 0 for all.
        lookups: u32,
        /// Time in which a latency that is not renewed halves; zero for never.
        age: Duration,
    },
    /// The one of two replicas drawn at random with the lower latency times load.
    PeakEwma {
        /// Time over which latencies are averaged.
        age: Duration,
    },
    /// The one with the least latency and cube of its queue (C3).
    C3 {
        /// Time in which a latency that is not renewed halves; zero for never, as published.
        age: Duration,
    },
    /// The quickest of those that do not have more calls than most others (Prequal).
    Prequal {
        /// Time in which a latency that is not renewed halves; zero for never.
        age: Duration,
    },
}

/// The condition under which a fetch is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmitChoice {
    /// Every fetch is admitted.
    #[default]
    Open,
    /// A fetch is admitted if it is expected to meet its deadline, and to make no other one miss
    /// its.
    Deadline {
        /// The share of missed deadlines for which a controller chooses the percentile of the
        /// estimates ([`Options::beta`](crate::Options::beta)); none leaves that as it is.
        target: Option<Percent>,
    },
    /// A fetch is admitted if it is expected to wait no longer than a target.
    Delay {
        /// The longest queueing delay.
        target: Duration,
    },
}

/// The number of attempts of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopiesChoice {
    /// A single attempt at a time.
    #[default]
    One,
    /// As many attempts at once as the factor says, as long as there are slots for them.
    Fixed {
        /// Number of attempts, 1 to 8 and at most one for each replica.
        factor: u8,
    },
    /// A second attempt where the first has not ended after a percentile of latencies.
    Hedge {
        /// The percentile.
        percentile: Percent,
        /// Least time before the second attempt.
        min: Duration,
    },
    /// Attempts in the queues of as many replicas, of which the first that starts removes the
    /// others.
    Tied {
        /// Number of attempts, 1 to 8 and at most one for each replica.
        factor: u8,
    },
    /// Further attempts only at replicas where nothing waits or runs.
    Idle {
        /// Number of attempts with those, 1 to 8 and at most one for each replica.
        factor: u8,
    },
}

/// The reason for which a name chooses no rule. The configuration must be changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// No rule has that name.
    #[error("`{key}` is {name:?}, which is no rule; choose {known}{meant}")]
    Unknown {
        /// The configuration key that was given the name.
        key: &'static str,
        /// The name that no rule has.
        name: String,
        /// The names that can be chosen, as a list.
        known: String,
        /// The question for the one that was probably meant; may be empty.
        meant: String,
    },
}

impl QueueChoice {
    /// Returns the order of a replica's queue called `name`.
    ///
    /// # Errors
    /// If no order has that name.
    pub fn by_name(name: &str) -> Result<Self, RuleError> {
        choose("queue", name, &[("fifo", Self::Fifo), ("edf", Self::Edf { alpha: Percent::ALPHA })])
    }

    /// Returns the percentile of latencies that the order uses; none if it uses no latencies.
    pub(crate) fn alpha(self) -> Option<Percent> {
        match self {
            Self::Fifo => None,
            Self::Edf { alpha } => Some(alpha),
        }
    }
}

impl BalanceChoice {
    /// Returns the choice of replicas called `name`.
    ///
    /// ```
    /// use sherwood_dispatch::{BalanceChoice, RuleError};
    /// assert_eq!(BalanceChoice::by_name("round-robin")?, BalanceChoice::RoundRobin);
    /// let refusal = BalanceChoice::by_name("token").unwrap_err().to_string();
    /// assert!(refusal.ends_with("did you mean \"tokens\"?"), "{refusal}");
    /// # Ok::<(), RuleError>(())
    /// ```
    ///
    /// # Errors
    /// If no such rule has that name.
    pub fn by_name(name: &str) -> Result<Self, RuleError> {
        let built = [
            ("power-of-two", Self::PowerOfTwo),
            ("round-robin", Self::RoundRobin),
            ("random", Self::Random),
            ("tickets", Self::Tickets),
            ("tickets-all", Self::AllTickets),
            ("tokens", Self::Tokens { lookups: 0, age: AGE }),
            ("peak-ewma", Self::PeakEwma { age: AGE }),
            ("c3", Self::C3 { age: AGE }),
            ("prequal", Self::Prequal { age: AGE }),
        ];
        choose("balance", name, &built)
    }
}

impl AdmitChoice {
    /// The share of missed deadlines for which β is chosen; none if β stays as it is.
    #[must_use]
    pub const fn target(self) -> Option<Percent> {
        match self {
            Self::Deadline { target } => target,
            Self::Open | Self::Delay { .. } => None,
        }
    }

    /// Returns the admission rule called `name`.
    ///
    /// # Errors
    /// If no admission has that name.
    pub fn by_name(name: &str) -> Result<Self, RuleError> {
        let built = [
            ("open", Self::Open),
            ("deadline", Self::Deadline { target: None }),
            ("delay", Self::Delay { target: TARGET_DELAY }),
        ];
        choose("admit", name, &built)
    }
}

impl From<&StoreLayout> for CopiesChoice {
    /// Returns the rule by which the duplicates of a replicated store are asked.
    fn from(layout: &StoreLayout) -> Self {
        match layout.hedge {
            None => Self::Fixed { factor: layout.asked },
            // So few latencies are within the percentile that it is below the least delay.
            Some(min) => Self::Hedge { percentile: Percent::MIN, min },
        }
    }
}

impl CopiesChoice {
    /// Returns the rule for the number of attempts called `name`.
    ///
    /// # Errors
    /// If no replication has that name.
    pub fn by_name(name: &str) -> Result<Self, RuleError> {
        let built = [
            ("one", Self::One),
            ("fixed", Self::Fixed { factor: FACTOR }),
            ("hedge", Self::Hedge { percentile: Percent::HEDGE, min: HEDGE_MIN }),
            ("tied", Self::Tied { factor: FACTOR }),
            ("idle", Self::Idle { factor: FACTOR }),
        ];
        choose("copies", name, &built)
    }

    /// Returns the number of attempts at once that the rule may plan.
    #[must_use]
    pub fn factor(self) -> u8 {
        match self {
            Self::One | Self::Hedge { .. } => 1,
            Self::Fixed { factor } | Self::Tied { factor } | Self::Idle { factor } => factor,
        }
    }
}

/// Default of the longest queueing delay: the one for which DAGOR rejects.
const TARGET_DELAY: Duration = Duration::from_millis(20);
/// Default number of attempts of rules that make several at once.
const FACTOR: u8 = 2;
/// Default of the least time before a hedge.
const HEDGE_MIN: Duration = Duration::from_millis(1);
/// Default of the time in which latencies age.
const AGE: Duration = Duration::from_secs(5);

fn choose<T: Copy>(key: &'static str, name: &str, built: &[(&'static str, T)]) -> Result<T, RuleError> {
    if let Some((_, choice)) = built.iter().find(|(known, _)| *known == name) {
        return Ok(*choice);
    }
    let names: Vec<&'static str> = built.iter().map(|(name, _)| *name).collect();
    Err(RuleError::Unknown {
        key,
        name: name.to_owned(),
        known: names.join(", "),
        meant: did_you_mean(name, &names),
    })
}

/// The order of queues that the configuration chose.
#[derive(Clone, Debug)]
pub(crate) enum AnyOrder {
    Fifo(Fifo),
    Edf(Edf),
    #[cfg(test)]
    Test(fn(&Demand) -> Rank),
}

impl AnyOrder {
    /// Returns the order that was chosen for a backend with this timeout.
    pub(crate) fn new(choice: QueueChoice, timeout: Duration) -> Self {
        match choice {
            QueueChoice::Fifo => Self::Fifo(Fifo),
            QueueChoice::Edf { .. } => Self::Edf(Edf { timeout }),
        }
    }
}

impl QueueOrder for AnyOrder {
    fn rank(&self, now: Instant, demand: &Demand) -> Rank {
        match self {
            Self::Fifo(rule) => rule.rank(now, demand),
            Self::Edf(rule) => rule.rank(now, demand),
            #[cfg(test)]
            Self::Test(rule) => rule(demand),
        }
    }

    fn defer(&self, now: Instant, arrived: Instant, demand: &Demand, quickest: Duration) -> Option<Rank> {
        match self {
            Self::Fifo(rule) => rule.defer(now, arrived, demand, quickest),
            Self::Edf(rule) => rule.defer(now, arrived, demand, quickest),
            #[cfg(test)]
            Self::Test(_) => None,
        }
    }
}

/// The balancer (rule for replicas) that the configuration chose.
#[derive(Clone, Debug)]
pub(crate) enum AnyBalancer {
    PowerOfTwo(PowerOfTwo),
    RoundRobin(RoundRobin),
    Random(Random),
    Tickets(Tickets),
    AllTickets(AllTickets),
    Tokens(Tokens),
    PeakEwma(PeakEwma),
    C3(C3),
    Prequal(Prequal),
    #[cfg(test)]
    Test(fn(&[ReplicaLoad], &mut Picks)),
    #[cfg(test)]
    Learning(super::tests::Learning),
}

impl AnyBalancer {
    /// Returns true if the rule learns from the ends of calls.
    #[inline]
    pub(crate) fn learns(&self) -> bool {
        use AnyBalancer::{AllTickets, PowerOfTwo, Random, RoundRobin, Tickets};
        !matches!(self, PowerOfTwo(_) | RoundRobin(_) | Random(_) | Tickets(_) | AllTickets(_))
    }
}

impl From<BalanceChoice> for AnyBalancer {
    fn from(choice: BalanceChoice) -> Self {
        match choice {
            BalanceChoice::PowerOfTwo => Self::PowerOfTwo(PowerOfTwo),
            BalanceChoice::RoundRobin => Self::RoundRobin(RoundRobin::default()),
            BalanceChoice::Random => Self::Random(Random),
            BalanceChoice::Tickets => Self::Tickets(Tickets),
            BalanceChoice::AllTickets => Self::AllTickets(AllTickets),
            BalanceChoice::Tokens { lookups, age } => Self::Tokens(Tokens::new(lookups, age)),
            BalanceChoice::PeakEwma { age } => Self::PeakEwma(PeakEwma::new(age)),
            BalanceChoice::C3 { age } => Self::C3(C3::new(age)),
            BalanceChoice::Prequal { age } => Self::Prequal(Prequal::new(age)),
        }
    }
}

impl Balancer for AnyBalancer {
    fn choose(
        &mut self,
        now: Instant,
        demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        match self {
            Self::PowerOfTwo(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::RoundRobin(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::Random(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::Tickets(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::AllTickets(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::Tokens(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::PeakEwma(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::C3(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            Self::Prequal(rule) => rule.choose(now, demand, usable, want, entropy, picks),
            #[cfg(test)]
            Self::Test(rule) => rule(usable, picks),
            #[cfg(test)]
            Self::Learning(rule) => rule.choose(now, demand, usable, want, entropy, picks),
        }
    }

    #[inline]
    fn asked(&mut self, now: Instant, replica: ReplicaId) {
        match self {
            Self::Tokens(rule) => rule.asked(now, replica),
            Self::PeakEwma(rule) => rule.asked(now, replica),
            Self::C3(rule) => rule.asked(now, replica),
            Self::Prequal(rule) => rule.asked(now, replica),
            _ => {}
        }
    }

    fn said(&mut self, now: Instant, replica: ReplicaId, figures: &Figures) {
        match self {
            Self::C3(rule) => rule.said(now, replica, figures),
            Self::Prequal(rule) => rule.said(now, replica, figures),
            _ => {}
        }
    }

    #[inline]
    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        match self {
            Self::PowerOfTwo(rule) => rule.completed(replica, completion),
            Self::RoundRobin(rule) => rule.completed(replica, completion),
            Self::Random(rule) => rule.completed(replica, completion),
            Self::Tickets(rule) => rule.completed(replica, completion),
            Self::AllTickets(rule) => rule.completed(replica, completion),
            Self::Tokens(rule) => rule.completed(replica, completion),
            Self::PeakEwma(rule) => rule.completed(replica, completion),
            Self::C3(rule) => rule.completed(replica, completion),
            Self::Prequal(rule) => rule.completed(replica, completion),
            #[cfg(test)]
            Self::Test(_) => {}
            #[cfg(test)]
            Self::Learning(rule) => rule.completed(replica, completion),
        }
    }
}

/// The admission rule that the configuration chose.
#[derive(Clone, Debug)]
pub(crate) enum AnyAdmission {
    Open(Open),
    Deadline(Deadline),
    Delay(Delay),
    #[cfg(test)]
    Test(fn(&Demand) -> Verdict),
}

impl AnyAdmission {
    /// Returns the rule that was chosen for replicas that work on so many calls at a time, all
    /// together.
    pub(crate) fn new(choice: AdmitChoice, workers: u64) -> Self {
        match choice {
            AdmitChoice::Open => Self::Open(Open),
            AdmitChoice::Deadline { .. } => Self::Deadline(Deadline::new(workers)),
            AdmitChoice::Delay { target } => Self::Delay(Delay { target }),
        }
    }

    /// Returns true if the rule admits every fetch and need not be asked.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

impl Admission for AnyAdmission {
    fn judge(&mut self, now: Instant, demand: &Demand, picked: &[ReplicaLoad]) -> Verdict {
        match self {
            Self::Open(rule) => rule.judge(now, demand, picked),
            Self::Deadline(rule) => rule.judge(now, demand, picked),
            Self::Delay(rule) => rule.judge(now, demand, picked),
            #[cfg(test)]
            Self::Test(rule) => rule(demand),
        }
    }
}

/// The replication rule (number of attempts) that the configuration chose.
#[derive(Clone, Debug)]
pub(crate) enum AnyReplication {
    One(One),
    Fixed(Fixed),
    Hedge(Box<Hedge>),
    Tied(Tied),
    Idle(Idle),
    #[cfg(test)]
    Test(fn(&Demand) -> AttemptPlan),
}

impl AnyReplication {
    /// Returns true if a fetch has one attempt at a time, so that nothing has to be learned.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }

    /// Returns the number of attempts that a fetch has at once.
    pub(crate) fn factor(&self) -> u8 {
        match self {
            Self::Fixed(Fixed { factor, .. }) | Self::Tied(Tied { factor }) | Self::Idle(Idle { factor }) => {
                *factor
            }
            _ => 1,
        }
    }

    /// Sets the number of attempts of the rule `fixed`; other rules keep theirs.
    pub(crate) fn set_factor(&mut self, factor: u8) {
        if let Self::Fixed(rule) = self {
            rule.factor = factor;
        }
    }
}

impl From<CopiesChoice> for AnyReplication {
    fn from(choice: CopiesChoice) -> Self {
        match choice {
            CopiesChoice::One => Self::One(One),
            CopiesChoice::Fixed { factor } => Self::Fixed(Fixed::new(factor)),
            CopiesChoice::Hedge { percentile, min } => Self::Hedge(Box::new(Hedge::new(percentile, min))),
            CopiesChoice::Tied { factor } => Self::Tied(Tied { factor }),
            CopiesChoice::Idle { factor } => Self::Idle(Idle { factor }),
        }
    }
}

impl Replication for AnyReplication {
    fn plan(&mut self, demand: &Demand, tier: &Tier) -> AttemptPlan {
        match self {
            Self::One(rule) => rule.plan(demand, tier),
            Self::Fixed(rule) => rule.plan(demand, tier),
            Self::Hedge(rule) => rule.plan(demand, tier),
            Self::Tied(rule) => rule.plan(demand, tier),
            Self::Idle(rule) => rule.plan(demand, tier),
            #[cfg(test)]
            Self::Test(rule) => rule(demand),
        }
    }

    #[inline]
    fn started(&mut self, demand: &Demand, number: u32) -> AtStart {
        match self {
            Self::Tied(rule) => rule.started(demand, number),
            _ => AtStart::KeepOthers,
        }
    }

    #[inline]
    fn completed(&mut self, completion: &Completion) {
        match self {
            Self::Fixed(rule) => rule.completed(completion),
            Self::Hedge(rule) => rule.completed(completion),
            _ => {}
        }
    }

    fn held(&mut self, took: Duration) {
        if let Self::Fixed(rule) = self {
            rule.held(took);
        }
    }

    #[inline]
    fn progressed(&self) -> Option<Duration> {
        match self {
            Self::Hedge(rule) => rule.progressed(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_built_rules_choose_them_and_the_first_is_the_default() {
        assert_eq!(QueueChoice::by_name("fifo"), Ok(QueueChoice::default()));
        assert_eq!(QueueChoice::by_name("edf"), Ok(QueueChoice::Edf { alpha: Percent::ALPHA }));
        assert_eq!(BalanceChoice::by_name("power-of-two"), Ok(BalanceChoice::default()));
        assert_eq!(BalanceChoice::by_name("round-robin"), Ok(BalanceChoice::RoundRobin));
        assert_eq!(BalanceChoice::by_name("random"), Ok(BalanceChoice::Random));
        assert_eq!(BalanceChoice::by_name("tickets"), Ok(BalanceChoice::Tickets));
        assert_eq!(AdmitChoice::by_name("open"), Ok(AdmitChoice::default()));
        assert_eq!(AdmitChoice::by_name("deadline"), Ok(AdmitChoice::Deadline { target: None }));
        let target = Duration::from_millis(20);
        assert_eq!(AdmitChoice::by_name("delay"), Ok(AdmitChoice::Delay { target }));
        assert_eq!(CopiesChoice::by_name("one"), Ok(CopiesChoice::default()));
    }

    #[test]
    fn unknown_rule_name_is_refused_with_the_known_ones() {
        let refusals = [
            (
                QueueChoice::by_name("lifo").map(drop),
                "`queue` is \"lifo\", which is no rule; choose fifo, edf: did you mean \"fifo\"?",
            ),
            (
                BalanceChoice::by_name("p2c").map(drop),
                "`balance` is \"p2c\", which is no rule; choose power-of-two, round-robin, random, tickets, \
                 tickets-all, tokens, peak-ewma, c3, prequal",
            ),
            (
                AdmitChoice::by_name("lazy").map(drop),
                "`admit` is \"lazy\", which is no rule; choose open, deadline, delay",
            ),
            (
                CopiesChoice::by_name("two").map(drop),
                "`copies` is \"two\", which is no rule; choose one, fixed, hedge, tied, idle",
            ),
        ];
        for (refusal, expected) in refusals {
            assert_eq!(refusal.expect_err(expected).to_string(), expected);
        }
    }
}
