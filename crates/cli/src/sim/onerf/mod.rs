//! Scenarios of backends, and those of RobinHood's paper.

pub(super) mod claims;
pub(super) mod hits;
pub(super) mod kept;
pub(super) mod learning;
pub(super) mod plotted;
pub(super) mod report;
mod series;
pub(super) mod subject;
pub(super) mod summary;
mod trace;
pub(super) mod warm;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use sherwood_sim::{Results, Setup, TraceStop, World};

use super::flags::Flags;
use super::inputs::Inputs;
use super::keep::Keep;
use super::study::{Outcome, Run, Shared, Study};
use crate::exit::Failure;
use learning::Attempt;
use plotted::Series;
use subject::Subject;
use warm::WarmUps;

/// Warm-ups that runs of a command share.
pub(super) struct SharedWarmUps {
    warm_ups: WarmUps,
    /// Inputs of the runs that share their warm-up with another.
    alike: BTreeSet<Inputs>,
}

impl Shared<Subject> for SharedWarmUps {
    fn of(runs: &[&Run<Subject>], threads: usize) -> Result<Self, Failure> {
        let mut alike = BTreeSet::new();
        for (index, run) in runs.iter().enumerate() {
            for other in &runs[..index] {
                if run.setup.shares_warm_up(&other.setup).map_err(Failure::usage)? {
                    alike.extend([run.inputs.clone(), other.inputs.clone()]);
                }
            }
        }
        // Each thread executes one run and may leave the warm-up of another for the next.
        Ok(Self { warm_ups: WarmUps::new(2 * threads), alike })
    }
}

impl Study for Subject {
    type World = World;
    type Results = Results;
    type Shared = SharedWarmUps;
    type Observed = Series;

    fn name(&self) -> &str {
        &self.scenario
    }

    fn document(&self) -> Option<&str> {
        self.document.as_deref()
    }

    fn setup(&self, flags: &Flags, settings: &[String], policy: &str, seed: u64) -> Result<Setup, Failure> {
        self.setup(flags, settings, policy, seed)
    }

    fn begin(
        run: &Run<Self>,
        shared: &SharedWarmUps,
        keep: Option<&Keep>,
        stop: &AtomicBool,
    ) -> Result<Option<World>, Failure> {
        let warm_ups = shared.alike.contains(&run.inputs).then_some(&shared.warm_ups);
        match learning::begin(run, warm_ups, keep, stop)? {
            Attempt::Done(world) => Ok(Some(world)),
            Attempt::Ended(why) => Err(Failure::failed(why)),
            Attempt::Stopped => Ok(None),
        }
    }

    fn trace_stop(world: &World) -> Option<&TraceStop> {
        world.trace_stop()
    }

    fn results(world: &World) -> Results {
        world.results()
    }

    fn observed(setup: &Setup, world: &World) -> Series {
        Series::of(setup.model.backends().iter().map(|backend| backend.name.clone()), world.samples())
    }

    fn headline(results: &Results) -> String {
        format!("{:.2}% violations", results.slo_violation_ratio * 100.0)
    }

    fn text(outcome: &Outcome<Results>) -> String {
        text(outcome)
    }

    fn series(setup: &Setup, world: &World) -> String {
        let names: Vec<_> = setup.model.backends().iter().map(|backend| backend.name.as_str()).collect();
        series::csv(&names, world.samples())
    }
}

fn text(outcome: &Outcome<Results>) -> String {
    let Outcome { results, wall_s, queries_per_s } = outcome;
    let mut text = format!(
        "{} under {} at scale {}, seed {}\n\n\
         {:>10.2}%  of the observations violated the SLO (P99 above {:.0} ms)\n\
         {:>8.1} ms  P50 of request latency, P90 {:.1}, P99 {:.1}; the worst P99 observed {:.1}\n\
         {:>10.0}%  of the slow requests waited for one backend, on average; at most {:.0}%\n\
         {:>11.2}  caches a division would need that never changes\n\n",
        results.scenario,
        results.policy,
        results.scale,
        results.seed,
        results.slo_violation_ratio * 100.0,
        results.slo_bound_ms,
        results.p50_ms,
        results.p90_ms,
        results.p99_ms,
        results.p99_max_ms,
        results.dominant_rbc.mean * 100.0,
        results.dominant_rbc.max * 100.0,
        results.static_equivalent_ratio,
    );
    text += "backend   hit ratio   query P99   mean allocation   largest\n";
    for ((name, ratio), allocation) in results.hit_ratio.iter().zip(results.allocation_bytes.values()) {
        let p99 = results.query_p99_ms[name].map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        text += &format!(
            "{name:<8} {:>9.1}%  {p99:>10}  {:>16}  {:>8}\n",
            ratio * 100.0,
            mib(allocation.mean),
            mib(allocation.max),
        );
    }
    text += &format!(
        "\n{} requests with {} queries measured, {} keys failed; {wall_s:.1} s, {:.2} million queries/s\n",
        results.requests,
        results.queries,
        results.errors,
        queries_per_s / 1e6,
    );
    text
}
