//! The replicator: from measuring windows to factors.

use super::capacity::{Shortage, TierSeen, shortage};
use super::collision::collision_probabilities;
use super::options::{ReplicationOptions, ReplicationPolicy, TargetLatency};
use super::outcome::{Outcome, ReplicationState, TierStanding};
use super::search::{Feasible, Measured, Order, Search};
use super::words;

/// Chooses the factor of each tier from measuring windows.
///
/// # Inputs, outputs
/// The driver puts [`factors`](Self::factors) in force, measures a window, passes it to
/// [`handle_window`](Self::handle_window), and puts the factors of the outcome in force, which the
/// next window measures. A window with too few requests goes on: fewer than 100 for the 99th
/// percentile, otherwise 20.
#[derive(Clone, Debug)]
pub struct Replicator {
    options: ReplicationOptions,
    factors: Vec<u8>,
    phase: Phase,
    /// Load and variability at the last search.
    reference: Option<Reference>,
    /// Windows in a row in which load or variability differed from the reference.
    moved: u8,
    tries: u32,
    reason: String,
    seen: Vec<TierSeen>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// A single copy is measured before a search.
    Baseline,
    Searching(Search),
    Settled,
    Ones,
}

#[derive(Clone, Debug)]
struct Reference {
    load_per_s: f64,
    variability: Vec<f64>,
}

/// Windows in a row that must differ from the reference: one may do so by chance.
const MOVED: u8 = 2;

/// Largest utilisation for which fixed factors return after an overload.
const RETURN: f64 = 0.9;

impl Replicator {
    /// Returns a replicator with the first factors, which are those of the policy `fixed` or ones.
    /// `options` must be valid ([`ReplicationOptions::validate`]).
    #[must_use]
    pub fn new(options: ReplicationOptions) -> Self {
        let mut factors = vec![1; options.tiers.len()];
        let (phase, reason) = match options.policy {
            ReplicationPolicy::None => (Phase::Ones, "the policy is none: one copy"),
            ReplicationPolicy::Fixed => {
                factors = options.tiers.iter().map(|tier| tier.factor).collect();
                (Phase::Settled, "as configured")
            }
            ReplicationPolicy::Spare | ReplicationPolicy::Exhaustive => {
                (Phase::Baseline, "a search begins with one copy in each tier")
            }
        };
        let (reason, seen) = (reason.to_owned(), Vec::new());
        Self { options, factors, phase, reference: None, moved: 0, tries: 0, reason, seen }
    }

    /// Decides after a window in which the factors in force were measured. `seen` has each tier, in
    /// the order of the options. O(tiers × servers), and for the policy `exhaustive` that for each
    /// factor vector.
    ///
    /// # Panics
    /// If `seen` does not have as many tiers as the options.
    pub fn handle_window(&mut self, seen: &[TierSeen]) -> Outcome {
        self.observe(seen);
        let goes_on = match self.options.policy {
            ReplicationPolicy::None => None,
            ReplicationPolicy::Fixed => {
                self.hold(seen);
                None
            }
            ReplicationPolicy::Spare => self.search(Order::Greedy, seen),
            ReplicationPolicy::Exhaustive => self.search(Order::Exhaustive, seen),
        };
        let decided = self.outcome();
        match goes_on {
            Some(reason) => Outcome { goes_on: true, reason, ..decided },
            None => decided,
        }
    }

    /// Takes note of a window for [`standings`](Self::standings), without a decision.
    ///
    /// # Panics
    /// If `seen` does not have as many tiers as the options.
    pub fn observe(&mut self, seen: &[TierSeen]) {
        assert_eq!(seen.len(), self.options.tiers.len(), "each tier is observed");
        self.seen = seen.to_vec();
    }

