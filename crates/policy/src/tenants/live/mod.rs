//! The level between tenants of a running system.
//!
//! ```text
//!   counters, curves ─▶ history ─▶ demand ─▶ Tenants ─▶ TenantPolicy ─▶ Division ─▶ moving ─▶ bytes, rates
//!                          └──────▶ watch: below the baseline? ─▶ back to the baselines
//! ```

mod correction;
mod deciding;
mod decision;
mod demand;
mod history;
mod moving;
mod observed;
mod options;
mod standing;
mod undo;
mod watch;

use std::time::Duration;

use sherwood_model::{Instant, Rates};

use super::{Share, TenantPolicy, TenantTerms, baselines};

use demand::Part;
use history::History;
use moving::{Goal, Moving};
use undo::Undo;
use watch::{Frozen, Watch};

pub use decision::{TenantDecision, TenantKept, TenantRound, TenantStanding};
pub use observed::{MissCurve, ReadCounts, TenantCounts, TenantObservation, TenantPartition, UnitCounts};
pub use options::{TenantControlError, TenantControlOptions, TenantResource};

/// Number of times that curves are faded (their counts halved) in a window. Chosen so that the mean
/// age of the counts in a curve is half of the window, like that of the window's counters.
const FADINGS: u32 = 3;

/// Divides the cache and the rates of resources among tenants, live.
///
/// It observes monotone counters and curves, keeps a window of time of them, and has a
/// [`TenantPolicy`] decide every [`period`](TenantControlOptions::period). A division is applied if
/// its least normalized throughput exceeds that of the plan before by
/// [`apply_over`](TenantControlOptions::apply_over), both by the present curves, or if the plan
/// before leaves a tenant below its baseline. Holdings move there in steps of at most a 64th of a
/// tenant's baseline, compensation first. A later plan replaces the rest of an earlier one. The
/// sums of bytes and rates are at most the totals at any moment.
///
/// *Keeping the baseline.* Needs are those with the present division within a tenant. Where a
/// policy changes that division ([`TwoLevels`](crate::TwoLevels)), the tenant's floor is the bytes
/// of its baseline, and its rate of each resource that its requests use. It may receive, and give
/// units that it does not use. A division that leaves such a tenant below its floor is replaced
/// whatever the next one gains.
///
/// *Measured.* The first division follows after three periods, or a window if that is shorter, in
/// which the baselines are measured. A tenant that had filled its baseline in a whole window tells
/// its miss ratio with it. Where that is older than ten minutes or missing, it follows from the
/// curve, corrected by measured over predicted misses.
///
/// *Watched.* A tenant whose measured throughput is below 0.98 of its baseline's for three periods
/// while it asks for more, on average by more than two standard errors, brings all back to their
/// baselines. These are kept for [`freeze`](TenantControlOptions::freeze), or until the tenant has
/// filled its own for a window and serves no more with it than before. The standard error counts
/// how the throughput varies within periods, and the sampled misses that the baseline's miss ratio
/// follows from.
///
/// # Inputs, outputs, wake-ups
/// - Input: [`advance`](Self::advance) with an observation of each tenant, at
///   [`next_timeout`](Self::next_timeout) and as often between as is convenient; with curves at
///   [`decides_at`](Self::decides_at). [`set_terms`](Self::set_terms) and the other setters take
///   effect with the next call. A clock that stands still changes nothing.
/// - Output: [`bytes`](Self::bytes) and [`rates`](Self::rates), which change with
///   [`TenantRound::changed`]. A driver sets the rates first, and fades curves with
///   [`TenantRound::fades_curves`].
#[derive(Clone)]
pub struct TenantController {
    policy: Box<dyn TenantPolicy>,
    options: TenantControlOptions,
    resources: Vec<TenantResource>,
    total: Share,
    terms: Vec<TenantTerms>,
    bases: Vec<Share>,
    /// Least bytes of each tenant that its partitions are pinned to.
    pinned: Vec<u64>,
    members: Vec<Member>,
    goal: Goal,
    moving: Moving,
    frozen: Option<Frozen>,
    /// Beginning and length of the last freeze.
    frozen_at: Option<Instant>,
    freeze: Duration,
    /// Times of the last observation and of the beginning of the period that is watched.
    last: Option<Instant>,
    watched_from: Instant,
    decides_at: Instant,
    steps_at: Instant,
    faded_at: Instant,
    /// True if the next division is applied whatever its gain.
    forced: bool,
    latest: Option<TenantDecision>,
    /// The state before the latest call of [`advance`](Self::advance); none if that call changed
    /// nothing.
    undo: Option<Undo>,
}

