//! `lama`: memory goes where it makes queries fast.
//!
//! Miss ratio curves give the number of misses of each partition at every size, and latencies give
//! the cost of a miss. From these a dynamic program computes the division of least cost. It
//! optimises queries rather than requests, which is its weakness: a slow backend that one request
//! in a thousand needs counts like one that all requests wait for.
//!
//! Hu, Wang, Li, Zhou, Luo, Zhang, Jiang, Wang: *LAMA: Optimized Locality-aware Memory Allocation
//! for Key-value Cache*, USENIX ATC 2015, section 3, with the 99th percentile in place of the mean,
//! the form with which RobinHood's paper compares; its Table 2 says that LAMA equalises the 99th
//! percentiles of queries, which is `minmax`.
//!
//! Cases that the papers leave open: hits take no time; a partition without a curve or without miss
//! latencies keeps its budget; space that lowers no cost stays where it is; the last latencies
//! known of a backend are used while nothing misses.

mod division;

use super::latency;
use crate::bounds::{Bounds, sum};
use crate::share::share;
use crate::{
    Aim, Claims, Kept, LamaMode, LamaOptions, MissLatency, MissRatioCurve, Needs, Options,
    PartitionObservation, Policy, Proposal, Reason, Signal, Target, View,
};

/// Allocation that minimises the cost of misses.
#[derive(Clone)]
pub(crate) struct Lama {
    options: LamaOptions,
    /// The last latencies known of each partition's misses.
    latencies: Vec<Option<MissLatency>>,
}

/// Measurements of a partition for which both curve and latencies are known.
struct Known<'a> {
    curve: &'a MissRatioCurve,
    latency: &'a MissLatency,
    look_ups: u64,
}

impl Lama {
    pub(crate) fn new(options: &Options) -> Self {
        Self { options: options.lama.clone(), latencies: Vec::new() }
    }

    fn remember(&mut self, partitions: &[PartitionObservation]) {
        self.latencies.resize(partitions.len(), None);
        for (last, seen) in self.latencies.iter_mut().zip(partitions) {
            if seen.miss_latency.is_some() {
                last.clone_from(&seen.miss_latency);
            }
        }
    }

    fn known<'a>(&'a self, partitions: &'a [PartitionObservation]) -> Vec<Option<Known<'a>>> {
        let known = |(seen, latency): (&'a PartitionObservation, &'a Option<MissLatency>)| {
            let (curve, latency) = (seen.miss_ratio_curve.as_ref()?, latency.as_ref()?);
            Some(Known { curve, latency, look_ups: seen.hits.saturating_add(seen.misses) })
        };
        partitions.iter().zip(&self.latencies).map(known).collect()
    }
}

impl Policy for Lama {
    fn name(&self) -> &'static str {
        "lama"
    }

    fn needs(&self) -> Needs {
        let curves = self.options.mode != LamaMode::Threshold;
        Needs {
            look_ups: true,
            miss_ratio_curves: curves,
            query_p99: !curves,
            miss_latency: curves,
            ..Needs::default()
        }
    }

    fn propose(&mut self, view: &View<'_>) -> Proposal {
        if self.options.mode == LamaMode::Threshold {
            return threshold(view);
        }
        self.remember(&view.seen.partitions);
        let known = self.known(&view.seen.partitions);
        if known.iter().flatten().next().is_none() {
            return Proposal::Keep(Kept::NotMeasured);
        }
        let budgets = divided(view, &known, &self.options);
        let reason = |(known, (&now, &then)): (&Option<Known<'_>>, (&u64, &u64))| {
            known.as_ref().map_or(Reason::Planned, |known| known.aim(self.options.mode, now, then))
        };
        let reasons = known.iter().zip(view.budgets.iter().zip(&budgets)).map(reason).collect();
        Proposal::Toward(Target { budgets, reasons })
    }
}

fn threshold(view: &View<'_>) -> Proposal {
    let p99: Vec<Option<f64>> =
        view.seen.partitions.iter().map(|seen| Some(seen.query_p99?.as_secs_f64())).collect();
    let signal = Signal { before: "", after: " of the latency of slow queries" };
    Proposal::Claims(Claims { weights: latency::weights(&p99), unfilled: Vec::new(), signal })
}

