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
    let fewest = |shape: StorePlan| {
        let of = |partitions| StorePlan { partitions, ..shape };
        let mut above = 1;
        while !meets(&of(above)) {
            above = above.checked_mul(2).filter(|more| *more <= NODES_MAX / shape.duplicates)?;
        }
        let mut below = above / 2;
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if meets(&of(middle)) { above = middle } else { below = middle }
        }
        let plan = of(above);
        Some(priced(times, objective, level, plan, plan.nodes(), costs))
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