    /// Returns the latest decision, or before the first window the first factors.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let state = match self.phase {
            Phase::Baseline | Phase::Searching(_) => ReplicationState::Searching,
            Phase::Settled => ReplicationState::Settled,
            Phase::Ones => ReplicationState::Ones,
        };
        let (factors, reason) = (self.factors.clone(), self.reason.clone());
        Outcome { factors, state, tries: self.tries, reason, goes_on: false }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &ReplicationOptions {
        &self.options
    }

    /// The factor of each tier.
    #[must_use]
    pub fn factors(&self) -> &[u8] {
        &self.factors
    }

    /// Returns each tier in the latest window; empty before the first.
    #[must_use]
    pub fn standings(&self) -> Vec<TierStanding> {
        let pairs = self.seen.iter().zip(&self.factors);
        let collisions = collision_probabilities(pairs.clone().map(|(seen, &factor)| (seen.servers, factor)));
        let standing = |((seen, &factor), collision_probability): ((&TierSeen, &u8), f64)| TierStanding {
            factor,
            seen: *seen,
            utilisation: seen.utilisation(factor),
            token_utilisation: seen.token_utilisation(factor),
            variability: seen.variability(self.options.target),
            collision_probability,
        };
        pairs.zip(collisions).map(standing).collect()
    }

    /// Restores earlier factors, one for each tier, for a `cause` in words, and ends a search.
    /// Later windows are compared with the next one.
    pub fn restore(&mut self, factors: Vec<u8>, cause: &str) {
        self.reason = format!("{cause}: {}", words::change(&self.options.tiers, &self.factors, &factors));
        self.factors = factors;
        self.reference = None;
        if self.options.policy != ReplicationPolicy::None {
            self.phase = Phase::Settled;
        }
    }

    /// Withdraws fixed factors while a tier cannot serve them.
    fn hold(&mut self, seen: &[TierSeen]) {
        let fixed: Vec<u8> = self.options.tiers.iter().map(|tier| tier.factor).collect();
        if self.factors == fixed {
            if let Some(short) = self.overload(seen) {
                self.fall(&words::shortage(&self.options.tiers, &short));
            }
        } else {
            let greater: Vec<TierSeen> = seen.iter().map(|tier| tier.times(1.0 / RETURN)).collect();
            if shortage(&greater, &self.factors, &fixed).is_none() {
                self.reason = "there is capacity again: as configured".to_owned();
                (self.factors, self.phase) = (fixed, Phase::Settled);
            }
        }
    }

    /// Makes a step of a search or watches for the need of another. Returns the reason, in words,
    /// if the window goes on.
    fn search(&mut self, order: Order, seen: &[TierSeen]) -> Option<String> {
        if let Some(short) = self.overload(seen) {
            self.handle_overload(seen, &short);
            return None;
        }
        let (requests, needed) = (seen[0].requests, self.options.target.requests_min());
        if requests < needed {
            return Some(format!(
                "only {requests} requests were seen, of {needed} needed: the window goes on"
            ));
        }
        let measured = measured(self.options.target, seen);
        if self.has_moved(seen, &measured) {
            return None;
        }
        match self.phase {
            Phase::Baseline => self.begin(order, seen, measured),
            Phase::Searching(_) => self.judge(Ok(measured)),
            Phase::Settled => {}
            // The window may still have been slowed by the overload.
            Phase::Ones => {
                if self.new_search(order, seen, measured).trial().is_some() {
                    self.reason = "there is capacity for copies: a search begins".to_owned();
                    self.phase = Phase::Baseline;
                }
            }
        }
        None
    }

    /// Returns the tier that cannot serve the factors in force; none if they are ones.
    fn overload(&self, seen: &[TierSeen]) -> Option<Shortage> {
        let has_copies = self.factors.iter().any(|&factor| factor > 1);
        has_copies.then(|| shortage(seen, &self.factors, &self.factors)).flatten()
    }

    /// Gives up a trial that overloads a tier, if it alone does; otherwise falls to ones.
    fn handle_overload(&mut self, seen: &[TierSeen], short: &Shortage) {
        let reason = words::shortage(&self.options.tiers, short);
        match &self.phase {
            Phase::Searching(search) if shortage(seen, &self.factors, search.kept()).is_none() => {
                self.judge(Err(reason));
            }
            _ => self.fall(&reason),
        }
    }

    fn fall(&mut self, reason: &str) {
        self.reason = format!("{reason}: ones");
        self.factors.fill(1);
        (self.phase, self.reference) = (Phase::Ones, None);
    }

    fn new_search(&self, order: Order, seen: &[TierSeen], measured: Measured) -> Search {
        let ReplicationOptions { collision_max, factor_max, .. } = self.options;
        let feasible = Feasible { tiers: seen.to_vec(), collision_max, factor_max };
        Search::new(order, feasible, measured)
    }

    /// Begins a search with what was measured with one copy.
    fn begin(&mut self, order: Order, seen: &[TierSeen], measured: Measured) {
        let search = self.new_search(order, seen, measured.clone());
        (self.tries, self.moved) = (0, 0);
        let Some(trial) = search.trial() else {
            self.reason = "one copy in each tier: more would exceed its capacity or collision_max".to_owned();
            self.phase = Phase::Ones;
            return;
        };
        let ReplicationOptions { tiers, target, .. } = &self.options;
        let now = words::latency(measured.latency);
        let next = words::change(tiers, search.kept(), trial);
        self.reason =
            format!("{} is {now} with one copy; next try: {next}", words::target(*target, &tiers[0]));
        self.factors = trial.to_vec();
        self.reference = Some(Reference::of(seen, &measured));
        self.phase = Phase::Searching(search);
    }

    /// Ends a trial with what was measured, or with the reason for which it is unstable, and begins
    /// the next one.
    fn judge(&mut self, measured: Result<Measured, String>) {
        let Phase::Searching(search) = &mut self.phase else { return };
        let ReplicationOptions { tiers, target, .. } = &self.options;
        let (from, before) = (search.kept().to_vec(), search.measured().latency);
        let tried = words::change(tiers, &from, &self.factors);
        let result = match &measured {
            Ok(measured) => {
                let latencies = words::latencies(before, measured.latency);
                format!("{} {latencies}", words::target(*target, &tiers[0]))
            }
            Err(reason) => reason.clone(),
        };
        let is_kept = search.handle_measured(measured.ok());
        self.tries = search.tries();
        let given_up = if is_kept { "" } else { ", given up" };
        let next = if let Some(trial) = search.trial() {
            self.factors = trial.to_vec();
            format!("next try: {}", words::change(tiers, search.kept(), trial))
        } else {
            self.factors = search.kept().to_vec();
            if let Some(reference) = &mut self.reference {
                reference.variability.clone_from(&search.measured().variability);
            }
            self.phase = Phase::Settled;
            format!("settled after {} {}", self.tries, if self.tries == 1 { "try" } else { "tries" })
        };
        self.reason = format!("{tried}{given_up}: {result}; {next}");
    }

    /// Begins a new search, and returns true, if the load, or of settled factors the variability,
    /// has moved since the last one.
    fn has_moved(&mut self, seen: &[TierSeen], measured: &Measured) -> bool {
        let is_settled = matches!(self.phase, Phase::Settled);
        let Some(reference) = &self.reference else {
            self.reference = is_settled.then(|| Reference::of(seen, measured));
            return false;
        };
        let Some(moved) = self.moved_from(reference, &Reference::of(seen, measured), is_settled) else {
            self.moved = 0;
            return false;
        };
        self.moved += 1;
        if self.moved < MOVED {
            return false;
        }
        self.reason = format!("{moved}: a new search begins with one copy");
        self.factors.fill(1);
        (self.phase, self.reference, self.moved) = (Phase::Baseline, None, 0);
        true
    }

    /// Returns what has moved, in words; none if nothing has.
    fn moved_from(&self, from: &Reference, to: &Reference, is_settled: bool) -> Option<String> {
        let ReplicationOptions { tiers, load_change, variability_change, .. } = &self.options;
        if differ(from.load_per_s, to.load_per_s, *load_change) {
            let [from, to] = [from, to].map(|load| words::rate(load.load_per_s));
            return Some(format!("load of {} went from {from} to {to}", tiers[0].name));
        }
        let mut pairs = tiers.iter().zip(from.variability.iter().zip(&to.variability));
        let pair = pairs.find(|(_, (from, to))| is_settled && differ(**from, **to, *variability_change))?;
        let (tier, (from, to)) = pair;
        Some(format!("variability of {} went from {from:.1} to {to:.1}", tier.name))
    }
}

impl Reference {
    fn of(seen: &[TierSeen], measured: &Measured) -> Self {
        Self { load_per_s: seen[0].arrivals_per_s, variability: measured.variability.clone() }
    }
}

fn measured(target: TargetLatency, seen: &[TierSeen]) -> Measured {
    let variability = seen.iter().map(|tier| tier.variability(target)).collect();
    Measured { latency: seen[0].latency(target), variability }
}

/// Returns true if the greater of two values exceeds the smaller by more than `change`, a part of
/// the smaller.
fn differ(one: f64, other: f64, change: f64) -> bool {
    one.max(other) > one.min(other) * (1.0 + change)
}

#[cfg(test)]
mod tests;
