//! Single gets and sets over a key space: the plain cache workload.

use std::sync::Arc;

use thiserror::Error;

use crate::draw::{Rng, rng_from_seed, uniform};
use crate::popularity::Popularity;
use crate::value_sizes::ValueSizes;

/// Parameters of a key-value load. The defaults are those of `sherwood load`.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValueOptions {
    /// Number of distinct keys, 1 to 2^40.
    pub keys: u64,
    /// Length of every key in bytes where keys are [`KeyNames::Padded`]: at least the leading `k`
    /// and the digits of the largest key number, at most 250.
    pub key_bytes: usize,
    /// Texts of the keys.
    pub names: KeyNames,
    /// Distribution of the sizes of values.
    pub value_sizes: ValueSizes,
    /// Exponent of [`Popularity`], 0 (uniform) to 10.
    pub zipf: f64,
    /// Share of operations that are gets, 0 to 1; the others are sets.
    pub get_ratio: f64,
}

impl Default for KeyValueOptions {
    fn default() -> Self {
        let value_sizes = ValueSizes::default();
        let names = KeyNames::default();
        Self { keys: 100_000, key_bytes: 20, names, value_sizes, zipf: 0.99, get_ratio: 0.9 }
    }
}

/// Texts of the keys of a key space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyNames {
    /// `k` and the rank in decimal, padded with zeros to the key size.
    #[default]
    Padded,
    /// The number of a key, which is its rank plus 1 in decimal, between two texts.
    Numbered {
        /// Text before the number.
        before: String,
        /// Text after the number.
        after: String,
    },
    /// These texts, the most popular first; as many as there are keys.
    Listed(Arc<[String]>),
}

impl KeyNames {
    /// The place of the number in a format.
    const NUMBER: &str = "{n}";

    /// Parses a format with one `{n}`, such as `user:{n}`.
    ///
    /// # Errors
    /// [`KeyValueError::Format`] if the format has no `{n}`, or more than one.
    pub fn numbered(format: &str) -> Result<Self, KeyValueError> {
        match format.split_once(Self::NUMBER) {
            Some((before, after)) if !after.contains(Self::NUMBER) => {
                Ok(Self::Numbered { before: before.to_owned(), after: after.to_owned() })
            }
            _ => Err(KeyValueError::Format { format: format.to_owned() }),
        }
    }

    /// Names that are the numbers of the keys alone, as those of an integer column are.
    #[must_use]
    pub const fn integers() -> Self {
        Self::Numbered { before: String::new(), after: String::new() }
    }

    /// Names that are these texts, for [`KeyValueOptions::keys`] of their number.
    #[must_use]
    pub fn listed(texts: Vec<String>) -> Self {
        Self::Listed(texts.into())
    }
}

/// Reason why a key-value load was refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum KeyValueError {
    /// The number of keys is out of range.
    #[error("{keys} keys are out of range: give 1 to 2^40")]
    Keys {
        /// The number of keys given.
        keys: u64,
    },
    /// The key size is too short to distinguish the keys, or longer than memcached allows.
    #[error("a key size of {key_bytes} bytes is out of range: {keys} keys need {least} to 250 bytes")]
    KeySize {
        /// The key length given, in bytes.
        key_bytes: usize,
        /// Number of keys that keys of this length must distinguish.
        keys: u64,
        /// Length of the shortest keys that are distinct, in bytes.
        least: usize,
    },
    /// The format of the keys does not say where their numbers are.
    #[error(
        "the key format {format:?} is none: give a text with one {{n}}, the number of the key, such as user:{{n}}"
    )]
    Format {
        /// The format given.
        format: String,
    },
    /// There is another number of names than of keys.
    #[error("{keys} keys have {names} names: give a name for each")]
    Names {
        /// The number of keys given.
        keys: u64,
        /// The number of names given.
        names: usize,
    },
    /// The popularity exponent is out of range.
    #[error("a zipf exponent of {zipf} is out of range: give 0 (uniform) to 10")]
    Zipf {
        /// The exponent given.
        zipf: f64,
    },
    /// The ratio of gets is out of range.
    #[error("a get ratio of {get_ratio} is out of range: give 0 (only sets) to 1 (only gets)")]
    GetRatio {
        /// The ratio given.
        get_ratio: f64,
    },
}

/// An operation and its key (its rank of popularity, 0 the most popular).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the value of the key.
    Get(u64),
    /// Writes the value of the key.
    Set(u64),
}

