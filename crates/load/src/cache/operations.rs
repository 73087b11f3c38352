//! Workloads as streams of gets and sets.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::Duration;

use sherwood_wire::memcached::client::{Key, KeyError};
use sherwood_workload::trace::{TraceError, cache2k, robinhood};
use sherwood_workload::{
    KeyNames, KeyValue, KeyValueOptions, Operation as KeyValueOperation, Rng, ValueSizes, rng_from_seed,
    tenants,
};
use thiserror::Error;

use super::Workload;
use crate::LoadError;

/// A get or set of a workload; reused, so that a run allocates as many keys as it has operations in
/// flight.
#[derive(Debug, Default)]
pub(super) struct Operation {
    /// The key, or the keys of a multi-get separated by spaces.
    pub(super) key: Vec<u8>,
    /// The number of keys of the operation.
    pub(super) keys: u32,
    pub(super) verb: Verb,
    /// Index of the partition that the operation counts for.
    pub(super) partition: usize,
    /// Size of the value to set by this operation, or after its miss, bytes.
    pub(super) value_bytes: u32,
    /// True if the value may be set after a miss.
    pub(super) cacheable: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verb {
    #[default]
    Get,
    Set,
}

/// The reason why a workload ended early.
#[derive(Debug, Error)]
pub(super) enum WorkloadError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the trace's key `{key}` cannot be sent: {source}")]
    Key { key: String, source: KeyError },
}

pub(super) trait Operations: Send {
    /// Writes the workload's next operation, which starts at this time of the run, into `next`;
    /// returns false at the end of the workload.
    fn next(&mut self, start: Duration, next: &mut Operation) -> Result<bool, WorkloadError>;

    /// Returns the name of the partition with that index.
    fn partition_name(&self, partition: usize) -> String;
}

/// Returns the workload's operations, at most `max`.
pub(super) fn from_workload(workload: Workload, max: Option<u64>) -> Result<Box<dyn Operations>, LoadError> {
    let operations = all_of(workload)?;
    Ok(match max {
        Some(left) => Box::new(Bounded { operations, left }),
        None => operations,
    })
}

/// The first operations of a workload, up to a maximum number.
struct Bounded {
    operations: Box<dyn Operations>,
    left: u64,
}

impl Operations for Bounded {
    fn next(&mut self, start: Duration, next: &mut Operation) -> Result<bool, WorkloadError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
        self.left = left;
        self.operations.next(start, next)
    }

    fn partition_name(&self, partition: usize) -> String {
        self.operations.partition_name(partition)
    }
}

fn all_of(workload: Workload) -> Result<Box<dyn Operations>, LoadError> {
    Ok(match workload {
        Workload::KeyValue { options, batch, prefixes, seed } => {
            Box::new(KeySpace::new(options, batch, prefixes, seed)?)
        }
        Workload::Cache2k { input, value_sizes, seed } => {
            let (accesses, size_rng) = (cache2k::read(input)?, rng_from_seed(seed));
            Box::new(Cache2k { accesses, value_sizes, size_rng })
        }
        Workload::RobinHood { input } => Box::new(RobinHood::new(input)),
        Workload::Tenant { number, load, warm_up, seed } => {
            Box::new(Tenant::new(number, &load, warm_up, seed))
        }
    })
}

/// The largest value sent or accepted, 128 MiB.
pub(super) const VALUE_BYTES_MAX: u32 = ValueSizes::BYTES_MAX;

struct KeySpace {
    stream: KeyValue,
    batch: usize,
    prefixes: Vec<String>,
    /// Numbers of the keys of the operation being built; reused.
    keys: Vec<u64>,
}

impl KeySpace {
    fn new(
        options: KeyValueOptions,
        batch: usize,
        prefixes: Vec<String>,
        seed: u64,
    ) -> Result<Self, LoadError> {
        crate::within("batch", batch, 1..=crate::BATCH_MAX, "1 to 1000 keys")?;
        crate::within("number of prefixes", prefixes.len(), 0..=PREFIXES_MAX, "0 to 1024")?;
        if !prefixes.is_empty() {
            // A multi-get would span partitions but be counted in one.
            crate::within("batch", batch, 1..=1, "1 where keys have prefixes")?;
        }
        let stream = KeyValue::new(options, seed)?;
        let key_space = Self { stream, batch, prefixes, keys: Vec::new() };
        key_space.check_keys()?;
        Ok(key_space)
    }

