//! Reasons of the replicator as sentences.

use std::time::Duration;

use super::capacity::Shortage;
use super::options::{TargetLatency, TierOptions};

/// Returns the change of factors: "pages: 2 → 1 copies, queries: 1 → 2 copies".
pub(super) fn change(tiers: &[TierOptions], from: &[u8], to: &[u8]) -> String {
    let each = tiers.iter().zip(from.iter().zip(to)).filter(|(_, (from, to))| from != to);
    let each = each.map(|(tier, (from, to))| format!("{}: {from} → {to} copies", tier.name));
    each.collect::<Vec<_>>().join(", ")
}

/// Returns the name of a target latency in a sentence: "P99 of pages".
pub(super) fn target(target: TargetLatency, tier: &TierOptions) -> String {
    let target = match target {
        TargetLatency::Mean => "the mean",
        TargetLatency::P95 => "P95",
        TargetLatency::P99 => "P99",
    };
    format!("{target} of {}", tier.name)
}

/// Returns how a latency changed: "fell from 1.91 s to 1.42 s".
pub(super) fn latencies(from: Duration, to: Duration) -> String {
    let verb = match to.cmp(&from) {
        std::cmp::Ordering::Less => "fell",
        std::cmp::Ordering::Equal => "did not move",
        std::cmp::Ordering::Greater => "rose",
    };
    format!("{verb} from {} to {}", latency(from), latency(to))
}

/// Returns a latency with three digits.
pub(super) fn latency(latency: Duration) -> String {
    let ms = latency.as_secs_f64() * 1e3;
    match ms {
        1_000.0.. => format!("{:.2} s", ms / 1e3),
        100.0.. => format!("{ms:.0} ms"),
        10.0.. => format!("{ms:.1} ms"),
        _ => format!("{ms:.2} ms"),
    }
}

/// Returns the condition that does not hold: "load 31/s of pages exceeds what 2 copies leave (28/s
/// of 36 servers)".
pub(super) fn shortage(tiers: &[TierOptions], short: &Shortage) -> String {
    let Shortage { tier, factor, seen, of_tokens } = short;
    let (name, servers) = (&tiers[*tier].name, seen.servers);
    let copies = if *factor == 1 { "1 copy leaves".to_owned() } else { format!("{factor} copies leave") };
    if *of_tokens {
        let load = seen.connections_per_s;
        let room = rate(load / seen.token_utilisation(*factor).unwrap_or(1.0));
        let (load, tokens) = (rate(load), seen.tokens);
        return format!(
            "connections {load} of {name} exceed what {copies} ({room} of {servers} × {tokens} tokens)"
        );
    }
    let room = rate(seen.arrivals_per_s / seen.utilisation(*factor));
    let load = rate(seen.arrivals_per_s);
    format!("load {load} of {name} exceeds what {copies} ({room} of {servers} servers)")
}

/// Returns a rate with two digits at least.
pub(super) fn rate(per_s: f64) -> String {
    if per_s < 10.0 { format!("{per_s:.1}/s") } else { format!("{per_s:.0}/s") }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::TierSeen;
    use super::*;

    fn tiers() -> Vec<TierOptions> {
        let tier = |name: &str| TierOptions { name: name.to_owned(), cores: 2, factor: 1 };
        vec![tier("pages"), tier("queries")]
    }

    #[test]
    fn changes_and_latencies_are_named() {
        assert_eq!(change(&tiers(), &[2, 1], &[2, 2]), "queries: 1 → 2 copies");
        assert_eq!(change(&tiers(), &[2, 1], &[1, 2]), "pages: 2 → 1 copies, queries: 1 → 2 copies");
        let ms = Duration::from_millis;
        assert_eq!(latencies(ms(1_910), ms(1_424)), "fell from 1.91 s to 1.42 s");
        assert_eq!(latencies(ms(482), Duration::from_micros(48_210)), "fell from 482 ms to 48.2 ms");
        assert_eq!(latencies(Duration::from_micros(1_305), ms(2)), "rose from 1.30 ms to 2.00 ms");
        assert_eq!(target(TargetLatency::P95, &tiers()[1]), "P95 of queries");
    }

    #[test]
    fn shortage_names_the_load_and_the_capacity_that_is_left() {
        let seen = TierSeen {
            servers: 36,
            cores: 2,
            tokens: 1,
            arrivals_per_s: 31.0,
            connections_per_s: 7.25,
            demand: Duration::from_secs_f64(36.0 / 28.0),
            held: Duration::from_secs_f64(36.0 / 14.0),
            ..TierSeen::default()
        };
        let short = Shortage { tier: 0, factor: 2, seen, of_tokens: false };
        let sentence = "load 31/s of pages exceeds what 2 copies leave (28/s of 36 servers)";
        assert_eq!(shortage(&tiers(), &short), sentence);
        let short = Shortage { tier: 1, of_tokens: true, ..short };
        let sentence = "connections 7.2/s of queries exceed what 2 copies leave (7.0/s of 36 × 1 tokens)";
        assert_eq!(shortage(&tiers(), &short), sentence);
    }
}
