use proptest::prelude::*;
use sherwood_model::SplitMix64;

use super::*;

/// Look-aside traffic: a get and a store per use. Counts the gets.
struct Traffic {
    ghost: Ghost,
    gets: u64,
}

impl Traffic {
    fn new(options: GhostOptions) -> Self {
        Self { ghost: Ghost::new(options), gets: 0 }
    }

    fn use_key(&mut self, hash: u64, bytes: u64) {
        self.gets += 1;
        let gets = self.gets;
        self.ghost.get(hash, || gets);
        self.ghost.store(hash, bytes, || gets);
    }

    fn curve(&mut self) -> Curve {
        self.ghost.curve(self.gets)
    }
}

/// A uniform hash of a small number.
fn hash_of(key: u64) -> u64 {
    SplitMix64::new(key).next_u64()
}

#[derive(Clone, Debug)]
enum Step {
    Get(u64),
    Store(u64, u64),
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0_u64..200;
    prop_oneof![
        6 => key.clone().prop_map(Step::Get),
        6 => (key.clone(), 1_u64..3000).prop_map(|(key, bytes)| Step::Store(key, bytes)),
        1 => key.prop_map(Step::Remove),
    ]
}

/// The least size at which each get hits, computed from the definition; none if no size suffices.
fn distances(steps: &[Step]) -> Vec<Option<u64>> {
    let mut recent: Vec<(u64, u64)> = Vec::new();
    let mut found = Vec::new();
    for step in steps {
        let (Step::Get(key) | Step::Store(key, _) | Step::Remove(key)) = *step;
        let at = recent.iter().position(|&(known, _)| known == key);
        let old = at.map(|at| (recent[at..].iter().map(|&(_, bytes)| bytes).sum(), recent.remove(at).1));
        match *step {
            Step::Get(_) => {
                found.push(old.map(|(distance, _)| distance));
                recent.extend(old.map(|(_, bytes)| (key, bytes)));
            }
            Step::Store(_, bytes) => recent.push((key, bytes)),
            Step::Remove(_) => {}
        }
    }
    found
}

proptest! {
    #[test]
    fn miss_ratio_of_an_exact_curve_is_the_share_of_longer_distances(
        steps in prop::collection::vec(step(), 1..1500),
    ) {
        let (mut ghost, mut gets) = (Ghost::new(GhostOptions::exact()), 0);
        for step in &steps {
            match *step {
                Step::Get(key) => {
                    gets += 1;
                    ghost.get(hash_of(key), || gets);
                }
                Step::Store(key, bytes) => ghost.store(hash_of(key), bytes, || gets),
                Step::Remove(key) => ghost.remove(hash_of(key)),
            }
        }
        let distances = distances(&steps);
        let curve = ghost.curve(gets);
        prop_assert_eq!(curve.gets, distances.len() as f64);
        prop_assert_eq!((curve.bytes[0], curve.miss_ratio[0]), (0, 1.0));
        for (&bytes, &found) in curve.bytes.iter().zip(&curve.miss_ratio).skip(1) {
            let misses = distances.iter().filter(|distance| distance.is_none_or(|needed| needed > bytes));
            let expected = misses.count() as f64 / distances.len() as f64;
            prop_assert!((found - expected).abs() < 1e-9, "at {bytes}: {found}, not {expected}");
        }
        let longest = distances.iter().flatten().max().copied().unwrap_or(0);
        prop_assert!(*curve.bytes.last().unwrap() >= longest, "the curve ends before the longest distance");
    }

    #[test]
    fn sampled_curve_is_monotonic_and_bounded(
        keys in prop::collection::vec((0_u64..500, 0_u64..5000), 0..3000),
        rate in 0.01_f64..1.0,
        depth_bytes in 1_u64..1_000_000,
    ) {
        let options = GhostOptions { rate, depth_bytes, memory_bytes: 0, fades: true };
        let mut traffic = Traffic::new(options);
        keys.iter().for_each(|&(key, bytes)| traffic.use_key(hash_of(key), bytes));
        let curve = traffic.curve();
        prop_assert!(curve.bytes.is_sorted_by(|a, b| a < b), "{curve:?}");
        prop_assert!(curve.miss_ratio.is_sorted_by(|a, b| a >= b), "{curve:?}");
        prop_assert!(curve.miss_ratio.iter().all(|ratio| (0.0..=1.0).contains(ratio)), "{curve:?}");
        prop_assert_eq!(curve.bytes.len(), curve.miss_ratio.len());
        prop_assert!((curve.gets - keys.len() as f64).abs() < 1.0, "{curve:?}");
        prop_assert!(curve.at(0) == 1.0 && curve.at(u64::MAX) == *curve.miss_ratio.last().unwrap());
    }
}

#[test]
fn curve_without_gets_misses_at_every_size() {
    let curve = Ghost::new(GhostOptions::exact()).curve(0);
    assert_eq!((curve.at(0), curve.at(1 << 40), curve.gets), (1.0, 1.0, 0.0));
}

