//! The manager: from rates and service times to a plan.

use super::layout::{PossibleLayouts, is_same_layout, moved_ratio};
use super::options::{ManagerAim, ManagerOptions};
use super::trial::Trial;
use super::words;
use crate::slo::{Doubt, PlanFigures, ServiceTimes, StorePlan, cheapest, doubt, plans, predict, ways};

/// Least load, in attempts for each access, for which the plan is changed at the same price.
const LOAD_MIN: f64 = 0.05;

/// Manager of the layout of a replicated store, and of the way in which its duplicates are asked.
///
/// The driver calls [`decide`](Self::decide) when the rate has changed, puts the plan in force, and
/// reports the level that it measures at that rate with [`handle_measured`](Self::handle_measured).
/// The manager reads no clock and makes no change itself.
///
/// ```
/// use sherwood_policy::slo::{Composition, Costs, ServiceTimes, StorePlan};
/// use sherwood_policy::stores::{Manager, ManagerAim, ManagerOptions};
///
/// let times = ServiceTimes::new(vec![(1.0, 0.0), (3.0, 0.99), (100.0, 0.99), (300.0, 1.0)])?;
/// let options = ManagerOptions {
///     nodes: 8,
///     accesses: 1,
///     composition: Composition::Parallel,
///     bound_ms: 15.0,
///     level: 0.999,
///     aim: ManagerAim::BestLevel,
///     costs: Costs { node: 1.0, idle: 1.0 },
///     gain_min: ManagerOptions::GAIN_MIN,
///     move_cost: ManagerOptions::MOVE_COST,
///     error_max: ManagerOptions::ERROR_MAX,
///     hedged_max: 1.0,
///     keeps_layout: false,
///     dry_run: false,
/// };
/// let mut manager = Manager::new(options, StorePlan::all_asked(8, 1));
/// let decision = manager.decide(&times, 20.0, None);
/// assert!(decision.is_change && decision.plan.duplicates > 1, "{}", decision.reason);
/// # Ok::<(), sherwood_policy::slo::CdfError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Manager {
    options: ManagerOptions,
    plan: StorePlan,
    /// Predicted level of the plan in force at the latest rate; none before the first decision.
    predicted: Option<f64>,
    /// The latest measured level.
    measured: Option<f64>,
    /// The latest measured level and its prediction, if they differ too much.
    off: Option<(f64, f64)>,
    /// The latest change, and what was measured after it.
    trial: Trial,
    /// The layouts to choose from; none for as many partitions as the nodes allow.
    possible: Option<PossibleLayouts>,
}

/// A decision of the [`Manager`].
#[derive(Clone, Debug, PartialEq)]
pub struct StoreDecision {
    /// The plan in force from now on.
    pub plan: StorePlan,
    /// The plan that is best, which a dry run does not put in force.
    pub proposed: StorePlan,
    /// True if it differs from the plan before.
    pub is_change: bool,
    /// The predicted level of the plan at the present rate.
    pub predicted: f64,
    /// The reason, a sentence with the expected effect.
    pub reason: String,
}

/// A plan with its figures and its score, of which the highest is best.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    plan: StorePlan,
    figures: PlanFigures,
    score: f64,
}

impl Manager {
    /// Creates the manager of a store in this layout.
    #[must_use]
    pub fn new(options: ManagerOptions, plan: StorePlan) -> Self {
        let trial = Trial::default();
        Self { options, plan, predicted: None, measured: None, off: None, trial, possible: None }
    }

    /// Has the manager choose among these layouts of the store, in partitions and duplicates, which
    /// are on the nodes of its present one: some of the duplicates of each partition, or partitions
    /// put together on all of their nodes. No effect while the layout is kept.
    #[must_use]
    pub fn among(self, layouts: impl IntoIterator<Item = (u32, u32)>) -> Self {
        Self { possible: Some(PossibleLayouts::new(self.plan, layouts)), ..self }
    }

    /// True if the manager never changes partitions and duplicates.
    #[must_use]
    pub fn keeps_layout(&self) -> bool {
        self.options.keeps_layout
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> &StorePlan {
        &self.plan
    }

    /// True while predicted and measured level differ too much for a change.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.off.is_some()
    }

