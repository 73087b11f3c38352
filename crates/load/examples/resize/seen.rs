//! The results: moves, hits, and the latencies of hits by their time relative to moves.

use std::time::Duration;

use serde_json::{Value, json};
use sherwood_load::{Latencies, Report};

/// A hit: its intended start from the origin, and its latency.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: Duration,
    pub(crate) length: Duration,
}

/// A change of the partition's budget.
pub(crate) struct Move {
    pub(crate) shrinks: bool,
    pub(crate) start: Duration,
    /// Time from the start of the move until the budget was reached and kept; none if not before
    /// the next move.
    pub(crate) reached: Option<Duration>,
    /// End of the refill after the move.
    pub(crate) settled: Duration,
}

pub(crate) struct Results {
    /// Moves in the order of their starts.
    pub(crate) moves: Vec<Move>,
    pub(crate) hits: Vec<Span>,
}

#[derive(Clone, Copy)]
enum Period {
    Inside,
    After,
    Refill,
    Between,
}

/// Time after a move of the budget in which evictions may still affect hits.
const AFTER: Duration = Duration::from_millis(20);

impl Results {
    pub(crate) fn all_reached(&self) -> bool {
        self.moves.iter().all(|done| done.reached.is_some())
    }

    pub(crate) fn to_json(&self, load: &Report) -> Value {
        let mut hits: [Latencies; 4] = Default::default();
        for hit in &self.hits {
            if let Some(when) = self.when(hit.start) {
                hits[when as usize].record(hit.length);
            }
        }
        let [inside, after, refill, between] = hits.each_ref().map(|latencies| {
            let us = |percentile| latencies.percentile(percentile).as_secs_f64() * 1e6;
            json!({ "hits": latencies.count(), "p50": us(50.0), "p99": us(99.0), "p99_9": us(99.9) })
        });
        let p99 = |when: Period| hits[when as usize].percentile(99.0).as_secs_f64();
        json!({
            "moves": self.moves.len(),
            "reached": self.moves.iter().filter(|done| done.reached.is_some()).count(),
            "reach_ms": self.reach_ms(|_| true),
            "shrink_reach_ms": self.reach_ms(|done| done.shrinks),
            "hit_us": { "inside": inside, "after": after, "refill": refill, "between": between },
            "hit_p99_ratio": p99(Period::Inside) / p99(Period::Between),
            "load": { "ops": load.ops, "ops_per_s": load.ops_per_s, "errors": load.errors,
                      "hit_ratio": load.hit_ratio, "late_p99_us": load.late_p99_us },
        })
    }

    /// Returns the period (during, after or between moves) in which a hit at `at` began; none
    /// before the first move.
    fn when(&self, at: Duration) -> Option<Period> {
        let last = self.moves.partition_point(|done| done.start <= at).checked_sub(1)?;
        let Move { shrinks, start, reached, settled } = &self.moves[last];
        let reached = *start + reached.unwrap_or(Duration::MAX - *start);
        Some(match at {
            at if at <= reached => Period::Inside,
            at if !shrinks && at <= *settled => Period::Refill,
            at if at <= reached + AFTER => Period::After,
            _ => Period::Between,
        })
    }

    fn reach_ms(&self, which: impl Fn(&Move) -> bool) -> Value {
        let mut times = Latencies::default();
        self.moves
            .iter()
            .filter(|done| which(done))
            .filter_map(|done| done.reached)
            .for_each(|time| times.record(time));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({ "p50": ms(times.percentile(50.0)), "p99": ms(times.percentile(99.0)), "max": ms(times.max()) })
    }
}
