//! Promises to a class of requests or to a tenant, beside the one to all.
//!
//! Each has requests of its own and is observed like the SLO. What the loop does about a tail stays
//! one question: it asks all requests who blocks them. These only say for whom it went well.

use std::sync::{Mutex, MutexGuard};

use sherwood_model::{
    FinishedRequest, Instant, RequestWindow, Slo, SloMonitor, SloStanding, TenantId, WindowOptions,
};

/// Requests of one promise that are kept exactly, 8 bytes each; beyond them latencies are counted
/// to 0.8%.
const EXACT_MAX: usize = 100_000;

/// Whose requests a promise is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promised {
    /// Those that name this class.
    Class(String),
    /// Those of this tenant.
    Tenant(TenantId),
}

/// A promise, before the node is started.
#[derive(Clone, Debug, PartialEq)]
pub struct PromiseSetup {
    /// To whom.
    pub to: Promised,
    /// What.
    pub slo: Slo,
}

/// Which promises a request counts for: positions in the setup, one of a class and one of a tenant
/// at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    class: Option<usize>,
    tenant: Option<usize>,
}

/// Every promise and the requests it is about; a lock for each.
#[derive(Debug)]
pub(crate) struct Promises(Vec<(Promised, Mutex<Kept>)>);

#[derive(Debug)]
struct Kept {
    requests: RequestWindow,
    monitor: SloMonitor,
}

impl Promises {
    /// Promises that nobody has been kept to yet.
    #[must_use]
    pub(crate) fn new(setups: &[PromiseSetup], now: Instant) -> Self {
        let kept = |PromiseSetup { to, slo }: &PromiseSetup| {
            let options = WindowOptions { exact_max: EXACT_MAX, ..WindowOptions::of(slo.window) };
            let requests = RequestWindow::new(options);
            (to.clone(), Mutex::new(Kept { requests, monitor: SloMonitor::new(*slo, now) }))
        };
        Self(setups.iter().map(kept).collect())
    }

    /// Which promises a request of `tenant` counts for, and of `class` if it names one.
    #[must_use]
    pub(crate) fn counted(&self, class: Option<&str>, tenant: TenantId) -> Counted {
        let position = |matches: &dyn Fn(&Promised) -> bool| self.0.iter().position(|(to, _)| matches(to));
        Counted {
            class: class
                .and_then(|class| position(&|to| matches!(to, Promised::Class(name) if name == class))),
            tenant: position(&|to| *to == Promised::Tenant(tenant)),
        }
    }

    /// Takes note of a request that ended at `at`.
    pub(crate) fn record(&self, now: Instant, at: Instant, counted: Counted, request: FinishedRequest) {
        for index in [counted.class, counted.tenant].into_iter().flatten() {
            lock(&self.0[index].1).requests.record(now, at, request);
        }
    }

    /// Observes those that are due, and says when the next is due; never where there are none.
    pub(crate) fn observe(&self, now: Instant) -> Option<Instant> {
        let observe = |(_, kept): &(_, Mutex<Kept>)| {
            let mut kept = lock(kept);
            let Kept { requests, monitor } = &mut *kept;
            monitor.observe(now, |last| requests.snapshot(now, last));
            monitor.due()
        };
        self.0.iter().map(observe).min()
    }

    /// Every promise and how it has fared, in the order of the setup.
    pub(crate) fn standings(&self) -> impl Iterator<Item = (&Promised, Slo, SloStanding)> {
        self.0.iter().map(|(to, kept)| {
            let kept = lock(kept);
            (to, kept.monitor.slo(), kept.monitor.standing())
        })
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().expect("no panics while held")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_counts_for_its_class_and_its_tenant_and_for_no_other() {
        let slo = |millis| Slo {
            percentile: 99.0,
            bound: Duration::from_millis(millis),
            window: Duration::from_secs(60),
            observe: Duration::from_secs(5),
        };
        let to =
            [Promised::Class("page".into()), Promised::Class("feed".into()), Promised::Tenant(TenantId(1))];
        let setups: Vec<_> = to
            .into_iter()
            .zip([50, 10, 5])
            .map(|(to, millis)| PromiseSetup { to, slo: slo(millis) })
            .collect();
        let promises = Promises::new(&setups, Instant::ZERO);
        let now = Instant::from_secs(5);
        let request = FinishedRequest::new(Duration::from_millis(20), None);
        for (class, tenant) in [(Some("page"), 0), (Some("search"), 1), (None, 0)] {
            promises.record(now, now, promises.counted(class, TenantId(tenant)), request);
        }
        assert_eq!(promises.observe(now), Some(Instant::from_secs(10)));
        let fared: Vec<_> =
            promises.standings().map(|(.., standing)| (standing.observations, standing.violations)).collect();
        assert_eq!(fared, [(1, 0), (0, 0), (1, 1)]);
    }
}
