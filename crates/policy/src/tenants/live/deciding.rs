//! From observations to a division, and whether it is applied.

use std::time::Duration;

use sherwood_model::{DemandCurve, Instant, Rates, TenantId};

use super::correction::{Anchor, MEMORY, STEADY_PARTS};
use super::demand::{Asked, Part, Served};
use super::moving::{Goal, State};
use super::watch::Frozen;
use super::{
    Member, TenantController, TenantDecision, TenantKept, TenantObservation, TenantPartition, TenantResource,
};
use crate::tenants::words::{outcome, trade_sentence};
use crate::tenants::{Division, DivisionFault, Share, TenantSeen, TenantTerms, Tenants};

/// Difference of normalized throughputs that counts as rounding. Chosen far below any gain that
/// leads to a new division.
const ROUNDING: f64 = 1e-6;
/// Number of requests of a tenant, idle before the last decision, that bring the next decision
/// forward. Chosen because fewer requests may be a health check, and do not show the tenant's
/// demand.
const BEGINS: u64 = 100;
/// Early decisions are at least a period divided by this apart. Chosen as two seconds of the
/// tenant's counters with the default period.
const EARLY: u32 = 10;
/// A tenant counts as having its baseline if its bytes and rates differ from it by at most the
/// baseline divided by this. Chosen as two steps of a move.
const AT_BASE_PARTS: u64 = 32;
/// Longest freeze. Chosen as a day, so that another division is tried again for a load that repeats
/// daily.
const FREEZE_MAX: Duration = Duration::from_secs(86_400);
/// Maximum number of exchanges that the text of a decision lists. Chosen for the length of a log
/// line.
const TRADES_MAX: usize = 6;

impl TenantController {
    /// Begins at the first observation.
    pub(super) fn begin(&mut self, now: Instant, seen: &[TenantObservation]) {
        self.observe(now, Duration::ZERO, seen, false);
        (self.watched_from, self.faded_at) = (now, now);
        // The first exchange begins with baselines that have been measured.
        self.decides_at = now + self.options.measures();
        self.steps_at = now + self.options.step;
    }

