//! Duplicates of replicated stores that are not read, as events.

use std::collections::BTreeMap;

use serde_json::json;
use sherwood_dispatch::DuplicateState;
use sherwood_model::{BackendId, ReplicaId};
use sherwood_path::DuplicateStanding;

use crate::core::Core;

/// A duplicate: its store, its partition and its replica.
type Place = (BackendId, usize, ReplicaId);

/// The duplicates of all replicated stores, and which of them are reported as not read.
#[derive(Debug, Default)]
pub(crate) struct UnreadDuplicates(BTreeMap<Place, Seen>);

/// Knowledge about a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It was not read yet.
    New,
    Read,
    /// It is reported as not read.
    Unread,
}

impl UnreadDuplicates {
    /// Reports the duplicates that are not read any more since the call before, and those that are
    /// read again.
    pub(crate) fn report(&mut self, core: &Core) {
        let mut present = BTreeMap::new();
        for (index, name) in core.names.backends().iter().enumerate() {
            let id = BackendId::from_index(index);
            let Some(backend) = core.backend(id).filter(|backend| backend.is_replicated()) else { continue };
            for standing in backend.logs().into_iter().flat_map(|logs| logs.duplicates) {
                let DuplicateStanding { replica, partition, state, .. } = standing;
                let place = (id, partition, replica);
                let before = self.0.get(&place).copied();
                let Some(seen) = after(before, state) else { continue };
                present.insert(place, seen);
                if before == Some(seen) {
                    continue;
                }
                let store = backend.replicas[replica.index()].name();
                say(core, &format!("{name}: duplicate {store}"), name, &standing, (before, seen));
            }
        }
        self.0 = present;
    }
}

/// Reports that a duplicate of a backend is not read any more, or is again.
fn say(
    core: &Core,
    duplicate: &str,
    backend: &str,
    standing: &DuplicateStanding,
    (before, seen): (Option<Seen>, Seen),
) {
    let (partition, state) = (standing.partition, standing.state.name());
    let replica = standing.replica.index();
    let data = json!({"backend": backend, "partition": partition, "replica": replica, "state": state});
    let of = format!("{duplicate} of partition {partition}");
    match seen {
        Seen::Unread => core.events.warn("stores", format!("{of} is not read: {state}"), data),
        Seen::Read if before == Some(Seen::Unread) => {
            core.events.say("stores", format!("{of} is read again"), data);
        }
        Seen::New | Seen::Read => {}
    }
}

/// Returns what is known of a duplicate in this state; none if it is none any more. One that is
/// filled for the first time is not missed yet.
fn after(before: Option<Seen>, state: DuplicateState) -> Option<Seen> {
    match (state, before) {
        (DuplicateState::Leaving | DuplicateState::Gone, _) => None,
        (DuplicateState::Current, _) => Some(Seen::Read),
        (DuplicateState::Lost, _) | (_, Some(Seen::Read | Seen::Unread)) => Some(Seen::Unread),
        _ => Some(Seen::New),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_is_missed_once_it_was_read_or_is_lost_until_it_is_read_or_leaves() {
        use DuplicateState::{Behind, Copying, Current, Gone, Inspected, Leaving, Lost};
        let copying = Copying { from: None, base: None };
        let states = [Inspected(false), copying, Current, Behind, Lost, copying, Current, Leaving, Gone];
        let mut seen = None;
        let all = states.map(|state| {
            seen = after(seen, state);
            seen
        });
        let [new, read, unread] = [Seen::New, Seen::Read, Seen::Unread].map(Some);
        assert_eq!(all, [new, new, read, unread, unread, unread, read, None, None]);
        assert_eq!(after(None, Lost), unread, "a server that never answers is missed, too");
    }
}
