//! The way from one division to another, in small steps.
//!
//! A step moves at most a 64th of a tenant's baseline. It first changes rates towards those that
//! the policy gives at the next step's division, in which donors have less cache and receivers miss
//! as before: what they received is cold until they have filled it. Then, if every donor has the
//! units that it needs with less cache, the bytes move. So compensation comes before the loss, and
//! a receiver returns units as it fills its cache, whatever time that takes.
//!
//! Warming takes units, too. Bytes move as long as everyone's throughput at the baseline can be
//! paid for; where that leaves nothing, a step waits until the ones before have warmed. A donor
//! that is measured to be slow gives no more until it has recovered, or the next decision knows
//! better.

use sherwood_model::{Rates, TenantId};

use crate::share::share;
use crate::tenants::baseline::{Baseline, base_rates};
use crate::tenants::checked::check_rates;
use crate::tenants::{DivisionFault, Share, TenantPolicy, Tenants};

/// A step moves at most a tenant's baseline divided by this. Chosen so that the loss by a step is
/// within the two percent that the watch tolerates, and is observed before the next step.
const STEPS: u64 = 64;
/// Least multiple of their baselines' throughput that all tenants have while moved cache is cold:
/// two percent are for effects that the model ignores. Chosen: equal to the loss of measured
/// throughput that is tolerated.
const LEVEL_PAID: f64 = 1.02;
/// The same multiple for a single step where nothing else is cold. Chosen: equal to the loss of
/// measured throughput that is tolerated.
const LEVEL_STEP: f64 = 0.98;
/// Relative difference of a need that counts as rounding. Chosen above the rounding error of a sum
/// of 1,024 rates.
const ROUNDING: f64 = 1e-9;
/// Loss of throughput to cold cache, as a part of the level, up to which everything counts as warm.
/// Chosen as half of the loss that a step may cause.
const WARM: f64 = 0.01;
/// Steps without growth after which a tenant has filled what it can: all its keys fit. Chosen as
/// ten seconds with the default step.
const SETTLED: u32 = 40;

/// The division to reach.
#[derive(Clone)]
pub(super) struct Goal {
    /// The tenants at the decision.
    pub(super) tenants: Tenants,
    pub(super) bytes: Vec<u64>,
    /// Rates where all tenants have filled their bytes.
    pub(super) rates: Rates,
    /// The policy that gives rates on the way.
    pub(super) policy: Box<dyn TenantPolicy>,
    /// True if no tenant may lose by the way. False on the way back to the baselines, and for
    /// policies that do not keep them.
    pub(super) careful: bool,
    /// True while the policy's rates during the move are refused, which is reported once per goal.
    pub(super) is_refused: bool,
}

/// Measurements of a tenant at a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    /// Bytes charged for the tenant's items.
    pub(super) used_bytes: u64,
    /// True if the tenant is well below its baseline's throughput and waits for units, so that
    /// the curves may hide what it loses.
    pub(super) is_slow: bool,
}

/// Holdings of all tenants on their way to a [`Goal`].
#[derive(Clone, Debug)]
pub(super) struct Moving {
    pub(super) bytes: Vec<u64>,
    pub(super) rates: Rates,
    /// Bytes that each tenant received and has not filled.
    cold: Vec<u64>,
    /// Most bytes that each tenant used since it received some, and the steps since they grew.
    filled: Vec<(u64, u32)>,
}

impl Goal {
    /// The baselines of `tenants`.
    pub(super) fn baselines(tenants: Tenants) -> Self {
        let (bytes, rates) = (tenants.base_bytes(), base_rates(&tenants));
        Self { tenants, bytes, rates, policy: Box::new(Baseline), careful: false, is_refused: false }
    }
}

impl Moving {
    pub(super) fn new(bytes: Vec<u64>, rates: Rates) -> Self {
        let (cold, filled) = (vec![0; bytes.len()], vec![(0, 0); bytes.len()]);
        Self { bytes, rates, cold, filled }
    }

    /// Changes the number of tenants and fits what they have to the totals. Tenants that join have
    /// nothing.
    pub(super) fn resize(&mut self, count: usize, total: &Share) {
        let mut rates = Rates::zero(count, total.rates.len());
        for index in 0..count.min(self.bytes.len()) {
            let id = TenantId::from_index(index);
            rates.row_mut(id).copy_from_slice(self.rates.row(id));
        }
        self.rates = rates;
        self.bytes.resize(count, 0);
        self.cold.resize(count, 0);
        self.filled.resize(count, (0, 0));
        fit(&mut self.bytes, &mut self.rates, total);
        self.cold.iter_mut().zip(&self.bytes).for_each(|(cold, bytes)| *cold = (*cold).min(*bytes));
    }

