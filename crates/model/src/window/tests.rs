use proptest::prelude::*;

use super::*;
use crate::{BackendId, TenantId};

const SECOND: Duration = Duration::from_secs(1);

fn request(latency_us: u32, backend: u16) -> FinishedRequest {
    FinishedRequest::new(Duration::from_micros(latency_us.into()), Some(BackendId(backend)))
}

fn window_of(requests: impl IntoIterator<Item = FinishedRequest>, exact_max: usize) -> RequestWindow {
    let mut window = RequestWindow::new(WindowOptions { exact_max, ..WindowOptions::of(60 * SECOND) });
    let now = Instant::from_secs(100);
    requests.into_iter().for_each(|request| assert!(window.record(now, now, request)));
    window
}

fn now() -> Instant {
    Instant::from_secs(100)
}

#[test]
fn finished_request_takes_eight_bytes() {
    assert_eq!(size_of::<FinishedRequest>(), 8);
}

#[test]
fn blocking_counts_of_a_percentile_band_equal_those_of_the_robinhood_paper() {
    let snapshot = window_of((1..=1000).map(|ms| request(ms * 1000, (ms % 2 == 0).into())), 1_000_000)
        .snapshot(now(), 60 * SECOND);
    let counts = |low, high| snapshot.blocking_counts(Band { low, high }, 2);
    assert_eq!(counts(98.5, 99.5), [5, 5]);
    assert_eq!(counts(99.0, 100.0), [5, 5]);
    assert_eq!(counts(99.0, 99.5), [3, 2]);
    assert_eq!(snapshot.quantile(0.99), Some(Duration::from_millis(991)));
}

#[test]
fn window_with_no_or_one_request_has_defined_percentiles_and_counts() {
    let empty = window_of([], 10).snapshot(now(), SECOND);
    assert_eq!((empty.count(), empty.quantile(0.99), empty.range()), (0, None, None));
    assert_eq!(empty.blocking_counts(Band::TAIL, 3), [0, 0, 0]);
    let one = window_of([request(7, 2)], 10).snapshot(now(), SECOND);
    assert_eq!(one.quantile(0.99), Some(Duration::from_micros(7)));
    assert_eq!(one.blocking_counts(Band::TAIL, 3), [0, 0, 0]);
}

#[test]
fn equal_latencies_at_the_edge_of_a_percentile_band_are_shared_in_proportion() {
    let snapshot =
        window_of((0..1000).map(|i| request(5, u16::from(i % 4 == 0))), 2000).snapshot(now(), SECOND);
    assert_eq!(snapshot.blocking_counts(Band { low: 98.0, high: 100.0 }, 2), [15, 5]);
}

#[test]
fn request_without_blocking_backend_counts_in_ranks_only() {
    let none = FinishedRequest::new(Duration::from_micros(1), None);
    let snapshot = window_of([none, request(9, 0)], 10).snapshot(now(), SECOND);
    assert_eq!(snapshot.blocking_counts(Band { low: 0.0, high: 100.0 }, 1), [1]);
    assert_eq!(snapshot.count(), 2);
}

#[test]
fn old_requests_expire_and_requests_recorded_too_late_count_as_dropped() {
    let mut window = window_of([request(1, 0)], 10);
    let later = Instant::from_secs(162);
    assert_eq!(window.snapshot(later, 60 * SECOND).count(), 0);
    assert!(!window.record(later, now(), request(1, 0)));
    assert_eq!(window.dropped(), 1);
    assert!(window.record(later, Instant::NEVER, request(2, 0)), "a later time counts as now");
    assert_eq!(window.snapshot(later, SECOND).count(), 1);
}

#[test]
fn time_slots_older_than_keep_are_dropped_before_requests_are_counted_in_tables() {
    let keep = 60 * SECOND;
    let options = WindowOptions { span: 600 * SECOND, keep, slot: SECOND, exact_max: 1_000 };
    let mut window = RequestWindow::new(options);
    for second in 0..600 {
        let at = Instant::from_secs(second);
        (0..10).for_each(|_| assert!(window.record(at, at, request(149_600, 0))));
    }
    let now = Instant::from_secs(599);
    assert!(window.exact <= 1_000);
    assert!(window.slots.iter().all(|slot| slot.table.is_empty()), "600 requests of the last minute fit");
    let snapshot = RequestSnapshot::from(window.select(now, keep));
    assert_eq!(snapshot.quantile(0.99), Some(Duration::from_micros(149_600)));
}

#[test]
fn request_selection_covers_a_longer_time_while_requests_are_few() {
    let mut window = RequestWindow::new(WindowOptions::of(600 * SECOND));
    for second in 0..300 {
        let at = Instant::from_secs(second);
        window.record(at, at, request(1, 0));
    }
    let now = Instant::from_secs(299);
    assert!(window.snapshot(now, 60 * SECOND).count() < 100);
    assert!(window.select_at_least(now, 60 * SECOND, 200).count() >= 200);
    assert_eq!(window.select_at_least(now, 60 * SECOND, 5000).count(), 300);
    let reach = |count| window.select_at_least(now, 60 * SECOND, count).reach();
    assert!(reach(0) == 60 * SECOND && reach(200) > 60 * SECOND);
    assert_eq!(reach(5000), window.options.span);
}