    /// Checks that every key can be sent: the names of a list each, of a pattern the longest one.
    fn check_keys(&self) -> Result<(), LoadError> {
        let KeyValueOptions { keys, names, .. } = self.stream.options();
        let listed = matches!(names, KeyNames::Listed(_));
        let first = if listed { 0 } else { keys - 1 };
        let mut text = Vec::new();
        for key in first..*keys {
            text.clear();
            self.stream.write_key(key, &mut text);
            if Key::new(&text).is_err() {
                return Err(LoadError::Option {
                    option: "key",
                    found: format!("{:?}", String::from_utf8_lossy(&text)),
                    accepted: "1 to 250 bytes without blanks and control characters",
                });
            }
            // With a pattern, any prefix may meet the longest key.
            let prefixes = self.prefixes.iter().enumerate();
            let meets = |at| !listed || self.partition(key) == Some(at);
            prefixes.filter(|(at, _)| meets(*at)).try_for_each(|(_, prefix)| check_prefix(prefix, &text))?;
        }
        Ok(())
    }

    fn partition(&self, key: u64) -> Option<usize> {
        (key as usize).checked_rem(self.prefixes.len())
    }
}

impl Operations for KeySpace {
    fn next(&mut self, _start: Duration, next: &mut Operation) -> Result<bool, WorkloadError> {
        let (verb, key, batch) = match self.stream.next_operation() {
            KeyValueOperation::Get(key) => (Verb::Get, key, self.batch),
            KeyValueOperation::Set(key) => (Verb::Set, key, 1),
        };
        self.keys.clear();
        self.keys.push(key);
        self.stream.extend_batch(&mut self.keys, batch);
        next.key.clear();
        for &key in &self.keys {
            if let Some(partition) = self.partition(key) {
                next.key.extend_from_slice(self.prefixes[partition].as_bytes());
            }
            self.stream.write_key(key, &mut next.key);
            next.key.push(b' ');
        }
        next.key.pop();
        let partition = self.partition(key).unwrap_or(0);
        (next.verb, next.partition) = (verb, partition);
        (next.keys, next.cacheable) = (self.keys.len() as u32, self.keys.len() == 1);
        // Drawn for gets too: the sizes then do not depend on which gets miss.
        next.value_bytes = self.stream.next_value_bytes();
        Ok(true)
    }

    fn partition_name(&self, partition: usize) -> String {
        self.prefixes.get(partition).map_or("all", String::as_str).to_owned()
    }
}

/// The most prefixes of a key space.
const PREFIXES_MAX: usize = 1_024;

/// Checks that a prefix leaves room for `key` and consists of bytes that a key may contain.
fn check_prefix(prefix: &str, key: &[u8]) -> Result<(), LoadError> {
    Key::new(&[prefix.as_bytes(), key].concat()).map(drop).map_err(|_| LoadError::Option {
        option: "prefix",
        found: format!("{prefix:?}"),
        accepted: "text without blanks that leaves room for the key in 250 bytes",
    })
}

/// The load of a tenant of a scenario, whose changes count from the end of its warm-up.
struct Tenant {
    /// The first bytes of every key.
    prefix: [u8; 3],
    operations: tenants::Operations,
    warm_up: Duration,
    value_bytes: u32,
}

impl Tenant {
    fn new(number: u16, load: &tenants::Load, warm_up: Duration, seed: u64) -> Self {
        const DIGITS: [u8; 32] = *b"0123456789abcdefghijklmnopqrstuv";
        let digit = |value: u16| DIGITS[usize::from(value % 32)];
        let operations = tenants::Operations::new(load, seed);
        Self {
            prefix: [b't', digit(number / 32), digit(number)],
            operations,
            warm_up,
            value_bytes: load.value_bytes,
        }
    }
}

impl Operations for Tenant {
    fn next(&mut self, start: Duration, next: &mut Operation) -> Result<bool, WorkloadError> {
        let (verb, key) = match self.operations.next(start.saturating_sub(self.warm_up)) {
            KeyValueOperation::Get(key) => (Verb::Get, key),
            KeyValueOperation::Set(key) => (Verb::Set, key),
        };
        next.key.clear();
        self.operations.write_key(key, &mut next.key);
        // Ranks have at most 13 digits, and keys 16 bytes or more.
        next.key[..self.prefix.len()].copy_from_slice(&self.prefix);
        (next.verb, next.partition, next.keys) = (verb, 0, 1);
        (next.cacheable, next.value_bytes) = (true, self.value_bytes);
        Ok(true)
    }

    fn partition_name(&self, _partition: usize) -> String {
        "all".to_owned()
    }
}

struct Cache2k {
    accesses: cache2k::Accesses<Box<dyn BufRead + Send>>,
    value_sizes: ValueSizes,
    size_rng: Rng,
}

impl Operations for Cache2k {
    fn next(&mut self, _start: Duration, next: &mut Operation) -> Result<bool, WorkloadError> {
        let Some(access) = self.accesses.next().transpose()? else {
            return Ok(false);
        };
        next.key.clear();
        access.write_key(&mut next.key);
        (next.verb, next.keys, next.partition) = (Verb::Get, 1, usize::from(access.object_type()));
        (next.value_bytes, next.cacheable) = (self.value_sizes.draw(&mut self.size_rng), true);
        Ok(true)
    }

