//! Stores and their connections for changes and copies, over clients that take one request about
//! one key.
//!
//! Requests about different keys are in flight together, at most [`IN_FLIGHT_MAX`] of one call.

mod connection;
mod store;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::{Cause, Fault, KeyChange, StoreKind};

pub(crate) use store::{Opener, RequestStore};

/// Most requests in flight of one call, and so the most values that a read holds beyond the limit
/// on the bytes of a call.
const IN_FLIGHT_MAX: usize = 64;

/// Requests over one connection of its own to a server. Keys are without the store's prefix.
pub(crate) trait Requests: Send + Sync + 'static {
    /// The kind of the store.
    const KIND: StoreKind;

    /// Reads the value of a key; none if it is absent or the server cannot hold it.
    fn get(&self, key: &Bytes) -> impl Future<Output = Result<Option<Bytes>, Cause>> + Send + use<Self>;

    /// Returns true if the server has the key.
    fn has(&self, key: &Bytes) -> impl Future<Output = Result<bool, Cause>> + Send + use<Self>;

    /// Stores or removes the value of a key.
    fn make(&self, change: KeyChange) -> impl Future<Output = Result<(), Cause>> + Send + use<Self>;

    /// Returns true if the connection has not ended.
    fn is_open(&self) -> bool;

    /// Waits until the connection has ended.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

/// Returns true if a connection cannot be used after a request that failed by `cause`: the server
/// may still execute the request, or takes no more.
fn ends(cause: &Cause) -> bool {
    matches!(cause.fault(), Fault::Broken | Fault::Unreachable)
}

/// Reads the values of keys, with a result for each. Values beyond `bytes_max` in total, in the
/// order of the keys, are errors.
async fn get_all<R: Requests>(
    requests: &R,
    keys: &[Bytes],
    bytes_max: u64,
) -> Vec<Result<Option<Bytes>, Cause>> {
    let (mut answers, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for chunk in keys.chunks(IN_FLIGHT_MAX) {
        let values = join_all(chunk.iter().map(|key| requests.get(key))).await;
        answers.extend(values.into_iter().map(|value| {
            let value = value?;
            bytes += value.as_ref().map_or(0, |value| value.len() as u64);
            if bytes > bytes_max { Err(Cause::TooLarge { bytes_max }) } else { Ok(value) }
        }));
    }
    answers
}
