//! The demand of a tenant by its bytes of cache, from counters and curves.

use sherwood_model::{BackendId, DemandCurve, ResourceKind};

use super::TenantResource;
use super::history::{PartSample, Sample};
use crate::tenants::{Share, TenantSeen};

/// Floors of a tenant that states none, as parts of its baseline: of rates, so that it can begin to
/// use a resource that it did not need, and of cache, so that a curve can be measured. Both are the
/// values of HARE's evaluation.
const FLOOR_RATE_PARTS: f64 = 100.0;
const FLOOR_BYTES_PARTS: u64 = 200;
/// Misses that count as predicted exactly beside those of the window, so that a few say little.
const CORRECTION_PRIOR: f64 = 50.0;
/// Largest factor by which measured misses correct a curve, up or down.
const CORRECTION_MAX: f64 = 4.0;

/// A tenant during a window of time, as far as its demand is concerned.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) base: &'a Share,
    /// The least that the tenant is given, as far as its terms and pins say.
    pub(super) min: &'a Share,
    /// Growth of the counters in the window.
    pub(super) window: &'a Sample,
    pub(super) parts: &'a [Part],
}

/// A partition of the tenant.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) backend: BackendId,
    pub(super) budget_bytes: u64,
    /// The latest curve that was measured.
    pub(super) miss_ratio: Option<DemandCurve>,
}

impl Asked<'_> {
    /// Returns the tenant as policies see it. `salt` is added to every miss ratio.
    ///
    /// Each partition is assumed to keep its part of the tenant's bytes. A tenant of which a curve
    /// is missing keeps the cache of its baseline.
    pub(super) fn seen(&self, resources: &[TenantResource], salt: f64) -> TenantSeen {
        let curves: Vec<DemandCurve> = (0..self.parts.len()).map(|part| self.curve(part, salt)).collect();
        let demand = resources.iter().enumerate().map(|(i, resource)| {
            let requests = self.window.requests as f64;
            let units = self.window.units.get(i).copied().unwrap_or_default();
            if requests <= 0.0 || units.if_miss <= 0.0 {
                return DemandCurve::constant(0.0);
            }
            let saved_ratio = 1.0 - units.if_hit / units.if_miss;
            let backend = match resource.kind {
                ResourceKind::Reads(backend) | ResourceKind::Writes(backend) => Some(backend),
                ResourceKind::Network => None,
            };
            DemandCurve::of_misses(units.if_miss / requests, saved_ratio, &self.mean(&curves, backend))
        });
        TenantSeen {
            base: self.base.clone(),
            floor: self.floor(),
            demand: demand.collect(),
            miss_ratio: self.mean(&curves, None),
        }
    }

    fn floor(&self) -> Share {
        let known =
            |(part, counts): (&Part, &PartSample)| part.miss_ratio.is_some() || counts.reads.reads() == 0;
        let bytes = if self.parts.iter().zip(&self.window.parts).all(known) {
            self.min.bytes.max(self.base.bytes / FLOOR_BYTES_PARTS)
        } else {
            self.base.bytes
        };
        let rates = self.base.rates.iter().enumerate().map(|(i, base)| {
            let min = self.min.rates.get(i).copied().unwrap_or(0.0);
            min.max(base / FLOOR_RATE_PARTS)
        });
        Share { bytes, rates: rates.collect() }
    }

    /// Misses per read of a partition by the bytes of the tenant, corrected by those measured. It
    /// has a point at the tenant's present size.
    fn curve(&self, index: usize, salt: f64) -> DemandCurve {
        let (part, counts) = (&self.parts[index], self.window.parts.get(index).copied().unwrap_or_default());
        let Some(curve) = &part.miss_ratio else {
            let reads = counts.reads.reads();
            let ratio = if reads > 0 { counts.reads.misses as f64 / reads as f64 } else { 1.0 };
            return DemandCurve::constant((ratio + salt).min(1.0));
        };
        let factor = correction(&counts);
        let misses = |bytes: u64| (factor * curve.at(bytes) + salt).min(1.0);
        let (share, bytes) = self.share(index);
        if share <= 0.0 {
            return DemandCurve::constant(misses(0));
        }
        let points = curve.points();
        let size = |own: u64| (own as f64 / share) as u64;
        let present = points.partition_point(|&(own, _)| size(own) < bytes);
        let (before, after) = points.split_at(present);
        let scaled = |&(own, _): &(u64, f64)| (size(own), misses(own));
        let now = (bytes, misses((bytes as f64 * share) as u64));
        DemandCurve::new(before.iter().map(scaled).chain([now]).chain(after.iter().map(scaled)))
    }

    /// The partition's part of the tenant's bytes, 0 to 1, and the latter.
    fn share(&self, index: usize) -> (f64, u64) {
        let bytes = self.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.budget_bytes));
        if bytes == 0 {
            return (1.0 / self.parts.len() as f64, 0);
        }
        (self.parts[index].budget_bytes as f64 / bytes as f64, bytes)
    }

    /// The mean of the curves of the partitions of `backend`, or of all, weighted by their reads.
    fn mean(&self, curves: &[DemandCurve], backend: Option<BackendId>) -> DemandCurve {
        let of = |index: &usize| backend.is_none_or(|backend| self.parts[*index].backend == backend);
        let members: Vec<usize> = (0..curves.len()).filter(of).collect();
        if let [only] = members[..] {
            return curves[only].clone();
        }
        let reads = |index: usize| self.window.parts.get(index).map_or(0, |part| part.reads.reads()) as f64;
        let sum: f64 = members.iter().map(|&index| reads(index)).sum();
        if sum <= 0.0 {
            return DemandCurve::constant(1.0);
        }
        let mut sizes: Vec<u64> =
            members.iter().flat_map(|&index| curves[index].points().iter().map(|point| point.0)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let misses =
            |size: u64| members.iter().map(|&index| reads(index) * curves[index].at(size)).sum::<f64>();
        DemandCurve::new(sizes.into_iter().map(|size| (size, misses(size) / sum)))
    }
}

/// The factor that corrects a curve: measured over predicted misses. A simulated cache evicts in
/// the order of recency, the cache in its own, which usually misses less.
fn correction(counts: &PartSample) -> f64 {
    let factor =
        (counts.reads.misses as f64 + CORRECTION_PRIOR) / (counts.predicted.max(0.0) + CORRECTION_PRIOR);
    factor.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX)
}