/// A deterministic stream of gets and sets; each takes two draws, the operation first.
///
/// The sizes of values are drawn from a generator of their own, so that the operations and keys of
/// a seed are the same with every distribution of sizes.
#[derive(Clone, Debug)]
pub struct KeyValue {
    options: KeyValueOptions,
    popularity: Popularity,
    rng: Rng,
    /// The generator of `rng`'s seed, 2^128 outputs further.
    size_rng: Rng,
}

impl KeyValue {
    /// Returns the stream of `options` and `seed`.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn new(options: KeyValueOptions, seed: u64) -> Result<Self, KeyValueError> {
        validate(&options)?;
        let rng = rng_from_seed(seed);
        let mut size_rng = rng.clone();
        size_rng.jump();
        Ok(Self { popularity: Popularity::new(options.keys, options.zipf), rng, size_rng, options })
    }

    /// Changes the options of the operations to come.
    ///
    /// # Errors
    /// If an option is out of its range; then nothing changes.
    pub fn change(&mut self, options: KeyValueOptions) -> Result<(), KeyValueError> {
        validate(&options)?;
        self.popularity = Popularity::new(options.keys, options.zipf);
        self.options = options;
        Ok(())
    }

    /// The options of this stream of operations.
    #[must_use]
    pub const fn options(&self) -> &KeyValueOptions {
        &self.options
    }

    /// Returns the next operation; the stream is infinite.
    pub fn next_operation(&mut self) -> Operation {
        let get = uniform(&mut self.rng) < self.options.get_ratio;
        let key = self.popularity.draw(&mut self.rng);
        if get { Operation::Get(key) } else { Operation::Set(key) }
    }

    /// Returns the size of the next value, in bytes.
    pub fn next_value_bytes(&mut self) -> u32 {
        self.options.value_sizes.draw(&mut self.size_rng)
    }

    /// Returns a uniform number below `end`, which is at most 2^53, by one draw.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (uniform(&mut self.rng) * end as f64) as u64
    }

    /// Extends `keys`, a set of keys read together, to `count` distinct keys, or to the whole key
    /// space if that is smaller.
    ///
    /// Keys are drawn by popularity; a draw that repeats a key is replaced by the next less popular
    /// key not yet taken. O(`count`²), where `count` is the size of a request or a multi-get.
    pub fn extend_batch(&mut self, keys: &mut Vec<u64>, count: usize) {
        let all = self.options.keys;
        let count = usize::try_from(all).map_or(count, |all| count.min(all));
        while keys.len() < count {
            let mut key = self.popularity.draw(&mut self.rng);
            while keys.contains(&key) {
                key = (key + 1) % all;
            }
            keys.push(key);
        }
    }

    /// Appends the text of `key`, as [`KeyNames`] says.
    ///
    /// # Panics
    /// When the key is not in the key space and its names are listed.
    pub fn write_key(&self, key: u64, out: &mut Vec<u8>) {
        match &self.options.names {
            KeyNames::Padded => self.write_padded(key, out),
            KeyNames::Numbered { before, after } => {
                out.extend_from_slice(format!("{before}{}{after}", key + 1).as_bytes());
            }
            KeyNames::Listed(texts) => out.extend_from_slice(texts[key as usize].as_bytes()),
        }
    }

    fn write_padded(&self, key: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.options.key_bytes, b'0');
        out[start] = b'k';
        // Digits from the last one; validation ensures that they fit.
        let mut left = key;
        for digit in out[start + 1..].iter_mut().rev() {
            if left == 0 {
                break;
            }
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
    }
}

