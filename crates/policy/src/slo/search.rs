//! Plans for the nodes at hand, and the cheapest plan that meets an objective.

use serde::Serialize;

use super::{DUPLICATES_MAX, Objective, PlanFigures, ServiceTimes, StorePlan, doubt, predict};

/// Shares of service times at which hedges are tried.
const HEDGED_AT: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
/// Most nodes that a search looks at.
const NODES_MAX: u32 = 1 << 20;

/// Prices of nodes for an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The price of a node in use.
    pub node: f64,
    /// The price of a node at hand that is not used.
    pub idle: f64,
}

/// A plan with its figures and price.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PricedPlan {
    /// The plan.
    #[serde(flatten)]
    pub plan: StorePlan,
    /// Nodes that the plan uses.
    pub nodes: u32,
    /// The predicted figures.
    #[serde(flatten)]
    pub figures: PlanFigures,
    /// Price of an hour, of nodes that are not used, too.
    pub cost: f64,
    /// True if enough requests end within the bound.
    pub meets: bool,
}

/// Returns a plan for each number of duplicates, and each way to ask them, with as many partitions
/// as `nodes` nodes allow, the best first: the highest level, and of equal ones the cheapest.
/// Hedges of which there is a [`doubt`] are left out. The best level never falls with more nodes.
/// Takes some 20 ms.
#[must_use]
pub fn plans(
    times: &ServiceTimes,
    objective: &Objective,
    level: f64,
    nodes: u32,
    costs: &Costs,
) -> Vec<PricedPlan> {
    let of_nodes = |shape: StorePlan| {
        let plan = StorePlan { partitions: nodes / shape.duplicates, ..shape };
        (plan.partitions > 0).then(|| priced(times, objective, level, plan, nodes, costs))
    };
    let priced = shapes(times, objective).filter_map(of_nodes);
    let mut plans: Vec<PricedPlan> =
        priced.filter(|priced| is_sound(&priced.plan, &priced.figures)).collect();
    plans.sort_by(|a, b| {
        let levels = b.figures.service_level.total_cmp(&a.figures.service_level);
        levels.then(a.cost.total_cmp(&b.cost)).then(a.nodes.cmp(&b.nodes))
    });
    plans
}

/// Returns, for each number of duplicates and each way to ask them, the plan with the fewest nodes
/// that meets the objective, if one does; the cheapest first, and of equal ones that with the
/// fewest duplicates. Hedges of which there is a [`doubt`] do not count as meeting it. Takes some
/// 100 ms.
#[must_use]
pub fn cheapest(times: &ServiceTimes, objective: &Objective, level: f64, costs: &Costs) -> Vec<PricedPlan> {
    let meets = |plan: &StorePlan| {
        let figures = predict(times, objective, plan);
        figures.service_level >= level && is_sound(plan, &figures)
    };
    // Similar plans need about as many nodes.
    let mut nodes = 1;
    let fewest = |shape: StorePlan| {
        let of = |partitions| StorePlan { partitions, ..shape };
        let most = NODES_MAX / shape.duplicates;
        let partitions = least(nodes / shape.duplicates, most, |partitions| meets(&of(partitions)))?;
        let plan = of(partitions);
        nodes = plan.nodes();
        Some(priced(times, objective, level, plan, nodes, costs))
    };
    let mut plans: Vec<PricedPlan> = shapes(times, objective).filter_map(fewest).collect();
    plans.sort_by(|a, b| {
        // Duplicates cost memory, even where they are hardly asked.
        let memory = a.plan.duplicates.cmp(&b.plan.duplicates);
        let load = a.figures.extra_load_ratio.total_cmp(&b.figures.extra_load_ratio);
        a.cost.total_cmp(&b.cost).then(memory).then(load)
    });
    plans
}