/// Observations of one tenant.
#[derive(Clone, Debug)]
struct Member {
    history: History,
    watch: Watch,
    parts: Vec<Part>,
    used_bytes: u64,
    /// True if the tenant is given no less than its baseline of what its requests use.
    keeps_base: bool,
    waiting: u32,
    /// Requests refused since the start.
    refused: u64,
    /// True if requests waited, or were refused since the observation before.
    is_limited: bool,
    /// Requests since the last decision.
    requests: u64,
    /// True if there were requests in the window of the last decision.
    had_demand: bool,
    /// Time since which the tenant has had about the bytes of its baseline, and its rates as well;
    /// none if it has not.
    base_bytes_since: Option<Instant>,
    base_since: Option<Instant>,
    /// True if all partitions had filled the baseline in the whole window of the last decision.
    is_settled: bool,
}

impl TenantController {
    /// Returns a level between tenants that have their baselines.
    ///
    /// # Errors
    /// Options out of range, no tenant, or too many tenants or resources.
    pub fn new(
        policy: Box<dyn TenantPolicy>,
        options: TenantControlOptions,
        resources: Vec<TenantResource>,
        total_bytes: u64,
        terms: Vec<TenantTerms>,
    ) -> Result<Self, TenantControlError> {
        options.validate()?;
        options::check_counts(terms.len(), resources.len())?;
        let rates = resources.iter().map(|resource| resource.total_per_s).collect();
        let total = Share { bytes: total_bytes, rates };
        let members = vec![Member::new(&options); terms.len()];
        let bases = bases_of(&total, &terms);
        let pinned = vec![0; terms.len()];
        let goal = Goal::baselines(deciding::unknown(&resources, &total, &bases));
        let moving = Moving::new(goal.bytes.clone(), goal.rates.clone());
        Ok(Self {
            policy,
            options,
            resources,
            total,
            terms,
            bases,
            pinned,
            members,
            goal,
            moving,
            frozen: None,
            frozen_at: None,
            freeze: options.freeze,
            last: None,
            watched_from: Instant::ZERO,
            decides_at: Instant::ZERO,
            steps_at: Instant::ZERO,
            faded_at: Instant::ZERO,
            forced: false,
            latest: None,
            undo: None,
        })
    }

    /// Bytes of cache of each tenant now; they sum to at most the total.
    #[must_use]
    pub fn bytes(&self) -> &[u64] {
        &self.moving.bytes
    }

    /// Rates of each tenant now; those of a resource sum to at most its total.
    #[must_use]
    pub fn rates(&self) -> &Rates {
        &self.moving.rates
    }

    /// The cache and the rates of all tenants together.
    #[must_use]
    pub fn total(&self) -> &Share {
        &self.total
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &dyn TenantPolicy {
        &*self.policy
    }

    /// The terms of each tenant.
    #[must_use]
    pub fn terms(&self) -> &[TenantTerms] {
        &self.terms
    }

    /// The resources beside the cache, in the order of their ids.
    #[must_use]
    pub fn resources(&self) -> &[TenantResource] {
        &self.resources
    }

    /// The latest decision; none before the first.
    #[must_use]
    pub fn latest(&self) -> Option<&TenantDecision> {
        self.latest.as_ref()
    }

    /// The time from which the next call of [`advance`](Self::advance) decides, and reads curves.
    #[must_use]
    pub fn decides_at(&self) -> Instant {
        self.decides_at
    }

    /// The time at which [`advance`](Self::advance) has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.decides_at.min(self.steps_at)
    }

    /// Replaces the policy from the next decision on, which is due at once.
    pub fn set_policy(&mut self, policy: Box<dyn TenantPolicy>) {
        self.policy = policy;
        self.restart();
    }

