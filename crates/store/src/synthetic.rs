//! A store without data and without work: each value is made from its key, after a fixed time.
//!
//! It represents a database that answers in a constant time whatever its load is, so that what a
//! cache and limits on rates do can be measured by themselves (the mock store in the evaluation of
//! HARE). It forgets writes, and yet counts as a store that answers what was written, so that a
//! cache before it keeps written values as before such a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sherwood_model::{SeededState, SplitMix64};

use crate::{BoxFuture, Found, OpenCause, Store, StoreError, StoreKind, SyntheticOptions};

/// Answers every call after the same time. Any number of calls may be in progress: the caller's
/// bounds are the only ones.
pub(crate) struct Synthetic {
    name: Arc<str>,
    bytes: usize,
    latency: Duration,
    hash: SeededState,
}

impl Synthetic {
    pub(crate) fn open(name: &str, options: &SyntheticOptions) -> Result<Self, OpenCause> {
        options.validate()?;
        let SyntheticOptions { bytes, latency_us } = *options;
        Ok(Self {
            name: name.into(),
            bytes: bytes as usize,
            latency: Duration::from_micros(latency_us),
            // The seed determines the values; any constant is as good.
            hash: SeededState::new(1),
        })
    }

    /// Returns the value of a key: equal keys have equal values in every run.
    fn value(&self, key: &[u8]) -> Bytes {
        let mut draws = SplitMix64::new(self.hash.hash_bytes(key));
        let mut value = BytesMut::with_capacity(self.bytes.next_multiple_of(8));
        while value.len() < self.bytes {
            value.extend_from_slice(&draws.next_u64().to_le_bytes());
        }
        value.truncate(self.bytes);
        value.freeze()
    }
}

impl Store for Synthetic {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Synthetic
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(self.latency).await;
            Ok(keys.iter().map(|key| Some(Found::from(self.value(key)))).collect())
        })
    }

    fn put(&self, _key: Bytes, _value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::time::sleep(self.latency).await;
            Ok(())
        })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.put(key, Bytes::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(bytes: u32) -> Synthetic {
        Synthetic::open("orders", &SyntheticOptions { bytes, latency_us: 5_000 }).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn synthetic_store_answers_reads_and_writes_after_its_latency() {
        let (store, began) = (store(100), tokio::time::Instant::now());
        let calls = (0..50).map(|_| store.get_many(vec!["a".into(), "b".into()]));
        let answers = futures_util::future::join_all(calls).await;
        assert_eq!(began.elapsed(), Duration::from_millis(5), "calls do not wait for each other");
        assert!(answers.iter().all(|answer| answer == &answers[0]));
        store.put("a".into(), "1".into()).await.unwrap();
        store.delete("a".into()).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_millis(15));
        assert_eq!(store.get_many(vec!["a".into(), "b".into()]).await, answers[0], "writes are not kept");
    }

    #[test]
    fn synthetic_values_have_the_length_of_the_options_and_differ_by_key() {
        for bytes in [1, 7, 8, 1_000] {
            assert_eq!(store(bytes).value(b"a").len(), bytes as usize);
        }
        assert_eq!(store(64).value(b"a"), store(64).value(b"a"));
        assert_ne!(store(64).value(b"a"), store(64).value(b"b"));
    }
}
