//! Cache to the tenants that miss less with it, without compensation.

use sherwood_model::Rates;

use super::proportional::Holdings;
use super::{Division, TenantPolicy, TenantSeen, Tenants};

/// Share of its baseline's cache that every tenant keeps; the value of HARE's evaluation.
const RESERVE_RATIO: f64 = 0.5;
/// Most chunks moved in a decision, as in `hare-published`.
const MOVES_MAX: usize = 10_000;

/// The `memshare` policy: chunks of cache move from the tenant whose miss ratio rises least to the
/// one whose miss ratio falls most, while the fall exceeds the rise; then the rates of the
/// baselines are divided as `drf` does. After Cidon et al., USENIX ATC 2017, in the form that
/// HARE's authors compare with, with the receiver chosen by its fall. O(moves × tenants).
#[derive(Clone, Debug)]
pub(super) struct Memshare {
    /// Bytes that move at a time.
    pub(super) chunk_bytes: u64,
    /// See [`Drf`](super::drf::Drf).
    pub(super) conserving: bool,
}

impl TenantPolicy for Memshare {
    fn name(&self) -> &'static str {
        "memshare"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        let bytes = self.split(tenants);
        let rates = Holdings::needed(tenants, &bytes).redistribute(self.conserving);
        Division::new(tenants, bytes, rates, None)
    }

    fn rates(&self, tenants: &Tenants, bytes: &[u64]) -> Rates {
        Holdings::needed(tenants, bytes).redistribute(self.conserving)
    }

    fn keeps_baselines(&self) -> bool {
        false
    }
}

impl Memshare {
    fn split(&self, tenants: &Tenants) -> Vec<u64> {
        let mut bytes = tenants.base_bytes();
        let changes = |index: usize, bytes: u64| self.changes(&tenants.seen()[index], bytes);
        let mut open: Vec<(f64, Option<f64>)> =
            bytes.iter().enumerate().map(|(index, &bytes)| changes(index, bytes)).collect();
        for _ in 0..MOVES_MAX {
            let larger = |best: usize, index: usize| if open[index].0 > open[best].0 { index } else { best };
            let Some(receiver) = (0..open.len()).reduce(larger) else { break };
            let fall = open[receiver].0;
            let rises = open.iter().enumerate().filter(|&(index, _)| index != receiver);
            let rises = rises.filter_map(|(index, &(_, rise))| rise.map(|rise| (index, rise)));
            let Some((donor, rise)) = rises.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            if fall <= rise {
                break;
            }
            bytes[receiver] += self.chunk_bytes;
            bytes[donor] -= self.chunk_bytes;
            open[receiver] = changes(receiver, bytes[receiver]);
            open[donor] = changes(donor, bytes[donor]);
        }
        bytes
    }

    /// Returns the fall of the tenant's miss ratio with a chunk more, and the rise with a chunk
    /// less; none if it must keep that chunk.
    fn changes(&self, tenant: &TenantSeen, bytes: u64) -> (f64, Option<f64>) {
        let now = tenant.miss_ratio.at(bytes);
        let fall = now - tenant.miss_ratio.at(bytes.saturating_add(self.chunk_bytes));
        let reserve = (tenant.base.bytes as f64 * RESERVE_RATIO).ceil() as u64;
        let less = bytes.checked_sub(self.chunk_bytes).filter(|&less| less >= reserve);
        (fall, less.map(|less| tenant.miss_ratio.at(less) - now))
    }
}
