use proptest::prelude::*;
use sherwood_cache::{AccessFlags, Marks, NewCas, Options, Partition};
use sherwood_model::{BackendId, TenantId};

use super::*;

const A: PartitionId = PartitionId(0);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn access(ms: u64) -> Access {
    Access::at(Instant::from_millis(ms))
}

fn rules() -> Rules {
    let prefix = |prefix: &str, ttl| (prefix.as_bytes().into(), ttl);
    Rules {
        ttl: Some(ms(1_000)),
        by_prefix: vec![
            prefix("user:", ms(100)),
            prefix("user:1", ms(5_000)),
            prefix("now:", Duration::ZERO),
        ],
        ..Rules::default()
    }
}

fn fetched(value: &[u8]) -> Fetched<'_> {
    Fetched { value: Value::Bytes(value), flags: 7, good_for: None, tags: Tags::from_bits(5) }
}

fn cache(rules: &Rules) -> Cache {
    let partition = Partition { grace: rules.grace(), ..Partition::new(TenantId(0), BackendId(0), 1 << 20) };
    let options = Options { total_bytes: 1 << 20, ..Options::default() };
    Cache::new(options, &[partition], SeededState::new(1)).unwrap()
}

#[test]
fn lifetime_is_the_shorter_of_the_longest_prefix_rule_and_the_limit_of_the_store() {
    let lifetime = |key: &str, good_for| rules().lifetime(key.as_bytes(), good_for);
    assert_eq!(lifetime("page", None), Lifetime::For(ms(1_000)));
    assert_eq!(lifetime("user:2", None), Lifetime::For(ms(100)));
    assert_eq!(lifetime("user:17", None), Lifetime::For(ms(5_000)));
    assert_eq!(lifetime("user:17", Some(ms(70))), Lifetime::For(ms(70)));
    assert_eq!(lifetime("user:2", Some(ms(9_000))), Lifetime::For(ms(100)));
    assert_eq!(lifetime("user:2", Some(Duration::ZERO)), Lifetime::NotKept);
    assert_eq!(lifetime("now:x", None), Lifetime::NotKept);
    assert_eq!(Rules::default().lifetime(b"x", None), Lifetime::Unlimited);
    assert_eq!(Rules::default().lifetime(b"x", Some(ms(3))), Lifetime::For(ms(3)));
}

#[test]
fn jitter_spreads_lifetimes_over_its_whole_range() {
    let rules = Rules { ttl: Some(ms(1_000)), jitter_ratio: 0.2, ..Rules::default() };
    let mut tenths = [0; 10];
    for key in 0..10_000_u32 {
        let Lifetime::For(ttl) = rules.lifetime(&key.to_le_bytes(), None) else { panic!("it is kept") };
        assert_eq!(rules.lifetime(&key.to_le_bytes(), None), Lifetime::For(ttl), "always the same");
        let nanos = ttl.as_nanos() as u64 - 800_000_000;
        tenths[(nanos / 20_000_000).min(9) as usize] += 1;
    }
    assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
}

#[test]
fn fill_stores_as_the_rules_say_and_never_replaces_a_fresh_value() {
    let rules = Rules { negative_ttl: ms(50), keep_stale: ms(500), ..rules() };
    let cache = cache(&rules);
    let fill = |key: &str, fetched, at| rules.fill(&cache, A, key.as_bytes(), fetched, &access(at), false);
    let value = |key: &str, flags, at| {
        let access = Access { flags, ..access(at) };
        cache.peek(A, key.as_bytes(), &access, |item| match item.value {
            Value::Bytes(bytes) => (bytes.to_vec(), item.flags, item.tags.bits()),
            Value::Declared(_) => unreachable!("bytes are stored"),
        })
    };
    let (plain, stale) = (AccessFlags::NONE, AccessFlags::SEE_STALE);
    let is = |bytes: &[u8]| Some((bytes.to_vec(), 7, 5));
    assert_eq!(fill("user:2", Some(fetched(b"one")), 0), Ok(true));
    assert_eq!(fill("user:2", Some(fetched(b"two")), 99), Ok(false));
    assert_eq!(fill("user:2", None, 99), Ok(false));
    assert_eq!([value("user:2", plain, 99), value("user:2", plain, 100)], [is(b"one"), None]);
    assert_eq!([value("user:2", stale, 599), value("user:2", stale, 600)], [is(b"one"), None]);
    assert_eq!(fill("user:2", Some(fetched(b"two")), 300), Ok(true), "over a stale one");
    assert_eq!(value("user:2", plain, 300), is(b"two"));
    assert_eq!(fill("user:2", None, 400), Ok(true));
    assert_eq!(value("user:2", stale, 400), None, "what was deleted is not served");
    let absent = |at| value("user:2", AccessFlags::SEE_ABSENT, at).is_some();
    assert_eq!([absent(449), absent(450)], [true, false]);
    assert_eq!(fill("user:2", Some(fetched(b"three")), 420), Ok(true), "over an absent one");
}

