//! A world of closed-loop tenants for tests: each serves what its rates allow, hits as its curve
//! says for the bytes it has filled, and fills its cache by its misses.

use std::time::Duration;

use sherwood_model::{BackendId, DemandCurve, Instant, ResourceKind, TenantId};

use super::*;
use crate::tenants::{TenantOptions, by_name};

pub(super) const MIB: u64 = 1 << 20;
/// Bytes that a key takes.
pub(super) const ITEM: u64 = 1 << 10;

/// A tenant of the world.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Misses per read by filled bytes, as they are, and as the controller is told.
    pub(super) truth: DemandCurve,
    pub(super) told: DemandCurve,
    pub(super) writes: f64,
    /// Requests per second if nothing limits them; 0 for an idle tenant.
    pub(super) most: f64,
    pub(super) filled: u64,
    counts: TenantCounts,
    reads: ReadCounts,
    rest: f64,
    /// True if requests beyond a rate are refused instead of waiting.
    pub(super) refuses: bool,
    /// Sampled reads of the curve that the controller is told.
    pub(super) sampled_reads: f64,
}

impl Load {
    /// A tenant whose misses fall to `low` in a line over `bytes`.
    pub(super) fn linear(bytes: u64, low: f64, writes: f64) -> Self {
        let curve = DemandCurve::new([(0, 1.0), (bytes, low)]);
        Self {
            truth: curve.clone(),
            told: curve,
            writes,
            most: 1e9,
            filled: u64::MAX,
            counts: TenantCounts { requests: 0, units: vec![UnitCounts::default(); 3] },
            reads: ReadCounts::default(),
            rest: 0.0,
            refuses: false,
            sampled_reads: f64::INFINITY,
        }
    }

    /// Units of reads, writes and network that a request takes with these bytes.
    fn units(&self, misses: f64) -> [f64; 3] {
        let reads = 1.0 - self.writes;
        let size = ITEM as f64;
        [reads * misses, self.writes, size * (reads * (1.0 + misses) + 2.0 * self.writes)]
    }

    pub(super) fn throughput(&self, bytes: u64, rates: &[f64]) -> f64 {
        let units = self.units(self.truth.at(bytes));
        let limits =
            units.iter().zip(rates).filter(|(units, _)| **units > 0.0).map(|(units, rate)| rate / units);
        limits.fold(self.most, f64::min)
    }

    fn run(&mut self, bytes: u64, rates: &[f64], time: Duration) -> f64 {
        self.filled = self.filled.min(bytes);
        let throughput = self.throughput(self.filled, rates);
        let asked = throughput * time.as_secs_f64() + self.rest;
        let requests = asked.floor();
        self.rest = asked - requests;
        let misses = self.truth.at(self.filled);
        let reads = (requests * (1.0 - self.writes)) as u64;
        let missed = (reads as f64 * misses).round() as u64;
        self.reads.hits += reads - missed;
        self.reads.misses += missed;
        self.counts.requests += requests as u64;
        let units = [0.0, 1.0, misses].map(|misses| self.units(misses));
        for (at, count) in self.counts.units.iter_mut().enumerate() {
            count.add_read(requests * units[0][at], requests * units[1][at], requests * units[2][at]);
        }
        self.filled = (self.filled + missed * ITEM).min(bytes);
        throughput
    }

    pub(super) fn observation(&self, bytes: u64) -> TenantObservation {
        let is_limited = self.throughput(bytes, &[f64::INFINITY; 3]) > 0.0;
        TenantObservation {
            counts: self.counts.clone(),
            waiting: u32::from(is_limited && !self.refuses),
            refused: if self.refuses { self.counts.requests } else { 0 },
            partitions: vec![TenantPartition {
                backend: BackendId(0),
                budget_bytes: bytes,
                used_bytes: self.filled.min(bytes),
                reads: self.reads,
                curve: Some(MissCurve {
                    misses_per_read: self.told.clone(),
                    sampled_reads: self.sampled_reads,
                }),
            }],
        }
    }
}

