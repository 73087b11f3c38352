//! Policies: arbitration and replication of both tiers, by name.

use std::time::Duration;

use sherwood_dispatch::{
    BalanceChoice, CancelRule, CopiesChoice, ExtraOrder, Options as DispatchOptions, RetryOptions,
};
use sherwood_model::{BackendId, Percent};

use super::PAGES;
use super::setup::Knobs;
pub(super) use crate::policy::PolicyError;
use crate::policy::by_name;

/// A set-up of the tiers.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The policy's name.
    pub name: &'static str,
    /// Description, for help texts.
    pub about: &'static str,
    /// True if servers have neighbours.
    pub(super) interference: bool,
    /// The rule by which calls, or connections, are given to servers of each tier.
    arbiters: [Arbiter; 2],
    /// Tokens of a server in each tier; none for those of the settings.
    tokens: Option<[u32; 2]>,
    copies: CopiesChoice,
    /// The way in which the number of copies of each tier is found.
    pub(super) search: Search,
    /// True if a copy of a page sends all of its queries to one server, that of its connection;
    /// false if a server is chosen for each.
    pub(super) by_connection: bool,
    /// True if the dispatcher of pages is told when a copy of a page has asked a query.
    pub(super) reports_progress: bool,
    /// Figures that servers tell about themselves.
    pub(super) figures: Telling,
}

/// The rule by which calls or connections are given to the servers of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arbiter {
    /// This rule, without a bound on the calls of a server.
    Balanced(BalanceChoice),
    /// Token-based arbitration.
    Tad,
}

/// The way in which the number of copies in each tier is found, before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// There is one copy, or the rule decides for each call.
    None,
    /// The best of one to three copies of pages, and one of each query.
    Front,
    /// sPARE's replicator.
    Greedy,
    /// All that are feasible.
    Exhaustive,
}

/// Figures that servers tell the dispatchers about themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nothing: dispatchers see what a proxy sees.
    Nothing,
    /// Their calls and service time with each answer, as in C3.
    WithAnswers,
    /// Their calls and latest latency when they are asked, three at random for each call, as in
    /// Prequal.
    WhenAsked,
}

const NONE: Policy = Policy {
    name: "none",
    about: "one copy, at a random server for each connection",
    interference: true,
    arbiters: [RANDOM; 2],
    tokens: None,
    copies: CopiesChoice::One,
    search: Search::None,
    by_connection: true,
    reports_progress: false,
    figures: Telling::Nothing,
};

/// Parts of all policies that choose a server for each call.
const BY_CALL: Policy = Policy { by_connection: false, ..NONE };

const RANDOM: Arbiter = Arbiter::Balanced(BalanceChoice::Random);
/// Round robin.
pub(super) const RR: Arbiter = Arbiter::Balanced(BalanceChoice::RoundRobin);

const FRONT_RR: Policy = Policy {
    name: "front-rr",
    about: "the best of 1 to 3 copies of pages, at servers in turn; a random one for each connection",
    arbiters: [RR, RANDOM],
    search: Search::Front,
    ..NONE
};

const SPARE_RR: Policy = Policy {
    name: "spare-rr",
    about: "sPARE's replicator, with servers in turn",
    arbiters: [RR; 2],
    search: Search::Greedy,
    ..NONE
};

const SPARE_TAD: Policy = Policy {
    name: "spare-tad",
    about: "sPARE: the replicator, with tokens",
    arbiters: [Arbiter::Tad; 2],
    ..SPARE_RR
};

const TAD_ONE: Policy =
    Policy { name: "tad-one", about: "tokens, and one copy", search: Search::None, ..SPARE_TAD };

const EXHAUSTIVE: Policy = Policy {
    name: "exhaustive",
    about: "all feasible copies tried, with tokens",
    search: Search::Exhaustive,
    ..SPARE_TAD
};

const HEDGE: Policy = Policy {
    name: "hedge",
    about: "a copy after the 95th percentile of latencies, at the less loaded of two servers",
    arbiters: [Arbiter::Balanced(BalanceChoice::PowerOfTwo); 2],
    copies: HEDGED,
    ..BY_CALL
};

const PEAK_EWMA: Policy = Policy {
    name: "peak-ewma",
    about: "of two servers the one with the lower latency times load",
    arbiters: [Arbiter::Balanced(BalanceChoice::PeakEwma { age: AGE }); 2],
    ..BY_CALL
};