#[test]
fn key_never_stored_weighs_nothing_and_always_misses() {
    let mut traffic = Traffic::new(GhostOptions::exact());
    for key in 0..1000 {
        traffic.gets += 1;
        traffic.ghost.get(hash_of(key % 5), || traffic.gets);
        traffic.use_key(hash_of(9), 100);
    }
    // Half of the gets are for the stored key, with nothing stored in between.
    assert_eq!(traffic.curve().at(103), 0.5005);
    assert_eq!(traffic.curve().keys, 1);
}

#[test]
fn flushed_key_misses_until_it_is_stored_again() {
    let mut traffic = Traffic::new(GhostOptions::exact());
    for round in 0..4 {
        traffic.use_key(hash_of(1), 100);
        if round == 1 {
            traffic.ghost.clear();
        }
    }
    assert_eq!(traffic.curve().at(1000), 0.5);
}

#[test]
fn miss_ratio_curve_is_corrected_for_a_hot_key_outside_the_sample() {
    let sampled = |hash: &u64| hash >> 32 < 1 << 28;
    let hot = (0..).map(hash_of).find(|hash| !sampled(hash)).unwrap();
    let options = GhostOptions { rate: 1.0 / 16.0, ..GhostOptions::exact() };
    let mut traffic = Traffic::new(options);
    for i in 0..200_000 {
        // Nine of ten gets are for one key, the tenth for a new one.
        traffic.use_key(if i % 10 == 0 { hash_of(i) } else { hot }, 100);
    }
    let curve = traffic.curve();
    assert!(curve.sampled_gets < 2_000.0, "{}", curve.sampled_gets);
    let reuse = (0..100_000).step_by(10).map(hash_of).find(sampled).unwrap();
    traffic.use_key(reuse, 100);
    let end = traffic.curve().at(u64::MAX);
    assert!((end - 0.1).abs() < 0.02, "a tenth of the gets miss, not {end}");
}

#[test]
fn sampling_rate_falls_when_keys_exceed_memory_and_rises_again() {
    let memory_bytes = 64 << 10;
    let options = GhostOptions { rate: 1.0, depth_bytes: 1 << 40, memory_bytes, fades: true };
    let mut traffic = Traffic::new(options);
    let (many, few) = (30_000, 100);
    for i in 0..300_000 {
        traffic.use_key(hash_of(i % many), 10);
        assert!(traffic.ghost.memory_bytes() <= memory_bytes);
    }
    let curve = traffic.curve();
    assert!((0.01..0.1).contains(&curve.rate), "{}", curve.rate);
    assert!((25_000..35_000).contains(&curve.keys), "{}", curve.keys);
    // All distances are equal: the curve falls at one size.
    assert!(curve.at(many * 9) > 0.8 && curve.at(many * 11) < 0.2, "{curve:?}");
    traffic.ghost.clear();
    for i in 0..10 * few {
        traffic.use_key(hash_of(i % few), 10);
        // And many gets of keys that are not in the sample.
        traffic.gets += 1_000_000;
        traffic.curve();
    }
    assert_eq!(traffic.curve().rate, 1.0);
}

#[test]
fn counts_of_a_curve_fade_without_further_sampled_gets() {
    let options = GhostOptions { rate: 1.0 / 32.0, fades: true, ..GhostOptions::exact() };
    let mut traffic = Traffic::new(options);
    (0..200_000).for_each(|i| traffic.use_key(hash_of(i), 100));
    assert_eq!(traffic.curve().at(u64::MAX), 1.0);
    assert!(traffic.curve().sampled_gets > 5_000.0);
    traffic.gets += 50_000_000;
    assert!(traffic.curve().sampled_gets < 1.0);
}

#[test]
fn keys_beyond_the_depth_limit_are_dropped_before_the_sampling_rate_falls() {
    let options = GhostOptions { rate: 1.0, depth_bytes: 100_000, memory_bytes: 128 << 10, fades: true };
    let mut traffic = Traffic::new(options);
    for i in 1000..200_000 {
        // A new key each time, and every tenth time one from 495 uses ago.
        traffic.use_key(hash_of(if i % 10 == 9 { i - 495 } else { i }), 100);
    }
    let curve = traffic.curve();
    assert_eq!(curve.rate, 1.0);
    assert!(curve.keys < 2_000, "{}", curve.keys);
    assert!(curve.at(20_000) > 0.95 && (curve.at(100_000) - 0.9).abs() < 0.02, "{curve:?}");
}

#[test]
fn old_gets_fade_from_the_curve() {
    let options = GhostOptions { fades: true, ..GhostOptions::exact() };
    let mut traffic = Traffic::new(options);
    for i in 0..200_000 {
        traffic.use_key(hash_of(i % 1000), 100);
    }
    assert!(traffic.curve().at(50_000) > 0.9, "1,000 keys in turn do not fit into half of their bytes");
    assert!(traffic.curve().gets < 40_000.0);
    for i in 0..200_000 {
        traffic.use_key(hash_of(i % 100), 100);
    }
    assert!(traffic.curve().at(50_000) < 0.1, "100 keys do");
}

#[test]
#[should_panic(expected = "above 0 and at most 1")]
fn sampling_rate_of_zero_panics() {
    let _ = Ghost::new(GhostOptions { rate: 0.0, ..GhostOptions::exact() });
}