    /// Takes in what tenants did in the time since the last call.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        time: Duration,
        seen: &[TenantObservation],
        with_curves: bool,
    ) {
        for (index, (member, seen)) in self.members.iter_mut().zip(seen).enumerate() {
            member.observe(now, time, seen, with_curves);
            let base = &self.bases[index];
            let has_bytes = self.moving.bytes[index].abs_diff(base.bytes) <= base.bytes / AT_BASE_PARTS;
            let rates = self.moving.rates.row(TenantId::from_index(index));
            let is_rate = |(rate, base): (&f64, &f64)| (rate - base).abs() <= base / AT_BASE_PARTS as f64;
            let has_base = has_bytes && rates.iter().zip(&base.rates).all(is_rate);
            member.base_bytes_since = member.base_bytes_since.or(Some(now)).filter(|_| has_bytes);
            member.base_since = member.base_since.or(Some(now)).filter(|_| has_base);
            if with_curves {
                member.anchor(now, self.options.measures());
            }
            let begins = member.requests >= BEGINS && !member.had_demand;
            if begins && self.latest.is_some() {
                let early = now + self.options.period / EARLY;
                self.decides_at = self.decides_at.min(early);
            }
        }
    }

    /// Decides, and sets the goal if the division is applied.
    pub(super) fn decide(&mut self, now: Instant) -> TenantDecision {
        let tenants = self.tenants(self.options.salt);
        let trip = self.watch(now, &tenants);
        let before = Division::new(&tenants, self.goal.bytes.clone(), self.goal.rates.clone(), None);
        let mut division = self.policy.divide(&tenants);
        let fault = division.check(&tenants).err();
        if fault.is_some() {
            division = before.clone();
        }
        let kept = match (self.keeps(now, &tenants, &division, &before), fault) {
            (kept @ Some(TenantKept::Frozen { .. }), _) | (kept, None) => kept,
            (_, Some(fault)) => Some(TenantKept::Refused(fault)),
        };
        self.decides_at = now + self.options.period;
        for member in &mut self.members {
            // Not a demand for resources: a tenant that only hits has none, however long it runs.
            (member.requests, member.had_demand) = (0, member.history.window().0.requests > 0);
        }
        let mut decision = TenantDecision {
            policy: self.policy.name(),
            gain_before: before.gain,
            trades: Vec::new(),
            line: String::new(),
            kept,
            division,
        };
        match &decision.kept {
            None => {
                decision.trades = self.sentences(&decision.division);
                self.goal = Goal {
                    tenants,
                    bytes: decision.division.bytes.clone(),
                    rates: decision.division.rates.clone(),
                    policy: self.policy.clone(),
                    careful: self.policy.keeps_baselines(),
                    is_refused: false,
                };
                self.forced = false;
            }
            Some(TenantKept::Frozen { .. }) if trip => self.goal = Goal::baselines(tenants),
            Some(_) => {}
        }
        decision.line = line(&decision);
        decision
    }

    /// Tenants as policies see them now.
    pub(super) fn tenants(&self, salt: f64) -> Tenants {
        let seen = (0..self.terms.len()).map(|index| self.seen(index, &self.bases[index], salt));
        let kinds = self.resources.iter().map(|resource| resource.kind).collect();
        let seen = seen.collect();
        Tenants::new(kinds, self.total.clone(), seen)
    }

    /// The tenant at `index` as policies see it with this baseline.
    fn seen(&self, index: usize, base: &Share, salt: f64) -> TenantSeen {
        let (terms, member) = (&self.terms[index], &self.members[index]);
        let min = Share { bytes: terms.min.bytes.max(self.pinned[index]), rates: terms.min.rates.clone() };
        let (window, _) = member.history.window();
        let keeps_base = member.keeps_base;
        Asked { base, min: &min, window: &window, parts: &member.parts, keeps_base }
            .seen(&self.resources, salt)
    }

    /// The throughput that the tenant at `index` would have with its baseline.
    fn base_throughput(&self, index: usize, base: &Share) -> Served {
        let member = &self.members[index];
        let (window, _) = member.history.window();
        let asked = Asked { base, min: base, window: &window, parts: &member.parts, keeps_base: false };
        asked.throughput(&self.resources, base)
    }

    /// Returns the division that the policy finds for other terms of the same tenants, and for more
    /// tenants, whose baselines and floors follow from the terms after those.
    ///
    /// # Errors
    /// If the division that the policy finds is not valid (a part for each tenant, within the
    /// totals).
    pub fn what_if(&self, terms: &[TenantTerms], added: &[TenantSeen]) -> Result<Division, DivisionFault> {
        let bases = super::bases_of(&self.total, terms);
        let salt = self.options.salt;
        let seen = bases.iter().zip(terms).enumerate().filter_map(|(index, (base, terms))| {
            if index < self.members.len() {
                return Some(self.seen(index, base, salt));
            }
            let added = added.get(index - self.members.len())?;
            Some(TenantSeen { base: base.clone(), floor: terms.min.clone(), ..added.clone() })
        });
        let kinds = self.resources.iter().map(|resource| resource.kind).collect();
        let tenants = Tenants::new(kinds, self.total.clone(), seen.collect());
        let division = self.policy.clone().divide(&tenants);
        division.check(&tenants)?;
        Ok(division)
    }

    /// Ends the period that is watched, if it is over. True if a tenant has been below its baseline
    /// for long enough, which freezes the baselines.
    fn watch(&mut self, now: Instant, tenants: &Tenants) -> bool {
        let period = now.since(self.watched_from);
        if period < self.options.period {
            return false;
        }
        self.watched_from = now;
        let base = |(index, seen): (usize, &TenantSeen)| self.base_throughput(index, &seen.base);
        let bases: Vec<Served> = tenants.seen().iter().enumerate().map(base).collect();
        let mut worst: Option<(usize, f64)> = None;
        for (index, (member, base)) in self.members.iter_mut().zip(bases).enumerate() {
            let is_below = member.watch.end_period(period, base);
            if let Some((from, measured)) = member.measured_base(now) {
                if base.per_s > 0.0 {
                    member.watch.set_reach(measured / base.per_s);
                }
                let refuted = |frozen: &Frozen| frozen.index == index && frozen.is_refuted(from, measured);
                if self.frozen.as_ref().is_some_and(refuted) {
                    (self.frozen, self.frozen_at) = (None, None);
                }
            }
            let normalized = member.watch.normalized.unwrap_or(1.0);
            if is_below && worst.is_none_or(|(_, least)| normalized < least) {
                worst = Some((index, normalized));
            }
        }
        let Some((index, normalized)) = worst else { return false };
        let base = tenants.base_bytes();
        let has_base_bytes = self.moving.bytes == base && self.goal.bytes == base;
        let at_baseline = has_base_bytes
            && [&self.moving.rates, &self.goal.rates].into_iter().all(|rates| are_of_base(rates, tenants));
        if at_baseline || !self.policy.keeps_baselines() || self.frozen.is_some() {
            return false;
        }
        self.members.iter_mut().for_each(|member| member.watch.restart());
        self.freeze = self.next_freeze(now);
        self.frozen_at = Some(now);
        let served_per_s = self.members[index].watch.requests_per_s;
        self.frozen = Some(Frozen { index, normalized, served_per_s, at: now, until: now + self.freeze });
        true
    }

    /// The time of a freeze that begins: twice that of the last one if as much time has not passed
    /// since, so that a curve which stays wrong does less and less harm.
    fn next_freeze(&self, now: Instant) -> Duration {
        let last = self.frozen_at.map(|at| now.since(at));
        let again = last.is_some_and(|last| last < 3 * self.freeze);
        if again { (2 * self.freeze).min(FREEZE_MAX) } else { self.options.freeze }
    }

    /// Reason why `division` is not applied; none if it is.
    fn keeps(
        &mut self,
        now: Instant,
        tenants: &Tenants,
        division: &Division,
        before: &Division,
    ) -> Option<TenantKept> {
        self.frozen = self.frozen.filter(|frozen| frozen.until > now);
        if let Some(Frozen { index, normalized, until, .. }) = self.frozen {
            let tenant = self.terms[index].name.clone();
            return Some(TenantKept::Frozen { tenant, normalized, left: until.since(now) });
        }
        if tenants.base_throughput().iter().all(|&throughput| throughput <= 0.0) {
            return Some(TenantKept::NoDemand);
        }
        let applies = self.forced
            || !self.policy.keeps_baselines()
            || self.owes(tenants)
            || is_better(before, division, self.options.apply_over);
        let keeping = self.members.iter().filter(|member| member.keeps_base).count();
        (!applies).then_some(TenantKept::LittleGain { keeping })
    }

    /// True if the present goal gives a tenant that keeps its baseline less than that.
    fn owes(&self, tenants: &Tenants) -> bool {
        let owes = |(index, seen): (usize, &TenantSeen)| {
            let rates = self.goal.rates.row(TenantId::from_index(index)).iter();
            let mut rates = rates.zip(&seen.floor.rates);
            let is_short = |(rate, floor): (&f64, &f64)| *rate < floor * (1.0 - ROUNDING);
            self.goal.bytes[index] < seen.floor.bytes || rates.any(is_short)
        };
        tenants.seen().iter().enumerate().filter(|(index, _)| self.members[*index].keeps_base).any(owes)
    }

    /// A sentence for each exchange of `division`.
    fn sentences(&self, division: &Division) -> Vec<String> {
        let names: Vec<&str> = self.terms.iter().map(|terms| terms.name.as_str()).collect();
        let units: Vec<String> = self.resources.iter().map(TenantResource::unit).collect();
        let units: Vec<&str> = units.iter().map(String::as_str).collect();
        let sentence =
            |trade| format!("{}: {}", trade_sentence(trade, &names, &units), outcome(trade, division));
        division.trades.iter().map(sentence).collect()
    }

    /// Makes the next step towards the goal. Returns false if nothing changed, and the fault of the
    /// policy's rates if they were refused now but not in the step before.
    pub(super) fn step(&mut self, now: Instant) -> (bool, Option<DivisionFault>) {
        self.steps_at = now + self.options.step;
        let members = self.members.iter().zip(self.goal.tenants.base_throughput());
        let states: Vec<State> = members
            .map(|(member, &base)| State {
                used_bytes: member.used_bytes,
                is_slow: member.is_limited && member.watch.is_slow(base),
            })
            .collect();
        let stepped = self.moving.step(&self.goal, &states);
        let was_refused = std::mem::replace(&mut self.goal.is_refused, stepped.is_err());
        (stepped.unwrap_or(false), stepped.err().filter(|_| !was_refused))
    }
}

