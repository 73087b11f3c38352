//! Backends that a test answers for.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sherwood_listener::{Backends, FetchFailure, FetchResult};
use sherwood_model::{Instant, PartitionId};
use tokio::sync::oneshot;

/// Backends that answer a fetch only when the test tells them to.
#[derive(Default)]
pub(crate) struct Slow {
    waiting: Mutex<BTreeMap<String, oneshot::Sender<FetchResult>>>,
}

impl Backends for Slow {
    fn fetch(
        &self,
        _: PartitionId,
        keys: Vec<Bytes>,
        _: Option<Duration>,
    ) -> BoxFuture<'static, Vec<FetchResult>> {
        let mut waiting = self.waiting.lock().unwrap();
        let answers: Vec<_> = keys
            .iter()
            .map(|key| {
                let (send, receive) = oneshot::channel();
                waiting.insert(String::from_utf8_lossy(key).into_owned(), send);
                receive
            })
            .collect();
        Box::pin(async {
            let mut results = Vec::new();
            for answer in answers {
                results.push(answer.await.unwrap_or_else(|_| Err(FetchFailure::Failed("gone".to_owned()))));
            }
            results
        })
    }

    fn write(&self, _: PartitionId, _: &[u8], change: &mut dyn FnMut()) {
        change();
    }

    fn write_all(&self, _: &[(PartitionId, &[u8])], _: &[PartitionId], _: Instant, change: &mut dyn FnMut()) {
        change();
    }

    fn flush(&self, _: PartitionId, _: Instant, change: &mut dyn FnMut()) {
        change();
    }
}

impl Slow {
    /// Returns true if a fetch of the key waits for its answer.
    pub(crate) fn is_asked(&self, key: &str) -> bool {
        self.waiting.lock().unwrap().contains_key(key)
    }

    /// Answers the fetch of a key.
    pub(crate) fn answer(&self, key: &str, result: FetchResult) {
        self.waiting.lock().unwrap().remove(key).unwrap().send(result).unwrap();
    }
}
