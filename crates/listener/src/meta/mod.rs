//! The meta commands: the same cache and the same rules as the other commands, seen through
//! flags.
//!
//! A command is carried out in one step on its item, with the shard locked, and most of an answer
//! is written there too. What the older commands know nothing of are marks on the item: that it is
//! stale, that one client has already been told to recache it, and that its key was given in base
//! 64.
//!
//! Texts and corner cases are those of memcached 1.6.45 but for its slips: an item that is made by
//! `mg` or `ma`, or appended to, goes on to be known by its base 64 key, and neither adding to a
//! value nor counting on from one makes a stale item fresh.

mod answer;
mod arithmetic;
mod debug;
mod delete;
mod get;
mod set;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use sherwood_cache::OUTDATED;
use sherwood_cache::{Access, AccessFlags, Item, Marks, Value};
use sherwood_wire::memcached::{KEY_BYTES_MAX, Meta, MetaVerb};

use super::conversation::Wanted;
use super::counters::Count;
use super::routing::Target;
use super::session::{Next, Session, access};
use crate::clock::Moment;

/// The value is old, and somebody should store a new one.
const STALE: Marks = OUTDATED;
/// The mark of an item that a client was told to fetch.
const WON: Marks = Marks::of_caller(1);
/// The key was given in base 64.
const BINARY: Marks = Marks::of_caller(2);

/// A meta command, and which item it is about.
#[derive(Clone, Copy)]
struct Asked<'a> {
    moment: Moment,
    meta: Meta<'a>,
    /// The key as the client calls it, decoded.
    key: &'a [u8],
    /// The key as the partition calls it.
    name: &'a [u8],
    target: Target,
}

impl Asked<'_> {
    /// The access that counts as a use.
    fn access(&self) -> Access {
        access(self.moment, self.target)
    }

    /// The access that does not.
    fn passing(&self) -> Access {
        let access = self.access();
        Access { flags: access.flags.with(AccessFlags::KEEP_RECENCY), ..access }
    }

    /// Returns the marks of an item that is created under this key.
    fn marks(&self) -> Marks {
        if self.meta.key.is_base64() { BINARY } else { Marks::NONE }
    }

    fn wanted(&self) -> Wanted {
        Wanted { partition: self.target.partition, key: Bytes::copy_from_slice(self.name) }
    }
}

impl Session<'_> {
    /// Carries out a meta command and appends its answer to `out`.
    pub(crate) fn meta<'c>(&self, moment: Moment, meta: Meta<'c>, out: &mut Vec<u8>) -> Next<'c> {
        self.counters.increment(Count::CmdMeta);
        let mut room = [0; KEY_BYTES_MAX];
        let key = meta.key.bytes(&mut room);
        let asked = self.asked(moment, meta, key);
        match (meta.verb, asked) {
            (MetaVerb::Get, Some(asked)) => {
                return match self.meta_get(&asked, out) {
                    Some(wanted) => Next::Fetch(meta, wanted),
                    None => Next::Continue,
                };
            }
            (MetaVerb::Set { mode, value }, Some(asked)) => self.meta_set(&asked, mode, value, out),
            (MetaVerb::TooLarge, asked) => self.meta_too_large(asked.as_ref(), out),
            (MetaVerb::Delete, Some(asked)) => self.meta_delete(&asked, out),
            (MetaVerb::Arithmetic(mode), Some(asked)) => self.meta_arithmetic(&asked, mode, out),
            (MetaVerb::Debug, Some(asked)) => self.meta_debug(&asked, out),
            (verb, None) => self.meta_nowhere(verb, meta, key, out),
        }
        Next::Continue
    }

    /// Which item a command is about, if its key belongs to anybody.
    fn asked<'a>(&self, moment: Moment, meta: Meta<'a>, key: &'a [u8]) -> Option<Asked<'a>> {
        let (target, name) = self.shared.service.routing.find(key)?;
        Some(Asked { moment, meta, key, name, target })
    }
}

/// The bytes of an item. A size without a value is no answer; nobody but a simulator declares
/// sizes.
fn stored<'a>(item: &Item<'a>) -> Option<&'a [u8]> {
    match item.value {
        Value::Bytes(value) => Some(value),
        Value::Declared(_) => None,
    }
}