    /// Sets the bytes that each tenant's partitions are pinned to at least; missing ones count as
    /// 0.
    pub fn set_pins(&mut self, mut pinned: Vec<u64>) {
        pinned.resize(self.terms.len(), 0);
        self.pinned = pinned;
    }

    /// Sets for each tenant if it is given no less than its baseline of what its requests use.
    pub(crate) fn set_keeps_base(&mut self, keeps: impl IntoIterator<Item = bool>) {
        self.members.iter_mut().zip(keeps).for_each(|(member, keeps)| member.keeps_base = keeps);
    }

    /// Sets the total of the cache. What tenants have above it is taken from all in proportion.
    pub fn set_total_bytes(&mut self, total_bytes: u64) {
        if self.total.bytes != total_bytes {
            self.total.bytes = total_bytes;
            self.set_terms_of(self.terms.clone());
        }
    }

    /// Sets new terms: weights, baselines or minima, tenants that join at the end, or fewer
    /// tenants. A freeze ends, and a decision is due at once; until it is carried out, tenants keep
    /// what they have, and those that join have what is free.
    ///
    /// # Errors
    /// If there is no tenant, or more than 1,024; nothing has changed then.
    pub fn set_terms(&mut self, terms: Vec<TenantTerms>) -> Result<(), TenantControlError> {
        options::check_counts(terms.len(), self.resources.len())?;
        self.set_terms_of(terms);
        Ok(())
    }

    fn set_terms_of(&mut self, terms: Vec<TenantTerms>) {
        self.bases = bases_of(&self.total, &terms);
        self.pinned.resize(terms.len(), 0);
        self.members.resize(terms.len(), Member::new(&self.options));
        self.terms = terms;
        self.moving.resize(self.terms.len(), &self.total);
        self.goal = Goal::baselines(deciding::unknown(&self.resources, &self.total, &self.bases));
        self.restart();
    }

    /// Ends a freeze, and has the next call decide and apply.
    fn restart(&mut self) {
        (self.frozen, self.forced, self.undo) = (None, true, None);
        self.members.iter_mut().for_each(|member| member.watch.restart());
        self.decides_at = self.decides_at.min(self.last.unwrap_or(Instant::ZERO));
    }

    /// Takes in an observation of each tenant at `now`, decides if a period has passed, and makes
    /// the next step of the move in progress.
    ///
    /// A call at a time that is not later than the last one changes nothing.
    /// O(tenants × (resources² + partitions)) without a decision.
    pub fn advance(&mut self, now: Instant, seen: &[TenantObservation]) -> TenantRound {
        self.undo = None;
        let Some(last) = self.last else {
            self.last = Some(now);
            self.begin(now, seen);
            return TenantRound::default();
        };
        if now <= last {
            return TenantRound::default();
        }
        let decides = now >= self.decides_at;
        self.undo = Some(self.undo_of(decides));
        self.last = Some(now);
        self.observe(now, now.since(last), seen, decides);
        let decision = decides.then(|| self.decide(now));
        let (changed, refused) = if now >= self.steps_at { self.step(now) } else { (false, None) };
        if let Some(decision) = &decision {
            self.latest = Some(decision.clone());
        }
        let fades_curves = now.since(self.faded_at) >= self.options.window / FADINGS;
        if fades_curves {
            self.faded_at = now;
        }
        TenantRound { changed, decision, refused, fades_curves }
    }
}

impl Member {
    fn new(options: &TenantControlOptions) -> Self {
        Self {
            history: History::new(options.window),
            watch: Watch::new(options.period, options.window),
            parts: Vec::new(),
            used_bytes: 0,
            keeps_base: false,
            waiting: 0,
            refused: 0,
            is_limited: false,
            requests: 0,
            had_demand: false,
            base_bytes_since: None,
            base_since: None,
            is_settled: false,
        }
    }
}

/// The baselines of tenants with these terms.
fn bases_of(total: &Share, terms: &[TenantTerms]) -> Vec<Share> {
    baselines(total, terms.iter().map(|terms| (terms.weight, terms.base.as_ref())))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
