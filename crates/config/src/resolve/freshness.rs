//! Time-to-live of a backend's values, and use of stale ones.

use std::time::Duration;

use sherwood_path::Rules;

use crate::meaning::Freshness;
use crate::problem::Problems;
use crate::raw::{RawBackend, RawStale};
use crate::scope::{Setting, bytes, given, in_range};
use crate::units::Span;

const TTL: Setting = Setting::new("[[backend]]", "ttl", "\"60s\"");
const RULE_TTL: Setting = Setting::new("[[backend]]", "ttl_rules.ttl", "\"5s\"");
const JITTER: Setting = Setting::new("[[backend]]", "ttl_jitter", "0.1");
const NEGATIVE: Setting = Setting::new("[[backend]]", "negative_ttl", "\"5s\"");
const WHILE_REVALIDATE: Setting = Setting::new("[[backend]]", "stale.while_revalidate", "\"10s\"");
const IF_ERROR: Setting = Setting::new("[[backend]]", "stale.if_error", "\"5m\"");
const KEEP: Setting = Setting::new("[[backend]]", "stale.keep", "\"60s\"");
const AFTER: Setting = Setting::new("[[backend]]", "stale.after", "\"75ms\"");

const ZERO: Span = Span(Duration::ZERO);
const MILLISECOND: Span = Span(Duration::from_millis(1));
const TTL_MAX: Span = Span(Duration::from_secs(365 * 86_400));
/// Maximum of the `stale` durations: the most that a request may ask for.
const STALE_MAX: Span = Span(crate::STALE_OK_MAX);
/// Maximum of `stale.after`: that of a backend's timeout, which ends the wait in any case.
const AFTER_MAX: Span = Span(Duration::from_secs(600));

/// Maximum of rules of a backend: the list is scanned for each value that is stored.
const RULES_MAX: usize = 64;

pub(super) fn resolve(raw: &RawBackend, problems: &mut Problems<'_>) -> Freshness {
    let plain = Freshness::default();
    let ttl =
        given(&raw.ttl).map(|ttl| in_range(problems, TTL, Some(ttl), MILLISECOND, MILLISECOND..=TTL_MAX).0);
    let jitter = given(&raw.ttl_jitter);
    let negative = Span(plain.rules.negative_ttl);
    let RawStale { while_revalidate, if_error, keep, after } = &raw.stale;
    let mut stale = |setting, key, default: Duration| {
        in_range(problems, setting, given(key), Span(default), ZERO..=STALE_MAX).0
    };
    let stale_while_revalidate =
        stale(WHILE_REVALIDATE, while_revalidate, plain.rules.stale_while_revalidate);
    let stale_if_error = stale(IF_ERROR, if_error, plain.rules.stale_if_error);
    let keep_stale = stale(KEEP, keep, plain.rules.keep_stale);
    let late_after =
        given(after).map(|after| in_range(problems, AFTER, Some(after), ZERO, ZERO..=AFTER_MAX).0);
    let rules = Rules {
        ttl,
        by_prefix: by_prefix(raw, problems),
        jitter_ratio: in_range(problems, JITTER, jitter, plain.rules.jitter_ratio, 0.0..=0.5),
        negative_ttl: in_range(problems, NEGATIVE, given(&raw.negative_ttl), negative, ZERO..=TTL_MAX).0,
        stale_while_revalidate,
        stale_if_error,
        keep_stale,
    };
    Freshness { rules, late_after }
}

fn by_prefix(raw: &RawBackend, problems: &mut Problems<'_>) -> Vec<(Box<[u8]>, Duration)> {
    let rules = raw.ttl_rules.as_ref().map_or(&[][..], |rules| rules.get_ref());
    if let Some(first) = rules.get(RULES_MAX) {
        let message = format!(
            "[[backend]] ttl_rules has {} rules; at most {RULES_MAX} are accepted: remove some",
            rules.len()
        );
        problems.add(&bytes(first), message);
    }
    let mut by_prefix: Vec<(Box<[u8]>, Duration)> = Vec::new();
    for table in rules.iter().take(RULES_MAX) {
        let (Some(prefix), Some(ttl)) = (given(&table.get_ref().prefix), given(&table.get_ref().ttl)) else {
            let message = "[[backend]] ttl_rules has a rule without prefix or ttl; it must have both: set \
                           ttl_rules = [{ prefix = \"user:\", ttl = \"5s\" }]";
            problems.add(&bytes(table), message);
            continue;
        };
        if by_prefix.iter().any(|(other, _)| **other == *prefix.value.as_bytes()) {
            let shown = crate::units::quoted(&prefix.value);
            let message = format!(
                "[[backend]] ttl_rules has prefix \"{shown}\" twice; a prefix has one ttl: remove one"
            );
            problems.add(&prefix.origin, message);
            continue;
        }
        let ttl = in_range(problems, RULE_TTL, Some(ttl), ZERO, ZERO..=TTL_MAX).0;
        by_prefix.push((prefix.value.into_bytes().into(), ttl));
    }
    by_prefix
}
