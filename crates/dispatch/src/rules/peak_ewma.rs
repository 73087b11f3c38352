//! `balance = "peak-ewma"`: the less costly of two replicas by latency and load, as in Finagle and
//! Linkerd.

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::power_of_two::choose_of_two;
use super::speeds::{Mean, Speeds};
use super::{Balancer, Completion, Picks, ReplicaLoad};

/// Picks the one of two replicas drawn at random with the lower cost: a moving average of its
/// latency, which rises to a peak at once, times the calls that would be there.
#[derive(Clone, Debug)]
pub(crate) struct PeakEwma {
    speeds: Speeds,
}

impl PeakEwma {
    /// Returns a rule whose averages reach back for about `age`.
    pub(crate) fn new(age: Duration) -> Self {
        Self { speeds: Speeds::new(Mean::Peak, age) }
    }
}

impl Balancer for PeakEwma {
    fn choose(
        &mut self,
        now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        let least = self.speeds.least(now, usable);
        let cost = |load: &ReplicaLoad| {
            self.speeds.get(now, load.replica).unwrap_or(least) * (load.calls() + 1) as f64
        };
        choose_of_two(usable, want, entropy, picks, |second, first| cost(second) < cost(first));
    }

    fn asked(&mut self, now: Instant, replica: ReplicaId) {
        self.speeds.asked(now, replica);
    }

    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        self.speeds.completed(replica, completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::CallEnd;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn replica_that_is_slow_for_its_load_is_not_picked() {
        let mut rule = PeakEwma::new(Duration::from_secs(5));
        for (replica, ms) in [(0, 1), (1, 9)] {
            let took = Duration::from_millis(ms);
            let completion = Completion::of(Instant::ZERO, took, CallEnd::Answered);
            rule.completed(ReplicaId(replica), &completion);
        }
        let mut draws = Draws::default();
        for (calls, expected) in [(3, 0), (20, 1)] {
            let usable = loads_of(&[(0, calls), (1, 0)]);
            assert!((0..50).all(|_| picked(&mut rule, &usable, 1, draws.next()) == [expected]));
        }
    }
}
