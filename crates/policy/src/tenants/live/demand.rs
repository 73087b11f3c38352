//! The demand of a tenant by its bytes of cache, from counters and curves.

use sherwood_model::{BackendId, DemandCurve, ResourceKind};

use super::correction::{Anchor, Correction};
use super::history::{PartSample, Sample};
use super::{MissCurve, TenantResource};
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
    /// True if the tenant is given no less than its baseline of what its requests use.
    pub(super) keeps_base: bool,
}

/// A partition of the tenant.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) backend: BackendId,
    pub(super) budget_bytes: u64,
    pub(super) used_bytes: u64,
    /// The latest curve that was measured.
    pub(super) curve: Option<MissCurve>,
    /// Relative variance of its misses per read in the window, as of the last decision.
    pub(super) variance: Option<f64>,
    /// Miss ratio at the partition's size in the baseline, when it last had filled that.
    pub(super) anchor: Option<Anchor>,
}

/// Throughput that a share would serve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Served {
    /// Requests per second; 0 for a tenant without demand, or that the share does not limit.
    pub(super) per_s: f64,
    /// Standard error of it as far as it lowers it, relative, 0 to 1: the share serves less with
    /// miss ratios that are one standard error higher.
    pub(super) error: f64,
}

impl Asked<'_> {
    /// Returns the tenant as policies see it. `salt` is added to every miss ratio.
    ///
    /// Each partition is assumed to keep its part of the tenant's bytes. A tenant of which a curve
    /// is missing keeps the cache of its baseline.
    pub(super) fn seen(&self, resources: &[TenantResource], salt: f64) -> TenantSeen {
        let curves = self.curves();
        let all = mean(&curves, None, salt);
        let demand = resources.iter().enumerate().map(|(i, resource)| {
            let Some(Units { if_miss, saved_ratio, backend }) = self.units(i, resource) else {
                return DemandCurve::constant(0.0);
            };
            match backend {
                Some(_) if saved_ratio <= 0.0 => DemandCurve::constant(if_miss),
                // With one partition, that of any backend is the same.
                Some(backend) if curves.len() > 1 => {
                    DemandCurve::of_misses(if_miss, saved_ratio, &mean(&curves, Some(backend), salt))
                }
                _ => DemandCurve::of_misses(if_miss, saved_ratio, &all),
            }
        });
        let demand = demand.collect();
        TenantSeen { base: self.base.clone(), floor: self.floor(), demand, miss_ratio: all }
    }

    /// The throughput that the share serves, by the curves without a salt.
    pub(super) fn throughput(&self, resources: &[TenantResource], share: &Share) -> Served {
        let curves = self.curves();
        let limits = resources.iter().enumerate().filter_map(|(i, resource)| {
            let Units { if_miss, saved_ratio, backend } = self.units(i, resource)?;
            let saved = saved_ratio.clamp(0.0, 1.0);
            let (misses, error) = mean_and_error(&curves, backend, share.bytes);
            let rate = share.rates.get(i).copied().unwrap_or(0.0);
            let limit = |misses: f64| {
                let demand = if_miss * (1.0 - saved + saved * misses);
                if demand > 0.0 { rate / demand } else { f64::INFINITY }
            };
            Some((limit(misses), limit((misses + error).min(1.0))))
        });
        let (per_s, low) = limits.fold((f64::INFINITY, f64::INFINITY), |least, limit| {
            (least.0.min(limit.0), least.1.min(limit.1))
        });
        match per_s {
            f64::INFINITY => Served::default(),
            per_s if per_s > 0.0 => Served { per_s, error: 1.0 - low / per_s },
            _ => Served::default(),
        }
    }

    /// Units of a resource that an average request takes; none if it takes none.
    fn units(&self, index: usize, resource: &TenantResource) -> Option<Units> {
        let requests = self.window.requests as f64;
        let units = self.window.units.get(index)?;
        let backend = match resource.kind {
            ResourceKind::Reads(backend) | ResourceKind::Writes(backend) => Some(backend),
            ResourceKind::Network => None,
        };
        (requests > 0.0 && units.if_miss > 0.0).then(|| Units {
            if_miss: units.if_miss / requests,
            saved_ratio: 1.0 - units.if_hit / units.if_miss,
            backend,
        })
    }

    fn floor(&self) -> Share {
        let known = |(part, counts): (&Part, &PartSample)| part.curve.is_some() || counts.reads.reads() == 0;
        let bytes = if !self.keeps_base && self.parts.iter().zip(&self.window.parts).all(known) {
            self.min.bytes.max(self.base.bytes / FLOOR_BYTES_PARTS)
        } else {
            self.min.bytes.max(self.base.bytes)
        };
        let is_used = |i: usize| self.window.units.get(i).is_some_and(|units| units.if_miss > 0.0);
        let rates = self.base.rates.iter().enumerate().map(|(i, base)| {
            let min = self.min.rates.get(i).copied().unwrap_or(0.0);
            min.max(if self.keeps_base && is_used(i) { *base } else { base / FLOOR_RATE_PARTS })
        });
        Share { bytes, rates: rates.collect() }
    }

    fn curves(&self) -> Vec<PartCurve<'_>> {
        let bytes = self.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.budget_bytes));
        let equal = 1.0 / self.parts.len().max(1) as f64;
        let share = |part: &Part| if bytes > 0 { part.budget_bytes as f64 / bytes as f64 } else { equal };
        let counts = |index: usize| self.window.parts.get(index).copied().unwrap_or_default();
        let parts = self.parts.iter().enumerate();
        parts.map(|(index, part)| PartCurve::new(part, &counts(index), share(part))).collect()
    }
}