    /// The predicted level of the plan in force; none before the first prediction.
    #[must_use]
    pub fn predicted(&self) -> Option<f64> {
        self.predicted
    }

    /// Takes over the plan that is in force, which others may have changed.
    pub fn adopt(&mut self, plan: StorePlan) {
        let way = |plan: &StorePlan| (plan.asked, plan.hedge_ms.is_some());
        if !is_same_layout(&self.plan, &plan) || way(&self.plan) != way(&plan) {
            self.trial.end();
        }
        self.plan = plan;
    }

    /// Sets if changes are only said.
    pub fn set_dry_run(&mut self, dry_run: bool) {
        self.options.dry_run = dry_run;
    }

    /// Sets the SLO: the share of the requests that are to end within the bound.
    pub fn set_slo(&mut self, bound_ms: f64, level: f64) {
        (self.options.bound_ms, self.options.level) = (bound_ms, level);
    }

    /// Decides on the plan for the present rate, in accesses a second. `forecast` is the rate that
    /// follows for about as long, such as that of the night: a layout is better if it suits both,
    /// since data moves less often. With [`ManagerAim::Cheapest`] it has no effect. Takes some
    /// 50 ms.
    pub fn decide(
        &mut self,
        times: &ServiceTimes,
        rate_per_s: f64,
        forecast_per_s: Option<f64>,
    ) -> StoreDecision {
        let candidates = self.candidates(times, rate_per_s, forecast_per_s);
        let present = self.present(times, rate_per_s, forecast_per_s, &candidates);
        self.predicted = Some(present.figures.service_level);
        if let Some((measured, predicted)) = self.off {
            if let Some((former, before)) = self.trial.take_harm(&self.plan, self.options.dry_run) {
                return self.go_back(times, rate_per_s, former, [measured, predicted, before]);
            }
            let [measured, predicted] = [measured, predicted].map(words::percent);
            let reason = format!("the model is off: measured {measured}, predicted {predicted}");
            return self.kept(&present, &reason);
        }
        // A present hedge that is in doubt may do harm, whatever is predicted of it.
        let doubt = self.plan.hedge_ms.and_then(|_| doubt(&self.plan, &present.figures, None));
        let best = self.best(&candidates, &present);
        let is_too_large = !self.options.keeps_layout && self.plan.nodes() > self.options.nodes;
        let is_left = doubt.is_some() || is_too_large;
        let chosen = best.filter(|best| is_left || self.is_worth_it(best, &present));
        let Some(chosen) = chosen else {
            let is_watched = self.options.aim == ManagerAim::Present;
            let reason = if is_watched { "it is as configured" } else { "no other plan gains enough" };
            return self.kept(&present, reason);
        };
        self.change(&present, &chosen, rate_per_s, doubt)
    }

    /// Notes the share of requests that ended within the bound since the latest decision. Returns a
    /// sentence if that is the effect of a change, or if changes end or begin to be held back.
    pub fn handle_measured(&mut self, level: f64) -> Option<String> {
        self.measured = Some(level);
        let predicted = self.predicted?;
        let was_frozen = self.is_frozen();
        let is_off = (level - predicted).abs() > self.options.error_max;
        self.off = is_off.then_some((level, predicted));
        let is_news = self.trial.handle_measured(level, is_off) || is_off != was_frozen;
        let so = match (was_frozen, is_off) {
            (_, true) => "; the plan stays while they differ by so much",
            (true, false) => "; plans may change again",
            (false, false) => "",
        };
        is_news.then(|| {
            let plan = self.plan;
            let [level, predicted] = [level, predicted].map(words::percent);
            format!("{plan}: measured {level}, predicted {predicted}{so}")
        })
    }

    /// Notes what was measured in a window, as [`handle_measured`](Self::handle_measured), beside
    /// what the model predicts for the service times and the rate of that window.
    pub fn handle_window(&mut self, times: &ServiceTimes, rate_per_s: f64, level: f64) -> Option<String> {
        let figures = predict(times, &self.options.objective(rate_per_s), &self.plan);
        self.predicted = Some(figures.service_level);
        self.handle_measured(level)
    }

