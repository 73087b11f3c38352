//! Waiters for keys that are being fetched.

use std::sync::Arc;

use sherwood_dispatch::FetchError;
use sherwood_store::Found;
use tokio::sync::mpsc;

use crate::spans::QuerySpan;

/// The result for one key: the position that its waiter carries, and its value, its absence or an
/// error.
pub(crate) type Arrival = (usize, Result<Option<Found>, FetchError>);

/// The receiver of one key's result. Its channel needs no bound: it carries one message for each
/// key of a request, and requests bound their keys.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    sender: Option<mpsc::UnboundedSender<Arrival>>,
    position: usize,
    /// The span of the query that waits, if its request is sampled.
    span: Option<Arc<QuerySpan>>,
}

impl Waiter {
    pub(crate) fn new(sender: mpsc::UnboundedSender<Arrival>, position: usize) -> Self {
        Self { sender: Some(sender), position, span: None }
    }

    /// Waiter without a receiver: the value only fills the cache.
    pub(crate) const NONE: Self = Self { sender: None, position: 0, span: None };

    /// Sets the span of the query that waits.
    pub(crate) fn below(self, span: Option<Arc<QuerySpan>>) -> Self {
        Self { span, ..self }
    }

    /// Returns the span of the query that waits, if its request is sampled.
    pub(crate) fn span(&self) -> Option<&Arc<QuerySpan>> {
        self.span.as_ref()
    }

    /// Sends the result, unless the receiver was dropped.
    pub(crate) fn tell(self, result: Result<Option<Found>, FetchError>) {
        if let Some(sender) = self.sender {
            let _ = sender.send((self.position, result));
        }
    }
}
