//! The demand of a tenant that is described instead of observed.

use sherwood_model::{DemandCurve, ResourceKind};
use thiserror::Error;

/// Reason why points are no miss ratio curve. The texts begin with the path of the point, `mrc.…`.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DescribedCurveError {
    /// There is not one miss ratio for each size.
    #[error("mrc has {sizes} ticks_bytes and {ratios} of miss_ratio: give one miss ratio for each size")]
    Lengths {
        /// Number of sizes.
        sizes: usize,
        /// Number of miss ratios.
        ratios: usize,
    },
    /// A size is not larger than the one before.
    #[error("mrc.ticks_bytes[{index}] is {bytes} after {before}: sizes must ascend")]
    Order {
        /// Position of the size.
        index: usize,
        /// The size, bytes.
        bytes: u64,
        /// The size before, bytes.
        before: u64,
    },
    /// A miss ratio is out of range.
    #[error("mrc.miss_ratio[{index}] is {ratio}: 0 to 1 is accepted")]
    Ratio {
        /// Position of the miss ratio.
        index: usize,
        /// The miss ratio.
        ratio: f64,
    },
}

/// Returns the misses per read with these points: 1 at 0 bytes, linear between the points and
/// constant after the last.
///
/// # Errors
/// Another number of miss ratios than of sizes; sizes that do not ascend; a ratio out of 0 to 1.
pub fn described_curve(sizes: &[u64], miss_ratio: &[f64]) -> Result<DemandCurve, DescribedCurveError> {
    if sizes.len() != miss_ratio.len() {
        return Err(DescribedCurveError::Lengths { sizes: sizes.len(), ratios: miss_ratio.len() });
    }
    if let Some(at) = sizes.windows(2).position(|pair| pair[0] >= pair[1]) {
        let (bytes, before) = (sizes[at + 1], sizes[at]);
        return Err(DescribedCurveError::Order { index: at + 1, bytes, before });
    }
    let is_ratio = |ratio: &f64| (0.0..=1.0).contains(ratio);
    if let Some(index) = miss_ratio.iter().position(|ratio| !is_ratio(ratio)) {
        return Err(DescribedCurveError::Ratio { index, ratio: miss_ratio[index] });
    }
    let start = (sizes.first() != Some(&0)).then_some((0, 1.0));
    let points = sizes.iter().copied().zip(miss_ratio.iter().copied());
    Ok(DemandCurve::new(start.into_iter().chain(points)))
}

/// Returns the units of a resource that a request takes by the bytes of its tenant's cache, if it
/// takes `units` on a miss. A hit saves read units entirely, write units not at all, and
/// `network_saved` of the network, 0 to 1.
#[must_use]
pub fn described_demand(
    kind: ResourceKind,
    units: f64,
    network_saved: f64,
    miss_ratio: &DemandCurve,
) -> DemandCurve {
    match kind {
        ResourceKind::Reads(_) => DemandCurve::of_misses(units, 1.0, miss_ratio),
        ResourceKind::Writes(_) => DemandCurve::constant(units),
        ResourceKind::Network => DemandCurve::of_misses(units, network_saved, miss_ratio),
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::BackendId;

    use super::*;

    #[test]
    fn described_curve_begins_with_a_miss_and_is_checked() {
        let curve = described_curve(&[10, 20], &[0.5, 0.1]).unwrap();
        assert_eq!([0, 5, 10, 40].map(|bytes| curve.at(bytes)), [1.0, 0.75, 0.5, 0.1]);
        let error = |sizes: &[u64], ratios: &[f64]| described_curve(sizes, ratios).unwrap_err().to_string();
        assert!(error(&[1], &[]).starts_with("mrc has 1 ticks_bytes and 0 of miss_ratio"));
        assert_eq!(error(&[2, 2], &[0.5, 0.5]), "mrc.ticks_bytes[1] is 2 after 2: sizes must ascend");
        assert_eq!(error(&[2], &[f64::NAN]), "mrc.miss_ratio[0] is NaN: 0 to 1 is accepted");
    }

    #[test]
    fn hit_saves_reads_entirely_writes_not_and_network_in_part() {
        let curve = DemandCurve::new([(0, 1.0), (100, 0.0)]);
        let at = |kind| described_demand(kind, 8.0, 0.25, &curve).at(100);
        let kinds =
            [ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0)), ResourceKind::Network];
        assert_eq!(kinds.map(at), [0.0, 8.0, 6.0]);
    }
}