    /// Returns the plans that the nodes allow, with their scores.
    fn candidates(
        &self,
        times: &ServiceTimes,
        rate_per_s: f64,
        forecast_per_s: Option<f64>,
    ) -> Vec<Candidate> {
        let ManagerOptions { level, nodes, costs, aim, keeps_layout, hedged_max, .. } = self.options;
        if aim == ManagerAim::Present {
            return Vec::new();
        }
        let of_rate = |rate_per_s: f64| {
            let objective = self.options.objective(rate_per_s);
            if keeps_layout {
                return ways(times, &objective, &self.plan);
            }
            if let Some(possible) = &self.possible {
                return possible.on(nodes).flat_map(|layout| ways(times, &objective, layout)).collect();
            }
            let all = plans(times, &objective, level, nodes, &costs).into_iter();
            let fewest = (aim == ManagerAim::Cheapest).then(|| cheapest(times, &objective, level, &costs));
            let fewest = fewest.into_iter().flatten().filter(|priced| priced.nodes <= nodes);
            all.chain(fewest).map(|priced| (priced.plan, priced.figures)).collect::<Vec<_>>()
        };
        let later = forecast_per_s.filter(|_| aim == ManagerAim::BestLevel).map(of_rate).unwrap_or_default();
        let candidate = |(plan, figures): (StorePlan, PlanFigures)| {
            let same = later.iter().filter(|(other, _)| is_same_layout(other, &plan));
            let later = same.map(|(_, figures)| figures.service_level).max_by(f64::total_cmp);
            self.candidate(plan, figures, later)
        };
        let is_possible = |(plan, figures): &(StorePlan, PlanFigures)| {
            let is_paid = plan.hedge_ms.is_none() || figures.extra_load_ratio <= hedged_max;
            is_paid && !self.trial.avoids(plan)
        };
        of_rate(rate_per_s).into_iter().filter(is_possible).map(candidate).collect()
    }

    /// Returns the plan in force as a candidate.
    fn present(
        &self,
        times: &ServiceTimes,
        rate_per_s: f64,
        forecast_per_s: Option<f64>,
        candidates: &[Candidate],
    ) -> Candidate {
        if let Some(known) = candidates.iter().find(|candidate| candidate.plan == self.plan) {
            return *known;
        }
        let level = |rate_per_s| predict(times, &self.options.objective(rate_per_s), &self.plan);
        let later = forecast_per_s.map(|rate_per_s| level(rate_per_s).service_level);
        self.candidate(self.plan, level(rate_per_s), later)
    }

    /// Returns a plan with its score, from its level at the present rate and the level that its
    /// layout may have at the forecast one.
    fn candidate(&self, plan: StorePlan, figures: PlanFigures, later: Option<f64>) -> Candidate {
        let ManagerOptions { aim, level, nodes, costs, move_cost, .. } = self.options;
        let worth = match aim {
            ManagerAim::BestLevel | ManagerAim::Present => {
                later.map_or(figures.service_level, |later| (figures.service_level + later) / 2.0)
            }
            // A plan that meets the SLO is better than any that does not.
            ManagerAim::Cheapest if figures.service_level < level => figures.service_level - 1.0,
            ManagerAim::Cheapest => {
                let idle = f64::from(nodes.saturating_sub(plan.nodes()));
                let cost = f64::from(plan.nodes()) * costs.node + idle * costs.idle;
                1.0 - cost / (f64::from(nodes) * costs.node).max(f64::MIN_POSITIVE)
            }
        };
        Candidate { plan, figures, score: worth - move_cost * self.moved_ratio(&plan) }
    }

    /// Returns the share of the data of a plan that has to move for it.
    fn moved_ratio(&self, to: &StorePlan) -> f64 {
        let possible = self.possible.as_ref();
        possible.map_or_else(|| moved_ratio(&self.plan, to), |possible| possible.moved_ratio(&self.plan, to))
    }

    /// Returns the best candidate: of those that are nearly as good as the one with the highest
    /// score, the one with the least extra load.
    fn best(&self, candidates: &[Candidate], present: &Candidate) -> Option<Candidate> {
        let safe = || candidates.iter().filter(|candidate| self.is_safe(candidate, present));
        let highest = safe().map(|candidate| candidate.score).max_by(f64::total_cmp)?;
        let near = safe().filter(|candidate| candidate.score >= highest - self.options.gain_min);
        near.min_by(|a, b| {
            let load = a.figures.extra_load_ratio.total_cmp(&b.figures.extra_load_ratio);
            load.then(b.score.total_cmp(&a.score))
        })
        .copied()
    }

