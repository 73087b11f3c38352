//! HARE as published: harvest by chunks, one pair at a time.
//!
//! Kept as its authors built it, faults included, to compare with: a plateau of one chunk ends the
//! search, so does the first deal that brings less than 10⁻⁴, and a tenant that needs nothing of a
//! resource gets nothing of it.

use sherwood_model::{Rates, ResourceKind, TenantId};

use super::proportional::Holdings;
use super::{Division, TenantPolicy, TenantSeen, Tenants};

/// Least gain of the score for which a deal is made.
const DEAL_MIN: f64 = 1e-4;
/// Relative rise of a demand that counts as rounding.
const ROUNDING: f64 = 1e-14;
/// Most deals of a decision.
const DEALS_MAX: usize = 10_000;

/// The `hare-published` policy. O(deals × tenants).
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// Bytes of a deal.
    pub(super) chunk_bytes: u64,
    /// See [`Drf`](super::drf::Drf).
    pub(super) conserving: bool,
}

impl TenantPolicy for Published {
    fn name(&self) -> &'static str {
        "hare-published"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        let bytes = tenants.base_bytes();
        let holdings = Holdings::needed(tenants, &bytes);
        let mut harvest = Harvest::new(tenants, self.chunk_bytes, bytes, holdings);
        if tenants.len() > 1 {
            let mut deals = 0;
            while deals < DEALS_MAX && harvest.deal() {
                deals += 1;
            }
        }
        let rates = harvest.holdings.redistribute(self.conserving);
        Division::new(tenants, harvest.bytes, rates, None)
    }

    fn rates(&self, tenants: &Tenants, bytes: &[u64]) -> Rates {
        Holdings::compensated(tenants, bytes).redistribute(self.conserving)
    }
}

/// Units of each resource that a tenant gives or takes for one chunk.
type Units = Vec<f64>;

struct Harvest<'a> {
    tenants: &'a Tenants,
    chunk_bytes: u64,
    bytes: Vec<u64>,
    holdings: Holdings,
    /// Units that each tenant relinquishes for a chunk more.
    relinquished: Vec<Units>,
    /// Units that each tenant demands for a chunk less; none if it cannot lose one.
    compensation: Vec<Option<Units>>,
    /// The tenants in the order in which equal donors are preferred.
    donors: Vec<usize>,
}

impl<'a> Harvest<'a> {
    fn new(tenants: &'a Tenants, chunk_bytes: u64, bytes: Vec<u64>, holdings: Holdings) -> Self {
        let count = tenants.len();
        let (relinquished, compensation) = (vec![Vec::new(); count], vec![None; count]);
        let donors = (0..count).collect();
        let mut harvest = Self { tenants, chunk_bytes, bytes, holdings, relinquished, compensation, donors };
        (0..count).for_each(|index| harvest.make_offers(index));
        harvest
    }

    fn make_offers(&mut self, index: usize) {
        let seen = &self.tenants.seen()[index];
        let (bytes, chunk) = (self.bytes[index], self.chunk_bytes);
        let held = self.holdings.held.row(TenantId::from_index(index));
        let misses = seen.miss_ratio.at(bytes);
        let none = || vec![0.0; held.len()];

        let more = bytes.saturating_add(chunk);
        let fall = misses - seen.miss_ratio.at(more);
        self.relinquished[index] = if misses <= f64::EPSILON || fall <= f64::EPSILON {
            none()
        } else {
            changes(seen, held, bytes, more).iter().map(|change| -change).collect()
        };

        let less = bytes.checked_sub(chunk).filter(|&less| less >= seen.floor.bytes);
        self.compensation[index] = less.and_then(|less| {
            if seen.miss_ratio.at(less) - misses <= f64::EPSILON && !needs_more(seen, bytes, less) {
                Some(none())
            } else {
                (misses > 0.0 && !needs_anew(seen, bytes, less)).then(|| changes(seen, held, bytes, less))
            }
        });
    }