    fn partition_name(&self, partition: usize) -> String {
        cache2k::partition_name(u8::try_from(partition).expect("object types are below 32"))
    }
}

/// Flattens the requests of a RobinHood trace into accesses. Holds one request at a time and the
/// names of the backends seen.
struct RobinHood {
    requests: robinhood::Requests<Box<dyn BufRead + Send>>,
    pending: std::vec::IntoIter<(usize, robinhood::Object)>,
    partitions: BTreeMap<String, usize>,
    names: Vec<String>,
}

impl RobinHood {
    fn new(input: Box<dyn BufRead + Send>) -> Self {
        let requests = robinhood::read(input);
        Self { requests, pending: Vec::new().into_iter(), partitions: BTreeMap::new(), names: Vec::new() }
    }

    fn flatten(&mut self, request: robinhood::Request) -> Vec<(usize, robinhood::Object)> {
        let mut accesses = Vec::new();
        for query in request.layers.into_iter().flatten() {
            let partition = *self.partitions.entry(query.backend).or_insert_with_key(|name| {
                self.names.push(name.clone());
                self.names.len() - 1
            });
            accesses.extend(query.objects.into_iter().map(|object| (partition, object)));
        }
        accesses
    }
}

impl Operations for RobinHood {
    fn next(&mut self, _start: Duration, next: &mut Operation) -> Result<bool, WorkloadError> {
        let (partition, object) = loop {
            if let Some(access) = self.pending.next() {
                break access;
            }
            let Some(request) = self.requests.next().transpose()? else {
                return Ok(false);
            };
            self.pending = self.flatten(request).into_iter();
        };
        next.key.clear();
        next.key.extend_from_slice(self.names[partition].as_bytes());
        next.key.push(b':');
        next.key.extend_from_slice(object.key.as_bytes());
        Key::new(&next.key).map_err(|source| WorkloadError::Key {
            key: String::from_utf8_lossy(&next.key).into_owned(),
            source,
        })?;
        (next.verb, next.keys, next.partition) = (Verb::Get, 1, partition);
        (next.value_bytes, next.cacheable) =
            (object.bytes, object.cacheable && object.bytes <= VALUE_BYTES_MAX);
        Ok(true)
    }

    fn partition_name(&self, partition: usize) -> String {
        self.names[partition].clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn drain(workload: Workload) -> Vec<(String, String, u32, bool)> {
        let mut operations = from_workload(workload, None).unwrap();
        let (mut next, mut drained) = (Operation::default(), Vec::new());
        while operations.next(Duration::ZERO, &mut next).unwrap() {
            let key = String::from_utf8(next.key.clone()).unwrap();
            drained.push((operations.partition_name(next.partition), key, next.value_bytes, next.cacheable));
        }
        drained
    }

    #[test]
    fn trace_of_requests_becomes_gets_with_the_backend_in_front_of_the_key() {
        let text =
            r#"{"t":0,"d":[{"b2":{"S":[5,6],"U":["x","y"],"C":[1,0]},"b1":{"S":[7],"U":["x"],"C":[1]}}]}"#;
        let accesses = drain(Workload::RobinHood { input: Box::new(text.as_bytes()) });
        let expected = [("b1", "b1:x", 7, true), ("b2", "b2:x", 5, true), ("b2", "b2:y", 6, false)];
        let expected =
            expected.map(|(name, key, bytes, cacheable)| (name.to_owned(), key.to_owned(), bytes, cacheable));
        assert_eq!(accesses, expected);
    }

    #[test]
    fn trace_of_object_accesses_becomes_gets_of_fixed_width_keys() {
        let input: Box<dyn BufRead + Send> = Box::new(&[0x38, 1, 0xA2, 0xB3][..]);
        let accesses = drain(Workload::Cache2k { input, value_sizes: ValueSizes::default(), seed: 1 });
        assert_eq!(accesses, [("t07".to_owned(), "t07/0001a2b3".to_owned(), 100, true)]);
    }

    #[test]
    fn tenants_of_a_scenario_have_keys_of_their_own() {
        let text = r#"{"name": "one", "warm_up": "1s", "measure": "1s", "backends": [{"name": "db"}],
            "tenants": [{"name": "a", "clients": {"processes": 1, "depth": 1}, "cache": 1000,
                         "loads": [{"backend": "db", "keys": 1}]}]}"#;
        let scenario = tenants::Scenario::from_json(text).expect("valid");
        let first_key = |number| {
            let load = Box::new(scenario.tenants[0].loads[0].clone());
            let workload = Workload::Tenant { number, load, warm_up: Duration::ZERO, seed: 1 };
            let mut next = Operation::default();
            assert!(from_workload(workload, None).unwrap().next(Duration::ZERO, &mut next).unwrap());
            String::from_utf8(next.key).unwrap()
        };
        assert_eq!(
            [0, 42, 1023].map(first_key),
            ["t000000000000000", "t1a0000000000000", "tvv0000000000000"]
        );
    }

