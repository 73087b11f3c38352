//! A run of the demo with one policy.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sherwood_load::http::{self, Workload};
use sherwood_load::{Control, Gaps, Pace};
use sherwood_node::{Node, Setup};
use sherwood_workload::onerf::Model;

use super::catalogue::Catalogue;
use super::cpu::{CpuReading, CpuUse};
use super::judge::{Ended, Judge};
use super::lateness::{Decision, LATE_MAX, LatenessWatch, WatchOptions};
use super::live::{Live, RunLabel};
use super::node::{self, Backends};
use super::paced::Timer;
use super::report::{Run, ms};
use super::share::LoadShare;
use super::time::Times;
use super::view::View;
use crate::exit::Failure;
use crate::out;

/// Interval at which limits are set and interrupts are noticed.
const TICK: Duration = Duration::from_millis(50);

/// A run of the demo with one policy, from an empty cache to its figures.
pub(super) struct PolicyRun<'a> {
    pub(super) model: &'a Arc<Model>,
    pub(super) catalogue: &'a Catalogue,
    pub(super) run: RunLabel,
    /// Address of the admin API; its port is the one in use after a run.
    pub(super) admin: SocketAddr,
    pub(super) seed: u64,
    pub(super) show: bool,
    /// Time since the demo began to try shares of the load; none once a run was measured, since
    /// then all policies receive the same load.
    pub(super) tried_for: Option<Duration>,
    pub(super) stop: &'a Arc<AtomicBool>,
}

/// The end of a run.
#[derive(Debug)]
pub(super) enum Played {
    /// The run ended, or was stopped.
    Ended(Box<Run>),
    /// The machine does not carry the load, and this share of it is tried next.
    Lower(LoadShare),
}

/// The data of a run that its watch collects.
struct Watched {
    /// Processor use in the measured part.
    cpu: CpuUse,
    /// The last decision about the run's lateness.
    decision: Decision,
}

