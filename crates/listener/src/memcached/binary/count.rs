//! `increment` and `decrement`.

use std::borrow::Cow;

use sherwood_cache::{Change, Item, ItemKind, Marks};
use sherwood_model::Tags;
use sherwood_model::query_times::Operation;
use sherwood_wire::memcached::binary::Status;
use sherwood_wire::memcached::{Delta, Exptime, reply};

use super::Failure;
use crate::clock::Moment;
use crate::counters::Count;
use crate::memcached::session::{Session, access, counted, expiry};

/// The result of an `increment` or `decrement`.
struct Counted {
    number: Result<u64, Status>,
    /// True if the item existed.
    found: bool,
}

impl Session<'_> {
    /// Adds `delta` to a number, and returns the new number and its item's CAS. A missing item is
    /// created with the number and the expiry time of `create`, if given.
    pub(super) fn binary_count(
        &self,
        moment: Moment,
        key: &[u8],
        cas: u64,
        delta: Delta,
        create: Option<(u64, Exptime)>,
    ) -> Result<(u64, u64), Failure> {
        let (hits, misses) = match delta {
            Delta::Increase(_) => (Count::IncrHits, Count::IncrMisses),
            Delta::Decrease(_) => (Count::DecrHits, Count::DecrMisses),
        };
        let Some((target, key)) = self.find(key) else {
            self.counters.increment(misses);
            return Err(Status::NotFound.into());
        };
        let (service, access) = (&self.shared.service, access(moment));
        let counted = service.write(target, key, || {
            service.cache.update_with_cas(target.partition, key, &access, |item| match item {
                Some(item) => count(item, cas, delta),
                None => make(create, moment),
            })
        });
        let (Counted { number, found }, stored) = counted.map_err(|refused| self.binary_refused(refused))?;
        self.ended.note(target, Operation::Other, found);
        self.counters.increment(if found { hits } else { misses });
        Ok((number?, stored.unwrap_or_default()))
    }
}

/// Returns the change that adds `delta` to an existing item. A `cas` other than 0 has to be the
/// item's.
fn count(item: Item<'_>, cas: u64, delta: Delta) -> (Change<'static>, Counted) {
    if cas != 0 && cas != item.cas {
        return (Change::Keep, Counted { number: Err(Status::Exists), found: true });
    }
    let (change, number) = counted(Some(item), delta);
    let number = number.map_err(|text| match text {
        reply::NON_NUMERIC => Status::NonNumeric,
        // An item without a value, which only simulators store.
        _ => Status::NotFound,
    });
    (change, Counted { number, found: true })
}

/// Returns the change that creates a missing item, if the request asks for it.
fn make(create: Option<(u64, Exptime)>, moment: Moment) -> (Change<'static>, Counted) {
    let Some((initial, exptime)) = create else {
        return (Change::Keep, Counted { number: Err(Status::NotFound), found: false });
    };
    let change = Change::StoreMarked {
        value: Cow::Owned(initial.to_string().into_bytes()),
        flags: 0,
        expires: expiry(exptime, moment),
        kind: ItemKind::Plain,
        tags: Tags::NONE,
        marks: Marks::NONE,
        cas: None,
    };
    (change, Counted { number: Ok(initial), found: false })
}
