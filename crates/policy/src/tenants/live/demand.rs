//! The demand of a tenant by its bytes of cache, from counters and curves.

use sherwood_model::{BackendId, DemandCurve, ResourceKind};

use super::TenantResource;
use super::correction::{Anchor, Correction};
use super::history::{PartSample, Sample};
use crate::tenants::{Share, TenantSeen};

/// Floors of a tenant that states none, as parts of its baseline: of rates, so that it can begin to
/// use a resource that it did not need, and of cache, so that a curve can be measured. Both are the
/// values of HARE's evaluation.
const FLOOR_RATE_PARTS: f64 = 100.0;
const FLOOR_BYTES_PARTS: u64 = 200;

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
    pub(super) used_bytes: u64,
    /// The latest curve that was measured.
    pub(super) miss_ratio: Option<DemandCurve>,
    /// Error of the curve at the partition's size in the baseline, when it last had that.
    pub(super) anchor: Option<Anchor>,
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
    /// has points at the sizes at which these were measured, the present one among them.
    fn curve(&self, index: usize, salt: f64) -> DemandCurve {
        let (part, counts) = (&self.parts[index], self.window.parts.get(index).copied().unwrap_or_default());
        let Some(curve) = &part.miss_ratio else {
            let reads = counts.reads.reads();
            let ratio = if reads > 0 { counts.reads.misses as f64 / reads as f64 } else { 1.0 };
            return DemandCurve::constant((ratio + salt).min(1.0));
        };
        let correction =
            Correction::new(part.budget_bytes, curve, &counts, part.used_bytes, part.anchor.as_ref());
        let misses = |own: u64| (correction.at(own) * curve.at(own) + salt).min(1.0);
        let share = self.share(index);
        if share <= 0.0 {
            return DemandCurve::constant(misses(0));
        }
        let mut sizes: Vec<u64> = curve.points().iter().map(|point| point.0).collect();
        sizes.extend(correction.sizes());
        sizes.sort_unstable();
        DemandCurve::new(sizes.into_iter().map(|own| ((own as f64 / share).round() as u64, misses(own))))
    }

    /// The partition's part of the tenant's bytes, 0 to 1.
    fn share(&self, index: usize) -> f64 {
        let bytes = self.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.budget_bytes));
        if bytes == 0 {
            return 1.0 / self.parts.len() as f64;
        }
        self.parts[index].budget_bytes as f64 / bytes as f64
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

#[cfg(test)]
mod tests {
    use super::super::{ReadCounts, UnitCounts};
    use super::*;

    const KB: f64 = 1_000.0;

    fn resources() -> Vec<TenantResource> {
        let kinds =
            [ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0)), ResourceKind::Network];
        kinds.map(|kind| TenantResource { name: String::new(), kind, total_per_s: 1.0 }).to_vec()
    }

    fn part(backend: u16, budget_bytes: u64, curve: Option<DemandCurve>) -> Part {
        let backend = BackendId(backend);
        Part { backend, budget_bytes, used_bytes: budget_bytes, miss_ratio: curve, anchor: None }
    }

    fn reads(hits: u64, misses: u64) -> PartSample {
        PartSample { reads: ReadCounts { hits, misses, joined: 0 }, ..PartSample::default() }
    }

    fn seen(parts: &[Part], window: &Sample, salt: f64) -> TenantSeen {
        let base = Share { bytes: 1_000, rates: vec![100.0; 3] };
        let min = Share { bytes: 0, rates: vec![0.0, 30.0] };
        Asked { base: &base, min: &min, window, parts }.seen(&resources(), salt)
    }

    /// The example of HARE's authors: of ten requests, nine read 2 KB, and one writes 1 KB.
    #[test]
    fn demand_of_reads_and_writes_follows_from_their_counters() {
        let mut units = vec![UnitCounts::default(); 3];
        for _ in 0..900 {
            units[0].add_read(0.0, 1.0, 1.0);
            units[2].add_read(2.0 * KB, 4.0 * KB, 4.0 * KB);
        }
        for _ in 0..100 {
            units[1].add_write(1.0);
            units[2].add_write(2.0 * KB);
        }
        let window = Sample { requests: 1_000, units, parts: vec![reads(0, 900)] };
        let curve = DemandCurve::new([(0, 1.0), (1_000, 1.0), (2_000, 0.0)]);
        let seen = seen(&[part(0, 1_000, Some(curve))], &window, 0.0);
        let at = |bytes| [0, 1, 2].map(|i| (seen.demand[i].at(bytes) * 1e6).round() / 1e6);
        assert_eq!(at(0), [0.9, 0.1, 3.8 * KB]);
        assert_eq!(at(2_000), [0.0, 0.1, 2.0 * KB], "47% of the network is saved");
        assert_eq!(seen.floor, Share { bytes: 5, rates: vec![1.0, 30.0, 1.0] });
    }

    #[test]
    fn salt_lifts_every_miss_ratio_and_the_present_size_is_a_point() {
        let curve = DemandCurve::new([(0, 1.0), (400, 0.2)]);
        let window = Sample { requests: 9, units: Vec::new(), parts: vec![reads(0, 0)] };
        let seen = seen(&[part(0, 300, Some(curve))], &window, 0.01);
        let points: Vec<_> = seen.miss_ratio.points().iter().map(|&(size, _)| size).collect();
        assert_eq!(points, [0, 300, 400]);
        assert_eq!((seen.miss_ratio.at(0), seen.miss_ratio.at(500)), (1.0, 0.2 + 0.01));
        assert!(seen.demand.iter().all(|curve| *curve == DemandCurve::constant(0.0)));
    }

    #[test]
    fn partitions_keep_their_parts_of_the_tenants_bytes() {
        let step = |at| DemandCurve::new([(0, 1.0), (at, 0.0)]);
        // A quarter of the bytes serves a quarter of the reads.
        let parts = [part(0, 100, Some(step(100))), part(1, 300, Some(step(600)))];
        let window = Sample {
            requests: 10_000,
            units: vec![UnitCounts { if_hit: 0.0, if_miss: 2_500.0, used: 0.0 }],
            parts: vec![reads(2_500, 0), reads(3_750, 3_750)],
        };
        let seen = seen(&parts, &window, 0.0);
        assert_eq!([0, 200, 400].map(|bytes| seen.demand[0].at(bytes)), [0.25, 0.125, 0.0]);
        assert_eq!(seen.miss_ratio.at(400), 0.75 * 0.5);
        assert_eq!(seen.miss_ratio.at(800), 0.0);
    }

    #[test]
    fn tenant_without_a_curve_keeps_its_baselines_cache() {
        let window = Sample { requests: 10, units: Vec::new(), parts: vec![reads(3, 1)] };
        let unknown = seen(&[part(0, 300, None)], &window, 0.0);
        assert_eq!((unknown.floor.bytes, unknown.miss_ratio.at(7)), (1_000, 0.25));
        let idle = Sample { parts: vec![reads(0, 0)], ..window };
        assert_eq!(seen(&[part(0, 300, None)], &idle, 0.0).floor.bytes, 5);
        assert_eq!(seen(&[], &Sample::default(), 0.0).miss_ratio, DemandCurve::constant(1.0));
    }
}