fn validate(options: &KeyValueOptions) -> Result<(), KeyValueError> {
    let KeyValueOptions { keys, key_bytes, ref names, value_sizes: _, zipf, get_ratio } = *options;
    if !(1..=1 << 40).contains(&keys) {
        return Err(KeyValueError::Keys { keys });
    }
    let least = 1 + (keys - 1).max(1).ilog10() as usize + 1;
    if let KeyNames::Listed(texts) = names
        && texts.len() as u64 != keys
    {
        return Err(KeyValueError::Names { keys, names: texts.len() });
    }
    if *names == KeyNames::Padded && !(least..=250).contains(&key_bytes) {
        return Err(KeyValueError::KeySize { key_bytes, keys, least });
    }
    if !(0.0..=10.0).contains(&zipf) {
        return Err(KeyValueError::Zipf { zipf });
    }
    if !(0.0..=1.0).contains(&get_ratio) {
        return Err(KeyValueError::GetRatio { get_ratio });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(options: KeyValueOptions) -> KeyValue {
        KeyValue::new(options, 9).unwrap()
    }

    #[test]
    fn equal_seeds_yield_equal_streams_of_gets_and_sets() {
        let (mut one, mut two) = (stream(KeyValueOptions::default()), stream(KeyValueOptions::default()));
        let mut other = KeyValue::new(KeyValueOptions::default(), 10).unwrap();
        let draw = |stream: &mut KeyValue| (0..100).map(|_| stream.next_operation()).collect::<Vec<_>>();
        let first = draw(&mut one);
        assert_eq!(first, draw(&mut two));
        assert_ne!(first, draw(&mut other));
    }

    #[test]
    fn operations_and_keys_are_independent_of_value_sizes() {
        let draw = |value_sizes: &str| {
            let value_sizes = value_sizes.parse().unwrap();
            let mut stream = stream(KeyValueOptions { value_sizes, ..KeyValueOptions::default() });
            let drawn = (0..100).map(|_| (stream.next_operation(), stream.next_value_bytes()));
            drawn.unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let (plain, sizes) = draw("100");
        assert_eq!(sizes, [100; 100]);
        let (operations, sizes) = draw("uniform:1-1000000");
        assert_eq!((operations, draw("uniform:1-1000000").1), (plain, sizes.clone()));
        assert!(sizes.windows(2).all(|pair| pair[0] != pair[1]), "{sizes:?}");
    }

    #[test]
    fn share_of_gets_equals_the_get_ratio() {
        let mut stream = stream(KeyValueOptions { get_ratio: 0.75, ..KeyValueOptions::default() });
        let gets = (0..100_000).filter(|_| matches!(stream.next_operation(), Operation::Get(_))).count();
        assert!(gets.abs_diff(75_000) < 600, "{gets}");
    }

    #[test]
    fn keys_have_the_configured_size() {
        let stream = stream(KeyValueOptions { keys: 1_000, key_bytes: 8, ..KeyValueOptions::default() });
        let mut text = Vec::new();
        stream.write_key(42, &mut text);
        assert_eq!(text, b"k0000042");
    }

    #[test]
    fn keys_have_the_names_of_a_format_or_a_list() {
        let first_two = |names| {
            let stream = stream(KeyValueOptions { keys: 2, names, ..KeyValueOptions::default() });
            [0, 1].map(|key| {
                let mut text = Vec::new();
                stream.write_key(key, &mut text);
                String::from_utf8(text).unwrap()
            })
        };
        assert_eq!(first_two(KeyNames::numbered("user:{n}/cart").unwrap()), ["user:1/cart", "user:2/cart"]);
        assert_eq!(first_two(KeyNames::integers()), ["1", "2"]);
        assert_eq!(first_two(KeyNames::listed(vec!["b".to_owned(), "a".to_owned()])), ["b", "a"]);
    }

    #[test]
    fn key_format_without_one_number_and_list_of_another_length_are_refused() {
        for format in ["user", "", "{n}{n}"] {
            let error = KeyNames::numbered(format).unwrap_err().to_string();
            assert!(error.ends_with("one {n}, the number of the key, such as user:{n}"), "{error}");
        }
        let names = KeyNames::listed(vec!["a".to_owned()]);
        let error = KeyValue::new(KeyValueOptions { keys: 2, names, ..KeyValueOptions::default() }, 1);
        assert_eq!(error.unwrap_err(), KeyValueError::Names { keys: 2, names: 1 });
    }

    #[test]
    fn keys_of_a_batch_are_distinct_and_limited_to_the_key_space() {
        let mut stream = stream(KeyValueOptions { keys: 40, zipf: 2.0, ..KeyValueOptions::default() });
        for (count, expected) in [(1, 1), (39, 39), (50, 40)] {
            let mut keys = vec![7];
            stream.extend_batch(&mut keys, count);
            let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!((keys.len(), distinct.len()), (expected, expected));
            assert!(keys.iter().all(|&key| key < 40));
        }
    }

    #[test]
    fn key_value_options_out_of_range_are_refused() {
        let sound = KeyValueOptions::default;
        for wrong in [
            KeyValueOptions { keys: 0, ..sound() },
            KeyValueOptions { keys: 1_000, key_bytes: 3, ..sound() },
            KeyValueOptions { key_bytes: 251, ..sound() },
            KeyValueOptions { zipf: f64::NAN, ..sound() },
            KeyValueOptions { get_ratio: 1.1, ..sound() },
        ] {
            assert!(KeyValue::new(wrong.clone(), 1).is_err(), "{wrong:?}");
        }
        assert!(KeyValue::new(KeyValueOptions { keys: 1_000, key_bytes: 4, ..sound() }, 1).is_ok());
        assert!(KeyValue::new(KeyValueOptions { keys: 1, key_bytes: 2, ..sound() }, 1).is_ok());
    }
}
