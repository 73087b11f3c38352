//! Readings of the node for its history (`sherwood_model::history`), taken by the control thread.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_model::history::{BackendReading, DeadlineCounters, History, Reading, SERIES_MAX};
use sherwood_model::{BackendId, CachePlan, DeadlineClass, DeadlineClasses, Instant, PartitionId, TenantId};

use crate::core::Core;
use crate::observe::telemetry::Observed;

/// The history of a node, and the classes of deadlines that it distinguishes.
pub(crate) struct NodeHistory {
    history: Mutex<History>,
    classes: ClassSeries,
}

impl NodeHistory {
    /// Creates the empty history of a node whose backends have these classes of deadlines.
    pub(crate) fn new(classes: &[DeadlineClasses]) -> Self {
        Self { history: Mutex::default(), classes: ClassSeries::new(classes) }
    }

    /// Locks the history.
    pub(crate) fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no panics while held")
    }

    /// Returns the upper bound of each series of deadlines; none for deadlines of backends that
    /// have only one class.
    pub(crate) fn classes(&self) -> &[Option<Duration>] {
        &self.classes.bounds
    }
}

/// Series of deadline classes: those of different backends that have the same upper bound are one.
struct ClassSeries {
    bounds: Vec<Option<Duration>>,
    /// The series of each class, by backend.
    series: Vec<Vec<usize>>,
}

impl ClassSeries {
    /// Numbers the bounds of all backends; those beyond [`SERIES_MAX`] share the last number.
    fn new(classes: &[DeadlineClasses]) -> Self {
        let bounds_of = |classes: &DeadlineClasses| -> Vec<Option<Duration>> {
            (0..classes.count()).map(|class| classes.upto(DeadlineClass(class))).collect()
        };
        let mut bounds: Vec<_> = classes.iter().flat_map(bounds_of).collect();
        bounds.sort();
        bounds.dedup();
        bounds.truncate(SERIES_MAX);
        let last = bounds.len().saturating_sub(1);
        let series = |classes: &DeadlineClasses| -> Vec<usize> {
            bounds_of(classes).iter().map(|bound| bounds.binary_search(bound).unwrap_or(last)).collect()
        };
        let series = classes.iter().map(series).collect();
        Self { bounds, series }
    }

    fn of(&self, backend: BackendId, class: DeadlineClass) -> Option<usize> {
        self.series.get(backend.index())?.get(usize::from(class.0)).copied()
    }
}

/// Adds a reading of the node to its history, and returns the time at which the next one is due.
/// O(partitions × shards), without a lock that a request waits for.
pub(crate) fn record(core: &Arc<Core>, now: Instant) -> Instant {
    let reading = reading(core, now);
    let query_p99 = |backend| core.telemetry.query_sketch(now, backend).quantile(0.99);
    let mut history = core.history.lock();
    history.record(&reading, query_p99);
    history.due()
}

fn reading(core: &Core, now: Instant) -> Reading {
    let Observed { latency, blocking } = core.telemetry.observed();
    let backend = |index: usize| BackendReading {
        blocking: blocking.get(index).copied().unwrap_or(0),
        ..BackendReading::default()
    };
    let mut backends: Vec<BackendReading> = (0..core.names.backends().len()).map(backend).collect();
    // Under a shared LRU partitions have no budgets, and what they use is their allocation.
    let shared = core.instances.is_empty() && core.cache.plan() == CachePlan::Shared;
    let mut partitions = Vec::with_capacity(core.names.partitions().len());
    for (index, partition) in core.names.partitions().iter().enumerate() {
        let usage = core.usage(PartitionId::from_index(index));
        let backend = &mut backends[partition.backend.index()];
        backend.hits += usage.hits;
        backend.misses += usage.misses;
        partitions.push(if shared { usage.used_bytes } else { usage.budget_bytes });
    }
    let slos = core.telemetry.slos().standings().map(|(_, _, standing)| standing);
    Reading {
        at: now,
        latency,
        requests: core.telemetry.totals().0,
        decisions: core.control().decisions(),
        slos: std::iter::once(core.telemetry.slo().1).chain(slos).collect(),
        backends,
        partitions,
        deadlines: deadlines(core),
        tenants: core.quotas.iter().flat_map(|quotas| normalized(core, quotas)).collect(),
    }
}

fn deadlines(core: &Core) -> Vec<DeadlineCounters> {
    let classes = &core.history.classes;
    let mut counters = vec![DeadlineCounters::default(); classes.bounds.len()];
    for ((backend, _, class), kept) in core.deadlines.all() {
        if let Some(series) = classes.of(backend, class) {
            counters[series].met += kept.met;
            counters[series].missed += kept.missed;
        }
    }
    counters
}

fn normalized<'a>(
    core: &'a Core,
    quotas: &'a crate::control::Quotas,
) -> impl Iterator<Item = Option<f64>> + 'a {
    (0..core.names.tenants().len())
        .map(|tenant| quotas.of(TenantId::from_index(tenant)).and_then(|quota| quota.normalized))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_backends_with_the_same_bound_are_one_series() {
        let ms = Duration::from_millis;
        let with = |bounds: &[u64]| {
            DeadlineClasses::with_bounds(&bounds.iter().map(|&of| ms(of)).collect::<Vec<_>>()).unwrap()
        };
        let series = ClassSeries::new(&[DeadlineClasses::ONE, with(&[10, 30]), with(&[30, 90])]);
        assert_eq!(series.bounds, [None, Some(ms(10)), Some(ms(30)), Some(ms(90))]);
        let of = |backend, class| series.of(BackendId(backend), DeadlineClass(class));
        assert_eq!([of(0, 0), of(1, 0), of(1, 1), of(2, 0), of(2, 1)], [0, 1, 2, 2, 3].map(Some));
        assert_eq!((of(0, 1), of(3, 0)), (None, None));
    }

    #[test]
    fn bounds_beyond_the_most_series_share_the_last() {
        let with = |first: u64| {
            let bounds: Vec<_> = (0..16).map(|at| Duration::from_millis(first + at)).collect();
            DeadlineClasses::with_bounds(&bounds).unwrap()
        };
        let series = ClassSeries::new(&[with(1), with(101), with(201)]);
        assert_eq!(series.bounds.len(), SERIES_MAX);
        assert_eq!(series.of(BackendId(2), DeadlineClass(5)), Some(SERIES_MAX - 1));
    }
}