/// Units of a resource that an average request takes.
struct Units {
    if_miss: f64,
    saved_ratio: f64,
    /// Backend whose misses count; none for those of all.
    backend: Option<BackendId>,
}

/// Misses per read of a partition by the bytes of its tenant, corrected by those measured.
struct PartCurve<'a> {
    backend: BackendId,
    /// Reads in the window.
    reads: f64,
    /// Part of the tenant's bytes that the partition has, 0 to 1.
    share: f64,
    /// Misses per read at any size if there is no curve.
    measured: f64,
    curve: Option<(&'a MissCurve, Correction)>,
}

impl<'a> PartCurve<'a> {
    fn new(part: &'a Part, counts: &PartSample, share: f64) -> Self {
        let reads = counts.reads.reads() as f64;
        let correction = |curve| {
            let anchor = part.anchor.as_ref();
            (curve, Correction::new(curve, counts, part.used_bytes, part.variance, anchor))
        };
        Self {
            backend: part.backend,
            reads,
            share,
            measured: if reads > 0.0 { counts.reads.misses as f64 / reads } else { 1.0 },
            curve: part.curve.as_ref().map(correction),
        }
    }

    /// Misses per read with so many bytes of the tenant.
    fn at(&self, bytes: u64) -> f64 {
        let Some((curve, correction)) = &self.curve else { return self.measured };
        let own = (bytes as f64 * self.share).round() as u64;
        (correction.at(own) * curve.at(own)).min(1.0)
    }

    /// Variance of [`at`](Self::at).
    fn variance(&self, bytes: u64) -> f64 {
        let Some((curve, correction)) = &self.curve else { return 0.0 };
        let own = (bytes as f64 * self.share).round() as u64;
        correction.variance(curve, own, self.at(bytes))
    }

    /// Bytes of the tenant at which the curve bends, the sizes at which misses were measured among
    /// them.
    fn sizes(&self) -> impl Iterator<Item = u64> {
        let own = self.curve.iter().filter(|_| self.share > 0.0).flat_map(|(curve, correction)| {
            let points = curve.misses_per_read.points().iter();
            points.map(|point| point.0).chain(correction.sizes())
        });
        own.map(|own| (own as f64 / self.share).round() as u64)
    }
}

