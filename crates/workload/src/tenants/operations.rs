//! Gets and sets of a load that changes over time.

use std::time::Duration;

use super::scenario::{Change, Load};
use crate::key_value::{KeyValue, KeyValueOptions, Operation};

/// The endless stream of gets and sets of a [`Load`], equal for equal seeds and times.
///
/// A scan is a get of a key drawn by popularity and of its neighbours, one operation after the
/// other. Neighbours are `(key + stride) modulo keys`, with a stride that is coprime to the number
/// of keys and near its golden section: an order of the keys that has nothing to do with their
/// popularity, as that by a hash, in which every scan goes on from key to key without repeating
/// one.
///
/// An operation takes constant time, and a change that of a new
/// [`Popularity`](crate::Popularity).
#[derive(Clone, Debug)]
pub struct Operations {
    draws: KeyValue,
    changes: std::vec::IntoIter<Change>,
    next_change: Option<Change>,
    scan_max: u32,
    stride: u64,
    scan: Option<Scan>,
}

/// The rest of a scan.
#[derive(Clone, Copy, Debug)]
struct Scan {
    next: u64,
    left: u64,
}

impl Operations {
    /// Returns the stream of a load of a validated scenario.
    ///
    /// # Panics
    /// If a value of the load is out of its range.
    #[must_use]
    pub fn new(load: &Load, seed: u64) -> Self {
        let key_bytes = load.key_bytes as usize;
        let options = options(load.keys, key_bytes, load.zipf, load.write_ratio);
        let mut changes = load.changes.clone().into_iter();
        Self {
            draws: KeyValue::new(options, seed).expect("the load is validated"),
            next_change: changes.next(),
            changes,
            scan_max: load.scan_max,
            stride: stride(load.keys),
            scan: None,
        }
    }

    /// Returns the next operation, drawn `since` the start of the measurement, with the key's rank
    /// of popularity, 0 the most popular. Times should not step back.
    pub fn next(&mut self, since: Duration) -> Operation {
        while let Some(change) = self.next_change.filter(|change| change.at.0 <= since) {
            self.change(change);
            self.next_change = self.changes.next();
        }
        if let Some(Scan { next, left }) = self.scan {
            self.scan = self.scan_after(next, left - 1);
            return Operation::Get(next);
        }
        let operation = self.draws.next_operation();
        if let Operation::Get(key) = operation
            && self.scan_max > 1
        {
            let length = 1 + self.draws.below(self.scan_max.into());
            self.scan = self.scan_after(key, length - 1);
        }
        operation
    }

    /// Appends the text of `key`: `k` and the rank in decimal, padded with zeros to the key size.
    pub fn write_key(&self, key: u64, out: &mut Vec<u8>) {
        self.draws.write_key(key, out);
    }

    /// Number of keys at present.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.draws.options().keys
    }

    /// Returns what is left of a scan after `key`.
    fn scan_after(&self, key: u64, left: u64) -> Option<Scan> {
        (left > 0).then(|| Scan { next: (key + self.stride) % self.keys(), left })
    }

    fn change(&mut self, change: Change) {
        let Change { at: _, keys, zipf, write_ratio, scan_max } = change;
        let KeyValueOptions { keys: old_keys, key_bytes, zipf: old_zipf, get_ratio, .. } =
            *self.draws.options();
        let write_ratio = write_ratio.unwrap_or(1.0 - get_ratio);
        let changed = options(keys.unwrap_or(old_keys), key_bytes, zipf.unwrap_or(old_zipf), write_ratio);
        self.draws.change(changed).expect("the load is validated");
        self.scan_max = scan_max.unwrap_or(self.scan_max);
        self.stride = stride(self.keys());
        // A key of the rest of a scan might exist no longer.
        self.scan = None;
    }
}

fn options(keys: u64, key_bytes: usize, zipf: f64, write_ratio: f64) -> KeyValueOptions {
    KeyValueOptions { keys, key_bytes, zipf, get_ratio: 1.0 - write_ratio, ..KeyValueOptions::default() }
}

/// Returns the stride of neighbours: the least number from the golden section of `keys` on that is
/// coprime to it.
fn stride(keys: u64) -> u64 {
    let golden = (keys as f64 * 0.618_033_988_749_895) as u64;
    (golden.max(1)..).find(|&stride| coprime(stride, keys)).unwrap_or(1)
}

fn coprime(mut a: u64, mut b: u64) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use sherwood_model::units::Span;

    use super::*;

    fn load() -> Load {
        Load {
            backend: "db".to_owned(),
            keys: 1_000,
            key_bytes: 16,
            value_bytes: 500,
            zipf: 0.99,
            write_ratio: 0.5,
            scan_max: 1,
            changes: Vec::new(),
        }
    }

    fn change(at_s: u64) -> Change {
        Change {
            at: Span(Duration::from_secs(at_s)),
            keys: None,
            zipf: None,
            write_ratio: None,
            scan_max: None,
        }
    }

    /// Draws `count` operations at a time and returns the share of sets and the keys.
    fn draw(operations: &mut Operations, at_s: u64, count: usize) -> (f64, BTreeSet<u64>) {
        let mut sets = 0;
        let mut next = || match operations.next(Duration::from_secs(at_s)) {
            Operation::Get(key) => key,
            Operation::Set(key) => {
                sets += 1;
                key
            }
        };
        let keys = (0..count).map(|_| next()).collect();
        (f64::from(sets) / count as f64, keys)
    }

    #[test]
    fn load_changes_at_its_times_and_keeps_what_a_change_leaves_out() {
        let changes = vec![
            Change { write_ratio: Some(0.0), ..change(10) },
            Change { keys: Some(10), zipf: Some(0.0), ..change(20) },
            Change { write_ratio: Some(1.0), ..change(30) },
        ];
        let mut operations = Operations::new(&Load { changes, ..load() }, 1);
        let (sets, keys) = draw(&mut operations, 9, 10_000);
        assert!((sets - 0.5).abs() < 0.03 && keys.len() > 500, "{sets}");
        let (sets, keys) = draw(&mut operations, 10, 10_000);
        assert!(sets == 0.0 && keys.len() > 500);
        let (sets, keys) = draw(&mut operations, 29, 1_000);
        assert_eq!((sets, keys.len()), (0.0, 10), "uniform over ten keys");
        assert_eq!(draw(&mut operations, 1_000, 100).0, 1.0);
    }

    #[test]
    fn scan_reads_distinct_neighbours_and_overlaps_with_that_of_a_neighbour() {
        let load = Load { scan_max: 100, write_ratio: 0.05, ..load() };
        let mut operations = Operations::new(&load, 1);
        let stride = stride(1_000);
        let (mut scans, mut gets, mut last) = (0.0, 0.0, None);
        for _ in 0..100_000 {
            let Operation::Get(key) = operations.next(Duration::ZERO) else { continue };
            gets += 1.0;
            let is_next = last.is_some_and(|last: u64| (last + stride) % 1_000 == key);
            scans += f64::from(!is_next);
            last = Some(key);
        }
        assert!((gets / scans - 50.5_f64).abs() < 2.0, "{}", gets / scans);
    }

    proptest! {
        #[test]
        fn neighbours_visit_every_key_once(keys in 1_u64..5_000) {
            let stride = stride(keys);
            let visited: BTreeSet<_> = (0..keys).map(|step| step * stride % keys).collect();
            prop_assert_eq!(visited.len() as u64, keys);
        }
    }
}