impl Member {
    fn observe(&mut self, now: Instant, time: Duration, seen: &TenantObservation, with_curves: bool) {
        let Self { history, parts, .. } = self;
        let grown = history.add(now, seen, |index| {
            let curve = parts.get(index)?.curve.as_ref()?;
            Some(curve.at(seen.partitions[index].used_bytes))
        });
        let same = parts.len() == seen.partitions.len();
        let part = |(index, part): (usize, &TenantPartition)| {
            let before = parts.get(index).filter(|_| same);
            let measured = part.curve.clone().filter(|_| with_curves);
            Part {
                backend: part.backend,
                budget_bytes: part.budget_bytes,
                used_bytes: part.used_bytes,
                curve: measured.or_else(|| before?.curve.clone()),
                variance: before.and_then(|part| part.variance),
                anchor: before.and_then(|part| part.anchor),
            }
        };
        *parts = seen.partitions.iter().enumerate().map(part).collect();
        self.used_bytes =
            seen.partitions.iter().fold(0, |sum: u64, part| sum.saturating_add(part.used_bytes));
        self.waiting = seen.waiting;
        self.requests += grown.requests;
        self.is_limited = seen.waiting > 0 || seen.refused > self.refused;
        self.refused = seen.refused;
        self.watch.add(grown.requests, time, self.is_limited);
    }

