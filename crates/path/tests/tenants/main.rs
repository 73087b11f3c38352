//! Tenants of one backend, each with rates of its own: a simulation of greedy, modest and flooding
//! tenants whose store has a latency, fails and recovers.
//!
//! - each waiter gets one answer;
//! - no tenant takes more than its rate, and one that asks for more takes all of it;
//! - a tenant at ten times its rate delays no other one;
//! - what waits is bounded, and a refusal tells when to try again;
//! - after the store has failed, every tenant has its rate again.

mod counts;
mod world;

use std::time::Duration;

use sherwood_dispatch::{FetchError, OverRate};
use sherwood_model::{SplitMix64, TenantId};

use world::{Load, Outage, Setup, World};

const SEEDS: u64 = 60;

/// Draws two to six tenants that ask for a fifth to ten times of their rates.
fn draw(seed: u64) -> Setup {
    let mut random = SplitMix64::new(seed);
    let mut draw = |bound: u64| random.next_u64() % bound;
    let loads = (0..2 + draw(5)).map(|_| {
        let rate = 100.0 + draw(900) as f64;
        Load { rate, asked_per_s: rate * [0.2, 0.8, 2.0, 10.0][draw(4) as usize], keys: 1 + draw(4) }
    });
    let loads = loads.collect();
    let lends = draw(2) == 0;
    Setup { loads, lends, value_bytes: 100 + draw(9_000) as usize, seed, ..Setup::default() }
}

#[test]
fn tenants_keep_their_rates_and_each_waiter_gets_one_answer() {
    for seed in 0..SEEDS {
        let mut setup = draw(seed);
        if seed % 3 == 0 {
            setup.outage = Some(Outage { from_ms: 1_000, until_ms: 2_000 });
        }
        let mut world = World::new(&setup);
        world.run(Duration::from_secs(4));
        world.settle();
        if let Err(problem) = world.check(&setup.rates()) {
            panic!("seed {seed}: {problem}");
        }
    }
}

/// Returns the units that each tenant takes in each of ten seconds, after two others.
fn units_by_second(setup: &Setup) -> Vec<Vec<f64>> {
    let mut world = World::new(setup);
    world.run(Duration::from_secs(2));
    let taken = |world: &World| -> Vec<f64> {
        let ids = (0..setup.loads.len()).map(TenantId::from_index);
        ids.map(|id| world.used(id).reads).map(|reads| reads.own_units + reads.lent_units).collect()
    };
    let mut before = taken(&world);
    let mut seconds = Vec::new();
    for _ in 0..10 {
        world.run(Duration::from_secs(1));
        let after = taken(&world);
        seconds.push(before.iter().zip(&after).map(|(before, after)| after - before).collect());
        before = after;
    }
    seconds
}

#[test]
fn rates_from_100_a_second_are_kept_within_5_percent_in_a_second_and_2_percent_in_ten() {
    for tenants in [2, 16, 1_000] {
        let load = |at: usize| {
            let rate = 100.0 + (at % 7) as f64 * 30.0;
            // Of many tenants some ask for more than their rate, and others for nothing.
            let is_greedy = tenants < 100 || at.is_multiple_of(50);
            Load { rate, asked_per_s: if is_greedy { rate * 1.5 } else { 0.0 }, keys: 1 }
        };
        let setup = Setup { loads: (0..tenants).map(load).collect(), ..Setup::default() };
        let seconds = units_by_second(&setup);
        for (at, Load { rate, asked_per_s, .. }) in setup.loads.iter().enumerate() {
            let rate = if *asked_per_s > 0.0 { *rate } else { continue };
            let taken: Vec<f64> = seconds.iter().map(|second| second[at]).collect();
            assert!(taken.iter().all(|taken| (taken / rate - 1.0).abs() < 0.05), "{at}: {taken:?} of {rate}");
            let mean = taken.iter().sum::<f64>() / 10.0;
            assert!((mean / rate - 1.0).abs() < 0.02, "{at}: {mean} of {rate}");
        }
    }
}

#[test]
fn lending_uses_98_percent_of_all_rates_while_a_tenant_waits() {
    let load = |asked_per_s| Load { rate: 250.0, asked_per_s, keys: 1 };
    let loads = vec![load(2_000.0), load(50.0), load(0.0), load(0.0)];
    let setup = Setup { loads, lends: true, ..Setup::default() };
    for second in units_by_second(&setup) {
        let taken: f64 = second.iter().sum();
        assert!((980.0..=1_020.0).contains(&taken), "{second:?}");
        assert!((45.0..=55.0).contains(&second[1]), "{second:?}");
    }
}

#[test]
fn check_finds_a_tenant_that_takes_more_than_its_rate() {
    let setup = Setup { lends: false, ..draw(2) };
    let mut world = World::new(&setup);
    let doubled: Vec<f64> = setup.rates().iter().map(|rate| rate * 2.0).collect();
    world.set_rates(&doubled);
    world.run(Duration::from_secs(4));
    world.settle();
    let problem = world.check(&setup.rates()).expect_err("some tenants ask for ten times their rate");
    assert!(problem.contains("more than its rate"), "{problem}");
}

#[test]
fn flood_at_ten_times_its_rate_delays_no_other_tenant() {
    for lends in [false, true] {
        let p99 = |flood: f64| {
            let quiet = Load { rate: 400.0, asked_per_s: 300.0, keys: 1 };
            let loads = vec![quiet, Load { rate: 200.0, asked_per_s: flood, keys: 1 }, quiet];
            let mut world = World::new(&Setup { loads, lends, ..Setup::default() });
            world.run(Duration::from_secs(5));
            [0, 2].map(|tenant| world.latency(tenant, 0.99))
        };
        for (with, without) in p99(2_000.0).into_iter().zip(p99(100.0)) {
            assert!(with <= without.mul_f64(1.2), "{with:?} beside a flood, {without:?} without");
        }
    }
}

#[test]
fn refusal_names_the_rate_and_a_fetch_at_that_time_is_admitted() {
    let loads = vec![Load { rate: 100.0, asked_per_s: 0.0, keys: 1 }; 2];
    let mut world = World::new(&Setup { loads, over: OverRate::Refuse, ..Setup::default() });
    world.ask(0, 1);
    world.ask(0, 1);
    let [FetchError::OverRate(refusal)] = world.refusals()[..] else { panic!("{:?}", world.refusals()) };
    let told = world.refusals()[0].to_string();
    assert!(told.contains("the tenant's rate of reads") && told.contains("try again"), "{told}");
    world.run(refusal.retry_in());
    world.ask(0, 1);
    assert_eq!(world.refusals().len(), 1);
    assert_eq!(world.used(TenantId(0)).reads.refused, 1);
}

#[test]
fn every_tenant_has_its_rate_again_after_the_store_has_failed() {
    let loads = vec![Load { rate: 500.0, asked_per_s: 1_000.0, keys: 2 }; 2];
    let outage = Some(Outage { from_ms: 1_000, until_ms: 2_000 });
    let mut world = World::new(&Setup { loads, outage, value_bytes: 5_000, ..Setup::default() });
    world.run(Duration::from_secs(3));
    let before = world.used(TenantId(0)).reads.own_units;
    world.run(Duration::from_secs(2));
    let taken = world.used(TenantId(0)).reads.own_units - before;
    assert!((980.0..=1_020.0).contains(&taken), "{taken} units in 2 s at 500/s");
}
