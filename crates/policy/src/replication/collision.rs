//! Collisions of the copies of one request at a server of a later tier.

/// Returns the probability that a server of this tier gets more than one copy of the same request
/// of the first tier: sPARE, equation 2. Each of the `callers`, the copies of the request in the
/// tier above, draws `factor` of the tier's `servers` by itself.
///
/// A single caller draws different servers, so that the probability is 0. The paper sets it to 1 as
/// soon as all copies together are as many as the servers, but the formula holds there, too, and is
/// below 1; it is 1 for more copies than servers. O(copies).
///
/// ```
/// use sherwood_policy::replication::collision_probability;
/// let rounded = |callers, factor| (collision_probability(12, callers, factor) * 100.0).round();
/// assert_eq!([rounded(1, 3), rounded(2, 3), rounded(3, 2)], [0.0, 62.0, 71.0]);
/// assert_eq!(collision_probability(2, 2, 1), 0.5);
/// ```
#[must_use]
pub fn collision_probability(servers: u32, callers: u64, factor: u8) -> f64 {
    let (servers, factor) = (u64::from(servers), u64::from(factor));
    if callers.saturating_mul(factor) > servers {
        return 1.0;
    }
    // The logarithm of C(M − kr, r) / C(M, r) for each caller k, as a product over its r draws.
    let free = (1..callers).flat_map(|caller| {
        (0..factor).map(move |drawn| libm::log1p(-((caller * factor) as f64) / (servers - drawn) as f64))
    });
    -libm::expm1(free.sum())
}

/// Returns the [probability](collision_probability) of collisions in each tier, the first tier
/// first, given the servers and the factor of each.
#[must_use]
pub fn collision_probabilities(tiers: impl IntoIterator<Item = (u32, u8)>) -> Vec<f64> {
    let mut callers = 1_u64;
    let of_tier = |(servers, factor): (u32, u8)| {
        let probability = collision_probability(servers, callers, factor);
        callers = callers.saturating_mul(factor.into());
        probability
    };
    tiers.into_iter().map(of_tier).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Counts the draws of all callers that have no server in common, and all draws.
    fn counted(servers: u32, callers: u64, factor: u8) -> (u128, u128) {
        let draws: Vec<u32> =
            (0..1 << servers).filter(|draw: &u32| draw.count_ones() == u32::from(factor)).collect();
        let mut ways = BTreeMap::from([(0_u32, 1_u128)]);
        for _ in 0..callers {
            let mut next = BTreeMap::new();
            for (taken, count) in ways {
                for draw in draws.iter().filter(|&draw| draw & taken == 0) {
                    *next.entry(draw | taken).or_insert(0) += count;
                }
            }
            ways = next;
        }
        let all = (0..callers).fold(1, |all: u128, _| all * draws.len() as u128);
        (ways.values().sum(), all)
    }

    #[test]
    fn probability_equals_the_counted_share_of_draws() {
        for servers in 1..=12 {
            for factor in 1..=servers as u8 {
                for callers in 1..=u64::from(servers) / u64::from(factor) {
                    let (free, all) = counted(servers, callers, factor);
                    let exact = 1.0 - free as f64 / all as f64;
                    let found = collision_probability(servers, callers, factor);
                    assert!((found - exact).abs() < 1e-12, "{servers} {callers} {factor}: {found} {exact}");
                }
                let beyond = u64::from(servers) / u64::from(factor) + 1;
                assert_eq!(counted(servers, beyond, factor).0, 0);
                assert_eq!(collision_probability(servers, beyond, factor), 1.0);
            }
        }
    }

    #[test]
    fn probabilities_of_later_tiers_multiply_the_factors_above() {
        let tiers = [(36, 2), (12, 1), (12, 3)];
        let expected = [0.0, collision_probability(12, 2, 1), collision_probability(12, 2, 3)];
        assert_eq!(collision_probabilities(tiers), expected);
    }

    #[test]
    fn probability_is_finite_at_any_size() {
        let found = collision_probability(u32::MAX, 8_000, 8);
        assert!((0.0..1.0).contains(&found), "{found}");
        assert_eq!(collision_probability(u32::MAX, u64::MAX, 8), 1.0);
        assert_eq!(collision_probability(0, 1, 1), 1.0, "no server");
    }
}
