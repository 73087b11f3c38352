use super::*;
use crate::SloStanding;

fn reading(second: u64) -> Reading {
    Reading { at: Instant::from_secs(second), ..Reading::default() }
}

fn none(_: BackendId) -> Option<Duration> {
    None
}

#[test]
fn point_has_the_differences_of_counters_and_the_latest_values() {
    let mut history = History::default();
    let at = |second, factor: u64| Reading {
        requests: 100 * factor,
        decisions: factor,
        slos: vec![SloStanding { observations: 2 * factor, violations: factor, ..SloStanding::default() }],
        backends: vec![BackendReading { hits: 10 * factor, misses: factor, blocking: 7 - factor }],
        partitions: vec![1_000 * factor],
        deadlines: vec![DeadlineCounters { met: 5 * factor, missed: factor }],
        tenants: vec![Some(1.5), None],
        ..reading(second)
    };
    history.record(&at(1, 1), none);
    history.record(&at(3, 4), |BackendId(id)| Some(Duration::from_millis(id.into())));
    let points: Vec<_> = history.fine().after(Instant::ZERO).cloned().collect();
    let backend =
        BackendPoint { hits: 30, misses: 3, blocking: 3, query_p99: Some(Duration::from_millis(0)) };
    let expected = Point {
        at: Instant::from_secs(3),
        span: Duration::from_secs(2),
        latency: Percentiles::default(),
        requests: 300,
        decisions: 3,
        slos: vec![SloPoint { current: None, observations: 6, violations: 3 }],
        backends: Largest { kept: vec![(0, backend)], other: None },
        partitions: Largest { kept: vec![(0, 4_000)], other: None },
        deadlines: vec![DeadlineCounters { met: 15, missed: 3 }],
        tenants: vec![(0, 1.5)],
    };
    assert_eq!(points, [expected]);
}

#[test]
fn counter_that_was_reset_counts_from_zero() {
    let mut history = History::default();
    history.record(&Reading { requests: 90, ..reading(1) }, none);
    history.record(&Reading { requests: 5, ..reading(2) }, none);
    assert_eq!(history.fine().after(Instant::ZERO).map(|point| point.requests).collect::<Vec<_>>(), [5]);
}

#[test]
fn history_keeps_five_minutes_of_seconds_and_an_hour_of_five_seconds() {
    let mut history = History::default();
    for second in 0..2 * 3_600 {
        assert!(history.due() <= Instant::from_secs(second));
        history.record(&reading(second), none);
    }
    let ends = |timeline: &Timeline| -> Vec<Instant> {
        timeline.after(Instant::ZERO).map(|point| point.at).collect()
    };
    let (fine, coarse) = (ends(history.fine()), ends(history.coarse()));
    assert_eq!((fine.len(), coarse.len()), (FINE_MAX, COARSE_MAX));
    assert_eq!(fine.last().unwrap().since(fine[0]), FINE_STEP * 299);
    assert_eq!(coarse.last().unwrap().since(coarse[0]), COARSE_STEP * 719);
    let last = *fine.last().unwrap();
    assert_eq!(history.fine().after(last).count(), 0);
    assert_eq!(history.fine().after(fine[297]).count(), 2);
}

#[test]
fn reading_that_comes_too_early_is_skipped() {
    let mut history = History::default();
    for nanos in [0, 400_000_000, 999_999_999, 1_000_000_000, 1_900_000_000] {
        history.record(&Reading { at: Instant::from_nanos(nanos), ..Reading::default() }, none);
    }
    assert_eq!(history.fine().after(Instant::ZERO).count(), 1);
    assert_eq!(history.due(), Instant::from_secs(2));
}

#[test]
fn point_of_4096_partitions_keeps_the_largest_and_the_sum_of_the_others() {
    let mut history = History::default();
    let partitions: Vec<u64> = (0..4_096).map(|id| (id * 2_654_435_761) % 4_096).collect();
    history.record(&reading(0), none);
    history.record(&Reading { partitions: partitions.clone(), ..reading(1) }, none);
    let point = history.fine().after(Instant::ZERO).next().unwrap();
    let mut sorted = partitions.clone();
    sorted.sort_unstable();
    let mut kept: Vec<u64> = point.partitions.kept.iter().map(|(_, bytes)| *bytes).collect();
    kept.sort_unstable();
    assert_eq!(kept, sorted[4_096 - SERIES_MAX..]);
    assert!(point.partitions.kept.is_sorted_by_key(|(id, _)| *id));
    assert!(point.partitions.kept.iter().all(|(id, bytes)| partitions[usize::from(*id)] == *bytes));
    let sum: u64 = partitions.iter().sum();
    assert_eq!(kept.iter().sum::<u64>() + point.partitions.other.unwrap(), sum);
}

#[test]
fn only_kept_backends_have_their_queries_looked_up() {
    let mut history = History::default();
    let backends = |hits: u64| -> Vec<BackendReading> {
        let backend = |id: u64| BackendReading { hits: hits * id, misses: 0, blocking: u64::from(id == 3) };
        (0..1_000).map(backend).collect()
    };
    history.record(&Reading { backends: backends(0), ..reading(0) }, none);
    let asked = std::cell::RefCell::new(Vec::new());
    history.record(&Reading { backends: backends(2), ..reading(1) }, |BackendId(id)| {
        asked.borrow_mut().push(id);
        None
    });
    let asked = asked.into_inner();
    assert_eq!(asked.len(), SERIES_MAX);
    assert!(asked.contains(&999));
    let point = history.fine().after(Instant::ZERO).next().unwrap();
    assert_eq!(point.backends.other.unwrap().blocking, u64::from(!asked.contains(&3)));
}

#[test]
fn tenants_with_least_throughput_are_kept() {
    let mut history = History::default();
    let tenants = (0..100).map(|id| (id % 3 > 0).then(|| f64::from(100 - id)));
    history.record(&reading(0), none);
    history.record(&Reading { tenants: tenants.collect(), ..reading(1) }, none);
    let kept = &history.fine().after(Instant::ZERO).next().unwrap().tenants;
    assert_eq!(kept.len(), SERIES_MAX);
    assert_eq!(kept.last(), Some(&(98, 2.0)));
    assert!(kept.iter().all(|(id, _)| *id >= 50), "{kept:?}");
}

#[test]
fn chosen_series_and_the_others_sum_to_all_values() {
    let points: Vec<Largest<u64>> = (0..6_u64)
        .map(|at| Largest {
            // Every point keeps other ids.
            kept: (0..32).map(|id| ((id + at * 7) as u16, id + 1)).collect(),
            other: (at % 2 == 0).then_some(1_000),
        })
        .collect();
    let (series, others) = chosen(points.iter(), |&bytes| bytes);
    assert_eq!(series.len(), SERIES_MAX);
    assert!(series.is_sorted_by_key(|(id, _)| *id));
    let others = others.unwrap();
    for (at, point) in points.iter().enumerate() {
        let all: u64 = point.kept.iter().map(|(_, value)| value).sum::<u64>() + point.other.unwrap_or(0);
        let shown: u64 = series.iter().filter_map(|(_, values)| values[at]).sum();
        assert_eq!(shown + others[at].unwrap_or(0), all);
    }
    let few = [Largest { kept: vec![(0, 1_u64)], other: None }];
    assert_eq!(chosen(few.iter(), |&bytes| bytes), (vec![(0, vec![Some(1)])], None));
}