impl Known<'_> {
    /// 99th percentile of the latency of the partition's queries if it had `bytes`, in seconds; 0
    /// without look-ups.
    fn p99_s(&self, bytes: u64) -> f64 {
        if self.look_ups == 0 {
            0.0
        } else {
            self.latency.p99_of_look_ups(self.curve.at(bytes)).as_secs_f64()
        }
    }

    /// Cost of the partition's misses if it had `bytes`, in seconds.
    fn cost_s(&self, bytes: u64) -> f64 {
        self.look_ups as f64 * self.curve.at(bytes) * self.latency.p99().as_secs_f64()
    }

    fn aim(&self, mode: LamaMode, now: u64, then: u64) -> Reason {
        Reason::Aim(match mode {
            LamaMode::Minmax => {
                let ms = |bytes| self.p99_s(bytes) * 1e3;
                Aim { what: "query P99", now: ms(now), then: ms(then), unit: " ms" }
            }
            LamaMode::Sum | LamaMode::Threshold => {
                Aim { what: "time in misses", now: self.cost_s(now), then: self.cost_s(then), unit: " s" }
            }
        })
    }
}

/// Space that `lama` divides, in units. Floors and pins are allocated first, and partitions without
/// measurements keep their budgets.
struct Grid {
    /// Bytes that each partition keeps before any unit of space is given.
    base: Vec<u64>,
    /// Largest number of units of space that each partition may get.
    most: Vec<u64>,
    unit_bytes: u64,
    units: usize,
}

impl Grid {
    /// Returns the space to divide; none if there is less than one byte per unit.
    fn new(
        bounds: &Bounds,
        present: &[u64],
        known: &[Option<Known<'_>>],
        total: u64,
        grid: f64,
    ) -> Option<Self> {
        let base: Vec<u64> =
            (0..known.len()).map(|i| if known[i].is_some() { bounds.low[i] } else { present[i] }).collect();
        let units = (1.0 / grid).round() as usize;
        let free = u128::from(total).saturating_sub(sum(&base));
        let unit_bytes = u64::try_from(free / units as u128).ok().filter(|&bytes| bytes > 0)?;
        let most = |i: usize| if known[i].is_some() { (bounds.high[i] - base[i]) / unit_bytes } else { 0 };
        let most = (0..known.len()).map(|i| most(i).min(units as u64)).collect();
        Some(Self { base, most, unit_bytes, units })
    }

    fn bytes(&self, partition: usize, units: u64) -> u64 {
        self.base[partition].saturating_add(units * self.unit_bytes)
    }

    /// Returns a row per partition: its cost at every size it may have.
    fn table(&self, known: &[Option<Known<'_>>], cost: impl Fn(&Known<'_>, u64) -> f64) -> Vec<Vec<f64>> {
        let row = |(i, known): (usize, &Option<Known<'_>>)| {
            let cost = |units| known.as_ref().map_or(0.0, |known| cost(known, self.bytes(i, units)));
            (0..=self.most[i]).map(cost).collect()
        };
        known.iter().enumerate().map(row).collect()
    }
}

/// The budgets of least cost; bytes that lower no cost stay where they are.
fn divided(view: &View<'_>, known: &[Option<Known<'_>>], options: &LamaOptions) -> Vec<u64> {
    let bounds = Bounds::new(view.total_bytes, view.floor_bytes, &view.seen.partitions);
    let present = bounds.fit(view.budgets);
    let Some(grid) = Grid::new(&bounds, &present, known, view.total_bytes, options.grid) else {
        return present;
    };
    let costs = grid.table(known, |known, bytes| known.cost_s(bytes));
    let units = match options.mode {
        LamaMode::Minmax => {
            let p99 = grid.table(known, |known, bytes| known.p99_s(bytes));
            division::least_largest(&p99, &costs, grid.units)
        }
        LamaMode::Sum | LamaMode::Threshold => division::least_sum(&costs, grid.units),
    };
    let needed: Vec<u64> = units.iter().enumerate().map(|(i, &units)| grid.bytes(i, units as u64)).collect();
    settled(&needed, &present, view.total_bytes)
}

/// Returns `needed`, plus the rest of the total, which goes to the partitions that have more at
/// present, so that no byte moves without effect.
fn settled(needed: &[u64], present: &[u64], total: u64) -> Vec<u64> {
    let more: Vec<u64> =
        present.iter().zip(needed).map(|(present, needed)| present.saturating_sub(*needed)).collect();
    let left = u128::from(total).saturating_sub(sum(needed));
    let weights: Vec<f64> = more.iter().map(|&bytes| bytes as f64).collect();
    crate::bounds::add(needed, &share(left, &weights, &more))
}

#[cfg(test)]
mod tests;