    /// Returns false for a plan that would save nodes and soon be changed back: where the present
    /// plan meets the SLO, [`ManagerAim::Cheapest`] wants a margin.
    fn is_safe(&self, candidate: &Candidate, present: &Candidate) -> bool {
        let ManagerOptions { aim, level, .. } = self.options;
        let is_changed_for_less = aim == ManagerAim::Cheapest
            && candidate.plan != present.plan
            && present.figures.service_level >= level;
        !is_changed_for_less || self.has_margin(candidate)
    }

    /// Returns true if at most half of the requests that the SLO allows are late.
    fn has_margin(&self, candidate: &Candidate) -> bool {
        candidate.figures.service_level >= (1.0 + self.options.level) / 2.0
    }

    /// Returns true if the plan gains enough to be changed to: a higher score, or with
    /// [`ManagerAim::Cheapest`] less load for the same price, with a margin.
    fn is_worth_it(&self, best: &Candidate, present: &Candidate) -> bool {
        let ManagerOptions { aim, gain_min, .. } = self.options;
        let saved = present.figures.extra_load_ratio - best.figures.extra_load_ratio;
        let is_saving = aim == ManagerAim::Cheapest
            && best.score >= present.score
            && saved >= LOAD_MIN
            && self.has_margin(best);
        best.score > present.score + gain_min || is_saving
    }

    fn kept(&self, present: &Candidate, reason: &str) -> StoreDecision {
        let predicted = present.figures.service_level;
        let (plan, level) = (self.plan, words::percent(predicted));
        let reason = format!("{plan} stay, {level} expected: {reason}");
        StoreDecision { plan: self.plan, proposed: self.plan, is_change: false, predicted, reason }
    }

    /// Returns to the plan before the latest change: these are the measured and the predicted level
    /// after it, and the measured one before.
    fn go_back(
        &mut self,
        times: &ServiceTimes,
        rate_per_s: f64,
        former: StorePlan,
        levels: [f64; 3],
    ) -> StoreDecision {
        let predicted = predict(times, &self.options.objective(rate_per_s), &former).service_level;
        let [measured, expected, before] = levels.map(words::percent);
        let mut reason = format!(
            "{} → {former}: back, since {measured} of the requests were within {} ms after the change, where {expected} \
             were expected, and {before} before it",
            self.plan, self.options.bound_ms,
        );
        reason += &self.moved(&former);
        (self.plan, self.predicted) = (former, Some(predicted));
        StoreDecision { plan: former, proposed: former, is_change: true, predicted, reason }
    }

    /// Returns the end of a sentence about a change: how much data moves.
    fn moved(&self, to: &StorePlan) -> String {
        let moved = self.moved_ratio(to);
        if moved > 0.0 { format!("; {:.0}% of the data move", moved * 100.0) } else { String::new() }
    }

    /// Changes the plan, unless changes are only said.
    fn change(
        &mut self,
        present: &Candidate,
        chosen: &Candidate,
        rate_per_s: f64,
        doubt: Option<Doubt>,
    ) -> StoreDecision {
        let ManagerOptions { dry_run, bound_ms, .. } = self.options;
        let [before, after] = [present, chosen].map(|candidate| candidate.figures.service_level);
        let mut reason = format!(
            "{} → {}: at {rate_per_s:.0} accesses a second {} of the requests are expected within {bound_ms} ms in \
             place of {}",
            self.plan,
            chosen.plan,
            words::percent(after),
            words::percent(before),
        );
        if let Some(doubt) = doubt {
            reason += &format!(", which is in doubt: {doubt}");
        }
        reason += &self.moved(&chosen.plan);
        if dry_run {
            reason += "; not made, since this is a dry run";
            let (plan, proposed) = (self.plan, chosen.plan);
            return StoreDecision { plan, proposed, is_change: false, predicted: before, reason };
        }
        self.trial.begin(self.plan, self.measured);
        (self.plan, self.predicted) = (chosen.plan, Some(after));
        StoreDecision { plan: self.plan, proposed: self.plan, is_change: true, predicted: after, reason }
    }
}

#[cfg(test)]
mod tests;