    /// Notes the miss ratios at the baseline's sizes, if the partitions had filled those in the
    /// whole window, which covers the time that `measures` them, and drops old ones.
    fn anchor(&mut self, now: Instant, measures: Duration) {
        let (window, time) = self.history.window();
        let has_bytes = self.base_bytes_since.is_some_and(|since| now.since(since) >= time);
        self.is_settled = has_bytes && time >= measures;
        for (index, (part, counts)) in self.parts.iter_mut().zip(&window.parts).enumerate() {
            part.anchor = part.anchor.filter(|anchor| anchor.is_recent(now));
            part.variance = self.history.variance(index);
            let is_settled = is_settled(self.history.used_bytes(index), part.budget_bytes, time);
            self.is_settled &= is_settled;
            if !has_bytes || time < measures || !is_settled || counts.reads.misses == 0 {
                continue;
            }
            if let (Some(curve), Some(variance)) = (&part.curve, part.variance) {
                part.anchor = Some(Anchor::new(now, part.budget_bytes, curve, counts, variance));
            }
        }
    }

    /// Requests per second in the window, and the time at which it began, if the tenant had filled
    /// its baseline in all of it and asked for more.
    fn measured_base(&self, now: Instant) -> Option<(Instant, f64)> {
        let (window, time) = self.history.window();
        let had_base = self.base_since.is_some_and(|since| now.since(since) >= time);
        let is_measured = had_base && self.is_settled && self.watch.asked_for(time);
        is_measured.then(|| (now - time, window.requests as f64 / time.as_secs_f64()))
    }
}

/// True if each tenant has the rates of its baseline.
fn are_of_base(rates: &Rates, tenants: &Tenants) -> bool {
    tenants.seen().iter().enumerate().all(|(index, seen)| {
        let mut both = rates.row(TenantId::from_index(index)).iter().zip(&seen.base.rates);
        both.all(|(rate, base)| (rate - base).abs() <= base * ROUNDING)
    })
}

/// True if a partition, whose items used these least and most bytes in a window, was full in all of
/// it, or grew by so little that its size is the same for as long as a measurement is used.
fn is_settled((least, most): (u64, u64), budget_bytes: u64, time: Duration) -> bool {
    let steady = budget_bytes / STEADY_PARTS;
    // One that was larger in the window has missed less than it will.
    let is_full = least >= budget_bytes - steady && most <= budget_bytes.saturating_add(steady);
    let growth = (most - least) as f64 * (MEMORY.as_secs_f64() / time.as_secs_f64());
    is_full || growth <= most as f64 / STEADY_PARTS as f64
}

/// True if `division` raises the least throughput by more than `over`, or leaves it and raises the
/// next, and so on; or if it keeps baselines that `before` does not.
fn is_better(before: &Division, division: &Division, over: f64) -> bool {
    if before.gain < 1.0 - ROUNDING {
        return division.gain > before.gain + ROUNDING;
    }
    let sorted = |division: &Division| {
        let mut normalized = division.normalized.clone();
        normalized.sort_by(f64::total_cmp);
        normalized
    };
    for (before, after) in sorted(before).into_iter().zip(sorted(division)) {
        if after >= before + over && after > before + ROUNDING {
            return true;
        }
        if after < before - ROUNDING {
            return false;
        }
    }
    false
}

/// Tenants of which nothing is known.
pub(super) fn unknown(resources: &[TenantResource], total: &Share, bases: &[Share]) -> Tenants {
    let seen = bases.iter().map(|base| TenantSeen {
        base: base.clone(),
        floor: Share::default(),
        miss_ratio: DemandCurve::constant(1.0),
        demand: Vec::new(),
    });
    let kinds = resources.iter().map(|resource| resource.kind).collect();
    Tenants::new(kinds, total.clone(), seen.collect())
}

/// A decision as a line of text.
fn line(decision: &TenantDecision) -> String {
    let TenantDecision { policy, division, gain_before, kept, trades, .. } = decision;
    if let Some(kept) = kept {
        return format!("{policy} kept the division between tenants: {kept}");
    }
    let named = trades.iter().take(TRADES_MAX).cloned().collect::<Vec<_>>().join(". ");
    let more = trades.len().saturating_sub(TRADES_MAX);
    let more = if more > 0 { format!(". {more} more exchanges") } else { String::new() };
    let colon = if trades.is_empty() { "" } else { ". " };
    format!(
        "{policy} divides anew: every tenant at least {:.2} times its baseline, {gain_before:.2} before{colon}{named}{more}",
        division.gain
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_that_filled_grew_or_shrank_in_the_window_is_not_settled() {
        let settled = |least, most| is_settled((least, most), 320, Duration::from_secs(60));
        assert_eq!([settled(310, 320), settled(310, 330), settled(320, 320)], [true; 3]);
        assert!(settled(100, 100), "all its items fit");
        assert!(!settled(100, 320), "it was filling");
        assert!(!settled(320, 640), "it had twice the size");
    }
}
