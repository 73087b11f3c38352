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

/// Returns each tenant's share of a total, at most 1 in sum: the share that it states, or its
/// weight's part of what the stated ones leave. Stated shares that sum to more than 1, or to less
/// while every tenant states one, are scaled to 1. Weights are positive.
#[must_use]
pub fn base_shares(stated: &[Option<f64>], weights: &[f64]) -> Vec<f64> {
    let sum: f64 = stated.iter().flatten().sum();
    let open: f64 = stated.iter().zip(weights).filter(|(stated, _)| stated.is_none()).map(|(_, w)| w).sum();
    let scale = if open == 0.0 || sum > 1.0 { sum } else { 1.0 };
    let left = (1.0 - sum).max(0.0);
    let share = |(stated, weight): (&Option<f64>, &f64)| match stated {
        Some(stated) if scale > 0.0 => stated / scale,
        Some(_) => 0.0,
        None => left * weight / open,
    };
    stated.iter().zip(weights).map(share).collect()
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

    #[test]
    fn share_that_no_tenant_states_follows_its_weight() {
        let weights = [1.0, 3.0, 1.0];
        assert_eq!(base_shares(&[Some(0.2), None, None], &weights), [0.2, 0.6000000000000001, 0.2]);
        assert_eq!(base_shares(&[Some(2.0), None, Some(2.0)], &weights), [0.5, 0.0, 0.5]);
        assert_eq!(base_shares(&[Some(0.1), Some(0.1), Some(0.2)], &weights), [0.25, 0.25, 0.5]);
        assert_eq!(base_shares(&[Some(0.0); 3], &weights), [0.0; 3]);
    }
}
