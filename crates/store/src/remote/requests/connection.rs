//! Connections for changes and copies.
//!
//! A change of a key is sent once the server has answered the earlier change of the same key.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;

use super::{IN_FLIGHT_MAX, Requests, ends};
use crate::{
    Applied, Attempt, BoxFuture, Cause, ChangeConnection, CopyConnection, Item, ItemPage, KeyChange,
    StoreError, duplicate::marker_key,
};

/// A connection of its own to the server of a store.
pub(super) struct Requested<R> {
    name: Arc<str>,
    /// Key of the marker of the partition; empty for a copy.
    marker_key: Bytes,
    /// None after the end, and while a call is in flight, so that a call that is dropped ends the
    /// connection.
    requests: Option<R>,
    value_bytes_max: u64,
}

impl<R: Requests> Requested<R> {
    pub(super) fn new(name: &Arc<str>, requests: R, value_bytes_max: u64) -> Self {
        Self { name: Arc::clone(name), marker_key: Bytes::new(), requests: Some(requests), value_bytes_max }
    }

    /// Has the connection read and write the marker of a partition.
    pub(super) fn for_partition(self, partition: u32) -> Self {
        Self { marker_key: marker_key(partition), ..self }
    }

    fn error(&self, attempt: Attempt, cause: Cause) -> StoreError {
        StoreError::new(Arc::clone(&self.name), R::KIND, attempt, cause)
    }

    /// Executes one request for each of `subjects`. The first failure is that of the call.
    async fn each<S, T, F: Future<Output = Result<T, Cause>> + Send>(
        &mut self,
        attempt: Attempt,
        subjects: &[S],
        request: impl Fn(&R, &S) -> F,
    ) -> Result<Vec<T>, StoreError> {
        let Some(requests) = self.requests.take() else { return Err(self.error(attempt, Cause::Closed)) };
        let mut answers = Vec::with_capacity(subjects.len());
        for chunk in subjects.chunks(IN_FLIGHT_MAX) {
            for answer in join_all(chunk.iter().map(|subject| request(&requests, subject))).await {
                match answer {
                    Ok(answer) => answers.push(answer),
                    Err(cause) => {
                        self.requests = (!ends(&cause)).then_some(requests);
                        return Err(self.error(attempt, cause));
                    }
                }
            }
        }
        self.requests = Some(requests);
        Ok(answers)
    }

    /// Reads items until their values have as many bytes as the store accepts of one call.
    async fn read_items(&mut self, mut keys: Vec<Bytes>) -> Result<ItemPage, StoreError> {
        let attempt = Attempt::Get { keys: keys.len() };
        let (mut items, mut bytes) = (Vec::with_capacity(keys.len()), 0);
        while !keys.is_empty() && bytes < self.value_bytes_max {
            let left = keys.split_off(keys.len().min(IN_FLIGHT_MAX));
            let values = self.each(attempt, &keys, |requests, key| requests.get(key)).await?;
            for (key, value) in keys.into_iter().zip(values) {
                let Some(value) = value else { continue };
                let size = value.len() as u64;
                if size > self.value_bytes_max {
                    return Err(self.error(attempt, Cause::TooLarge { bytes_max: self.value_bytes_max }));
                }
                bytes += size;
                items.push(Item { key, value, flags: 0, ttl: None });
            }
            keys = left;
        }
        Ok(ItemPage { items, left: keys })
    }

    async fn apply_over(&self, requests: &R, marker: Bytes, changes: &[KeyChange]) -> Applied {
        let marking = KeyChange { key: self.marker_key.clone(), value: Some(marker) };
        match requests.make(marking).await {
            Ok(()) => {}
            Err(cause) if ends(&cause) => {
                return Applied::Broken { made: 0, error: self.error(Attempt::Put, cause) };
            }
            Err(cause) => return Applied::Unmarked(self.error(Attempt::Put, cause)),
        }
        let mut refused: Vec<(usize, StoreError)> = Vec::new();
        let mut begin = 0;
        while begin < changes.len() {
            let run = &changes[begin..][..distinct(&changes[begin..])];
            let results = join_all(run.iter().map(|change| requests.make(change.clone()))).await;
            for (at, (change, result)) in (begin..).zip(run.iter().zip(results)) {
                let Err(cause) = result else { continue };
                let is_end = ends(&cause);
                let attempt = if change.value.is_some() { Attempt::Put } else { Attempt::Delete };
                let error = self.error(attempt, cause);
                if is_end {
                    return Applied::Broken { made: refused.first().map_or(at, |(first, _)| *first), error };
                }
                refused.push((at, error));
            }
            begin += run.len();
        }
        Applied::Answered(refused)
    }
}

/// Returns the number of changes, from the first on, that may be in flight together: their keys are
/// distinct.
fn distinct(changes: &[KeyChange]) -> usize {
    let mut keys = HashSet::with_capacity(changes.len().min(IN_FLIGHT_MAX));
    changes.iter().take(IN_FLIGHT_MAX).take_while(|change| keys.insert(&change.key)).count()
}

impl<R: Requests> ChangeConnection for Requested<R> {
    fn marker(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            let key = self.marker_key.clone();
            let values =
                self.each(Attempt::Get { keys: 1 }, &[key], |requests, key| requests.get(key)).await?;
            Ok(values.into_iter().next().flatten())
        })
    }

    fn apply(&mut self, marker: Bytes, changes: Vec<KeyChange>) -> BoxFuture<'_, Applied> {
        Box::pin(async move {
            let Some(requests) = self.requests.take() else {
                return Applied::Broken { made: 0, error: self.error(Attempt::Put, Cause::Closed) };
            };
            let applied = self.apply_over(&requests, marker, &changes).await;
            if !matches!(applied, Applied::Broken { .. }) {
                self.requests = Some(requests);
            }
            applied
        })
    }

    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(requests) = &self.requests {
                requests.ended().await;
                self.requests = None;
            }
        })
    }
}

impl<R: Requests> CopyConnection for Requested<R> {
    fn read(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<ItemPage, StoreError>> {
        Box::pin(self.read_items(keys))
    }

    fn has(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<bool>, StoreError>> {
        Box::pin(async move {
            self.each(Attempt::Get { keys: keys.len() }, &keys, |requests, key| requests.has(key)).await
        })
    }

    fn fill(&mut self, items: Vec<Item>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let store = |requests: &R, item: &Item| {
                requests.make(KeyChange { key: item.key.clone(), value: Some(item.value.clone()) })
            };
            self.each(Attempt::Put, &items, store).await.map(drop)
        })
    }

    fn remove(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let remove =
                |requests: &R, key: &Bytes| requests.make(KeyChange { key: key.clone(), value: None });
            self.each(Attempt::Delete, &keys, remove).await.map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_flight_together_have_distinct_keys() {
        let changes = |keys: &[&'static str]| -> Vec<KeyChange> {
            keys.iter().map(|&key| KeyChange { key: key.into(), value: None }).collect()
        };
        assert_eq!(distinct(&changes(&["a", "b", "a", "c"])), 2);
        assert_eq!(distinct(&changes(&["a", "a"])), 1);
        assert_eq!(distinct(&changes(&["a", "b"])), 2);
    }
}
