use std::time::Duration;

use super::*;
use crate::{PartitionId, SplitMix64};

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(1_000 + ms)
}

fn key(partition: u16, hash: u64) -> MissedKey {
    MissedKey { partition: PartitionId(partition), hash }
}

/// A batch of `client` that was read at `ms` and answered a millisecond later.
fn batch(client: u64, ms: u64) -> AnsweredBatch {
    AnsweredBatch { client, began: at(ms), answered: at(ms + 1), class: Some(3) }
}

#[test]
fn batch_ends_with_its_last_refill_whose_partition_blocks_it() {
    let mut batches = Batches::new(2);
    batches.answered(batch(7, 0), &[key(0, 1), key(1, 2)]);
    let first = batches.refilled(at(11), 7, key(1, 2)).unwrap();
    assert_eq!(first, Refill { cost: 10 * MS, finished: None });
    let last = batches.refilled(at(31), 7, key(0, 1)).unwrap();
    let finished = FinishedBatch { blocking: PartitionId(0), latency: 31 * MS, at: at(31), class: Some(3) };
    assert_eq!(last, Refill { cost: 30 * MS, finished: Some(finished) });
    assert_eq!((batches.waiting(), batches.refilled(at(32), 7, key(0, 1))), (0, None));
}

#[test]
fn key_that_is_never_refilled_ends_its_batch_after_ten_seconds_without_counting() {
    let mut batches = Batches::new(1);
    batches.answered(batch(7, 0), &[key(0, 1), key(0, 2)]);
    batches.answered(batch(7, 5), &[key(0, 3)]);
    batches.refilled(at(21), 7, key(0, 1));
    assert_eq!(batches.next_expired(at(10_000)), None);
    let refilled =
        FinishedBatch { blocking: PartitionId(0), latency: 21 * MS, at: at(10_001), class: Some(3) };
    assert_eq!(batches.next_expired(at(10_001)), Some(refilled));
    let own_time = FinishedBatch { blocking: PartitionId(0), latency: MS, at: at(10_006), class: Some(3) };
    assert_eq!(batches.next_expired(at(10_006)), Some(own_time));
    assert_eq!(batches.next_expired(at(99_999)), None);
    assert_eq!(batches.counts(), MissCounts { refilled: 1, unfilled: 2, unwatched: 0 });
    assert_eq!(batches.refilled(at(10_007), 7, key(0, 2)), None, "too late");
}

#[test]
fn two_clients_that_miss_one_key_end_one_batch_each() {
    let mut batches = Batches::new(1);
    batches.answered(batch(1, 0), &[key(0, 9)]);
    batches.answered(batch(2, 10), &[key(0, 9)]);
    assert_eq!(batches.refilled(at(21), 1, key(0, 9)).unwrap().cost, 20 * MS);
    assert_eq!(batches.refilled(at(31), 2, key(0, 9)).unwrap().cost, 20 * MS);
    assert_eq!(batches.refilled(at(32), 2, key(0, 9)), None);
}

#[test]
fn write_on_another_connection_refills_the_latest_miss_of_the_key() {
    let mut batches = Batches::new(1);
    batches.answered(batch(1, 0), &[key(0, 9)]);
    batches.answered(batch(2, 500), &[key(0, 9)]);
    assert_eq!(batches.refilled(at(521), 3, key(0, 9)).unwrap().cost, 20 * MS);
}

#[test]
fn key_of_another_partition_refills_nothing() {
    let mut batches = Batches::new(2);
    batches.answered(batch(1, 0), &[key(0, 9)]);
    assert_eq!(batches.refilled(at(5), 1, key(1, 9)), None);
}

#[test]
fn one_write_refills_a_key_that_a_batch_has_missed_twice() {
    let mut batches = Batches::new(1);
    batches.answered(batch(1, 0), &[key(0, 9), key(0, 9)]);
    assert!(batches.refilled(at(5), 1, key(0, 9)).unwrap().finished.is_some());
    assert_eq!(batches.waiting(), 0);
}

