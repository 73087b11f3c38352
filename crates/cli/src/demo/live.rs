//! State of a run of the demo at one moment.

use std::time::Duration;

use sherwood_node::Node;

use super::judge::JudgeView;
use super::node::Backends;
use super::share::LoadShare;
use super::time::Times;

/// State of a run of the demo for the screen and the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    /// Policy of this run.
    pub(crate) policy: String,
    /// Number of this run, from 1, and the number of runs.
    pub(crate) run: (usize, usize),
    /// Share of the load that is sent.
    pub(crate) share: LoadShare,
    /// Time since the run began.
    pub(crate) elapsed: Duration,
    /// Lengths of the warm-up and of the measurement.
    pub(crate) length: (Duration, Duration),
    /// Minute of the scenario; negative during the warm-up.
    pub(crate) minute: f64,
    /// The SLO's bound.
    pub(crate) bound: Duration,
    /// The SLO's percentile now.
    pub(crate) current: Option<Duration>,
    /// P99 of the delay with which measured requests were sent, when it is too large for the
    /// figures to count.
    pub(crate) late: Option<Duration>,
    /// Observations of the SLO so far: seconds since the run began, and the percentile in
    /// milliseconds.
    pub(crate) curve: Vec<(f64, f64)>,
    /// Share of the observations that violated the SLO.
    pub(crate) violation_ratio: f64,
    /// Numbers of finished and of failed requests.
    pub(crate) requests: (u64, u64),
    /// The backends, in the workload's order.
    pub(crate) backends: Vec<LiveBackend>,
    /// Bytes of the whole cache.
    pub(crate) total_bytes: u64,
    /// URL of the dashboard.
    pub(crate) dashboard: String,
    /// Recent events, oldest first.
    pub(crate) events: Vec<String>,
}

/// State of a backend at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveBackend {
    /// The backend's name.
    pub(crate) name: String,
    /// Budget of the backend's partition; under a shared policy, the bytes that it uses.
    pub(crate) bytes: u64,
    /// Remaining share of the backend's capacity; 1 when it is not slowed down.
    pub(crate) limit: f64,
    /// Calls waiting for a worker of the backend.
    pub(crate) waiting: u32,
    /// P99 of the latency of queries to the backend, over the window.
    pub(crate) query_p99: Option<Duration>,
    /// Share of hits among the lookups of the backend's keys since the start.
    pub(crate) hit_ratio: f64,
}

impl Live {
    /// Combines the judge's data with the state of the node and the backends.
    pub(crate) fn read(
        run: &RunLabel,
        node: &Node,
        backends: &Backends,
        seen: JudgeView,
        elapsed: Duration,
    ) -> Self {
        let minute = run.times.minute(elapsed);
        let shared = run.policy == "shared-lru";
        let usages = node.backend_usage();
        let total_bytes = usages.iter().map(|usage| usage.allocated_bytes).sum();
        let parts = usages.into_iter().zip(backends.capacity_ratios()).zip(backends.waiting());
        let backends = parts
            .map(|((usage, limit), waiting)| LiveBackend {
                name: usage.name,
                bytes: if shared { usage.used_bytes } else { usage.allocated_bytes },
                limit,
                waiting,
                query_p99: usage.query_p99,
                hit_ratio: usage.hits as f64 / (usage.hits + usage.misses).max(1) as f64,
            })
            .collect();
        let curve = seen.curve.iter().map(|(at, p)| (at.as_secs_f64(), p.as_secs_f64() * 1e3));
        Self {
            policy: run.policy.clone(),
            run: run.run,
            share: run.share,
            elapsed,
            length: (run.times.warm_up, run.times.measured),
            minute,
            bound: run.bound,
            current: seen.current,
            // During the warm-up the demo itself lowers the load.
            late: seen.late.filter(|_| minute >= 0.0),
            curve: curve.collect(),
            violation_ratio: seen.violation_ratio,
            requests: seen.requests,
            backends,
            total_bytes,
            dashboard: node.admin_url().unwrap_or_default(),
            events: node.events().into_iter().map(|event| event.message).collect(),
        }
    }
}

/// The properties of a run that do not change.
#[derive(Clone, Debug)]
pub(crate) struct RunLabel {
    pub(crate) policy: String,
    pub(crate) run: (usize, usize),
    pub(crate) share: LoadShare,
    pub(crate) times: Times,
    pub(crate) bound: Duration,
}

impl Live {
    /// Formats the state of the run as a log line.
    pub(crate) fn line(&self) -> String {
        let percentile = self
            .current
            .map_or("no requests yet".to_owned(), |p| format!("P99 {:.0} ms", p.as_secs_f64() * 1e3));
        let bound_ms = self.bound.as_secs_f64() * 1e3;
        let (phase, bound) = if self.minute < 0.0 {
            ("warming up".to_owned(), format!("bound {bound_ms:.0} ms"))
        } else {
            let broken = self.violation_ratio * 100.0;
            let bound = format!("bound {bound_ms:.0} ms, broken {broken:.1}% of the time so far");
            (format!("minute {:.0} of 180", self.minute), bound)
        };
        let slowed: Vec<_> = self
            .backends
            .iter()
            .filter(|backend| backend.limit < 0.995)
            .map(|backend| format!("{} at {:.0}%", backend.name, backend.limit * 100.0))
            .collect();
        let slowed =
            if slowed.is_empty() { String::new() } else { format!("; slowed down: {}", slowed.join(", ")) };
        let late = self.late.map_or(String::new(), |late| {
            format!(
                "; the load is sent {:.0} ms late: something else keeps this machine busy",
                late.as_secs_f64() * 1e3
            )
        });
        let share = if self.share.is_partial() { format!(" ({})", self.share) } else { String::new() };
        format!("{}{share} {phase}: {percentile}, {bound}{slowed}{late}", self.policy)
    }
}
