//! Capacity of a tier: what its servers and its tokens can serve.

use std::time::Duration;

use sherwood_model::TierWindow;

use super::options::TargetLatency;

/// A tier's requests in a measuring window, with the factors that were in force.
///
/// Rates of a tier include the copies that the tiers above made: a second copy of a page doubles
/// the rate of its queries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierSeen {
    /// Servers that can be used (M).
    pub servers: u32,
    /// Cores of each server (V).
    pub cores: u32,
    /// Tokens of each server (C); 0 if the tier is not arbitrated by tokens.
    pub tokens: u32,
    /// First attempts each second (λ).
    pub arrivals_per_s: f64,
    /// Connections each second (λconn).
    pub connections_per_s: f64,
    /// Core time of an attempt (T = 1/μ); zero if unknown.
    pub demand: Duration,
    /// Time for which a connection holds a token (TK); zero if unknown.
    pub held: Duration,
    /// Requests whose latency was measured.
    pub requests: u64,
    /// Mean latency.
    pub mean: Duration,
    /// 95th percentile of the latency.
    pub p95: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
}

/// A tier in which a stability condition does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shortage {
    /// Number of the tier, from 0.
    pub(super) tier: usize,
    /// Copies of each request in that tier.
    pub(super) factor: u8,
    /// The tier, with the rates that the factors above it lead to.
    pub(super) seen: TierSeen,
    /// True if tokens are short (equation 5), false if cores are (equation 4).
    pub(super) of_tokens: bool,
}

impl From<&TierWindow> for TierSeen {
    fn from(window: &TierWindow) -> Self {
        let seconds = window.length.as_secs_f64();
        let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let TierWindow { servers, cores, tokens, demand, held, requests, mean, p95, p99, .. } = *window;
        Self {
            servers,
            cores,
            tokens,
            arrivals_per_s: per_s(window.arrivals),
            connections_per_s: per_s(window.connections),
            demand,
            held,
            requests,
            mean,
            p95,
            p99,
        }
    }
}

impl TierSeen {
    /// Returns the share of the tier's core time that is used with `factor` copies of each request:
    /// λrT / MV. The tier is stable below 1 (equation 4).
    #[must_use]
    pub fn utilisation(&self, factor: u8) -> f64 {
        let used = self.arrivals_per_s * f64::from(factor) * self.demand.as_secs_f64();
        share(used, self.servers, self.cores)
    }

    /// Returns the share of the tier's tokens that are held with `factor` copies of each request:
    /// λconn r TK / MC; none if the tier has no tokens. The tier is stable below 1 (equation 5).
    #[must_use]
    pub fn token_utilisation(&self, factor: u8) -> Option<f64> {
        let held = self.connections_per_s * f64::from(factor) * self.held.as_secs_f64();
        (self.tokens > 0).then(|| share(held, self.servers, self.tokens))
    }

    /// Returns the latency that is a target.
    pub(super) fn latency(&self, target: TargetLatency) -> Duration {
        match target {
            TargetLatency::Mean => self.mean,
            TargetLatency::P95 => self.p95,
            TargetLatency::P99 => self.p99,
        }
    }

    /// Returns the tier's variability (w): the target percentile of the latency, the 95th for a
    /// target of the mean, over the mean; 0 without requests.
    #[must_use]
    pub fn variability(&self, target: TargetLatency) -> f64 {
        let high = if target == TargetLatency::P99 { self.p99 } else { self.p95 };
        if self.mean.is_zero() { 0.0 } else { high.as_secs_f64() / self.mean.as_secs_f64() }
    }

    /// Returns the tier with `ratio` times the requests and connections.
    pub(super) fn times(&self, ratio: f64) -> Self {
        let (arrivals_per_s, connections_per_s) =
            (self.arrivals_per_s * ratio, self.connections_per_s * ratio);
        Self { arrivals_per_s, connections_per_s, ..*self }
    }
}

/// Returns the first tier that `factors` make unstable, none if all are stable. `tiers` were
/// measured with the factors `measured`; the rates of a tier grow with the factors above it.
pub(super) fn shortage(tiers: &[TierSeen], measured: &[u8], factors: &[u8]) -> Option<Shortage> {
    let mut ratio = 1.0;
    let each = tiers.iter().zip(measured).zip(factors).enumerate();
    let mut each = each.map(|(tier, ((seen, &measured), &factor))| {
        let seen = seen.times(ratio);
        ratio *= f64::from(factor) / f64::from(measured);
        let is_short = seen.utilisation(factor) >= 1.0;
        let of_tokens = !is_short && seen.token_utilisation(factor).is_some_and(|share| share >= 1.0);
        (is_short || of_tokens).then_some(Shortage { tier, factor, seen, of_tokens })
    });
    each.find_map(|short| short)
}