const C3: Policy = Policy {
    name: "c3",
    about: "by latency and the cube of the queue, which servers tell",
    // As published, latencies do not age.
    arbiters: [Arbiter::Balanced(BalanceChoice::C3 { age: Duration::ZERO }); 2],
    figures: Telling::WithAnswers,
    ..BY_CALL
};

const PREQUAL: Policy = Policy {
    name: "prequal",
    about: "the quickest of those with few calls, which servers tell when they are asked",
    arbiters: [Arbiter::Balanced(BalanceChoice::Prequal { age: AGE }); 2],
    figures: Telling::WhenAsked,
    ..BY_CALL
};

const SHERWOOD: Policy = Policy {
    name: "sherwood",
    about: "tokens for pages, c3 for queries, both as a proxy sees them, and a copy where a call makes no progress",
    arbiters: [Arbiter::Tad, Arbiter::Balanced(BalanceChoice::C3 { age: C3_AGE })],
    tokens: Some([CORES; 2]),
    copies: HEDGED,
    reports_progress: true,
    ..BY_CALL
};

const HEDGED: CopiesChoice = CopiesChoice::Hedge { percentile: Percent::HEDGE, min: HEDGE_MIN };
/// Least time before a copy, a node's default.
const HEDGE_MIN: Duration = Duration::from_millis(1);
/// Time over which latencies are forgotten, a node's default.
const AGE: Duration = Duration::from_secs(5);
/// The same for queries of `sherwood`, set with the seeds 11 to 15.
const C3_AGE: Duration = Duration::from_secs(20);

const QUIET: Policy =
    Policy { name: "quiet", about: "none, without interference: a bound", interference: false, ..NONE };

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &[
        NONE, QUIET, FRONT_RR, SPARE_RR, SPARE_TAD, TAD_ONE, EXHAUSTIVE, HEDGE, PEAK_EWMA, C3, PREQUAL,
        SHERWOOD,
    ]
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        by_name("scenarios of sPARE have", policies(), |policy| policy.name, name)
    }

    /// Returns the policy with the rules of the settings. They apply where copies are searched for.
    pub(super) fn with(self, knobs: &Knobs) -> Self {
        let arbiters = knobs.arbiters.filter(|_| self.search != Search::None).unwrap_or(self.arbiters);
        Self { arbiters, ..self }
    }

    /// Returns the options of a tier's dispatcher.
    pub(super) fn dispatch(&self, knobs: &Knobs, tier: BackendId, factors: [u8; 2]) -> DispatchOptions {
        let arbiter = self.arbiters[tier.index()];
        let copies = match self.search {
            Search::None => self.copies,
            _ => CopiesChoice::Fixed { factor: factors[tier.index()] },
        };
        let (balance, calls_max) = match arbiter {
            Arbiter::Balanced(balance) => (balance, CALLS_MAX),
            // As published, latencies do not age.
            Arbiter::Tad => {
                let balance = BalanceChoice::Tokens { lookups: knobs.lookups, age: Duration::ZERO };
                (balance, self.tokens.unwrap_or(knobs.tokens)[tier.index()])
            }
        };
        let unbounded = DispatchOptions {
            batch_keys_max: 1,
            in_flight_calls_max: calls_max,
            queued_calls_max: CALLS_MAX,
            waiters_max: CALLS_MAX,
            timeout: TIMEOUT,
            balance,
            copies,
            cores: Some(CORES),
            retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
            ..DispatchOptions::default()
        };
        match self.search {
            Search::None => unbounded,
            _ => DispatchOptions { extra: ExtraOrder::Equal, cancel: CancelRule::Queued, ..unbounded },
        }
    }

    /// The tiers whose copies are searched for.
    pub(super) fn searched(&self) -> &'static [BackendId] {
        match self.search {
            Search::None => &[],
            Search::Front => &[PAGES],
            Search::Greedy | Search::Exhaustive => &super::TIERS,
        }
    }
}

/// Cores of each server.
pub(super) const CORES: u32 = 2;

/// Timeout of pages and queries, far beyond their latencies.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of calls of a server, and of those that wait: more than arrive within the
/// timeout.
const CALLS_MAX: u32 = 10_000_000;