    /// Makes the next deal; false if there is none, which ends the harvest.
    fn deal(&mut self) -> bool {
        let score = self.holdings.score(&self.holdings.pool);
        let Some(scarce) = self.dominant(score) else { return false };
        let Some((receiver, donor)) = self.pair(scarce) else { return false };
        let Some(compensation) = &self.compensation[donor] else { return false };
        let pool: Vec<f64> = (0..self.holdings.pool.len())
            .map(|i| self.holdings.pool[i] + self.relinquished[receiver][i] - compensation[i])
            .collect();
        let gain = self.holdings.score(&pool) - score;
        if gain.is_nan() || gain < DEAL_MIN {
            return false;
        }
        let change = |held: &mut Rates, index: usize, units: &Units, sign: f64| {
            let row = held.row_mut(TenantId::from_index(index));
            row.iter_mut().zip(units).for_each(|(held, units)| *held += sign * units);
        };
        change(&mut self.holdings.held, receiver, &self.relinquished[receiver], -1.0);
        change(&mut self.holdings.held, donor, compensation, 1.0);
        self.holdings.pool = pool;
        self.bytes[receiver] += self.chunk_bytes;
        self.bytes[donor] -= self.chunk_bytes;
        self.make_offers(receiver);
        self.make_offers(donor);
        true
    }

    /// The resource that limits the gain, if cache saves units of it: read units before network.
    fn dominant(&self, score: f64) -> Option<usize> {
        let ratios: Vec<f64> = self.holdings.ratios(&self.holdings.pool).collect();
        let kinds = self.tenants.kinds();
        let of = |wanted: fn(&ResourceKind) -> bool| {
            (0..kinds.len()).find(|&i| wanted(&kinds[i]) && ratios[i] == score)
        };
        of(|kind| matches!(kind, ResourceKind::Reads(_)))
            .or_else(|| of(|kind| *kind == ResourceKind::Network))
    }

    /// The tenant that relinquishes most units of `scarce`, and the other one that demands least.
    fn pair(&mut self, scarce: usize) -> Option<(usize, usize)> {
        let mut receiver = 0;
        for index in 1..self.relinquished.len() {
            if self.relinquished[index][scarce] > self.relinquished[receiver][scarce] {
                receiver = index;
            }
        }
        let position = self.cheapest(0, scarce)?;
        if self.donors[position] != receiver {
            return Some((receiver, self.donors[position]));
        }
        let rejected = self.donors.remove(position);
        self.donors.insert(0, rejected);
        let position = self.cheapest(1, scarce)?;
        Some((receiver, self.donors[position]))
    }

    /// The position of the first of the cheapest donors from position `from` on.
    fn cheapest(&self, from: usize, scarce: usize) -> Option<usize> {
        let price =
            |position: usize| self.compensation[self.donors[position]].as_ref().map(|units| units[scarce]);
        let priced = (from..self.donors.len()).filter_map(|position| Some((position, price(position)?)));
        priced.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(position, _)| position)
    }
}

/// True if the tenant needs more of a resource with `then` bytes. The published algorithm has one
/// miss ratio per tenant, which tells that; with several backends, a demand may rise where the miss
/// ratio does not.
fn needs_more(seen: &TenantSeen, bytes: u64, then: u64) -> bool {
    seen.demand.iter().any(|curve| curve.at(then) > curve.at(bytes) * (1.0 + ROUNDING))
}

/// True if the tenant needs a resource with `then` bytes of which it needs nothing now, so that no
/// holding can be scaled up.
fn needs_anew(seen: &TenantSeen, bytes: u64, then: u64) -> bool {
    seen.demand.iter().any(|curve| curve.at(bytes) <= 0.0 && curve.at(then) > 0.0)
}

/// Units by which the holdings change that keep the tenant's throughput when its cache changes.
fn changes(seen: &TenantSeen, held: &[f64], bytes: u64, then: u64) -> Units {
    let change = |(curve, held): (&sherwood_model::DemandCurve, &f64)| {
        let now = curve.at(bytes);
        if now > 0.0 { held * (curve.at(then) - now) / now } else { 0.0 }
    };
    seen.demand.iter().zip(held).map(change).collect()
}
