//! A store without data: each value is the product of two matrices generated from the key.
//!
//! It represents backends whose cost is processor time (ranking, rendering). Equal keys give equal
//! values in every run: the factors are filled by a generator seeded with a hash of the key, and
//! sums are added in a fixed order. The value is the product's rows as little-endian 32-bit floats,
//! repeated or truncated to its length.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sherwood_model::{SeededState, SplitMix64};

use crate::session::Session;
use crate::{Cause, ComputeOptions, OpenCause};

/// The lengths of the values that a compute store (whose values are matrix products) returns.
#[derive(Clone)]
pub enum ValueBytes {
    /// The same length in bytes for all keys; every key has a value.
    Fixed(u32),
    /// The length that a function returns for the key.
    ByKey(Arc<BytesOfKey>),
}

/// A function that returns the length in bytes of a key's value, or `None` for a key that does not
/// exist.
pub type BytesOfKey = dyn Fn(&[u8]) -> Option<u32> + Send + Sync;

impl fmt::Debug for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => f.debug_tuple("Fixed").field(bytes).finish(),
            Self::ByKey(_) => f.write_str("ByKey(..)"),
        }
    }
}

/// Returns one session for each thread; each has matrices of its own.
pub(crate) fn sessions(
    options: &ComputeOptions,
    bytes: &ValueBytes,
) -> Result<Vec<Box<dyn Session>>, OpenCause> {
    options.validate()?;
    let session = || Box::new(ComputeSession::new(usize::from(options.n), bytes.clone())) as Box<dyn Session>;
    Ok((0..options.threads).map(|_| session()).collect())
}

/// Memory of one thread for two factor matrices and their product: 12 n² bytes.
struct ComputeSession {
    n: usize,
    bytes: ValueBytes,
    hash: SeededState,
    left: Vec<f32>,
    right: Vec<f32>,
    product: Vec<f32>,
}

impl ComputeSession {
    fn new(n: usize, bytes: ValueBytes) -> Self {
        let zeros = || vec![0.0; n * n];
        // The seed determines the values; any constant is as good.
        Self { n, bytes, hash: SeededState::new(1), left: zeros(), right: zeros(), product: zeros() }
    }

    fn value(&mut self, key: &[u8]) -> Option<Bytes> {
        let bytes = match &self.bytes {
            ValueBytes::Fixed(bytes) => *bytes,
            ValueBytes::ByKey(bytes) => bytes(key)?,
        };
        let mut draws = SplitMix64::new(self.hash.hash_bytes(key));
        fill(&mut self.left, &mut draws);
        fill(&mut self.right, &mut draws);
        multiply(self.n, &self.left, &self.right, &mut self.product);
        Some(repeat(&self.product, bytes as usize))
    }
}

impl Session for ComputeSession {
    fn get_many(&mut self, keys: &[Bytes], pause: &mut dyn FnMut()) -> Result<Vec<Option<Bytes>>, Cause> {
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(self.value(key));
            pause();
        }
        Ok(values)
    }

    fn read_only(&self) -> Option<Cause> {
        Some(READ_ONLY)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Cause> {
        Err(READ_ONLY)
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), Cause> {
        Err(READ_ONLY)
    }
}

const READ_ONLY: Cause = Cause::ReadOnly {
    reason: "a compute store holds nothing, its values follow from their keys; write to a kv or sqlite store",
};

/// Entries of a matrix, uniform in [0, 1): the upper 24 bits of one draw each.
fn fill(matrix: &mut [f32], draws: &mut SplitMix64) {
    for entry in matrix {
        *entry = (draws.next_u64() >> 40) as f32 / (1 << 24) as f32;
    }
}

/// `product = left * right`, all `n` by `n`, row after row. The inner loop runs along a row of
/// `right`, so that it reads memory in order and each sum keeps its order of additions when the
/// compiler works on several columns at once.
fn multiply(n: usize, left: &[f32], right: &[f32], product: &mut [f32]) {
    product.fill(0.0);
    for (left_row, sums) in left.chunks_exact(n).zip(product.chunks_exact_mut(n)) {
        for (factor, right_row) in left_row.iter().zip(right.chunks_exact(n)) {
            for (sum, entry) in sums.iter_mut().zip(right_row) {
                *sum += factor * entry;
            }
        }
    }
}

/// Returns `bytes` bytes of the matrix, repeated as often as needed.
fn repeat(matrix: &[f32], bytes: usize) -> Bytes {
    let mut value = BytesMut::with_capacity(bytes.next_multiple_of(4));
    for entry in matrix.iter().take(bytes.div_ceil(4)) {
        value.extend_from_slice(&entry.to_le_bytes());
    }
    value.truncate(bytes);
    while value.len() < bytes {
        let more = value.len().min(bytes - value.len());
        value.extend_from_within(..more);
    }
    value.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_product_is_correct() {
        let mut product = [0.0; 4];
        multiply(2, &[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], &mut product);
        assert_eq!(product, [19.0, 22.0, 43.0, 50.0]);
    }

    #[test]
    fn matrix_entries_are_uniform() {
        let mut matrix = vec![0.0; 10_000];
        fill(&mut matrix, &mut SplitMix64::new(7));
        let mean = matrix.iter().sum::<f32>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
        assert!(matrix.iter().all(|entry| (0.0..1.0).contains(entry)));
    }

    #[test]
    fn value_is_the_matrix_product_repeated_or_truncated_to_its_length() {
        let matrix = [1.0_f32, 2.0];
        let whole: Vec<u8> = matrix.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        assert_eq!(repeat(&matrix, 3), whole[..3]);
        assert_eq!(repeat(&matrix, 8), whole[..]);
        assert_eq!(repeat(&matrix, 21), [&whole[..], &whole[..], &whole[..5]].concat());
        assert_eq!(repeat(&matrix, 0), Bytes::new());
    }

    #[test]
    fn compute_store_gives_equal_keys_equal_values_and_different_keys_different_values() {
        let mut session = ComputeSession::new(8, ValueBytes::Fixed(64));
        let (a, b) = (session.value(b"a"), session.value(b"b"));
        assert_ne!(a, b);
        assert_eq!(session.value(b"a"), a);
        assert_eq!(ComputeSession::new(8, ValueBytes::Fixed(64)).value(b"b"), b);
    }

    #[test]
    fn function_of_the_key_decides_length_and_existence_of_its_value() {
        let rule = ValueBytes::ByKey(Arc::new(|key| (key != b"none").then_some(key.len() as u32)));
        let mut session = ComputeSession::new(8, rule);
        assert_eq!(session.value(b"none"), None);
        assert_eq!(session.value(b"four").unwrap().len(), 4);
    }
}