#[test]
fn selection_of_a_tenant_covers_a_longer_time_only_while_its_own_requests_are_few() {
    let mut window = RequestWindow::new(WindowOptions::of(600 * SECOND));
    for second in 0..300 {
        let at = Instant::from_secs(second);
        (0..10).for_each(|_| assert!(window.record(at, at, request(1, 0))));
        window.record(at, at, request(9, 1).of(TenantId(1)));
    }
    let now = Instant::from_secs(299);
    let selections = window.select_by_tenant(now, 60 * SECOND, 200, 3);
    let reaches: Vec<_> = selections.iter().map(|selection| selection.reach().as_secs()).collect();
    assert_eq!(reaches, [60, 240, 600]);
    let [busy, quiet, idle] = [0, 1, 2].map(|tenant| RequestSnapshot::from(selections[tenant].clone()));
    assert_eq!((busy.count(), quiet.count(), idle.count()), (610, 241, 0));
    let all = Band { low: 0.0, high: 100.0 };
    assert_eq!((busy.blocking_counts(all, 2), quiet.blocking_counts(all, 2)), (vec![610, 0], vec![0, 241]));
}

proptest! {
    /// Checks that selections by tenant are those of windows of each tenant's own requests.
    #[test]
    fn selections_by_tenant_equal_those_of_a_window_for_each(
        requests in prop::collection::vec((0u64..300, 0u32..1000, 0u16..3, 0u16..3), 1..300), count in 0u64..100, exact in 1usize..400
    ) {
        let options = WindowOptions { exact_max: exact, ..WindowOptions::of(200 * SECOND) };
        let mut together = RequestWindow::new(options);
        let mut apart = vec![RequestWindow::new(WindowOptions { exact_max: 1_000, ..options }); 3];
        let mut requests = requests;
        requests.sort_by_key(|&(at, ..)| at);
        for &(at, latency_us, backend, tenant) in &requests {
            let (at, request) = (Instant::from_secs(at), request(latency_us, backend).of(TenantId(tenant)));
            together.record(at, at, request);
            apart[usize::from(tenant)].record(at, at, request);
        }
        let now = Instant::from_secs(300);
        let selections = together.select_by_tenant(now, 20 * SECOND, count, 3);
        for (selection, own) in selections.into_iter().zip(&apart) {
            let own = own.select_at_least(now, 20 * SECOND, count);
            prop_assert_eq!(selection.reach(), own.reach());
            let (selected, own) = (RequestSnapshot::from(selection), RequestSnapshot::from(own));
            let everything = Band { low: 0.0, high: 100.0 };
            prop_assert_eq!(selected.blocking_counts(everything, 3), own.blocking_counts(everything, 3));
        }
    }

    /// Checks that a window with more requests than `exact_max` answers within the stated error.
    #[test]
    fn window_above_exact_max_keeps_counts_exact_and_latency_within_error(
        latencies in prop::collection::vec((0u32..u32::MAX, 0u16..4), 1..300), exact_max in 1usize..100, quantile in 0.0..1.0
    ) {
        let window = window_of(latencies.iter().map(|&(l, b)| request(l, b)), exact_max);
        prop_assert!(window.exact <= exact_max);
        let (exact, got) = (window_of(latencies.iter().map(|&(l, b)| request(l, b)), 1000), window);
        let (exact, got) = (exact.snapshot(now(), SECOND), got.snapshot(now(), SECOND));
        prop_assert_eq!(exact.count(), got.count());
        let (x, y) = (exact.quantile(quantile).unwrap().as_secs_f64(), got.quantile(quantile).unwrap().as_secs_f64());
        prop_assert!((x - y).abs() <= x / 128.0 + 1e-9, "{} {}", x, y);
        let everything = Band { low: 0.0, high: 100.0 };
        prop_assert_eq!(exact.blocking_counts(everything, 4), got.blocking_counts(everything, 4));
    }

    /// Checks that the counts of a band sum to the number of its ranks if every request has a
    /// blocking backend.
    #[test]
    fn blocking_counts_sum_to_the_number_of_ranks_of_the_band(latencies in prop::collection::vec((0u32..50, 0u16..4), 1..400), low in 0.0..100.0, width in 0.0..50.0) {
        let snapshot = window_of(latencies.iter().map(|&(l, b)| request(l, b)), 1000).snapshot(now(), SECOND);
        let band = Band { low, high: f64::min(low + width, 100.0) };
        let ranks = crate::sketch::edge(band.high / 100.0, snapshot.count()) - crate::sketch::edge(low / 100.0, snapshot.count());
        prop_assert_eq!(snapshot.blocking_counts(band, 4).iter().sum::<u64>(), ranks);
    }
}
