//! Policies: arbitration and replication of both tiers, by name.

use std::time::Duration;

use sherwood_dispatch::{BalanceChoice, CopiesChoice, Options as DispatchOptions, RetryOptions};
use sherwood_model::Percent;

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
    /// The rule by which connections, or calls, are given to servers.
    balance: BalanceChoice,
    copies: CopiesChoice,
    /// True if a copy of a page sends all of its queries to one server, that of its connection;
    /// false if a server is chosen for each.
    pub(super) by_connection: bool,
    /// True if the dispatcher of pages is told when a copy of a page has asked a query.
    pub(super) reports_progress: bool,
    /// Figures that servers tell about themselves.
    pub(super) figures: Telling,
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
    balance: BalanceChoice::Random,
    copies: CopiesChoice::One,
    by_connection: true,
    reports_progress: false,
    figures: Telling::Nothing,
};

/// Parts of all policies that choose a server for each call.
const BY_CALL: Policy = Policy { by_connection: false, ..NONE };

const HEDGE: Policy = Policy {
    name: "hedge",
    about: "a copy after the 95th percentile of latencies, at the less loaded of two servers",
    balance: BalanceChoice::PowerOfTwo,
    copies: HEDGED,
    ..BY_CALL
};

const PEAK_EWMA: Policy = Policy {
    name: "peak-ewma",
    about: "of two servers the one with the lower latency times load",
    balance: BalanceChoice::PeakEwma { age: AGE },
    ..BY_CALL
};

const C3: Policy = Policy {
    name: "c3",
    about: "by latency and the cube of the queue, which servers tell",
    // As published, latencies do not age.
    balance: BalanceChoice::C3 { age: Duration::ZERO },
    figures: Telling::WithAnswers,
    ..BY_CALL
};

const PREQUAL: Policy = Policy {
    name: "prequal",
    about: "the quickest of those with few calls, which servers tell when they are asked",
    balance: BalanceChoice::Prequal { age: AGE },
    figures: Telling::WhenAsked,
    ..BY_CALL
};

const SHERWOOD: Policy = Policy {
    name: "sherwood",
    about: "c3 by what a proxy sees, and a copy where a call makes no progress for long",
    balance: BalanceChoice::C3 { age: Duration::ZERO },
    copies: CopiesChoice::Hedge { percentile: STALLED, min: HEDGE_MIN },
    reports_progress: true,
    ..BY_CALL
};

const HEDGED: CopiesChoice = CopiesChoice::Hedge { percentile: Percent::HEDGE, min: HEDGE_MIN };
/// Least time before a copy, a node's default.
const HEDGE_MIN: Duration = Duration::from_millis(1);
/// The percentile of times without progress after which a call has a copy. A page reports progress
/// sixty times, so that a lower one would have a copy of most pages.
const STALLED: Percent = Percent::STALLED;
/// Time over which latencies are forgotten, a node's default.
const AGE: Duration = Duration::from_secs(5);

const QUIET: Policy =
    Policy { name: "quiet", about: "none, without interference: a bound", interference: false, ..NONE };

/// Returns all policies.
#[must_use]
pub fn policies() -> &'static [Policy] {
    &[NONE, QUIET, HEDGE, PEAK_EWMA, C3, PREQUAL, SHERWOOD]
}

impl Policy {
    /// Returns the policy called `name`.
    ///
    /// # Errors
    /// If no policy has that name.
    pub fn by_name(name: &str) -> Result<Self, PolicyError> {
        by_name("scenarios of sPARE have", policies(), |policy| policy.name, name)
    }

    /// Returns the options of a tier's dispatcher.
    pub(super) fn dispatch(&self) -> DispatchOptions {
        DispatchOptions {
            batch_keys_max: 1,
            in_flight_calls_max: CALLS_MAX,
            queued_calls_max: CALLS_MAX,
            waiters_max: CALLS_MAX,
            timeout: TIMEOUT,
            balance: self.balance,
            copies: self.copies,
            retry: RetryOptions { per_call_max: 0, ..RetryOptions::default() },
            ..DispatchOptions::default()
        }
    }
}

/// Timeout of pages and queries, far beyond their latencies.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of calls of a server, and of those that wait: more than arrive within the
/// timeout.
const CALLS_MAX: u32 = 10_000_000;
