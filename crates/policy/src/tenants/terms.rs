//! Terms of a tenant, and the baselines that follow from them.

use super::Share;

/// The terms on which a tenant uses the cache and the resources behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantTerms {
    /// Name in reports.
    pub name: String,
    /// Part of the totals that the tenant may count on, relative to the other tenants' weights. One
    /// that is not positive and finite counts as 0.
    pub weight: f64,
    /// The tenant's baseline; none for the part that its weight gives.
    pub base: Option<Share>,
    /// The least that policies give the tenant, at most its baseline.
    pub min: Share,
}

/// Returns the baseline of each tenant: its own, or its weight's part of the totals. Those given
/// count with their weights as well, so that they change no other tenant's baseline.
#[must_use]
pub fn baselines<'a>(total: &Share, terms: impl IntoIterator<Item = (f64, Option<&'a Share>)>) -> Vec<Share> {
    let valid = |weight: f64| if weight > 0.0 && weight.is_finite() { weight } else { 0.0 };
    let terms: Vec<_> = terms.into_iter().map(|(weight, base)| (valid(weight), base)).collect();
    // Scaled before summation: the sum of large weights may be infinite.
    let max = terms.iter().map(|(weight, _)| *weight).fold(f64::MIN_POSITIVE, f64::max);
    let sum: f64 = terms.iter().map(|(weight, _)| weight / max).sum::<f64>().max(f64::MIN_POSITIVE);
    let part = |weight: f64| Share {
        bytes: (total.bytes as f64 * (weight / max / sum)) as u64,
        rates: total.rates.iter().map(|rate| rate * (weight / max / sum)).collect(),
    };
    terms.into_iter().map(|(weight, base)| base.cloned().unwrap_or_else(|| part(weight))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_of_a_tenant_is_its_own_or_its_weights_part() {
        let total = Share { bytes: 400, rates: vec![100.0] };
        let own = Share { bytes: 7, rates: vec![1.0] };
        let bases = baselines(&total, [(1.0, None), (2.0, Some(&own)), (f64::NAN, None), (1.0, None)]);
        assert_eq!(bases[0], Share { bytes: 100, rates: vec![25.0] });
        assert_eq!(bases[1], own);
        assert_eq!(bases[2], Share { bytes: 0, rates: vec![0.0] });
        assert_eq!(bases[3], bases[0]);
    }
}
