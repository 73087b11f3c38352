//! SLOs per class and per tenant, beside the global one.
//!
//! Each has a window of its own requests and is observed like the global SLO. They only report: the
//! control loop works on the tail of all requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::{SloScope, SloSetup};
use sherwood_model::{
    FinishedRequest, Instant, RequestWindow, Slo, SloMonitor, SloStanding, TenantId, WindowOptions,
};

/// Requests of one SLO that are kept exactly, 8 bytes each; beyond them latencies are counted to
/// 0.8%.
const EXACT_MAX: usize = 100_000;

/// The SLOs that a request counts for: positions in the setup, one of a class and one of a tenant
/// at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    class: Option<usize>,
    tenant: Option<usize>,
}

impl Counted {
    /// Returns the same with the class of this number, or without a class.
    pub(crate) fn of_class(self, number: Option<u16>) -> Self {
        Self { class: number.map(usize::from), ..self }
    }
}

/// Every SLO and the requests it covers, each under a lock of its own.
#[derive(Debug)]
pub(crate) struct Slos(Vec<(SloScope, Mutex<TrackedSlo>)>);

/// The recent requests, the state and the counts of one SLO.
#[derive(Debug)]
struct TrackedSlo {
    requests: RequestWindow,
    monitor: SloMonitor,
    outcomes: Outcomes,
}

/// Numbers of requests since the start, by whether their latency was within the bound of an SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    pub(crate) met: u64,
    pub(crate) missed: u64,
}

impl Outcomes {
    /// Returns the share that is left of the requests that may exceed the bound of an SLO of this
    /// percentile; none without requests, or if none may exceed it.
    #[must_use]
    pub(crate) fn budget_left_ratio(&self, percentile: f64) -> Option<f64> {
        let allowed = (self.met + self.missed) as f64 * (1.0 - percentile / 100.0);
        (allowed > 0.0).then(|| 1.0 - self.missed as f64 / allowed)
    }

    fn count(&mut self, met: bool, times: u64) {
        *(if met { &mut self.met } else { &mut self.missed }) += times;
    }
}

/// [`Outcomes`] that threads count together.
#[derive(Debug, Default)]
pub(crate) struct SharedOutcomes {
    met: AtomicU64,
    missed: AtomicU64,
}

impl SharedOutcomes {
    pub(crate) fn count(&self, met: bool, times: u64) {
        (if met { &self.met } else { &self.missed }).fetch_add(times, Relaxed);
    }

    pub(crate) fn read(&self) -> Outcomes {
        Outcomes { met: self.met.load(Relaxed), missed: self.missed.load(Relaxed) }
    }
}

/// Returns whether a latency of `latency_us` microseconds is within `bound`.
pub(crate) fn within(latency_us: u32, bound: Duration) -> bool {
    Duration::from_micros(latency_us.into()) <= bound
}

impl Slos {
    /// Creates the SLOs of `setups`, observed from `now` on.
    #[must_use]
    pub(crate) fn new(setups: &[SloSetup], now: Instant) -> Self {
        let kept = |SloSetup { to, slo }: &SloSetup| {
            let options = WindowOptions { exact_max: EXACT_MAX, ..WindowOptions::of(slo.window) };
            let requests = RequestWindow::new(options);
            let monitor = SloMonitor::new(*slo, now);
            (to.clone(), Mutex::new(TrackedSlo { requests, monitor, outcomes: Outcomes::default() }))
        };
        Self(setups.iter().map(kept).collect())
    }

    /// Returns the SLOs that a request of `tenant` counts for, and of `class` if it names one.
    #[must_use]
    pub(crate) fn counted(&self, class: Option<&str>, tenant: TenantId) -> Counted {
        let position = |matches: &dyn Fn(&SloScope) -> bool| self.0.iter().position(|(to, _)| matches(to));
        Counted {
            class: class.and_then(|class| self.class_number(class)).map(usize::from),
            tenant: position(&|to| *to == SloScope::Tenant(tenant)),
        }
    }

    /// Returns the number of the class called `name`, if it has an SLO.
    pub(crate) fn class_number(&self, name: &str) -> Option<u16> {
        let is_it = |(to, _): &(SloScope, _)| matches!(to, SloScope::Class(class) if class == name);
        self.0.iter().position(is_it).and_then(|index| u16::try_from(index).ok())
    }

    /// Refuses a class that has no SLO where others have one: a misspelt class would count for
    /// none.
    ///
    /// # Errors
    /// Fails with the names of the classes that have one.
    pub(crate) fn check_class(&self, class: Option<&str>) -> Result<(), Vec<String>> {
        let Some(class) = class else { return Ok(()) };
        let names = self.0.iter().filter_map(|(to, _)| match to {
            SloScope::Class(name) => Some(name),
            SloScope::Tenant(_) => None,
        });
        if names.clone().any(|name| name == class) || names.clone().next().is_none() {
            return Ok(());
        }
        Err(names.cloned().collect())
    }

    /// Records a request that ended at `at`.
    pub(crate) fn record(&self, now: Instant, at: Instant, counted: Counted, request: FinishedRequest) {
        self.record_with(counted, (request, 1), |requests| requests.record(now, at, request));
    }

