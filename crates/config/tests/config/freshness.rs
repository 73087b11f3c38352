//! Tests of time-to-live and stale values.

use sherwood_path::Lifetime;

use super::*;

#[test]
fn values_have_no_ttl_and_a_minute_of_grace_by_default() {
    let Freshness { rules, late_after } = config("[[backend]]\nname = \"a\"").backends[0].freshness.clone();
    assert_eq!((rules.lifetime(b"k", None), late_after), (Lifetime::Unlimited, None));
    assert_eq!(rules.grace(), Duration::from_secs(60));
    assert!(!rules.staleness(Duration::ZERO, Duration::ZERO).takes_any());
    assert!(rules.negative_ttl.is_zero());
}

#[test]
fn every_freshness_key_is_resolved() {
    let text = "[[backend]]\nname = \"a\"\nttl = \"60s\"\nttl_jitter = 0\nnegative_ttl = \"2s\"\n\
                ttl_rules = [{ prefix = \"user:\", ttl = \"5s\" }, { prefix = \"\", ttl = \"0s\" }]\n\
                stale = { while_revalidate = \"1s\", if_error = \"2s\", keep = \"7d\", after = \"30ms\" }";
    let Freshness { rules, late_after } = config(text).backends[0].freshness.clone();
    let second = Duration::from_secs(1);
    let expected = sherwood_path::Rules {
        ttl: Some(60 * second),
        by_prefix: vec![(b"user:"[..].into(), 5 * second), (b""[..].into(), Duration::ZERO)],
        jitter_ratio: 0.0,
        negative_ttl: 2 * second,
        stale_while_revalidate: second,
        stale_if_error: 2 * second,
        keep_stale: 7 * 86_400 * second,
    };
    assert_eq!((rules, late_after), (expected, Some(Duration::from_millis(30))));
}

#[test]
fn invalid_freshness_is_refused() {
    assert_refused(&[
        (
            "[[backend]]\nname = \"a\"\nttl_jitter = 0.6",
            "a.toml:3:14: [[backend]] ttl_jitter is 0.6; it must be 0 to 0.5: set ttl_jitter = 0.1",
        ),
        (
            "[[backend]]\nname = \"a\"\nnegative_ttl = \"366d\"",
            "a.toml:3:16: [[backend]] negative_ttl is 366d; it must be 0s to 365d: set negative_ttl = \"5s\"",
        ),
        (
            "[[backend]]\nname = \"a\"\nstale = { if_error = \"8d\" }",
            "a.toml:3:22: [[backend]] stale.if_error is 8d; it must be 0s to 7d: set stale.if_error = \"5m\"",
        ),
        (
            "[[backend]]\nname = \"a\"\nstale.after = \"11m\"",
            "a.toml:3:15: [[backend]] stale.after is 11m; it must be 0s to 10m: set stale.after = \"75ms\"",
        ),
        (
            "[[backend]]\nname = \"a\"\nttl_rules = [{ prefix = \"x\" }]",
            "a.toml:3:14: [[backend]] ttl_rules has a rule without prefix or ttl; it must have both: set ttl_rules = \
             [{ prefix = \"user:\", ttl = \"5s\" }]",
        ),
        (
            "[[backend]]\nname = \"a\"\nttl_rules = [{ prefix = \"x\", ttl = \"1s\" }, { prefix = \"x\", ttl = \"2s\" }]",
            "a.toml:3:55: [[backend]] ttl_rules has prefix \"x\" twice; a prefix has one ttl: remove one",
        ),
    ]);
}

#[test]
fn settle_time_is_required_when_only_the_first_of_several_replicas_is_written() {
    let replicas = |replicas: &str| format!("[[backend]]\nname = \"a\"\nreplicas = [{replicas}]\n");
    let one = "{ kind = \"memcached\", address = \"127.0.0.1:1\" }";
    let two = replicas(&format!("{one}, {one}"));
    let first = |settle: &str| format!("writes = {{ to = \"first\"{settle} }}");
    assert_refused(&[(
        &format!("{two}{}", first("")),
        "a.toml:4:17: [[backend]] writes.to is \"first\" and writes.settle is missing: how late the other replicas may copy; \
         set settle = \"1s\", or \"0s\" if they never are",
    )]);
    let settle = |text: &str| config(text).backends[0].writes.settle;
    assert_eq!(settle(&format!("{two}{}", first(", settle = \"0s\""))), Duration::ZERO);
    assert_eq!(settle(&format!("{}{}", replicas(one), first(""))), Duration::ZERO, "nobody copies");
}