    #[test]
    fn each_operation_has_a_value_size_of_the_distribution_drawn_from_the_seed() {
        let sizes = |seed, key_space| {
            let value_sizes: ValueSizes = "uniform:1000-100000".parse().unwrap();
            let workload = if key_space {
                let options = KeyValueOptions { value_sizes, ..KeyValueOptions::default() };
                Workload::KeyValue { options, batch: 1, prefixes: Vec::new(), seed }
            } else {
                Workload::Cache2k {
                    input: Box::new(Cursor::new([0x38, 1, 0xA2, 0xB3].repeat(50))),
                    value_sizes,
                    seed,
                }
            };
            let mut operations = from_workload(workload, Some(50)).unwrap();
            let (mut next, mut sizes) = (Operation::default(), Vec::new());
            while operations.next(Duration::ZERO, &mut next).unwrap() {
                sizes.push(next.value_bytes);
            }
            sizes
        };
        for key_space in [true, false] {
            let drawn = sizes(1, key_space);
            assert_eq!(drawn.len(), 50);
            assert!(drawn.iter().all(|size| (1_000..=100_000).contains(size)), "{drawn:?}");
            assert!(drawn.iter().any(|size| *size != drawn[0]), "{drawn:?}");
            assert_eq!(drawn, sizes(1, key_space));
            assert_ne!(drawn, sizes(2, key_space));
        }
    }

    #[test]
    fn get_of_many_keys_is_one_operation_of_distinct_keys_and_sets_nothing_after_misses() {
        let options = KeyValueOptions { get_ratio: 1.0, ..KeyValueOptions::default() };
        let batches = Workload::KeyValue { options, batch: 50, prefixes: Vec::new(), seed: 1 };
        let mut operations = from_workload(batches, None).unwrap();
        let mut next = Operation::default();
        operations.next(Duration::ZERO, &mut next).unwrap();
        let distinct: std::collections::BTreeSet<_> = next.key.split(|&byte| byte == b' ').collect();
        assert_eq!((distinct.len(), next.keys, next.cacheable), (50, 50, false));
    }

    #[test]
    fn keys_are_divided_among_prefixes_which_are_partitions() {
        let options = KeyValueOptions { keys: 10, key_bytes: 2, ..KeyValueOptions::default() };
        let prefixes = vec!["a/".to_owned(), "b/".to_owned()];
        let workload = Workload::KeyValue { options, batch: 1, prefixes, seed: 1 };
        let mut operations = from_workload(workload, Some(100)).unwrap();
        let (mut next, mut seen) = (Operation::default(), std::collections::BTreeSet::new());
        let mut count = 0;
        while operations.next(Duration::ZERO, &mut next).unwrap() {
            assert!(next.key.starts_with(operations.partition_name(next.partition).as_bytes()));
            seen.insert(String::from_utf8(next.key.clone()).unwrap());
            count += 1;
        }
        assert_eq!(count, 100);
        assert!(seen.contains("a/k0") && seen.contains("b/k1") && !seen.contains("a/k1"), "{seen:?}");
    }

    #[test]
    fn invalid_prefixes_and_prefixes_with_batches_are_refused() {
        for (prefix, batch, part) in
            [("a b/", 1, "prefix"), (&*"x".repeat(240), 1, "prefix"), ("a/", 2, "batch")]
        {
            let options = KeyValueOptions::default();
            let workload = Workload::KeyValue { options, batch, prefixes: vec![prefix.to_owned()], seed: 1 };
            let error = from_workload(workload, None).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.starts_with(part)), "{prefix}: {error:?}");
        }
    }

    #[test]
    fn listed_key_that_cannot_be_sent_is_refused_before_the_run() {
        let names = KeyNames::listed(vec!["a".to_owned(), "b c".to_owned(), "d".to_owned()]);
        let options = KeyValueOptions { keys: 3, names, ..KeyValueOptions::default() };
        let workload = Workload::KeyValue { options, batch: 1, prefixes: Vec::new(), seed: 1 };
        let error = from_workload(workload, None).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("key of \"b c\"")), "{error:?}");
    }

    #[test]
    fn key_that_cannot_be_sent_ends_the_workload_and_is_named() {
        let text = r#"{"t":0,"d":[{"b":{"S":[5],"U":["x y"],"C":[1]}}]}"#;
        let mut operations =
            from_workload(Workload::RobinHood { input: Box::new(text.as_bytes()) }, None).unwrap();
        let error = operations.next(Duration::ZERO, &mut Operation::default()).unwrap_err().to_string();
        assert!(error.contains("`b:x y`"), "{error}");
    }
}
