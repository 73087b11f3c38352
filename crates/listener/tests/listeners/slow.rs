//! Backends that a test answers for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sherwood_listener::{FetchFailure, FetchResult};
use tokio::sync::oneshot;

use crate::fake::FakeBackends;

/// Backends that answer a fetch only when the test tells them to.
pub(crate) type Slow = FakeBackends<Waiting>;

/// The fetches that wait for the test to answer them, by key.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<String, oneshot::Sender<FetchResult>>>);

pub(crate) fn slow() -> Arc<Slow> {
    let backends = FakeBackends::new(Waiting::default(), |Waiting(waiting), _, keys, _| {
        let mut waiting = waiting.lock().unwrap();
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
    });
    backends.shared()
}

impl Waiting {
    /// Returns true if a fetch of the key waits for its answer.
    pub(crate) fn is_asked(&self, key: &str) -> bool {
        self.0.lock().unwrap().contains_key(key)
    }

    /// Answers the fetch of a key.
    pub(crate) fn answer(&self, key: &str, result: FetchResult) {
        self.0.lock().unwrap().remove(key).unwrap().send(result).unwrap();
    }
}
