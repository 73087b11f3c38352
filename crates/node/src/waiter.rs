//! Who waits for a key that is being fetched.

use sherwood_dispatch::FetchError;
use sherwood_store::Found;
use tokio::sync::mpsc;

/// What became of one key: the position the waiter gave it, and its value, its absence or why
/// nobody knows.
pub(crate) type Arrival = (usize, Result<Option<Found>, FetchError>);

/// A place to tell what became of one key. Its channel needs no bound of its own: it carries one
/// message for each key asked for, and requests bound their keys.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    sender: Option<mpsc::UnboundedSender<Arrival>>,
    position: usize,
}

impl Waiter {
    pub(crate) fn new(sender: mpsc::UnboundedSender<Arrival>, position: usize) -> Self {
        Self { sender: Some(sender), position }
    }

    /// Nobody: the value is only to enter the cache.
    pub(crate) const NOBODY: Self = Self { sender: None, position: 0 };

    /// Tells the waiter, unless it has gone away.
    pub(crate) fn tell(self, result: Result<Option<Found>, FetchError>) {
        if let Some(sender) = self.sender {
            let _ = sender.send((self.position, result));
        }
    }
}
