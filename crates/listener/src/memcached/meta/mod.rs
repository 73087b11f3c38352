//! Meta commands of memcached: the cache operations of the other commands, controlled by flags.
//!
//! A command changes its item atomically, under the shard's lock, and writes most of its answer
//! there. Only meta commands use marks on an item: that it is stale, that one client has been told
//! to recache it, and that its key was given in base64.
//!
//! Texts and corner cases follow memcached 1.6.45, with two corrections: an item that `mg` or `ma`
//! creates, or that is appended to, keeps its base64 key, and neither appending nor arithmetic
//! makes a stale item fresh.

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
use sherwood_model::DeadlineClass;
use sherwood_wire::memcached::{KEY_BYTES_MAX, Meta, MetaVerb};

use crate::clock::Moment;
use crate::conversation::Wanted;
use crate::counters::Count;
use crate::memcached::session::{AfterCommand, Session, access};
use crate::output::Output;
use crate::routing::Target;

/// Mark of a stale value, which a client should replace.
const STALE: Marks = OUTDATED;
/// Mark that one client has been told to recache the item.
const WON: Marks = Marks::of_caller(1);
/// Mark that the key was given in base64.
const BINARY: Marks = Marks::of_caller(2);

/// A meta command, with the partition and the key of its item.
#[derive(Clone, Copy)]
struct Asked<'a> {
    moment: Moment,
    meta: Meta<'a>,
    /// The decoded key, as sent by the client.
    key: &'a [u8],
    /// The key without the prefix that selects its partition, as the partition stores it.
    name: &'a [u8],
    target: Target,
    /// The class of the deadline, stated by flag `U` or by rule.
    class: Option<DeadlineClass>,
}

impl Asked<'_> {
    /// Returns the access to the cache of a command that counts as a use of the item.
    fn access(&self) -> Access {
        Access { class: self.class, ..access(self.moment) }
    }

    /// Returns the access to the cache of a command that does not count as a use of the item.
    fn passing(&self) -> Access {
        let access = self.access();
        Access { flags: access.flags.with(AccessFlags::KEEP_RECENCY), ..access }
    }

    /// Returns the marks of an item that the command creates.
    fn marks(&self) -> Marks {
        if self.meta.key.is_base64() { BINARY } else { Marks::NONE }
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            partition: self.target.partition,
            key: Bytes::copy_from_slice(self.name),
            within: self.meta.flags.options().within,
        }
    }
}

impl Session<'_> {
    /// Executes a meta command and appends its answer to `out`.
    pub(crate) fn meta<'c>(&self, moment: Moment, meta: Meta<'c>, out: &mut Output) -> AfterCommand<'c> {
        self.counters.increment(Count::CmdMeta);
        let mut room = [0; KEY_BYTES_MAX];
        let key = meta.key.bytes(&mut room);
        let asked = self.asked(moment, meta, key);
        match (meta.verb, asked) {
            (MetaVerb::Get, Some(asked)) => {
                return match self.meta_get(&asked, out) {
                    Some(wanted) => AfterCommand::Fetch(meta, wanted),
                    None => AfterCommand::Continue,
                };
            }
            (MetaVerb::Set { mode, value }, Some(asked)) => self.meta_set(&asked, mode, value, out),
            (MetaVerb::TooLarge, asked) => self.meta_too_large(asked.as_ref(), out),
            (MetaVerb::Delete, Some(asked)) => self.meta_delete(&asked, out),
            (MetaVerb::Arithmetic(mode), Some(asked)) => self.meta_arithmetic(&asked, mode, out),
            (MetaVerb::Debug, Some(asked)) => self.meta_debug(&asked, out),
            (verb, None) => self.meta_nowhere(verb, meta, key, out),
        }
        AfterCommand::Continue
    }

    /// Returns the command with the partition of its key; none if the key matches no route.
    fn asked<'a>(&self, moment: Moment, meta: Meta<'a>, key: &'a [u8]) -> Option<Asked<'a>> {
        let (target, name) = self.find(key)?;
        let stated = meta.flags.has(b'U').then(|| meta.flags.options().within).flatten();
        let class = self.shared.deadline_class(target, name, stated);
        Some(Asked { moment, meta, key, name, target, class })
    }
}

/// Returns the value of an item, or none if it has a size but no value: only simulators store
/// those.
fn stored<'a>(item: &Item<'a>) -> Option<&'a [u8]> {
    match item.value {
        Value::Bytes(value) => Some(value),
        Value::Declared(_) => None,
    }
}