#[test]
fn fill_replaces_a_value_marked_outdated() {
    let rules = Rules { negative_ttl: ms(50), ..rules() };
    let declined = Fetched { good_for: Some(Duration::ZERO), ..fetched(b"two") };
    for (newer, kept) in [(Some(fetched(b"two")), true), (None, true), (Some(declined), false)] {
        let cache = cache(&rules);
        let fill = |fetched, at| rules.fill(&cache, A, b"user:2", fetched, &access(at), false);
        assert_eq!(fill(Some(fetched(b"one")), 0), Ok(true));
        let amend = |item: Option<Item<'_>>| {
            let expires = item.and_then(|item| item.expires);
            (Change::Amend { expires, marks: OUTDATED, cas: NewCas::Keep }, ())
        };
        cache.update(A, b"user:2", &access(1), amend).unwrap();
        assert_eq!(fill(newer, 50), Ok(kept));
        let marks = cache.peek(A, b"user:2", &access(50), |item| item.marks);
        assert_eq!(marks, newer.filter(|_| kept).map(|_| Marks::NONE));
    }
}

#[test]
fn answer_that_is_not_cached_removes_the_stale_value() {
    let rules = Rules { keep_stale: ms(500), ..rules() };
    for newer in [None, Some(Fetched { good_for: Some(Duration::ZERO), ..fetched(b"two") })] {
        let cache = cache(&rules);
        let fill = |fetched, at| rules.fill(&cache, A, b"user:2", fetched, &access(at), false);
        assert_eq!(fill(Some(fetched(b"one")), 0), Ok(true));
        assert_eq!(fill(newer, 50), Ok(false));
        assert_eq!(cache.usage(A).items, 1, "a fresh one stays");
        assert_eq!(fill(newer, 150), Ok(false));
        assert_eq!(cache.usage(A).items, 0);
    }
}

#[test]
fn zero_staleness_limits_accept_no_stale_value() {
    let never = Staleness::default();
    assert!(!never.takes_any() && !never.serves_at_once(Duration::ZERO));
    assert!(!never.serves_failed(Duration::ZERO) && !never.serves_late(Duration::ZERO));
    let taken = Rules { stale_if_error: ms(5), ..Rules::default() }.staleness(ms(3), ms(1));
    assert!(taken.takes_any() && taken.serves_failed(ms(5)) && !taken.serves_failed(ms(6)));
    assert!(taken.serves_late(ms(3)) && !taken.serves_late(ms(4)) && !taken.serves_at_once(ms(0)));
}

proptest! {
    #[test]
    fn jitter_only_shortens_lifetimes_of_values(
        key: Vec<u8>, ttl_ns in 1..u64::MAX, jitter_ratio in 0.0..=1.0, good_for_ns in prop::option::of(any::<u64>()),
    ) {
        let (ttl, good_for) = (Duration::from_nanos(ttl_ns), good_for_ns.map(Duration::from_nanos));
        let rules = Rules { ttl: Some(ttl), jitter_ratio, ..Rules::default() };
        let longest = good_for.map_or(ttl, |good_for| good_for.min(ttl));
        match rules.lifetime(&key, good_for) {
            Lifetime::For(kept) => {
                prop_assert!(kept <= longest && !kept.is_zero());
                prop_assert!(kept.as_secs_f64() >= longest.as_secs_f64() * (1.0 - jitter_ratio) * 0.999_999 - 1e-9);
            }
            kept => prop_assert!(kept == Lifetime::NotKept && longest.is_zero()),
        }
    }
}