/// Returns the least number from 1 to `most` that meets a condition which all greater ones meet,
/// too; none if `most` does not. Begins at `guess`, and asks for O(log |guess - result|) numbers.
fn least(guess: u32, most: u32, meets: impl Fn(u32) -> bool) -> Option<u32> {
    if !meets(most) {
        return None;
    }
    let guess = guess.clamp(1, most);
    let (mut below, mut above, mut step) = (guess, guess, 1);
    if meets(guess) {
        while below > 0 && meets(below) {
            (above, below, step) = (below, below.saturating_sub(step), step * 2);
        }
    } else {
        above = most.min(guess + step);
        while !meets(above) {
            step *= 2;
            (below, above) = (above, most.min(above + step));
        }
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if meets(middle) { above = middle } else { below = middle }
    }
    Some(above)
}

/// Returns the ways to ask the duplicates of a plan's layout, with their figures, without hedges of
/// which there is a [`doubt`].
#[must_use]
pub fn ways(
    times: &ServiceTimes,
    objective: &Objective,
    layout: &StorePlan,
) -> Vec<(StorePlan, PlanFigures)> {
    let of_layout = |shape: &StorePlan| shape.duplicates == layout.duplicates;
    let alone = StorePlan { asked: 1, ..StorePlan::all_asked(1, layout.duplicates) };
    let alone = (layout.duplicates > 1).then_some(alone);
    let shapes = alone.into_iter().chain(shapes(times, objective).filter(of_layout));
    let plans = shapes.map(|shape| StorePlan { partitions: layout.partitions, ..shape });
    let predicted = plans.map(|plan| (plan, predict(times, objective, &plan)));
    predicted.filter(|(plan, figures)| is_sound(plan, figures)).collect()
}

/// Returns false for hedges that may do the opposite of what is predicted: a duplicate that is slow
/// leaves its accesses to others, which then have theirs hedged as well. Where all are asked, or
/// one alone, the load does not depend on times, and a prediction in doubt still ranks plans.
fn is_sound(plan: &StorePlan, figures: &PlanFigures) -> bool {
    plan.hedge_ms.is_none() || doubt(plan, figures, None).is_none()
}

/// All numbers of duplicates and ways to ask them, with one partition.
fn shapes(times: &ServiceTimes, objective: &Objective) -> impl Iterator<Item = StorePlan> {
    let mut hedges: Vec<f64> = HEDGED_AT.iter().map(|share| times.quantile_ms(*share)).collect();
    hedges.retain(|hedge_ms| *hedge_ms > 0.0 && *hedge_ms < objective.bound_ms);
    hedges.dedup();
    (1..=DUPLICATES_MAX).flat_map(move |duplicates| {
        let shape = move |asked, hedge_ms| StorePlan { partitions: 1, duplicates, asked, hedge_ms };
        let hedged: Vec<_> = hedges.iter().map(|hedge_ms| shape(1, Some(*hedge_ms))).collect();
        let hedged = hedged.into_iter().filter(move |_| duplicates > 1);
        std::iter::once(shape(duplicates, None)).chain(hedged)
    })
}

fn priced(
    times: &ServiceTimes,
    objective: &Objective,
    level: f64,
    plan: StorePlan,
    at_hand: u32,
    costs: &Costs,
) -> PricedPlan {
    let (figures, nodes) = (predict(times, objective, &plan), plan.nodes());
    let idle = f64::from(at_hand.saturating_sub(nodes));
    let cost = f64::from(nodes) * costs.node + idle * costs.idle;
    PricedPlan { plan, nodes, figures, cost, meets: figures.service_level >= level }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_number_is_found_from_any_guess_with_few_questions() {
        for result in 1..=70 {
            for guess in 0..=80 {
                let asked = std::cell::Cell::new(0);
                let meets = |number: u32| {
                    assert!((1..=70).contains(&number), "{number} is out of range");
                    asked.set(asked.get() + 1);
                    number >= result
                };
                assert_eq!(least(guess, 70, meets), Some(result), "from {guess}");
                assert!(asked.get() <= 17, "{} questions from {guess} to {result}", asked.get());
            }
        }
        assert_eq!(least(5, 70, |_| false), None);
    }
}
