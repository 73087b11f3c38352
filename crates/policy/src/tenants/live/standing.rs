//! State of the tenants for reports.

use sherwood_model::{Rates, TenantId};

use super::{TenantController, TenantStanding};
use crate::tenants::{Division, Share};

impl TenantController {
    /// Returns the state of every tenant, in the order of their ids. O(tenants × points).
    #[must_use]
    pub fn standings(&self) -> Vec<TenantStanding> {
        let tenants = self.tenants(0.0);
        let (bytes, rates) = (&self.moving.bytes, &self.moving.rates);
        let now = Division::new(&tenants, bytes.clone(), rates.clone(), None);
        let standing = |(index, member): (usize, &super::Member)| {
            let (window, time) = member.history.window();
            let (hits, reads) = window
                .parts
                .iter()
                .fold((0, 0), |(hits, reads), part| (hits + part.reads.hits, reads + part.reads.reads()));
            let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
            TenantStanding {
                name: self.terms[index].name.clone(),
                base: tenants.seen()[index].base.clone(),
                holdings: share(index, bytes, rates),
                goal: share(index, &self.goal.bytes, &self.goal.rates),
                used_bytes: member.used_bytes,
                used_per_s: window.units.iter().map(|units| units.used / seconds).collect(),
                requests_per_s: member.watch.requests_per_s,
                hit_ratio: (reads > 0).then(|| hits as f64 / reads as f64),
                waiting: member.waiting,
                normalized: member.watch.normalized,
                predicted: now.limited(index),
                miss_ratio: (reads > 0).then(|| tenants.seen()[index].miss_ratio.at(bytes[index])),
                below_time: member.watch.below_time,
            }
        };
        self.members.iter().enumerate().map(standing).collect()
    }

    /// True if holdings are on their way to a division.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moving.bytes != self.goal.bytes
    }
}

impl TenantStanding {
    /// Returns the least predicted throughput of all tenants, in multiples of the baseline's; none
    /// if no resource limits any of them.
    #[must_use]
    pub fn gain(standings: &[Self]) -> Option<f64> {
        standings.iter().filter_map(|standing| standing.predicted).reduce(f64::min)
    }
}

fn share(index: usize, bytes: &[u64], rates: &Rates) -> Share {
    Share { bytes: bytes[index], rates: rates.row(TenantId::from_index(index)).to_vec() }
}
