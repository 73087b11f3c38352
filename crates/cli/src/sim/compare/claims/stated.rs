//! The figures that the text of RobinHood's paper states (Berger et al., OSDI 2018, section 5).

use super::Relation::{self, AtLeast, AtMost};
use super::measure::Measure::{
    self, DominantRbcAt, DominantRbcMax, DominantRbcMean, P90Above50Ms, P99AgainstRobinhood, P99Max,
    SloViolation, StaticEquivalent,
};

/// Something that the paper says of somebody.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stated {
    pub(super) scenario: &'static str,
    pub(super) who: Who,
    pub(super) measure: Measure,
    pub(super) relation: Relation,
    pub(super) paper: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Policy(&'static str),
    /// Whichever of RobinHood's competitors has the smallest figure.
    NextBest,
}

/// Whom RobinHood is compared with.
pub(super) const COMPETITORS: [&str; 5] = ["shared-lru", "tao", "cliffhanger", "fair", "lama"];

const ROBINHOOD: Who = Who::Policy("robinhood");

/// All of them, a scenario at a time.
pub(super) fn all() -> Vec<Stated> {
    let spikes = "onerf-spikes";
    let mut all = vec![
        stated(spikes, ROBINHOOD, SloViolation, AtMost, 0.003),
        stated(spikes, Who::NextBest, SloViolation, AtLeast, 0.30),
        stated(spikes, ROBINHOOD, P90Above50Ms, AtMost, 0.01),
        stated(spikes, Who::Policy("shared-lru"), P90Above50Ms, AtLeast, 0.20),
        stated(spikes, ROBINHOOD, DominantRbcAt, AtMost, 0.54),
    ];
    let each = |measure, paper| {
        COMPETITORS.map(move |policy| stated(spikes, Who::Policy(policy), measure, AtLeast, paper))
    };
    all.extend(each(DominantRbcMax, 0.85));
    all.extend(each(DominantRbcMean, 0.70));
    all.extend(each(P99AgainstRobinhood, 3.0));
    all.extend([
        stated(spikes, ROBINHOOD, StaticEquivalent, AtLeast, 1.73),
        stated("ramp-7-slow", ROBINHOOD, SloViolation, AtMost, 0.0),
        stated("ramp-7-slow", Who::Policy("lama"), SloViolation, AtLeast, 0.033),
        stated("ramp-7-quick", ROBINHOOD, SloViolation, AtMost, 0.015),
        stated("ramp-7-quick", Who::Policy("lama"), SloViolation, AtLeast, 0.38),
        stated("ramp-1-slow", ROBINHOOD, SloViolation, AtMost, 0.0),
        stated("ramp-1-slow", Who::Policy("cliffhanger"), SloViolation, AtLeast, 0.082),
        stated("ramp-1-quick", ROBINHOOD, SloViolation, AtMost, 0.0),
        stated("ramp-1-quick", Who::Policy("shared-lru"), SloViolation, AtLeast, 0.33),
        stated("onerf-random", ROBINHOOD, SloViolation, AtMost, 0.05),
        stated("onerf-random", Who::Policy("tao"), SloViolation, AtLeast, 0.24),
        stated("onerf-random", ROBINHOOD, P99Max, AtMost, 306.0),
        stated("onerf-random", Who::Policy("tao"), P99Max, AtLeast, 610.0),
    ]);
    all
}

const fn stated(
    scenario: &'static str,
    who: Who,
    measure: Measure,
    relation: Relation,
    paper: f64,
) -> Stated {
    Stated { scenario, who, measure, relation, paper }
}
