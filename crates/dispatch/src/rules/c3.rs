//! `balance = "c3"`: replica ranking of C3 (Suresh et al., NSDI 2015, section 3.1).

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId};

use super::{Balancer, CallEnd, Completion, Figures, Picks, ReplicaLoad};

/// Picks the replicas with the least R − s + q³ s, where R is a moving average of the latency seen
/// here, s of the service time, and q = 1 + own calls + a moving average of the server's calls.
/// Where servers say nothing about themselves, s is R, and q counts our calls alone.
///
/// The paper's rate control is left out: bounds of calls in flight are the dispatcher's.
#[derive(Clone, Debug, Default)]
pub(crate) struct C3 {
    known: Vec<Option<Known>>,
}

/// Moving averages of a replica: latency and service time in nanoseconds, calls at the server.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    latency: Option<f64>,
    service: Option<f64>,
    calls: f64,
}

/// Weight of the latest value in a moving average, as in the paper.
const WEIGHT: f64 = 0.9;

impl C3 {
    fn known(&mut self, replica: ReplicaId) -> &mut Known {
        let index = replica.index();
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        self.known[index].get_or_insert_default()
    }

    fn get(&self, load: &ReplicaLoad) -> Option<Known> {
        let known = (*self.known.get(load.replica.index())?)?;
        known.latency.map(|_| known)
    }
}

/// Returns the score of a replica with so many of our calls.
fn score(known: Known, calls: u64) -> f64 {
    let latency = known.latency.unwrap_or_default();
    let service = known.service.unwrap_or(latency);
    let queue = 1.0 + calls as f64 + known.calls;
    latency - service + queue * queue * queue * service
}

impl Balancer for C3 {
    fn choose(
        &mut self,
        _now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        // A replica of which nothing is known counts as the best that is known.
        let knows = usable.iter().filter_map(|load| self.get(load));
        let best = knows.reduce(|a, b| if score(b, 0) < score(a, 0) { b } else { a }).unwrap_or_default();
        let start = crate::draws::below(entropy, usable.len() as u64) as usize;
        for _ in 0..want.min(usable.len()) {
            let from_start = usable[start..].iter().chain(&usable[..start]);
            let left = from_start.filter(|load| !picks.contains(&load.replica));
            let scored = left.map(|load| {
                ((score(self.get(load).unwrap_or(best), load.calls()), load.calls()), load.replica)
            });
            let Some((_, replica)) = scored.reduce(|a, b| if b.0 < a.0 { b } else { a }) else { return };
            picks.push(replica);
        }
    }

    fn said(&mut self, _now: Instant, replica: ReplicaId, figures: &Figures) {
        let known = self.known(replica);
        average(&mut known.service, figures.latency);
        known.calls += (f64::from(figures.calls) - known.calls) * WEIGHT;
    }

    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        let Completion { gap: took, end, .. } = *completion;
        let known = self.known(replica);
        let is_more = known.latency.is_none_or(|latency| took.as_nanos() as f64 > latency);
        if end == CallEnd::Answered || (end == CallEnd::Cancelled && is_more) {
            average(&mut known.latency, took);
        }
    }
}

fn average(mean: &mut Option<f64>, latest: Duration) {
    let latest = latest.as_nanos() as f64;
    *mean = Some(mean.map_or(latest, |mean| mean + (latest - mean) * WEIGHT));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn queue_at_a_server_counts_by_its_cube() {
        let mut rule = C3::default();
        for (replica, ms, calls) in [(0, 4, 0), (1, 1, 1)] {
            let took = Duration::from_millis(ms);
            let completion = Completion { at: Instant::ZERO, took, gap: took, end: CallEnd::Answered };
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
        let mut rule = C3::default();
        let took = Duration::from_millis(4);
        let completion = Completion { at: Instant::ZERO, took, gap: took, end: CallEnd::Answered };
        rule.completed(ReplicaId(0), &completion);
        assert_eq!(picked(&mut rule, &loads_of(&[(0, 1), (1, 0)]), 2, 0), [1, 0]);
        assert_eq!(picked(&mut rule, &loads_of(&[(0, 0), (1, 1)]), 2, 0), [0, 1]);
    }
}