#[test]
fn batch_whose_keys_exceed_a_bound_is_not_watched_at_all() {
    let mut batches = Batches::with_bound(2, 2);
    batches.answered(batch(1, 0), &[key(0, 1)]);
    batches.answered(batch(1, 0), &[key(1, 5), key(0, 2), key(0, 3)]);
    assert_eq!((batches.waiting(), batches.counts().unwatched), (1, 3));
    batches.answered(batch(1, 0), &[key(1, 5), key(1, 6)]);
    assert_eq!(batches.waiting(), 3, "one partition's bound is not another's");
}

#[test]
fn key_that_every_batch_misses_and_nobody_sets_hides_no_batch() {
    let mut batches = Batches::new(1);
    for number in 0..100 {
        batches.answered(batch(1, number), &[key(0, 7), key(0, 1_000 + number)]);
    }
    for number in 0..100 {
        assert!(batches.refilled(at(200), 1, key(0, 1_000 + number)).is_some(), "{number}");
    }
    assert_eq!(batches.counts().unwatched, 84, "16 batches wait for it");
}

#[test]
fn write_after_ten_seconds_refills_nothing_even_if_nothing_has_expired_yet() {
    let mut batches = Batches::new(1);
    batches.answered(batch(1, 0), &[key(0, 7)]);
    assert_eq!(batches.refilled(at(10_001), 1, key(0, 7)), None);
}

#[test]
fn million_open_misses_are_bounded_and_expire() {
    let mut batches = Batches::new(1);
    for hash in 0..1_000_000 {
        batches.answered(batch(1, 0), &[key(0, hash)]);
    }
    assert_eq!(batches.waiting(), PARTITION_MAX);
    assert_eq!(batches.counts().unwatched, 1_000_000 - PARTITION_MAX as u64);
    while batches.next_expired(at(20_000)).is_some() {}
    assert_eq!(batches.waiting(), 0);
}

#[test]
fn crowd_that_misses_one_key_is_bounded() {
    let mut batches = Batches::new(1);
    (0..1_000).for_each(|client| batches.answered(batch(client, 0), &[key(0, 1)]));
    assert_eq!(batches.waiting(), 16);
}

/// The same rules without bounds, by searching a list.
#[derive(Default)]
struct Listed(Vec<(AnsweredBatch, Vec<MissedKey>, Instant)>);

impl Listed {
    fn refilled(&mut self, now: Instant, client: u64, key: MissedKey) -> Option<(Duration, bool)> {
        let waits = |of: &(AnsweredBatch, Vec<MissedKey>, Instant)| of.1.contains(&key);
        let waits =
            |of: &(AnsweredBatch, Vec<MissedKey>, Instant)| waits(of) && now < of.0.answered + REFILL_TIMEOUT;
        let own = self.0.iter().rposition(|of| waits(of) && of.0.client == client);
        let place = own.or_else(|| self.0.iter().rposition(waits))?;
        let (batch, keys, last) = &mut self.0[place];
        keys.retain(|left| *left != key);
        *last = now;
        let (cost, over) = (now.since(batch.answered), keys.is_empty());
        if over {
            self.0.remove(place);
        }
        Some((cost, over))
    }
}

#[test]
fn random_misses_and_refills_end_batches_as_a_list_does() {
    for seed in 0..50 {
        let mut random = SplitMix64::new(seed);
        let mut below = |max: u64| random.next_u64() % max;
        let (mut batches, mut listed, mut now) = (Batches::new(2), Listed::default(), 0);
        for _ in 0..2_000 {
            now += below(400);
            let (client, some) = (below(3), key(below(2) as u16, below(20)));
            if below(2) == 0 {
                let other = key(1, below(20));
                let missed = if some == other { vec![some] } else { vec![some, other] };
                batches.answered(batch(client, now), &missed);
                listed.0.push((batch(client, now), missed, at(0)));
                now += 1;
            } else {
                let found = batches.refilled(at(now), client, some);
                let found = found.map(|refill| (refill.cost, refill.finished.is_some()));
                assert_eq!(found, listed.refilled(at(now), client, some), "seed {seed}");
            }
            while batches.next_expired(at(now)).is_some() {
                listed.0.remove(0);
            }
            assert_eq!(batches.waiting(), listed.0.iter().map(|of| of.1.len()).sum::<usize>());
            assert!(listed.0.first().is_none_or(|of| at(now) < of.0.answered + REFILL_TIMEOUT));
        }
    }
}
