//! Logs that are kept on disk.

use std::hash::Hash;

use sherwood_dispatch::{Recovered, StoreEnd};
use sherwood_model::Instant;

use super::Logged;
use crate::backend::Backend;
use crate::backend::change::Change;
use crate::backend::fill::AnswerCache;

impl<V> Logged<V> {
    /// Makes a change of an earlier process. No session asks for it: no duplicate is read before it
    /// has the changes that were on disk.
    #[must_use]
    pub fn recovered(change: Change<V>) -> Self {
        Self { change, keep_in: None, stamp: 0 }
    }
}

impl<K: AsRef<[u8]> + Clone + Eq + Hash, V: Clone, W> Backend<K, V, W> {
    /// Has the logs kept on disk, by [`Action::StoreLog`], and go on from what is there: one for
    /// each partition, in their order. Must precede all inputs.
    ///
    /// [`Action::StoreLog`]: crate::Action::StoreLog
    pub fn keep_logs_on_disk(&mut self, recovered: impl IntoIterator<Item = Recovered<K, Logged<V>>>) {
        let logs = self.duplicates.iter_mut().flat_map(|duplicates| &mut duplicates.logs);
        logs.zip(recovered).for_each(|(log, recovered)| log.keep_on_disk(recovered));
    }

    /// Takes the end of an [`Action::StoreLog`]. Ignored if the log of the partition stores
    /// nothing.
    ///
    /// [`Action::StoreLog`]: crate::Action::StoreLog
    pub fn handle_stored(
        &mut self,
        now: Instant,
        cache: &impl AnswerCache<V>,
        partition: usize,
        end: StoreEnd,
    ) {
        self.advance(now, cache);
        let Some(duplicates) = &mut self.duplicates else { return };
        let Some(log) = duplicates.logs.get_mut(partition) else { return };
        log.handle_stored(now, end);
        self.carry_out_log(now, cache, partition);
        self.keep_answers(now, cache);
    }
}
