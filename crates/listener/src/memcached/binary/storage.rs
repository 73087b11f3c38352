//! Commands that store or remove a value. Each returns the CAS of the item stored, else 0.

use sherwood_cache::{Change, Item, NewItem, Refused};
use sherwood_model::query_times::Operation;
use sherwood_wire::memcached::binary::Status;
use sherwood_wire::memcached::{Storage, StorageVerb, reply};

use super::{Failure, NO_BACKEND};
use crate::clock::Moment;
use crate::counters::Count;
use crate::memcached::session::{Session, TOO_MUCH, access, joined};
use crate::routing::Target;
use crate::work::Work;

/// The result of a storage command: the CAS of the stored item, or the status of the condition that
/// failed.
type Executed = Result<u64, Status>;

impl Session<'_> {
    pub(super) fn binary_store(
        &self,
        moment: Moment,
        storage: &Storage<'_>,
        cas: u64,
        work: &mut Work,
    ) -> Result<u64, Failure> {
        self.counters.increment(Count::CmdSet);
        let (target, key) = self.find(storage.key).ok_or(NO_BACKEND)?;
        let store = || self.store_binary_at(moment, target, key, (storage, cas), work);
        let service = &self.shared.service;
        let stored = match storage.verb {
            StorageVerb::Add => service.fill(target, key, store),
            _ => service.write(target, key, store),
        };
        self.ended.note_set((target, key), stored.map(|executed| executed.is_ok()));
        let executed = stored.map_err(|refused| self.binary_refused(refused))?;
        self.count_store(storage.verb, executed);
        executed.map_err(Failure::from)
    }

    fn store_binary_at(
        &self,
        moment: Moment,
        target: Target,
        key: &[u8],
        (storage, cas): (&Storage<'_>, u64),
        work: &mut Work,
    ) -> Result<Executed, Refused> {
        let cache = &self.shared.service.cache;
        let access = self.access(moment, target, key);
        let item = self.new_item(moment, storage);
        if storage.verb == StorageVerb::Set {
            return cache.set(target.partition, key, item, &access).map(Ok);
        }
        let bytes_max = cache.options().item_bytes_max as usize;
        let decide = |old: Option<Item<'_>>| change((storage, cas), item, old, bytes_max, work);
        let (condition, cas) = cache.update_with_cas(target.partition, key, &access, decide)?;
        Ok(condition.map(|()| cas.unwrap_or_default()))
    }

    fn count_store(&self, verb: StorageVerb, executed: Executed) {
        if executed.is_ok() {
            self.counters.increment(Count::TotalItems);
        }
        if let StorageVerb::Cas(_) = verb {
            self.counters.increment(match executed {
                Ok(_) => Count::CasHits,
                Err(Status::Exists) => Count::CasBadval,
                Err(_) => Count::CasMisses,
            });
        }
    }

    /// Refuses a value over the limit. A `set` also removes the old value, so that later reads do
    /// not return it.
    pub(super) fn binary_too_large(
        &self,
        moment: Moment,
        verb: StorageVerb,
        key: &[u8],
    ) -> Result<u64, Failure> {
        self.too_large(moment, verb, key);
        Err(Status::TooLarge.into())
    }

    pub(super) fn binary_delete(&self, moment: Moment, key: &[u8], cas: u64) -> Result<u64, Failure> {
        let removed = match self.find(key) {
            Some((target, key)) => {
                let removed = self.remove_if(moment, target, key, cas);
                self.ended.note(target, Operation::Delete, removed.is_ok());
                removed
            }
            None => Err(Status::NotFound),
        };
        let count = if removed.is_ok() { Count::DeleteHits } else { Count::DeleteMisses };
        self.counters.increment(count);
        removed.map(|()| 0).map_err(Failure::from)
    }

    /// Removes an item. A `cas` other than 0 has to be the item's.
    fn remove_if(&self, moment: Moment, target: Target, key: &[u8], cas: u64) -> Result<(), Status> {
        if cas == 0 {
            return if self.remove(moment, target, key) { Ok(()) } else { Err(Status::NotFound) };
        }
        let (service, access) = (&self.shared.service, access(moment));
        let removed = service.write(target, key, || {
            service.cache.update(target.partition, key, &access, |item| match item {
                // An item that this client cannot see, such as a stale one, is removed for other
                // clients too.
                None => (Change::Remove, Err(Status::NotFound)),
                Some(item) if item.cas != cas => (Change::Keep, Err(Status::Exists)),
                Some(_) => (Change::Remove, Ok(())),
            })
        });
        // A removal stores nothing, so it is never refused.
        removed.unwrap_or(Err(Status::NotFound))
    }
}

/// Returns the change that a storage command makes to an item, or the condition that fails. `cas`
/// applies to `append` and `prepend`; 0 accepts any item.
fn change<'a>(
    (storage, cas): (&Storage<'_>, u64),
    item: NewItem<'a>,
    old: Option<Item<'_>>,
    bytes_max: usize,
    work: &mut Work,
) -> (Change<'a>, Result<(), Status>) {
    let keep = |status| (Change::Keep, Err(status));
    let store = (Change::Store(item), Ok(()));
    match (storage.verb, old) {
        (StorageVerb::Set, _) | (StorageVerb::Add, None) | (StorageVerb::Replace, Some(_)) => store,
        (StorageVerb::Add, Some(_)) => keep(Status::Exists),
        (StorageVerb::Replace | StorageVerb::Cas(_), None) => keep(Status::NotFound),
        (StorageVerb::Cas(unique), Some(old)) if old.cas == unique => store,
        (StorageVerb::Cas(_), Some(_)) => keep(Status::Exists),
        (StorageVerb::Append | StorageVerb::Prepend, Some(old)) if cas != 0 && cas != old.cas => {
            keep(Status::Exists)
        }
        (StorageVerb::Append | StorageVerb::Prepend, old) => match joined(storage, old, bytes_max, work) {
            (change, reply::STORED) => (change, Ok(())),
            (_, TOO_MUCH) => keep(Status::TooLarge),
            _ => keep(Status::NotStored),
        },
    }
}