impl PolicyRun<'_> {
    pub(super) fn play(&mut self) -> Result<Played, Failure> {
        let timer = Timer::start().map_err(Failure::failed)?;
        let stores = self.catalogue.open().map_err(|error| {
            Failure::failed(format!(
                "{error}\nif another demo runs, wait for it, or give this one values of its own with --cache-dir"
            ))
        })?;
        let backends = Backends::new(self.model, stores, self.run.share, self.seed, &timer);
        let setup = node::setup(self.model, &backends, &self.run.policy, &self.run.times, self.seed);
        let setup = Setup { admin: Some(self.admin), ..setup };
        let node = Node::start(setup).map_err(Failure::failed)?;
        let address = node.admin().expect("the setup opens it");
        self.admin = address;
        // A smaller share of the load is tried at the same address.
        if !self.show && !self.run.share.is_partial() {
            out::say(format_args!("dashboard: http://{address}/"));
        }
        let this = &*self;
        let Times { warm_up, measured, .. } = self.run.times;
        let judge = Mutex::new(Judge::new(self.run.times.slo(&self.model.slo()), warm_up, measured));
        let (load, ended) = (Control::default(), AtomicBool::new(false));
        let began = Instant::now();
        let (outcome, watched) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let watched = this.watch(&node, &backends, &judge, &ended, began);
                // The load is ended in every case, also after an error.
                match &watched {
                    Ok(Watched { decision: Decision::GoOn, .. }) => load.stop(),
                    _ => load.abandon(),
                }
                watched
            });
            let ends = SetOnDrop(&ended);
            let outcome = this.load(&address.to_string(), &load, &judge, began);
            drop(ends);
            (outcome, watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (outcome, watched) = (outcome.map_err(Failure::failed)?, watched?);
        node.stop();
        if let Decision::Lower(share) = watched.decision {
            return Ok(Played::Lower(share));
        }
        if let Some(error) = &outcome.first_error {
            tracing::info!("{}: the first request that failed: {error}", self.run.policy);
        }
        let judge = judge.into_inner().expect("no panics while held");
        Ok(Played::Ended(Box::new(self.figures(&outcome, &judge, watched))))
    }

    /// Sends the requests. Blocks until the run has ended.
    fn load(
        &self,
        address: &str,
        control: &Control,
        judge: &Mutex<Judge>,
        began: Instant,
    ) -> Result<http::RunOutcome, sherwood_load::LoadError> {
        let options = http::Options {
            address: address.to_owned(),
            pace: Pace::Open { rate_per_s: self.request_rate(), gaps: Gaps::Poisson },
            phases: vec![self.run.times.warm_up, self.run.times.measured],
            failed_latency: self.model.timeout(),
            seed: self.seed,
            ..http::Options::default()
        };
        let (model, profile) = (Arc::clone(self.model), node::PROFILE.to_owned());
        let workload = Workload::Mix { model, profile, seed: self.seed };
        http::run(&options, workload, control, |request| {
            let failed = request.failed || request.failed_keys > 0;
            let mut judge = judge.lock().expect("no panics while held");
            let ended = Ended { latency: request.latency, late: request.late, failed };
            judge.finished(began.elapsed(), &ended);
        })
    }

    /// Requests a second that are sent.
    fn request_rate(&self) -> f64 {
        let profile = self.model.profile(node::PROFILE).expect("the model that is built in has the profile");
        profile.request_rate * self.run.share.ratio()
    }

    fn lateness_watch(&self) -> LatenessWatch {
        let Times { warm_up, measured, .. } = self.run.times;
        LatenessWatch::new(WatchOptions {
            share: self.run.share,
            may_lower: self.tried_for.is_some(),
            tried_for: self.tried_for.unwrap_or_default(),
            warm_up,
            measured,
            expected: self.request_rate() * measured.as_secs_f64(),
        })
    }

    /// Applies the limits, displays the state, judges the lateness, and forwards interrupts.
    fn watch(
        &self,
        node: &Node,
        backends: &Backends,
        judge: &Mutex<Judge>,
        ended: &AtomicBool,
        began: Instant,
    ) -> Result<Watched, Failure> {
        let mut view = View::new(self.show).map_err(Failure::failed)?;
        let (mut cpu_before, mut next_view) = (None, Duration::ZERO);
        let (mut lateness, mut decision) = (self.lateness_watch(), Decision::GoOn);
        while !ended.load(Relaxed) {
            let elapsed = began.elapsed();
            backends.set_minute(self.run.times.minute(elapsed));
            if elapsed >= self.run.times.warm_up {
                cpu_before.get_or_insert_with(|| CpuReading::take(backends));
            }
            if self.stop.load(Relaxed) || view.quit_asked() {
                self.stop.store(true, Relaxed);
                break;
            }
            let counts = judge.lock().expect("no panics while held").late_counts();
            decision = lateness.judge(elapsed, counts);
            if decision != Decision::GoOn {
                break;
            }
            if elapsed >= next_view {
                // The load's threads wait for this lock to record finished requests, so nothing
                // else is done under it.
                let seen = {
                    let mut judge = judge.lock().expect("no panics while held");
                    judge.observe(elapsed);
                    judge.seen(elapsed)
                };
                let live = Live::read(&self.run, node, backends, seen, elapsed);
                next_view = elapsed + view.show(&live).map_err(Failure::failed)?;
            }
            thread::sleep(TICK);
        }
        let cpu = cpu_before.map_or(CpuUse::default(), |before| CpuReading::take(backends).since(&before));
        Ok(Watched { cpu, decision })
    }

    fn figures(&self, outcome: &http::RunOutcome, judge: &Judge, watched: Watched) -> Run {
        let Watched { cpu, decision } = watched;
        let measured = outcome.phases.get(1).cloned().unwrap_or_default();
        let standing = judge.standing();
        let late = measured.lateness.percentile(99.0);
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
        let (incomplete_because, invalid_because) = match decision {
            Decision::Stop(reason) => (Some("the machine was too busy".to_owned()), Some(reason)),
            _ => (outcome.incomplete_because.clone(), self.invalid_because(&measured, late)),
        };
        let (hits, misses) =
            measured.by_backend.values().fold((0, 0), |(h, m), b| (h + b.hits, m + b.misses));
        Run {
            policy: self.run.policy.clone(),
            requests: measured.requests,
            queries: measured.queries,
            slo_violation_ratio: standing.violation_ratio(),
            p50_ms: ms(measured.latency.percentile(50.0)),
            p99_ms: ms(measured.latency.percentile(99.0)),
            p99_max_ms: standing.max.map_or(0.0, ms),
            errors: measured.errors + measured.failed_keys,
            cpu_ratio: cpu.process / cores,
            store_cpu_ratio: cpu.stores,
            late_p99_ms: ms(late),
            valid: invalid_because.is_none() && incomplete_because.is_none(),
            hit_ratio: hits as f64 / (hits + misses).max(1) as f64,
            hit_p99_ms: measured
                .hit_latency
                .iter()
                .map(|(backend, latencies)| (backend.clone(), ms(latencies.percentile(99.0))))
                .collect(),
            incomplete_because,
            invalid_because,
        }
    }

    /// Returns the reason why the figures of `measured`, sent `late` at P99, do not count.
    fn invalid_because(&self, measured: &http::Phase, late: Duration) -> Option<String> {
        if late > LATE_MAX {
            return Some(format!(
                "with {}, requests were sent {:.0} ms late at P99, and at most {} ms may be; something else keeps this \
                 machine busy: stop it and start the demo again",
                self.run.share,
                ms(late),
                LATE_MAX.as_millis()
            ));
        }
        (measured.requests == 0).then(|| "no request ended in the measured part".to_owned())
    }
}