    /// Makes the next step; false if nothing changed. O(resources² × tenants).
    ///
    /// # Errors
    /// The policy's rates during the move are not a valid division of the totals; the tenants'
    /// bytes and rates then stay unchanged.
    pub(super) fn step(&mut self, goal: &Goal, states: &[State]) -> Result<bool, DivisionFault> {
        self.see(states);
        let next = next_split(&goal.tenants, &self.bytes, &self.open_goal(goal, states));
        let mut warm = self.warm(&next);
        let moves = next != self.bytes && (!goal.careful || self.may_move(goal, &next, &warm));
        if !moves {
            warm = self.warm(&self.bytes);
        }
        let wanted = goal.policy.rates(&goal.tenants, &warm);
        check_rates(&wanted, self.bytes.len(), &goal.tenants.total().rates)?;
        let mut changed = approach(&mut self.rates, &wanted, &goal.tenants);
        if moves && (!goal.careful || self.is_compensated(goal, &next, &warm, &wanted)) {
            for (index, &next) in next.iter().enumerate() {
                let before = std::mem::replace(&mut self.bytes[index], next);
                if next > before {
                    self.filled[index] = (states[index].used_bytes, 0);
                }
                // A donor gives the bytes that it has not filled first.
                self.cold[index] = (self.cold[index] + next.saturating_sub(before))
                    .saturating_sub(before.saturating_sub(next));
            }
            changed = true;
        }
        Ok(changed)
    }

    /// Notes the bytes that are filled by now.
    fn see(&mut self, states: &[State]) {
        for (index, (cold, &State { used_bytes, .. })) in self.cold.iter_mut().zip(states).enumerate() {
            *cold = (*cold).min(self.bytes[index].saturating_sub(used_bytes));
            let (most, steps) = &mut self.filled[index];
            *steps = if used_bytes > *most { 0 } else { *steps + 1 };
            *most = used_bytes.max(*most);
            if *steps >= SETTLED {
                (*cold, *steps) = (0, 0);
            }
        }
    }

    /// The bytes of the goal, except that tenants which are slow give none on a careful way.
    fn open_goal(&self, goal: &Goal, states: &[State]) -> Vec<u64> {
        let bytes = goal.bytes.iter().zip(&self.bytes).zip(states);
        let open = bytes.map(
            |((&goal_bytes, &bytes), state)| {
                if goal.careful && state.is_slow { goal_bytes.max(bytes) } else { goal_bytes }
            },
        );
        open.collect()
    }

    /// The bytes of each tenant that are filled, or were its own, if `split` were the next.
    fn warm(&self, split: &[u64]) -> Vec<u64> {
        let filled = self.bytes.iter().zip(&self.cold).map(|(bytes, cold)| bytes - cold);
        filled.zip(split).map(|(filled, &next)| filled.min(next)).collect()
    }

    /// True if the step to `next`, after which only the bytes `warm` are filled, may be made. It
    /// leaves everyone its baseline's throughput; or all that moved before has been filled, and the
    /// step costs at most two percent, or gains something once it is filled as well.
    fn may_move(&self, goal: &Goal, next: &[u64], warm: &[u64]) -> bool {
        let reached = level(&goal.tenants, warm);
        if reached >= LEVEL_PAID {
            return true;
        }
        let (now, filled) =
            (level(&goal.tenants, &self.warm(&self.bytes)), level(&goal.tenants, &self.bytes));
        let is_warm = now >= filled * (1.0 - WARM);
        is_warm && (reached >= LEVEL_STEP || level(&goal.tenants, next) > filled)
    }

    /// True if every donor has the units that it needs with its next size, as far as the policy
    /// gives them.
    fn is_compensated(&self, goal: &Goal, next: &[u64], warm: &[u64], wanted: &Rates) -> bool {
        let tenants = &goal.tenants;
        let donors = (0..next.len()).filter(|&index| next[index] < self.bytes[index]);
        donors.into_iter().all(|index| {
            let id = TenantId::from_index(index);
            let throughput = tenants.base_throughput()[index];
            let needs = tenants.seen()[index].demand.iter().map(|curve| curve.at(warm[index]) * throughput);
            let given = needs.zip(wanted.row(id)).map(|(need, wanted)| need.min(*wanted));
            self.rates.row(id).iter().zip(given).all(|(held, given)| *held >= given * (1.0 - ROUNDING))
        })
    }
}