/// The mean of the curves of the partitions of `backend`, or of all, weighted by their reads.
fn mean(curves: &[PartCurve<'_>], backend: Option<BackendId>, salt: f64) -> DemandCurve {
    let members = curves.iter().filter(|curve| is_of(curve, backend));
    let mut sizes: Vec<u64> = members.flat_map(PartCurve::sizes).chain([0]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    DemandCurve::new(sizes.into_iter().map(|size| (size, (mean_at(curves, backend, size) + salt).min(1.0))))
}

/// The mean at one size.
fn mean_at(curves: &[PartCurve<'_>], backend: Option<BackendId>, bytes: u64) -> f64 {
    let members = || curves.iter().filter(|curve| is_of(curve, backend));
    let reads: f64 = members().map(|curve| curve.reads).sum();
    if reads <= 0.0 {
        // Partitions without reads count alike.
        let count = members().count();
        let sum: f64 = members().map(|curve| curve.at(bytes)).sum();
        return if count > 0 { sum / count as f64 } else { 1.0 };
    }
    members().map(|curve| curve.reads * curve.at(bytes)).sum::<f64>() / reads
}

/// The mean at one size, and its standard error.
fn mean_and_error(curves: &[PartCurve<'_>], backend: Option<BackendId>, bytes: u64) -> (f64, f64) {
    let members = || curves.iter().filter(|curve| is_of(curve, backend));
    let reads: f64 = members().map(|curve| curve.reads).sum();
    let variance = |curve: &PartCurve<'_>| curve.reads * curve.reads * curve.variance(bytes);
    let sum: f64 = members().map(variance).sum();
    (mean_at(curves, backend, bytes), if reads > 0.0 { sum.sqrt() / reads } else { 0.0 })
}

fn is_of(curve: &PartCurve<'_>, backend: Option<BackendId>) -> bool {
    backend.is_none_or(|backend| curve.backend == backend)
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
        let curve = curve.map(MissCurve::exact);
        Part { backend, budget_bytes, used_bytes: budget_bytes, curve, variance: Some(0.0), anchor: None }
    }

    fn reads(hits: u64, misses: u64) -> PartSample {
        PartSample { reads: ReadCounts { hits, misses, joined: 0 }, ..PartSample::default() }
    }

    fn base() -> Share {
        Share { bytes: 1_000, rates: vec![100.0; 3] }
    }

    fn seen(parts: &[Part], window: &Sample, salt: f64) -> TenantSeen {
        let base = base();
        let min = Share { bytes: 0, rates: vec![0.0, 30.0] };
        Asked { base: &base, min: &min, window, parts, keeps_base: false }.seen(&resources(), salt)
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
        let parts = [part(0, 1_000, Some(curve))];
        let asked = Asked { base: &base(), min: &base(), window: &window, parts: &parts, keeps_base: false };
        // All miss with 1,000 bytes; 0.9 reads, 0.1 writes, or 3.8 KB for each request.
        let throughput =
            asked.throughput(&resources(), &Share { rates: vec![1e9, 1e9, 38.0 * KB], ..base() });
        assert!((throughput.per_s - 10.0).abs() < 1e-9, "{throughput:?}");
        let seen = seen(&parts, &window, 0.0);
        let at = |bytes| [0, 1, 2].map(|i| (seen.demand[i].at(bytes) * 1e6).round() / 1e6);
        assert_eq!(at(0), [0.9, 0.1, 3.8 * KB]);
        assert_eq!(at(2_000), [0.0, 0.1, 2.0 * KB], "47% of the network is saved");
        assert_eq!(seen.floor, Share { bytes: 5, rates: vec![1.0, 30.0, 1.0] });
    }

    #[test]
    fn throughput_errs_as_far_as_the_sampled_misses_do() {
        let curve = DemandCurve::new([(0, 1.0), (1_000, 0.2)]);
        let units = UnitCounts { if_hit: 0.0, if_miss: 1_000.0, used: 0.0 };
        let window = Sample { requests: 1_000, units: vec![units], parts: vec![reads(0, 0)] };
        let error = |used_bytes, sampled_reads| {
            let mut part = part(0, 1_000, Some(curve.clone()));
            part.used_bytes = used_bytes;
            part.curve = part.curve.map(|curve| MissCurve { sampled_reads, ..curve });
            let window = Sample { parts: vec![reads(800, 200)], ..window.clone() };
            let asked =
                Asked { base: &base(), min: &base(), window: &window, parts: &[part], keeps_base: false };
            asked.throughput(&resources(), &base()).error
        };
        assert_eq!((error(500, f64::INFINITY), error(1_000, 100.0)), (0.0, 0.0));
        // Of 60 sampled misses at 500 bytes, 20 remain: a standard error of 0.183.
        assert!((error(500, 100.0) - (1.0 - 1.0 / 1.183)).abs() < 1e-3, "{}", error(500, 100.0));
        assert!((error(500, f64::NAN) - 0.8).abs() < 0.05, "all reads may miss: {}", error(500, f64::NAN));
    }

    #[test]
    fn throughput_is_known_where_a_curve_has_hardly_a_sampled_miss() {
        let curve = DemandCurve::new([(0, 1.0), (500, 0.000_5), (1_000, 0.0)]);
        let units = [(0.0, 0.0), (0.0, 0.0), (500.0, 1_000.0)];
        let units = units.map(|(if_hit, if_miss)| UnitCounts { if_hit, if_miss, used: 0.0 }).to_vec();
        let window = Sample { requests: 1_000, units, parts: vec![reads(1_000, 0)] };
        let mut part = part(0, 500, Some(curve));
        part.curve = part.curve.map(|curve| MissCurve { sampled_reads: 1_000.0, ..curve });
        let asked = Asked { base: &base(), min: &base(), window: &window, parts: &[part], keeps_base: false };
        let Served { per_s, error } = asked.throughput(&resources(), &base());
        assert_eq!(per_s, 200.0, "100 units per second, and half a unit for a hit");
        assert!((error - 0.001).abs() < 1e-5, "one of 1,000 reads may miss: {error}");
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
    fn tenant_that_keeps_its_baseline_may_give_units_that_it_does_not_use() {
        let units = [(0.0, 100.0), (0.0, 0.0), (50.0, 100.0)];
        let units = units.map(|(if_hit, if_miss)| UnitCounts { if_hit, if_miss, used: 0.0 }).to_vec();
        let window = Sample { requests: 100, units, parts: vec![reads(100, 0)] };
        let parts = [part(0, 1_000, Some(DemandCurve::constant(0.0)))];
        let floor_of = |keeps_base, bytes| {
            let min = Share { bytes, rates: vec![0.0, 30.0] };
            Asked { base: &base(), min: &min, window: &window, parts: &parts, keeps_base }.floor()
        };
        let floor = |keeps_base| floor_of(keeps_base, 0);
        assert_eq!(floor_of(true, 1_200).bytes, 1_200, "its pins are more than its baseline");
        assert_eq!(floor(false), Share { bytes: 5, rates: vec![1.0, 30.0, 1.0] });
        assert_eq!(floor(true), Share { bytes: 1_000, rates: vec![100.0, 30.0, 100.0] });
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
