//! A copy of all items from one duplicate to another.

use bytes::Bytes;

use super::{CopyConnection, Duplicate, KeyPages, KeyPartition, marker_key};
use crate::{Attempt, Cause, StoreError};

/// Counts of a finished copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Items that were stored at the destination; one that the walk returned twice counts twice.
    pub items: u64,
    /// Items that were removed at the destination, since the source has no such key.
    pub removed: u64,
}

/// Makes the items of a partition at `to` equal to those of `from`, a store of the same kind:
/// values, flags and remaining times to live.
///
/// The marker of `to` is removed first and that of `from` is not copied, so that a destination with
/// a marker has no unfinished copy. Then all items of the source are stored at the destination, and
/// at last the destination's items that the source does not have are removed. Nothing may write to
/// the partition at `to` meanwhile. Keys that change at `from` during the copy have an old or a new
/// value, or are missing; the caller makes these changes at `to` afterwards.
///
/// At most one page of keys is held, with the values of one read: as many bytes as the option
/// `value_bytes_max` of the source accepts. The copy fails with its first failed step; each waits
/// for an answer for at most the store's answer timeout. A copy that fails or is dropped leaves the
/// destination without a marker.
///
/// # Errors
/// When the stores are of different kinds, or a step fails.
pub async fn copy(
    from: &dyn Duplicate,
    to: &dyn Duplicate,
    partition: &KeyPartition<'_>,
) -> Result<Copied, StoreError> {
    if from.kind() != to.kind() {
        let reason = "a store can only be filled from a store of the same kind; give both duplicates one kind of server";
        return Err(StoreError::new(to.name(), to.kind(), Attempt::Put, Cause::Unsupported { reason }));
    }
    let (mut source, mut destination) = (from.connect_for_copy().await?, to.connect_for_copy().await?);
    destination.remove(vec![marker_key(partition.number)]).await?;
    let mut copied = Copied::default();
    let mut pages = from.walk().await?;
    while let Some(mut keys) = next_page(&mut *pages, partition).await? {
        while !keys.is_empty() {
            let page = source.read(keys).await?;
            copied.items += page.items.len() as u64;
            destination.fill(page.items).await?;
            keys = page.left;
        }
    }
    let mut pages = to.walk().await?;
    while let Some(keys) = next_page(&mut *pages, partition).await? {
        copied.removed += remove_absent(&mut *source, &mut *destination, keys).await?;
    }
    Ok(copied)
}

/// Removes the marker and then all items of a partition, and returns their number. Nothing may
/// write to the partition meanwhile. The bounds are those of [`copy`].
///
/// # Errors
/// When a step fails. Some items may be removed then.
pub async fn clear(duplicate: &dyn Duplicate, partition: &KeyPartition<'_>) -> Result<u64, StoreError> {
    let mut connection = duplicate.connect_for_copy().await?;
    connection.remove(vec![marker_key(partition.number)]).await?;
    let (mut pages, mut count) = (duplicate.walk().await?, 0);
    while let Some(keys) = next_page(&mut *pages, partition).await? {
        count += remove_items(&mut *connection, keys).await?;
    }
    Ok(count)
}

/// Returns the keys of the partition on the next page; none at the end.
async fn next_page(
    pages: &mut dyn KeyPages,
    partition: &KeyPartition<'_>,
) -> Result<Option<Vec<Bytes>>, StoreError> {
    let keys = pages.next_page().await?;
    Ok(keys.map(|keys| keys.into_iter().filter(|key| (partition.has)(key)).collect()))
}

/// Removes the destination's items of those keys that the source does not have, and returns their
/// number.
async fn remove_absent(
    source: &mut dyn CopyConnection,
    destination: &mut dyn CopyConnection,
    keys: Vec<Bytes>,
) -> Result<u64, StoreError> {
    let absent = only(&keys, &source.has(keys.clone()).await?, false);
    remove_items(destination, absent).await
}

/// Removes items, and returns their number. Values of other types than the store's stay.
async fn remove_items(connection: &mut dyn CopyConnection, keys: Vec<Bytes>) -> Result<u64, StoreError> {
    if keys.is_empty() {
        return Ok(0);
    }
    let removed = only(&keys, &connection.has(keys.clone()).await?, true);
    let count = removed.len() as u64;
    connection.remove(removed).await?;
    Ok(count)
}

/// Returns the keys for which `has` is `wanted`.
fn only(keys: &[Bytes], has: &[bool], wanted: bool) -> Vec<Bytes> {
    keys.iter().zip(has).filter(|(_, has)| **has == wanted).map(|(key, _)| key.clone()).collect()
}
