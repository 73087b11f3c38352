//! The meta command `me`, which describes an item. Also the answers to meta commands whose key has
//! no backend.

use sherwood_cache::{Marks, charge};
use sherwood_wire::memcached::reply::{self, MetaDebug};
use sherwood_wire::memcached::{Meta, MetaVerb};

use super::answer::{self, ttl_secs};
use super::arithmetic::misses;
use super::{Asked, BINARY};
use crate::counters::Count;
use crate::memcached::session::{NO_BACKEND, Session};

impl Session<'_> {
    pub(super) fn meta_debug(&self, asked: &Asked<'_>, out: &mut Vec<u8>) {
        let cache = &self.shared.service.cache;
        let seen = cache.peek(asked.target.partition, asked.name, &asked.access(), |item| {
            let about = MetaDebug {
                ttl_secs: ttl_secs(item.expires, asked.moment),
                idle_secs: 0,
                cas: item.cas,
                hit: item.marks.contains(Marks::USED),
                bytes: charge(asked.name.len(), item.value.len()),
            };
            (about, item.last_use, item.marks.contains(BINARY))
        });
        match seen {
            Some((about, last_use, base64)) => {
                let idle_secs = cache.since(last_use, asked.moment.now).as_secs();
                reply::meta_debug(out, asked.key, base64, &MetaDebug { idle_secs, ..about });
            }
            None => out.extend_from_slice(b"EN\r\n"),
        }
    }

    /// Answers a meta command whose key matches no route to a partition: reads miss and stores
    /// fail.
    pub(super) fn meta_nowhere(&self, verb: MetaVerb<'_>, meta: Meta<'_>, key: &[u8], out: &mut Vec<u8>) {
        match verb {
            MetaVerb::Get => {
                self.counters.increment(Count::CmdGet);
                self.counters.increment(Count::GetMisses);
            }
            MetaVerb::Set { .. } => self.counters.increment(Count::CmdSet),
            MetaVerb::Delete => self.counters.increment(Count::DeleteMisses),
            MetaVerb::Arithmetic(mode) => self.counters.increment(misses(mode)),
            MetaVerb::TooLarge | MetaVerb::Debug => {}
        }
        match verb {
            MetaVerb::Get if meta.flags.has(b'q') => {}
            MetaVerb::Get => answer::without_item(meta, key, b"EN", out),
            MetaVerb::Debug => out.extend_from_slice(b"EN\r\n"),
            MetaVerb::Arithmetic(_) | MetaVerb::Delete => answer::without_item(meta, key, b"NF", out),
            MetaVerb::Set { .. } | MetaVerb::TooLarge => out.extend_from_slice(NO_BACKEND),
        }
    }
}