/// Tenants, their controller and a clock.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) loads: Vec<Load>,
    pub(super) controller: TenantController,
    /// Throughput of each tenant in the last step.
    pub(super) served: Vec<f64>,
    pub(super) decisions: Vec<TenantDecision>,
    /// Times that curves were to be faded.
    pub(super) fadings: u32,
}

pub(super) fn resources(total: f64) -> Vec<TenantResource> {
    let of = |name: &str, kind, total_per_s| TenantResource { name: name.to_owned(), kind, total_per_s };
    vec![
        of("orders reads", ResourceKind::Reads(BackendId(0)), total),
        of("orders writes", ResourceKind::Writes(BackendId(0)), total),
        of("network", ResourceKind::Network, total * 50.0 * ITEM as f64),
    ]
}

pub(super) fn terms(weights: &[f64]) -> Vec<TenantTerms> {
    let term = |(index, &weight): (usize, &f64)| TenantTerms {
        name: ["a", "b", "c", "d"].get(index).map_or_else(|| format!("t{index}"), |name| (*name).to_owned()),
        weight,
        base: None,
        min: Share::default(),
    };
    weights.iter().enumerate().map(term).collect()
}

pub(super) fn policy(name: &str) -> Box<dyn TenantPolicy> {
    by_name(name, TenantOptions { chunk_bytes: MIB, conserving: true }).expect("known")
}

impl World {
    /// A world in which each tenant has `bytes` and 1,000 units of each kind on average.
    pub(super) fn new(name: &str, bytes: u64, loads: Vec<Load>) -> Self {
        let count = loads.len();
        let options = TenantControlOptions { salt: 0.0, ..TenantControlOptions::default() };
        let terms = terms(&vec![1.0; count]);
        let resources = resources(1_000.0 * count as f64);
        let controller = TenantController::new(policy(name), options, resources, bytes * count as u64, terms)
            .expect("valid");
        Self {
            now: Instant::from_secs(1),
            loads,
            controller,
            served: vec![0.0; count],
            decisions: Vec::new(),
            fadings: 0,
        }
    }

    /// Runs for `seconds`, and calls `check` after every step of a quarter second.
    pub(super) fn run(&mut self, seconds: u64, mut check: impl FnMut(&Self)) {
        let step = Duration::from_millis(250);
        for _ in 0..seconds * 4 {
            self.now += step;
            let controller = &self.controller;
            for (index, load) in self.loads.iter_mut().enumerate() {
                let rates = controller.rates().row(TenantId::from_index(index));
                self.served[index] = load.run(controller.bytes()[index], rates, step);
            }
            let seen: Vec<_> = self
                .loads
                .iter()
                .zip(controller.bytes())
                .map(|(load, &bytes)| load.observation(bytes))
                .collect();
            let round = self.controller.advance(self.now, &seen);
            assert_eq!(round.refused, None);
            self.decisions.extend(round.decision);
            self.fadings += u32::from(round.fades_curves);
            check(self);
        }
    }

    /// Throughput of the tenant with its baseline and a filled cache.
    pub(super) fn baseline(&self, index: usize) -> f64 {
        let base = &self.controller.standings()[index].base;
        self.loads[index].throughput(base.bytes, &base.rates)
    }
}

/// Checks that holdings sum to at most the totals.
pub(super) fn assert_sums(controller: &TenantController) {
    let total = &controller.total;
    assert!(crate::bounds::sum(controller.bytes()) <= u128::from(total.bytes));
    for (i, &total) in total.rates.iter().enumerate() {
        let rates =
            (0..controller.bytes().len()).map(|index| controller.rates().row(TenantId::from_index(index))[i]);
        let sum: f64 = rates.inspect(|&rate| assert!(rate >= 0.0, "{rate}")).sum();
        assert!(sum <= total * (1.0 + 1e-9), "{sum} of {total} units of resource {i}");
    }
}