/// The multiple of the baselines' throughput that all tenants reach together with these bytes.
fn level(tenants: &Tenants, bytes: &[u64]) -> f64 {
    let mut needs = vec![0.0; tenants.kinds().len()];
    for ((seen, throughput), &bytes) in tenants.seen().iter().zip(tenants.base_throughput()).zip(bytes) {
        for (need, curve) in needs.iter_mut().zip(&seen.demand) {
            *need += throughput * curve.at(bytes);
        }
    }
    let levels = tenants.total().rates.iter().zip(needs).filter(|(_, need)| *need > 0.0);
    levels.map(|(total, need)| total / need).fold(f64::INFINITY, f64::min)
}

/// The largest changes of a tenant's holdings in a step: a 64th of its baseline, or of the mean of
/// all if it has none.
fn step_bytes(tenants: &Tenants, index: usize) -> u64 {
    let base = tenants.seen()[index].base.bytes;
    let mean = tenants.total().bytes / tenants.len().max(1) as u64;
    (if base > 0 { base } else { mean }).div_ceil(STEPS).max(1)
}

fn step_rate(tenants: &Tenants, index: usize, resource: usize) -> f64 {
    let base = tenants.seen()[index].base.rates[resource];
    let mean = tenants.total().rates[resource] / tenants.len().max(1) as f64;
    (if base > 0.0 { base } else { mean }) / STEPS as f64
}

/// The division one step from `from` towards `to`: each donor gives at most a step, and the
/// receivers get these bytes and the unassigned ones, at most a step each.
fn next_split(tenants: &Tenants, from: &[u64], to: &[u64]) -> Vec<u64> {
    let wish = |(index, (from, to)): (usize, (&u64, &u64))| {
        let most = step_bytes(tenants, index);
        (from.saturating_sub(*to).min(most), to.saturating_sub(*from).min(most))
    };
    let (offers, wishes): (Vec<u64>, Vec<u64>) = from.iter().zip(to).enumerate().map(wish).unzip();
    let sum = crate::bounds::sum;
    let free = u128::from(tenants.total().bytes).saturating_sub(sum(from));
    let wished = sum(&wishes);
    let weights = crate::bounds::as_weights;
    let gifts = share(wished.min(free + sum(&offers)), &weights(&wishes), &wishes);
    // Where the goal leaves bytes free, donors also give up bytes that no tenant receives.
    let surplus = sum(from).saturating_sub(sum(to));
    let given = (sum(&gifts).saturating_sub(free) + surplus).min(sum(&offers));
    let gives = share(given, &weights(&offers), &offers);
    let next = from.iter().zip(gives).zip(gifts).map(|((from, give), gift)| from - give + gift);
    next.collect()
}

/// Moves `rates` towards `wanted`, each by at most a step; what tenants gain was given up by others
/// before, or free. False if nothing changed.
fn approach(rates: &mut Rates, wanted: &Rates, tenants: &Tenants) -> bool {
    let mut changed = false;
    for (i, &total) in tenants.total().rates.iter().enumerate() {
        let (mut held, mut wished) = (0.0, 0.0);
        for index in 0..tenants.len() {
            let id = TenantId::from_index(index);
            let (most, want) = (step_rate(tenants, index, i), wanted.row(id)[i]);
            let rate = &mut rates.row_mut(id)[i];
            if want < *rate {
                *rate = want.max(*rate - most);
                changed = true;
            }
            held += *rate;
            wished += (want - *rate).clamp(0.0, most);
        }
        let free = (total - held).max(0.0);
        let part = if wished > free { free / wished } else { 1.0 };
        if wished <= 0.0 || part <= 0.0 {
            continue;
        }
        for index in 0..tenants.len() {
            let id = TenantId::from_index(index);
            let (most, want) = (step_rate(tenants, index, i), wanted.row(id)[i]);
            let rate = &mut rates.row_mut(id)[i];
            // A tenant that gave up units above has at most what is wanted.
            if want > *rate {
                *rate += (want - *rate).min(most) * part;
                changed = true;
            }
        }
    }
    changed
}

/// Fits holdings to new totals: each has its part of what it had.
fn fit(bytes: &mut [u64], rates: &mut Rates, total: &Share) {
    let sum = crate::bounds::sum(bytes);
    if sum > u128::from(total.bytes) {
        let fitted = share(total.bytes.into(), &crate::bounds::as_weights(bytes), bytes);
        bytes.copy_from_slice(&fitted);
    }
    for (i, &total) in total.rates.iter().enumerate() {
        let ids = || (0..bytes.len()).map(TenantId::from_index);
        let sum: f64 = ids().map(|id| rates.row(id)[i]).sum();
        if sum > total {
            ids().for_each(|id| rates.row_mut(id)[i] *= total / sum);
        }
    }
}

#[cfg(test)]
mod tests;