    /// Records `times` equal requests that ended at `at`.
    pub(crate) fn record_times(
        &self,
        now: Instant,
        at: Instant,
        counted: Counted,
        (request, times): (FinishedRequest, u64),
    ) {
        let record = |requests: &mut RequestWindow| requests.record_times(now, at, request, times);
        self.record_with(counted, (request, times), record);
    }

    fn record_with(
        &self,
        counted: Counted,
        (request, times): (FinishedRequest, u64),
        record: impl Fn(&mut RequestWindow) -> bool,
    ) {
        for index in [counted.class, counted.tenant].into_iter().flatten() {
            let mut kept = lock(&self.0[index].1);
            if record(&mut kept.requests) {
                let met = within(request.latency_us, kept.monitor.slo().bound);
                kept.outcomes.count(met, times);
            }
        }
    }

    /// Replaces the SLO at this position of the setup by one with the same window; its counts of
    /// observations start anew.
    pub(crate) fn set(&self, index: usize, slo: Slo, now: Instant) {
        lock(&self.0[index].1).monitor = SloMonitor::new(slo, now);
    }

    /// Observes the SLOs that are due, and returns when the next is due; none where there are none.
    pub(crate) fn observe(&self, now: Instant) -> Option<Instant> {
        let observe = |(_, kept): &(_, Mutex<TrackedSlo>)| {
            let mut kept = lock(kept);
            let TrackedSlo { requests, monitor, .. } = &mut *kept;
            monitor.observe(now, |last| requests.snapshot(now, last));
            monitor.due()
        };
        self.0.iter().map(observe).min()
    }

    /// Returns every SLO and its counts of observations and violations, in the order of the setup.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (&SloScope, Slo, SloStanding)> {
        self.0.iter().map(|(to, kept)| {
            let kept = lock(kept);
            (to, kept.monitor.slo(), kept.monitor.standing())
        })
    }

    /// Returns every SLO and the outcomes of its requests, in the order of the setup.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&SloScope, Slo, Outcomes)> {
        self.0.iter().map(|(to, kept)| {
            let kept = lock(kept);
            (to, kept.monitor.slo(), kept.outcomes)
        })
    }

    /// Returns every class that has an SLO, with the SLO and the outcomes of its requests.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&str, Slo, Outcomes)> {
        self.outcomes().filter_map(|(to, slo, outcomes)| match to {
            SloScope::Class(class) => Some((class.as_str(), slo, outcomes)),
            SloScope::Tenant(_) => None,
        })
    }
}

fn lock(kept: &Mutex<TrackedSlo>) -> MutexGuard<'_, TrackedSlo> {
    kept.lock().expect("no panics while held")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slo(millis: u64) -> Slo {
        Slo {
            percentile: 99.0,
            bound: Duration::from_millis(millis),
            window: Duration::from_secs(60),
            observe: Duration::from_secs(5),
        }
    }

    #[test]
    fn class_must_have_an_slo_where_others_have_one() {
        let slos = |scopes: Vec<SloScope>| {
            let setups: Vec<_> = scopes.into_iter().map(|to| SloSetup { to, slo: slo(50) }).collect();
            Slos::new(&setups, Instant::ZERO)
        };
        let none = slos(vec![SloScope::Tenant(TenantId(0))]);
        assert_eq!(none.check_class(Some("page")), Ok(()));
        let some = slos(vec![SloScope::Class("page".to_owned()), SloScope::Tenant(TenantId(0))]);
        assert_eq!([some.check_class(None), some.check_class(Some("page"))], [Ok(()), Ok(())]);
        assert_eq!(some.check_class(Some("pgae")), Err(vec!["page".to_owned()]));
    }

    #[test]
    fn request_counts_for_the_slos_of_its_class_and_its_tenant_alone() {
        let to =
            [SloScope::Class("page".into()), SloScope::Class("feed".into()), SloScope::Tenant(TenantId(1))];
        let setups: Vec<_> =
            to.into_iter().zip([50, 10, 5]).map(|(to, millis)| SloSetup { to, slo: slo(millis) }).collect();
        let slos = Slos::new(&setups, Instant::ZERO);
        let now = Instant::from_secs(5);
        let request = FinishedRequest::new(Duration::from_millis(20), None);
        for (class, tenant) in [(Some("page"), 0), (Some("search"), 1), (None, 0)] {
            slos.record(now, now, slos.counted(class, TenantId(tenant)), request);
        }
        assert_eq!(slos.observe(now), Some(Instant::from_secs(10)));
        let fared: Vec<_> =
            slos.standings().map(|(.., standing)| (standing.observations, standing.violations)).collect();
        assert_eq!(fared, [(1, 0), (0, 0), (1, 1)]);
        let classes: Vec<_> = slos.classes().map(|(class, _, outcomes)| (class, outcomes)).collect();
        assert_eq!(classes, [("page", Outcomes { met: 1, missed: 0 }), ("feed", Outcomes::default())]);
    }

    #[test]
    fn latency_of_exactly_the_bound_meets_it() {
        let bound = Duration::from_millis(20);
        assert_eq!([20_000, 20_001, u32::MAX].map(|us| within(us, bound)), [true, false, false]);
    }
}
