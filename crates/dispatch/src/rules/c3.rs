//! `balance = "c3"`: replica ranking of C3 (Suresh et al., NSDI 2015, section 3.1).

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::best::{from, least};
use super::speeds::{Mean, Speeds};
use super::{Balancer, CallEnd, Completion, Figures, Picks, ReplicaLoad};
use crate::draws::below;

/// Picks the replicas with the least R − s + q³ s, where R is a moving average of the latency seen
/// here, s of the service time, and q = 1 + own calls + a moving average of the server's calls. For
/// servers that say nothing about themselves, s is R, and q counts our calls alone.
///
/// Two things are not the paper's: its rate control is left out, since bounds of calls in flight
/// are the dispatcher's; and latencies age, since a replica that was slow would not be asked again
/// while the others are hardly used.
#[derive(Clone, Debug)]
pub(crate) struct C3 {
    latencies: Speeds,
    /// Service times and calls that servers have told.
    services: Speeds,
    calls: Vec<f64>,
}

/// Weight of the latest value in a moving average, as in the paper.
const WEIGHT: f64 = 0.9;

impl C3 {
    /// Returns a rule that halves a latency which is not renewed for `age`.
    pub(crate) fn new(age: Duration) -> Self {
        let moving = |age| Speeds::new(Mean::Moving(WEIGHT), age);
        Self { latencies: moving(age), services: moving(Duration::ZERO), calls: Vec::new() }
    }

    /// Returns the score of a replica; one of which nothing is known has the `quickest` latency.
    fn score(&self, now: Instant, load: &ReplicaLoad, quickest: f64) -> f64 {
        let latency = self.latencies.get(now, load.replica).unwrap_or(quickest);
        let service = self.services.get(now, load.replica).unwrap_or(latency);
        let told = self.calls.get(load.replica.index()).copied().unwrap_or_default();
        let queue = 1.0 + load.calls() as f64 + told;
        latency - service + queue * queue * queue * service
    }
}

impl Balancer for C3 {
    fn choose(
        &mut self,
        now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        let quickest = self.latencies.least(now, usable);
        let rank = |load: &ReplicaLoad| (self.score(now, load, quickest), load.calls());
        // Equal replicas are picked evenly.
        let start = below(entropy, usable.len() as u64) as usize;
        for _ in 0..want.min(usable.len()) {
            picks.extend(least(from(usable, start), picks, rank));
        }
    }

    fn asked(&mut self, now: Instant, replica: ReplicaId) {
        self.latencies.asked(now, replica);
    }

    fn said(&mut self, now: Instant, replica: ReplicaId, &Figures { calls, latency }: &Figures) {
        let end = CallEnd::Answered;
        self.services.completed(replica, &Completion::of(now, latency, end));
        let index = replica.index();
        if self.calls.len() <= index {
            self.calls.resize(index + 1, 0.0);
        }
        self.calls[index] += (f64::from(calls) - self.calls[index]) * WEIGHT;
    }

    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        self.latencies.completed(replica, completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn queue_at_a_server_counts_by_its_cube() {
        let mut rule = C3::new(Duration::ZERO);
        for (replica, ms, calls) in [(0, 4, 0), (1, 1, 1)] {
            let took = Duration::from_millis(ms);
            let completion = Completion::of(Instant::ZERO, took, CallEnd::Answered);
            rule.completed(ReplicaId(replica), &completion);
            let figures = Figures { calls, latency: Duration::from_millis(ms) };
            rule.said(Instant::ZERO, ReplicaId(replica), &figures);
        }
        let usable = loads_of(&[(0, 0), (1, 0)]);
        let mut draws = Draws::default();
        // 1³ × 4 ms against 1.9³ × 1 ms.
        assert!((0..20).all(|_| picked(&mut rule, &usable, 1, draws.next()) == [0]));
        assert_eq!(picked(&mut rule, &loads_of(&[(0, 1), (1, 0)]), 2, 0), [1, 0]);
    }

    #[test]
    fn replica_without_a_latency_is_asked_like_the_best() {
        let mut rule = C3::new(Duration::ZERO);
        let took = Duration::from_millis(4);
        let completion = Completion::of(Instant::ZERO, took, CallEnd::Answered);
        rule.completed(ReplicaId(0), &completion);
        assert_eq!(picked(&mut rule, &loads_of(&[(0, 1), (1, 0)]), 2, 0), [1, 0]);
        assert_eq!(picked(&mut rule, &loads_of(&[(0, 0), (1, 1)]), 2, 0), [0, 1]);
    }

    #[test]
    fn replica_that_was_slow_is_asked_again_when_its_latency_has_aged() {
        let mut rule = C3::new(Duration::from_secs(5));
        for (replica, ms) in [(0, 1), (1, 4)] {
            let took = Duration::from_millis(ms);
            let completion = Completion::of(Instant::ZERO, took, CallEnd::Answered);
            rule.completed(ReplicaId(replica), &completion);
        }
        let usable = loads_of(&[(0, 0), (1, 0)]);
        let mut asked_at = |seconds| {
            let mut picks = Picks::new();
            let now = Instant::from_secs(seconds);
            rule.choose(now, &Demand::default(), &usable, 1, 0, &mut picks);
            rule.asked(now, picks[0]);
            picks[0].0
        };
        let asked: Vec<_> = (1..40).map(&mut asked_at).collect();
        assert!(
            asked.contains(&1) && asked.iter().filter(|replica| **replica == 1).count() <= 3,
            "{asked:?}"
        );
    }
}