/// Sets the flag when the load has ended, even by a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::Value;

    use super::super::report::Report;
    use super::super::time;
    use super::*;

    /// Time for some hundred requests at the workload's rate, few enough for a slow machine to
    /// answer all of them, if late.
    const TIMES: Times = Times {
        factor: 54_000.0,
        measured: Duration::from_millis(200),
        warm_up: Duration::from_millis(100),
        delta: Duration::from_millis(20),
        window: Duration::from_millis(100),
    };

    fn label(policy: &str, times: Times, bound: Duration) -> RunLabel {
        RunLabel { policy: policy.to_owned(), run: (1, 1), share: LoadShare::WHOLE, times, bound }
    }

    /// Returns a run on a free port, without a screen and without trials of smaller loads.
    fn of<'a>(
        model: &'a Arc<Model>,
        catalogue: &'a Catalogue,
        run: RunLabel,
        stop: &'a Arc<AtomicBool>,
    ) -> PolicyRun<'a> {
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        PolicyRun { model, catalogue, run, admin, seed: 1, show: false, tried_for: None, stop }
    }

    fn ended(played: Result<Played, Failure>) -> Run {
        match played {
            Ok(Played::Ended(run)) => *run,
            other => panic!("the run did not end: {other:?}"),
        }
    }

    /// Held by tests that need the machine, so that none of them makes it busy for another.
    static MACHINE: Mutex<()> = Mutex::new(());

    fn machine() -> std::sync::MutexGuard<'static, ()> {
        MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs the demo over a few objects and returns its JSON report.
    fn play(catalogue: &Catalogue, policy: &str) -> Value {
        let (model, stop) = (Arc::new(Model::onerf()), Arc::new(AtomicBool::new(false)));
        let bound = time::bound(&model.slo());
        let mut policy_run = of(&model, catalogue, label(policy, TIMES, bound), &stop);
        let mut report = Report::new(1, &TIMES, bound, 400.0);
        report.runs.push(ended(policy_run.play()));
        serde_json::to_value(&report).unwrap()["runs"][0].clone()
    }

    #[test]
    fn demo_policies_receive_the_same_requests_and_answer_all() {
        let _machine = machine();
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        catalogue.warm().unwrap();
        let runs = ["shared-lru", "robinhood"].map(|policy| play(&catalogue, policy));
        for (run, policy) in runs.iter().zip(["shared-lru", "robinhood"]) {
            assert_eq!((run["policy"].as_str(), run["errors"].as_u64()), (Some(policy), Some(0)), "{run}");
            assert!(run.get("incomplete_because").is_none(), "{run}");
            let number = |field: &str| run[field].as_f64().unwrap_or_else(|| panic!("no {field} in {run}"));
            assert!(number("requests") >= 20.0 && number("queries") > number("requests"), "{run}");
            for ratio in ["slo_violation_ratio", "hit_ratio"] {
                assert!((0.0..=1.0).contains(&number(ratio)), "{ratio} of {run}");
            }
            assert!(0.0 < number("p50_ms") && number("p50_ms") <= number("p99_ms"), "{run}");
            assert!(
                number("cpu_ratio") >= 0.0 && number("store_cpu_ratio") >= 0.0 && run["valid"].is_boolean(),
                "{run}"
            );
            assert!(number("p99_max_ms") >= 0.0 && number("late_p99_ms") >= 0.0, "{run}");
        }
        for same in ["requests", "queries"] {
            assert_eq!(runs[0][same], runs[1][same], "{same}");
        }
    }

    #[test]
    fn stopped_demo_run_is_reported_as_incomplete() {
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        let (model, stop) = (Arc::new(Model::onerf()), Arc::new(AtomicBool::new(true)));
        let bound = time::bound(&model.slo());
        let run = label("equal", Times::of(Duration::from_secs(3_600)), bound);
        let run = ended(of(&model, &catalogue, run, &stop).play());
        assert_eq!(run.incomplete_because.as_deref(), Some("stopped before its end"));
        assert!(!run.valid);
    }

    /// Keeps every core busy until it is dropped.
    struct Busy(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

    impl Busy {
        fn start() -> Self {
            let stop = Arc::new(AtomicBool::new(false));
            let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
            let spin = |_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            };
            let threads = (0..2 * cores).map(spin).collect();
            Self(stop, threads)
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
            self.1.drain(..).for_each(|thread| thread.join().unwrap());
        }
    }

    #[test]
    fn run_on_a_busy_machine_counts_or_lowers_the_load_or_gives_its_reason() {
        let _machine = machine();
        let directory = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::small(directory.path());
        catalogue.load().unwrap();
        let (model, stop) = (Arc::new(Model::onerf()), Arc::new(AtomicBool::new(false)));
        let run = label("robinhood", Times::of(Duration::from_secs(10)), time::bound(&model.slo()));
        let mut policy_run =
            PolicyRun { tried_for: Some(Duration::ZERO), ..of(&model, &catalogue, run, &stop) };
        let _busy = Busy::start();
        match policy_run.play() {
            Ok(Played::Lower(share)) => assert!(share.is_partial()),
            Ok(Played::Ended(run)) => assert_ne!(run.valid, run.invalid_because.is_some(), "{run:?}"),
            Err(error) => panic!("{error}"),
        }
    }
}