/// Returns the tokens that each of `servers` needs, so that `factor_max` copies of each connection
/// are stable: the smallest integer above λconn r TK / M (equation 6).
///
/// ```
/// use sherwood_policy::replication::tokens_min;
/// use std::time::Duration;
/// // 20 connections a second in up to 3 copies hold 30 tokens of 12 servers.
/// assert_eq!(tokens_min(20.0, 3, 12, Duration::from_millis(500)), 3);
/// assert_eq!(tokens_min(20.0, 3, 10, Duration::from_millis(500)), 4, "3 would be in use all the time");
/// ```
#[must_use]
pub fn tokens_min(connections_per_s: f64, factor_max: u8, servers: u32, held: Duration) -> u32 {
    let busy = connections_per_s * f64::from(factor_max) * held.as_secs_f64();
    // A cast saturates.
    (share(busy, servers, 1).floor() as u32).saturating_add(1)
}

/// Returns the share of `servers` times `each` that `used` is; 0 for nothing, however few there
/// are.
fn share(used: f64, servers: u32, each: u32) -> f64 {
    if used > 0.0 { used / (f64::from(servers) * f64::from(each)) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier() -> TierSeen {
        TierSeen {
            servers: 36,
            cores: 2,
            tokens: 1,
            arrivals_per_s: 40.0,
            connections_per_s: 20.0,
            demand: Duration::from_millis(600),
            held: Duration::from_millis(900),
            ..TierSeen::default()
        }
    }

    #[test]
    fn tier_is_stable_while_its_cores_and_tokens_are_not_all_in_use() {
        let tier = tier();
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        assert!(near(tier.utilisation(1), 24.0 / 72.0) && near(tier.token_utilisation(1).unwrap(), 0.5));
        let short = |tier, factor| shortage(&[tier], &[1], &[factor]).map(|short| short.of_tokens);
        assert_eq!([1, 2, 3].map(|factor| short(tier, factor)), [None, Some(true), Some(false)]);
        let without = TierSeen { tokens: 0, ..tier };
        assert_eq!((without.token_utilisation(2), short(without, 2)), (None, None));
    }

    #[test]
    fn factors_above_multiply_the_rates_of_a_tier() {
        let tiers = [TierSeen { tokens: 0, ..tier().times(0.1) }, TierSeen { tokens: 0, ..tier() }];
        assert_eq!(shortage(&tiers, &[1, 1], &[1, 2]), None);
        let short = shortage(&tiers, &[1, 1], &[2, 2]).unwrap();
        assert_eq!((short.tier, short.factor, short.seen), (1, 2, tiers[1].times(2.0)));
        assert_eq!(shortage(&tiers, &[2, 1], &[2, 2]), None, "measured with two copies above");
        assert_eq!(shortage(&tiers, &[2, 3], &[1, 3]), None);
    }

    #[test]
    fn tier_without_servers_is_stable_only_without_requests() {
        let tier = TierSeen { servers: 0, ..tier() };
        assert!(shortage(&[tier], &[1], &[1]).is_some_and(|short| !short.of_tokens));
        assert_eq!(shortage(&[tier.times(0.0)], &[1], &[1]), None);
    }

    #[test]
    fn tokens_of_the_minimum_are_stable_and_one_fewer_are_not() {
        for (rate, factor, servers, ms) in [(20.0, 3, 36, 482), (20.0, 2, 12, 900), (1.0, 1, 8, 10)] {
            let held = Duration::from_millis(ms);
            let tokens = tokens_min(rate, factor, servers, held);
            let tier = TierSeen { servers, tokens, connections_per_s: rate, held, ..TierSeen::default() };
            assert!(tier.token_utilisation(factor).unwrap() < 1.0);
            let fewer = TierSeen { tokens: tokens - 1, ..tier };
            assert!(fewer.token_utilisation(factor).is_none_or(|share| share >= 1.0));
        }
        assert_eq!(tokens_min(1.0, 1, 0, Duration::from_secs(1)), u32::MAX, "no server");
    }
}
