use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use sherwood_model::SplitMix64;

use super::*;
use crate::NodeRates;

const T0: TenantId = TenantId(0);
const T1: TenantId = TenantId(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn queues(tenants: u16, lends: bool, rates: &[f64]) -> TenantQueues<u32> {
    let mut queues =
        TenantQueues::new(TenantQueueOptions { tenants, waiting_max: Some(8_000), burst_units: 0, lends });
    queues.set_rates(at(1_000), rates.iter().sum(), rates);
    queues
}

/// Starts of calls, from `since` on for so many milliseconds, while some tenants keep two waiting.
fn starts(
    queues: &mut TenantQueues<u32>,
    greedy: &[TenantId],
    units: f64,
    since: Instant,
    ms: u64,
) -> Vec<(Instant, TenantId)> {
    let (mut now, until, mut found) = (since, since + Duration::from_millis(ms), Vec::new());
    while now < until {
        for &id in greedy {
            while queues.used(id).waiting < 2 {
                queues.enter(now, id, 0, units, None).unwrap();
            }
        }
        match queues.start_next(now) {
            Some(started) => found.push((now, started.tenant)),
            None => now = queues.next_timeout().expect("something waits").max(now + Duration::from_nanos(1)),
        }
    }
    found
}

fn count(starts: &[(Instant, TenantId)], id: TenantId, from: Instant, until: Instant) -> f64 {
    starts.iter().filter(|(at, tenant)| *tenant == id && (from..until).contains(at)).count() as f64
}

#[test]
fn rates_from_100_a_second_are_kept_within_2_percent_over_10_s_and_5_percent_over_1_s() {
    for tenants in [2, 16, 1_000_u16] {
        let rates: Vec<f64> = (0..tenants).map(|at| 100.0 + f64::from(at % 7) * 30.0).collect();
        let mut queues = queues(tenants, false, &rates);
        let ids: Vec<TenantId> = (0..tenants).map(TenantId).collect();
        let greedy = if tenants == 1_000 { &ids[500..520] } else { &ids[..] };
        let found = starts(&mut queues, greedy, 1.0, at(5_000), 10_000);
        for &id in greedy {
            let rate = rates[id.index()];
            let all = count(&found, id, at(5_000), at(15_000));
            assert!((all / rate / 10.0 - 1.0).abs() < 0.02, "{id:?}: {all} of {rate}/s in 10 s");
            for second in 5..15 {
                let some = count(&found, id, at(second * 1_000), at((second + 1) * 1_000));
                assert!((some / rate - 1.0).abs() < 0.05, "{id:?}: {some} of {rate}/s in one");
            }
        }
    }
}

#[test]
fn lending_uses_98_percent_of_the_total_while_a_tenant_waits() {
    let mut queues = queues(4, true, &[100.0, 300.0, 500.0, 100.0]);
    let found = starts(&mut queues, &[T0], 1.0, at(5_000), 10_000);
    assert!((9_800.0..10_200.0).contains(&count(&found, T0, at(5_000), at(15_000))), "{}", found.len());
    let found = starts(&mut queues, &[T0, T1], 1.0, at(15_000), 10_000);
    let [zero, one] = [T0, T1].map(|id| count(&found, id, at(16_000), at(25_000)));
    assert!((8_820.0..9_180.0).contains(&(zero + one)), "{zero} + {one}");
    assert!((one / zero - 3.0).abs() < 0.1, "what is left is shared by rate: {one} beside {zero}");
}

#[test]
fn units_are_lent_as_soon_as_all_that_was_used_is_paid_for() {
    let mut queues = queues(2, true, &[1.0, 99.0]);
    queues.charge(at(5_000), T0, Payer::Own, 10.0);
    queues.enter(at(5_000), T0, 0, 1.0, None).unwrap();
    // The total had 10 ms of unused time, and 10 units take 100.
    assert_eq!(queues.next_timeout(), Some(at(5_090)));
    assert_eq!(queues.start_next(at(5_089)), None);
    assert_eq!(queues.start_next(at(5_090)).map(|started| started.payer), Some(Payer::Lent));
}

#[test]
fn tenant_that_was_lent_units_keeps_its_own() {
    let mut queues = queues(2, true, &[100.0, 300.0]);
    starts(&mut queues, &[T0], 1.0, at(5_000), 10_000);
    let TenantUse { own_units, lent_units, .. } = queues.used(T0);
    assert!((980.0..1_020.0).contains(&own_units), "{own_units}");
    assert!((2_940.0..3_060.0).contains(&lent_units), "{lent_units}");
}

#[test]
fn owner_that_comes_back_starts_at_once_whatever_was_lent() {
    let mut queues = queues(2, true, &[100.0, 300.0]);
    starts(&mut queues, &[T0], 50.0, at(5_000), 3_000);
    for call in 0..3 {
        queues.enter(at(8_000), T1, call, 1.0, None).unwrap();
        assert_eq!(queues.start_next(at(8_000)).map(|started| started.tenant), Some(T1));
    }
}

#[test]
fn tenant_that_floods_changes_nothing_for_the_others() {
    let alone = starts(&mut queues(2, false, &[200.0, 100.0]), &[T0], 1.0, at(5_000), 2_000);
    let both = starts(&mut queues(2, false, &[200.0, 100.0]), &[T0, T1], 1.0, at(5_000), 2_000);
    let of = |starts: &[(Instant, TenantId)]| -> Vec<Instant> {
        starts.iter().filter(|(_, id)| *id == T0).map(|(at, _)| *at).collect()
    };
    assert_eq!(of(&both), of(&alone));
}

#[test]
fn cost_that_becomes_known_later_is_a_debt_that_the_tenant_pays() {
    let mut queues = queues(2, false, &[100.0, 100.0]);
    queues.enter(at(5_000), T0, 1, 1.0, None).unwrap();
    let started = queues.start_next(at(5_000)).unwrap();
    queues.enter(at(5_000), T0, 2, 1.0, None).unwrap();
    queues.charge(at(5_001), T0, started.payer, 49.0);
    assert_eq!(queues.start_next(at(5_001)), None);
    // 50 units of 10 ms each, less the burst of 10 ms.
    assert_eq!(queues.next_timeout(), Some(at(5_490)));
    assert_eq!(queues.start_next(at(5_490)).map(|started| started.work), Some(2));
    assert_eq!(queues.used(T0).own_units, 51.0);
}

#[test]
fn work_beyond_the_tenants_part_and_the_common_one_is_refused_with_the_time_to_try_again() {
    let mut queues = TenantQueues::new(TenantQueueOptions {
        tenants: 2,
        waiting_max: Some(8),
        burst_units: 0,
        lends: false,
    });
    queues.set_rates(at(5_000), 20.0, &[10.0, 10.0]);
    queues.charge(at(5_000), T0, Payer::Own, 10.0);
    queues.charge(at(5_000), T1, Payer::Own, 10.0);
    let mut enter = |id| queues.enter(at(5_000), id, 0, 1.0, None);
    for _ in 0..6 {
        enter(T0).unwrap();
    }
    let retry_in = Duration::from_millis(1_000 + 600);
    assert_eq!(enter(T0), Err(TenantRefusal::Full { limit: 8, retry_in }));
    assert_eq!([enter(T1).is_ok(), enter(T1).is_ok(), enter(T1).is_ok()], [true, true, false]);
    assert_eq!((queues.used(T0).refused, queues.used(T1).refused), (1, 1));
    while queues.start_next(at(60_000)).is_some() || queues.next_timeout().is_some() {
        queues.set_rates(at(60_000), f64::INFINITY, &[f64::INFINITY; 2]);
    }
    queues.set_rates(at(60_000), 20.0, &[10.0, 10.0]);
    queues.charge(at(60_000), T0, Payer::Own, 10.0);
    assert!((0..6).all(|_| queues.enter(at(60_000), T0, 0, 1.0, None).is_ok()), "there is room again");
}

#[test]
fn work_that_would_start_after_its_deadline_is_refused_at_once() {
    let mut queues = queues(2, false, &[100.0, 100.0]);
    let until = Some(at(5_020));
    for _ in 0..4 {
        queues.enter(at(5_000), T0, 0, 1.0, until).unwrap();
        queues.start_next(at(5_000));
    }
    let starts_in = Duration::from_millis(30);
    assert_eq!(queues.enter(at(5_000), T0, 0, 1.0, until), Err(TenantRefusal::TooLate { starts_in }));
    assert!(queues.enter(at(5_000), T1, 0, 1.0, until).is_ok());
}

#[test]
fn rate_of_zero_or_none_lets_a_tenant_begin() {
    let mut queues = queues(3, false, &[0.0, f64::NAN, f64::INFINITY]);
    for id in [T0, T1, TenantId(2)] {
        for _ in 0..40 {
            queues.enter(at(5_000), id, 0, 1.0, None).unwrap();
        }
    }
    let mut begun = [0; 3];
    while let Some(started) = queues.start_next(at(5_000)) {
        begun[started.tenant.index()] += 1;
    }
    assert_eq!(begun, [1, 1, 40]);
    assert_eq!(queues.next_timeout(), Some(at(5_990)));
}

/// Starts of a tenant's calls in ten seconds from `at(5_000)` on, while it keeps two waiting and
/// every wake-up comes 20 to 50 ms late.
fn starts_at_late_wake_ups(queues: &mut TenantQueues<u32>) -> Vec<Instant> {
    let (mut now, mut draws, mut found) = (at(5_000), SplitMix64::new(7), Vec::new());
    while now < at(15_000) {
        while queues.used(T0).waiting < 2 {
            queues.enter(now, T0, 0, 1.0, None).unwrap();
        }
        if queues.start_next(now).is_some() {
            found.push(now);
        } else {
            let late = Duration::from_micros(20_000 + draws.next_u64() % 30_000);
            now = queues.next_timeout().expect("something waits").max(now) + late;
        }
    }
    found
}

#[test]
fn late_wake_ups_lower_no_rate_and_exceed_none() {
    for (lends, rate) in [(false, 100.0), (false, 1_000.0), (false, 20_000.0), (true, 1_000.0)] {
        let mut queues = queues(2, lends, &[rate / 2.0, rate / 2.0]);
        let whole = if lends { rate } else { rate / 2.0 };
        let found = starts_at_late_wake_ups(&mut queues);
        let share = found.len() as f64 / whole / 10.0;
        assert!((0.98..1.02).contains(&share), "{share} of {whole}/s, lending: {lends}");
        for from in (5_000..14_000).step_by(50).map(at) {
            let second = from..from + Duration::from_secs(1);
            let most = found.iter().filter(|start| second.contains(start)).count() as f64;
            assert!(most <= whole * 1.05 + 1.0, "{most} of {whole}/s in a second");
        }
    }
}

#[test]
fn tenant_that_did_not_wait_catches_up_no_more_than_the_burst() {
    let mut queues = queues(1, false, &[1_000.0]);
    let mut started = |now, entered| {
        for call in 0..entered {
            queues.enter(now, T0, call, 1.0, None).unwrap();
        }
        std::iter::from_fn(|| queues.start_next(now)).count()
    };
    // Each time one unit more starts, which leaves a debt.
    assert_eq!(started(at(5_000), 50), 11);
    assert_eq!(started(at(5_030), 0), 30, "it waited for 30 ms");
    assert_eq!(started(at(6_000), 0), 9, "all that is left");
    assert_eq!(started(at(7_000), 200), 11);
    assert_eq!(started(at(8_000), 0), 46, "the longest delay that is caught up");
}

#[test]
fn clock_that_stands_still_starts_no_more_than_the_burst() {
    let mut queues = queues(1, true, &[1_000.0]);
    let found: Vec<_> = (0..1_000)
        .filter_map(|call| {
            queues.enter(at(5_000), T0, call, 1.0, None).unwrap();
            queues.start_next(at(5_000))
        })
        .collect();
    let own = found.iter().filter(|started| started.payer == Payer::Own).count();
    // 10 ms of the burst, and one that leaves a debt.
    assert_eq!((own, found.len()), (11, 11));
}

proptest! {
    /// Every work that entered starts once or is taken back, in the order of its tenant, whatever
    /// happens in between; counts and bounds hold.
    #[test]
    fn every_work_starts_once_in_order_or_is_taken_back(
        steps in prop::collection::vec((0..7_u8, 0..3_u16, 0..40_u64), 1..400),
        lends in any::<bool>(),
    ) {
        let mut queues = TenantQueues::new(TenantQueueOptions { tenants: 3, waiting_max: Some(20), burst_units: 0, lends });
        let mut model: BTreeMap<u16, VecDeque<(WaitingId, u32)>> = BTreeMap::new();
        let (mut now, mut next) = (at(1_000), 0);
        for (step, tenant, amount) in steps {
            let id = TenantId(tenant);
            let waiting = model.entry(tenant).or_default();
            match step {
                0..=2 => {
                    next += 1;
                    if let Ok(entered) = queues.enter(now, id, next, amount as f64 / 4.0, None) {
                        waiting.push_back((entered, next));
                    }
                }
                3 => {
                    if let Some((entered, work)) = waiting.remove(amount as usize % waiting.len().max(1)) {
                        prop_assert_eq!(queues.cancel(now, entered), Some(work));
                        prop_assert_eq!(queues.cancel(now, entered), None);
                    }
                }
                4 => queues.charge(now, id, Payer::Own, amount as f64),
                5 => queues.set_rates(now, 300.0, &[amount as f64 * 20.0, 100.0, 50.0]),
                _ => now += Duration::from_millis(amount),
            }
            while let Some(started) = queues.start_next(now) {
                let (entered, work) = model.get_mut(&started.tenant.0).unwrap().pop_front().unwrap();
                prop_assert_eq!(started.work, work);
                prop_assert_eq!(queues.cancel(now, entered), None);
            }
            let mut all = 0;
            for (tenant, waiting) in &model {
                prop_assert_eq!(queues.used(TenantId(*tenant)).waiting as usize, waiting.len());
                all += waiting.len();
            }
            prop_assert!(all <= 20, "{}", all);
            prop_assert_eq!(queues.next_timeout().is_some(), all > 0);
            prop_assert!(queues.next_timeout().is_none_or(|at| at > now), "nothing is left that may start");
        }
        // In time, everything starts.
        now += Duration::from_secs(100_000);
        while let Some(started) = queues.start_next(now) {
            model.get_mut(&started.tenant.0).unwrap().pop_front().unwrap();
            now += Duration::from_secs(100);
        }
        prop_assert!(model.values().all(VecDeque::is_empty));
    }
}

#[test]
fn burst_in_units_lets_random_work_of_a_low_rate_start_at_once() {
    let options = TenantQueueOptions { tenants: 1, waiting_max: Some(100), burst_units: 3, lends: false };
    let mut queues = TenantQueues::new(options);
    let now = Instant::from_secs(10);
    queues.set_rates(now, 1.0, &[1.0]);
    let later = Instant::from_secs(20);
    for work in 0..6 {
        queues.enter(later, TenantId(0), work, 1.0, None).expect("there is room");
    }
    let started = std::iter::from_fn(|| queues.start_next(later)).count();
    assert_eq!(started, 4, "what was not used, and the next one");
    assert_eq!(queues.next_timeout(), Some(Instant::from_secs(21)));
}

#[test]
fn counters_of_units_do_not_fall_and_are_exact_again_once_more_is_used() {
    let mut queues = queues(1, true, &[100.0]);
    let mut random = SplitMix64::new(7);
    let (mut used, mut before) = ([0.0, 0.0], TenantUse::default());
    for _ in 0..1_000 {
        let (units, payer) = ((random.next_u64() % 8) as f64, random.next_u64() % 2);
        let (of, payer) = (payer as usize, if payer == 0 { Payer::Own } else { Payer::Lent });
        if random.next_u64().is_multiple_of(2) && used[of] >= units {
            queues.refund(at(2_000), T0, payer, units);
            used[of] -= units;
        } else {
            queues.charge(at(2_000), T0, payer, units);
            used[of] += units;
        }
        let now = queues.used(T0);
        assert!(now.own_units >= before.own_units && now.lent_units >= before.lent_units);
        assert!(now.own_units >= used[0] && now.lent_units >= used[1]);
        before = now;
    }
    queues.charge(at(2_000), T0, Payer::Own, 10_000.0);
    queues.charge(at(2_000), T0, Payer::Lent, 10_000.0);
    let now = queues.used(T0);
    assert_eq!([now.own_units, now.lent_units], used.map(|units| units + 10_000.0));
}

/// Starts all that waits, and returns the works and the time of the last start.
fn start_all(queues: &mut TenantQueues<u32>, mut now: Instant) -> (Vec<(TenantId, u32)>, Instant) {
    let mut found = Vec::new();
    loop {
        match queues.start_next(now) {
            Some(Started { tenant, work, .. }) => found.push((tenant, work)),
            None => match queues.next_timeout() {
                Some(at) => now = at.max(now),
                None => return (found, now),
            },
        }
    }
}

#[test]
fn common_rate_pays_for_all_in_the_order_of_arrival_and_use_is_counted_for_each() {
    let mut queues = queues(3, false, &[1_000.0; 3]);
    queues.set_rates(at(1_000), 300.0, &[]);
    let of = |number: u32| (TenantId((number % 3) as u16), number);
    for (id, number) in (0..30).map(of) {
        queues.enter(at(2_000), id, number, 1.0, None).unwrap();
    }
    assert_eq!([0, 1, 2].map(|id| queues.used(TenantId(id)).waiting), [10; 3]);
    let (started, ended) = start_all(&mut queues, at(2_000));
    assert_eq!(started, (0..30).map(of).collect::<Vec<_>>());
    // The burst of 10 ms pays for three units.
    assert!((at(2_086)..=at(2_091)).contains(&ended), "{ended:?}");
    let expected = TenantUse { own_units: 10.0, ..TenantUse::default() };
    assert_eq!([0, 1, 2].map(|id| queues.used(TenantId(id))), [expected; 3]);
}

#[test]
fn work_that_waits_is_kept_when_rates_become_common_and_are_divided_again() {
    let mut queues = queues(2, false, &[100.0, 100.0]);
    let ids: Vec<_> = (0..8)
        .map(|number| queues.enter(at(2_000), TenantId(number % 2), number.into(), 1.0, None).unwrap())
        .collect();
    queues.set_rates(at(2_000), 200.0, &[]);
    assert_eq!(queues.cancel(at(2_000), ids[3]), Some(3));
    assert_eq!((queues.used(T0).waiting, queues.used(T1).waiting), (4, 3));
    assert_eq!(queues.start_next(at(2_000)).map(|started| started.work), Some(0));
    queues.set_rates(at(2_000), 200.0, &[100.0, 100.0]);
    assert_eq!(queues.cancel(at(2_000), ids[7]), Some(7));
    assert_eq!((queues.used(T0).waiting, queues.used(T1).waiting), (3, 2));
    let (mut started, _) = start_all(&mut queues, at(2_000));
    started.sort_by_key(|(_, work)| *work);
    assert_eq!(started, [(T1, 1), (T0, 2), (T0, 4), (T1, 5), (T0, 6)]);
    assert_eq!((queues.used(T0).own_units, queues.used(T1).own_units), (4.0, 2.0));
}

#[test]
fn loan_ends_in_time_however_late_the_next_call_is() {
    let rates = |per_s: f64| NodeRates { total_per_s: per_s, per_s: vec![per_s] };
    let borrowed = |per_s, ends_at| RatesInForce { rates: rates(per_s), ends_at, without_loans: rates(10.0) };
    for lends in [false, true] {
        let mut queues = queues(1, lends, &[10.0]);
        queues.set_rates_in_force(at(2_000), &borrowed(1_000.0, at(3_000)));
        let found = starts(&mut queues, &[T0], 1.0, at(2_000), 990);
        assert!((980..=1_010).contains(&found.len()), "{} of 990", found.len());
        // Nothing was called from 2,990 ms on, and the units of 45 ms are caught up.
        let found = starts(&mut queues, &[T0], 1.0, at(13_000), 1_000);
        assert!((9..=12).contains(&found.len()), "{} of 10", found.len());
        queues.set_rates_in_force(at(14_000), &borrowed(1_000.0, at(13_500)));
        let found = starts(&mut queues, &[T0], 1.0, at(14_000), 1_000);
        assert!((9..=11).contains(&found.len()), "{} of 10 after the end", found.len());
    }
}

#[test]
fn debt_of_borrowed_units_is_paid_by_the_tenants_own_rate_after_the_loan() {
    let rates = |per_s: f64| NodeRates { total_per_s: per_s, per_s: vec![per_s] };
    let mut queues = queues(1, false, &[10.0]);
    let in_force = RatesInForce { rates: rates(1_000.0), ends_at: at(3_000), without_loans: rates(10.0) };
    queues.set_rates_in_force(at(2_000), &in_force);
    queues.charge(at(2_990), T0, Payer::Own, 30.0);
    assert_eq!(queues.expected_start(at(2_990), T0), at(3_010), "10 units are left for 10 ms");
    queues.enter(at(3_500), T0, 0, 1.0, None).unwrap();
    assert_eq!(queues.start_next(at(3_500)), None);
    assert_eq!(queues.next_timeout(), Some(at(4_000)), "10 units of debt take a second");
}

#[test]
fn unused_units_of_a_tenant_outlive_a_change_of_other_rates() {
    let mut queues: TenantQueues<u32> =
        TenantQueues::new(TenantQueueOptions { tenants: 2, waiting_max: None, burst_units: 5, lends: false });
    queues.set_rates(at(1_000), 20.0, &[10.0, 10.0]);
    let rates = NodeRates { total_per_s: 25.0, per_s: vec![10.0, 15.0] };
    let in_force = RatesInForce { rates, ends_at: Instant::NEVER, ..RatesInForce::default() };
    queues.set_rates_in_force(at(9_990), &in_force);
    let burst = |queues: &mut TenantQueues<u32>, id| {
        (0..9).for_each(|work| assert!(queues.enter(at(10_000), id, work, 1.0, None).is_ok()));
        std::iter::from_fn(|| queues.start_next(at(10_000))).count()
    };
    assert_eq!(burst(&mut queues, T0), 6, "5 unused units and one that leaves a debt");
    assert_eq!(burst(&mut queues, T1), 1);
}
