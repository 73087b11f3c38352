//! The meta command `md`: removes an item or its value, or marks the item stale.

use std::borrow::Cow;

use sherwood_cache::{Change, Item, ItemKind, Marks, NewCas};
use sherwood_model::Tags;
use sherwood_model::query_times::Operation;
use sherwood_wire::memcached::MetaOptions;

use super::answer;
use super::{Asked, BINARY, STALE, WON};
use crate::counters::Count;
use crate::memcached::session::{Session, expiry, is_over};

const DONE: &[u8] = b"HD";
const NOT_FOUND: &[u8] = b"NF";
const EXISTS: &[u8] = b"EX";

impl Session<'_> {
    pub(super) fn meta_delete(&self, asked: &Asked<'_>, out: &mut Vec<u8>) {
        let options = asked.meta.flags.options();
        let cache = &self.shared.service.cache;
        let deleted = self.shared.service.write(asked.target, asked.name, || {
            cache.update(asked.target.partition, asked.name, &asked.passing(), |item| match item {
                // An item that this client cannot see, such as a stale one, is removed for other
                // clients too.
                None => (Change::Remove, NOT_FOUND),
                Some(item) if options.cas.is_some_and(|cas| cas != item.cas) => (Change::Keep, EXISTS),
                Some(item) => (delete(asked, &options, &item), DONE),
            })
        });
        match deleted {
            Ok(code) => {
                let count = if code == DONE { Count::DeleteHits } else { Count::DeleteMisses };
                self.ended.note(asked.target, Operation::Delete, code == DONE);
                self.counters.increment(count);
                if code != DONE || !asked.meta.flags.has(b'q') {
                    answer::without_item(asked.meta, asked.key, code, out);
                }
            }
            Err(refused) => out.extend_from_slice(self.refused(refused)),
        }
    }
}

fn delete(asked: &Asked<'_>, options: &MetaOptions, item: &Item<'_>) -> Change<'static> {
    let flags = asked.meta.flags;
    let invalidates = flags.has(b'I');
    let ttl = options.ttl.map(|exptime| expiry(exptime, asked.moment));
    if flags.has(b'x') {
        let binary = if item.marks.contains(BINARY) { BINARY } else { Marks::NONE };
        return Change::StoreMarked {
            value: Cow::Borrowed(b""),
            flags: options.client_flags,
            expires: ttl.flatten(),
            // The value is gone; only a placeholder remains.
            kind: ItemKind::Placeholder,
            tags: Tags::NONE,
            marks: if invalidates { binary.with(STALE) } else { binary },
            // Removing only the value keeps the item's CAS; marking the item stale gives it a new
            // one.
            cas: options.new_cas.or((!invalidates).then_some(item.cas)),
        };
    }
    if invalidates && options.ttl.is_some_and(|exptime| is_over(exptime, asked.moment)) {
        return Change::Remove;
    }
    if invalidates {
        return Change::Amend {
            expires: ttl.unwrap_or(item.expires),
            // The next reader will be told to recache the item.
            marks: item.marks.with(STALE).without(WON),
            cas: options.new_cas.map_or(NewCas::Next, NewCas::Given),
        };
    }
    Change::Remove
}
