//! Figures stated in the text of RobinHood's paper (Berger et al., OSDI 2018, section 5).

use super::Relation::{self, AtLeast, AtMost};
use super::measure::Measure::{
    self, DominantRbcAt, DominantRbcMax, DominantRbcMean, P90Above50Ms, P99AgainstRobinhood, P99Max,
    SloViolation, StaticEquivalent,
};

/// A figure that the paper states.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stated {
    pub(super) scenario: &'static str,
    pub(super) policy: &'static str,
    /// True when the paper found this policy the best competitor of RobinHood there.
    pub(super) next_best: bool,
    pub(super) measure: Measure,
    pub(super) relation: Relation,
    pub(super) paper: f64,
}

/// Policies that RobinHood is compared with.
pub(super) const COMPETITORS: [&str; 5] = ["shared-lru", "tao", "cliffhanger", "fair", "lama"];

const ROBINHOOD: &str = "robinhood";

/// Returns all figures that the paper states, ordered by scenario.
pub(super) fn all() -> Vec<Stated> {
    let spikes = "onerf-spikes";
    let mut all = vec![
        stated(spikes, ROBINHOOD, SloViolation, AtMost, 0.003),
        // The paper's next best policy has 30%, so every other policy has at least 30%.
        next_best(spikes, "shared-lru", 0.30),
    ];
    let others = COMPETITORS.into_iter().filter(|&policy| policy != "shared-lru");
    all.extend(others.map(|policy| stated(spikes, policy, SloViolation, AtLeast, 0.30)));
    all.extend([
        stated(spikes, ROBINHOOD, P90Above50Ms, AtMost, 0.01),
        stated(spikes, "shared-lru", P90Above50Ms, AtLeast, 0.20),
        stated(spikes, ROBINHOOD, DominantRbcAt, AtMost, 0.54),
    ]);
    let each =
        |measure, paper| COMPETITORS.map(move |policy| stated(spikes, policy, measure, AtLeast, paper));
    all.extend(each(DominantRbcMax, 0.85));
    all.extend(each(DominantRbcMean, 0.70));
    all.extend(each(P99AgainstRobinhood, 3.0));
    all.extend([
        stated(spikes, ROBINHOOD, StaticEquivalent, AtLeast, 1.73),
        stated("ramp-7-slow", ROBINHOOD, SloViolation, AtMost, 0.0),
        next_best("ramp-7-slow", "lama", 0.033),
        stated("ramp-7-quick", ROBINHOOD, SloViolation, AtMost, 0.015),
        next_best("ramp-7-quick", "lama", 0.38),
        stated("ramp-1-slow", ROBINHOOD, SloViolation, AtMost, 0.0),
        next_best("ramp-1-slow", "cliffhanger", 0.082),
        stated("ramp-1-quick", ROBINHOOD, SloViolation, AtMost, 0.0),
        next_best("ramp-1-quick", "shared-lru", 0.33),
        stated("onerf-random", ROBINHOOD, SloViolation, AtMost, 0.05),
        next_best("onerf-random", "tao", 0.24),
        stated("onerf-random", ROBINHOOD, P99Max, AtMost, 306.0),
        stated("onerf-random", "tao", P99Max, AtLeast, 610.0),
    ]);
    all
}

/// States the SLO violations of the policy that the paper found the best competitor of RobinHood.
const fn next_best(scenario: &'static str, policy: &'static str, paper: f64) -> Stated {
    Stated { next_best: true, ..stated(scenario, policy, SloViolation, AtLeast, paper) }
}

const fn stated(
    scenario: &'static str,
    policy: &'static str,
    measure: Measure,
    relation: Relation,
    paper: f64,
) -> Stated {
    Stated { scenario, policy, next_best: false, measure, relation, paper }
}
