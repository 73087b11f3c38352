//! Reads of items, and new expiry times.

use bytes::Bytes;
use sherwood_cache::Value;
use sherwood_model::query_times::Operation;
use sherwood_wire::memcached::Exptime;
use sherwood_wire::memcached::binary::{Echo, Request, Status, response};

use super::misses::Miss;
use crate::clock::Moment;
use crate::counters::Count;
use crate::memcached::session::{Session, access, is_over};
use crate::output::Output;

impl Session<'_> {
    /// Answers a get, or returns the miss if the key has to be fetched from a backend.
    pub(super) fn binary_get(
        &self,
        moment: Moment,
        request: &Request<'_>,
        key: &[u8],
        with_key: bool,
        touch: Option<Exptime>,
        out: &mut Output,
    ) -> Option<Miss> {
        let Request { echo, quiet, .. } = *request;
        self.counters.increment(Count::CmdGet);
        let returned = if with_key { key } else { b"" };
        let Some((target, name)) = self.find(key) else {
            self.counters.increment(Count::GetMisses);
            if !quiet {
                response::miss(out, echo, returned);
            }
            return None;
        };
        let access = self.access(moment, target, name);
        let found = self.shared.service.cache.get(target.partition, name, &access, |item| match item.value {
            Value::Bytes(value) => {
                let head = |out: &mut Vec<u8>| {
                    response::value_head(out, echo, returned, item.flags, item.cas, value.len());
                };
                out.bare_value(&item, value, head);
                true
            }
            // Only simulators store an item that has a size but no value.
            Value::Declared(_) => false,
        });
        if found == Some(true) {
            self.counters.increment(Count::GetHits);
            self.ended.note_hit(target, name);
            if let Some(exptime) = touch {
                self.touch_at(moment, target, name, exptime);
            }
            return None;
        }
        self.counters.increment(Count::GetMisses);
        if touch.is_some_and(|exptime| is_over(exptime, moment)) {
            // An item that this client cannot see, such as a stale one, is removed too.
            self.remove(moment, target, name);
        }
        if target.read_through && self.shared.service.backends.is_some() {
            self.ended.note_read(target, name);
            let key = Bytes::copy_from_slice(key);
            let name = key.slice_ref(&key[key.len() - name.len()..]);
            return Some(Miss { at: out.len(), target, echo, quiet, with_key, key, name });
        }
        self.ended.note_miss(target, name);
        if !quiet {
            response::miss(out, echo, returned);
        }
        None
    }

    /// Answers a `touch` with the flags and the CAS of the item, as memcached does.
    pub(super) fn binary_touch(
        &self,
        moment: Moment,
        echo: Echo,
        key: &[u8],
        exptime: Exptime,
        out: &mut Vec<u8>,
    ) {
        let touched = self.find(key).and_then(|(target, name)| {
            let (cache, access) = (&self.shared.service.cache, access(moment));
            // A touch changes neither.
            let seen = cache.peek(target.partition, name, &access, |item| (item.flags, item.cas));
            let touched = self.touch_at(moment, target, name, exptime);
            self.ended.note(target, Operation::Other, touched);
            seen.filter(|_| touched)
        });
        match touched {
            Some((flags, cas)) => response::value_head(out, echo, b"", flags, cas, 0),
            None => response::error(out, echo, Status::NotFound),
        }
    }
}
