//! Changes of other nodes, made in this node's cache.

use std::sync::Arc;

use sherwood_cache::Access;
use sherwood_model::BackendId;
use sherwood_path::ChangedKeys;

use super::{Change, Cluster};
use crate::admin::Selection;
use crate::core::Core;

/// Drops the values that a change of another node concerns. A selection by prefix or tag walks the
/// cache, aside from the runtime's threads.
pub(crate) async fn apply(core: &Arc<Core>, Change { backend, keys }: Change) {
    let selection = match keys {
        ChangedKeys::Key(key) => return drop_key(core, backend, &key, false),
        ChangedKeys::Unsettled(key) => return drop_key(core, backend, &key, true),
        ChangedKeys::All => return drop_backend(core, backend),
        ChangedKeys::None => return,
        ChangedKeys::Prefix(prefix) => Selection::Prefix(prefix),
        ChangedKeys::Tag(tag) => Selection::Tag(tag),
    };
    let walker = Arc::clone(core);
    let walk = move || selection.remove(&walker, backend);
    if tokio::task::spawn_blocking(walk).await.is_err() {
        tracing::error!("a walk through the cache had panicked");
    }
}

/// Drops all cached values of shared backends that were fetched before now.
pub(crate) fn drop_all(core: &Core, cluster: &Cluster) {
    cluster.shared_backends().for_each(|backend| drop_backend(core, backend));
}

fn drop_backend(core: &Core, backend: BackendId) {
    for partition in core.partitions_of(backend) {
        let now = core.clock.now();
        core.flush_own(partition, now, || core.cache.flush(Some(partition), now, now));
    }
}

fn drop_key(core: &Core, backend: BackendId, key: &bytes::Bytes, is_unsettled: bool) {
    if let Some(driver) = core.backend(backend) {
        return driver.take_peer_change(key, is_unsettled);
    }
    let access = Access::at(core.clock.now());
    for partition in core.partitions_of(backend) {
        core.cache.remove(partition, key, &access);
    }
}
