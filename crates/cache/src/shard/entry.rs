//! One item as it lies in memory: a cache line of metadata and one block for key and value.

use sherwood_model::{Instant, PartitionId};

use crate::charge;
use crate::item::{Item, Marks, NewItem, Use, Value};

/// Number of an entry within its shard's arena.
pub(crate) type Slot = u32;

/// No entry: the end of a queue or of a free list.
pub(crate) const NO_SLOT: Slot = Slot::MAX;

/// An item, or a free place.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Entry {
    /// Key, value, sizes and the client's words.
    pub(super) payload: Payload,
    /// When it was last used: drawn from the cache's one counter, so stamps order all items of all shards.
    pub(super) stamp: u64,
    /// Drawn from the same counter when the value was stored. The caller may have given another, which is in the payload;
    /// flushes go by this one.
    pub(super) cas: u64,
    /// The entry used just after this one. In a free entry, the next free one.
    pub(super) newer: Slot,
    /// The entry used just before this one.
    pub(super) older: Slot,
    /// The part of the key's hash the index needs.
    pub(super) hash: u32,
    pub(super) partition: PartitionId,
    pub(super) class: u8,
    pub(super) occupied: bool,
}

const _: () =
    assert!(size_of::<Entry>() == 64, "an entry fills one cache line, and `charge` counts on 64 bytes");

/// What a caller gives to be stored, built before the shard is locked.
#[derive(Debug)]
pub(crate) struct Payload {
    /// The key, then the value, then 8 bytes of CAS if it is the caller's; only the key of a declared value.
    bytes: Box<[u8]>,
    /// `NEVER` for none.
    expires: Instant,
    flags: u32,
    /// Bit 31 tells a declared value, and the others are its size. Of a stored value bit 30 tells a CAS of the caller's, bits
    /// 16 to 23 are the marks, and bits 0 to 15 the key's size.
    shape: u32,
}

const DECLARED: u32 = 1 << 31;
const OWN_CAS: u32 = 1 << 30;
const MARKS_SHIFT: u32 = 16;
const OWN_CAS_BYTES: usize = size_of::<u64>();

impl Payload {
    pub(crate) fn new(key: &[u8], item: &NewItem<'_>) -> Self {
        let NewItem { value, flags, expires } = *item;
        let (bytes, shape) = match value {
            Value::Bytes(value) => (join(key, value), key.len() as u32),
            Value::Declared(size) => (key.into(), size | DECLARED),
        };
        Self { bytes, expires: expires.unwrap_or(Instant::NEVER), flags, shape }
    }

    /// The same with marks and, if it is given, a CAS of the caller's. A declared size takes neither.
    pub(crate) fn marked(self, marks: Marks, cas: Option<u64>) -> Self {
        if self.is_declared() {
            return self;
        }
        let mut marked = match cas {
            None => self,
            Some(cas) => self.with_cas(cas),
        };
        marked.set_marks(marks);
        marked
    }

    fn with_cas(mut self, cas: u64) -> Self {
        if self.shape & OWN_CAS == 0 {
            self.bytes = join(&self.bytes, &[0; OWN_CAS_BYTES]);
            self.shape |= OWN_CAS;
        }
        let value_end = self.value_end();
        self.bytes[value_end..].copy_from_slice(&cas.to_ne_bytes());
        self
    }

    fn is_declared(&self) -> bool {
        self.shape & DECLARED != 0
    }

    fn key_bytes(&self) -> usize {
        usize::from(self.shape as u16)
    }

    fn value_end(&self) -> usize {
        self.bytes.len() - if self.shape & OWN_CAS == 0 { 0 } else { OWN_CAS_BYTES }
    }

    fn own_cas(&self) -> Option<u64> {
        let has_one = !self.is_declared() && self.shape & OWN_CAS != 0;
        has_one.then(|| self.bytes.last_chunk().map(|bytes| u64::from_ne_bytes(*bytes)))?
    }

    fn marks(&self) -> Marks {
        if self.is_declared() { Marks::NONE } else { Marks((self.shape >> MARKS_SHIFT) as u8) }
    }

    fn set_marks(&mut self, marks: Marks) {
        if !self.is_declared() {
            self.shape = self.shape & !(0xff << MARKS_SHIFT) | u32::from(marks.0) << MARKS_SHIFT;
        }
    }

    pub(super) fn free() -> Self {
        Self { bytes: Box::default(), expires: Instant::NEVER, flags: 0, shape: 0 }
    }

    fn key(&self) -> &[u8] {
        if self.is_declared() { &self.bytes } else { &self.bytes[..self.key_bytes()] }
    }

    fn value(&self) -> Value<'_> {
        if self.is_declared() {
            Value::Declared(self.shape & !DECLARED)
        } else {
            Value::Bytes(&self.bytes[self.key_bytes()..self.value_end()])
        }
    }

    pub(crate) fn charge(&self) -> u64 {
        if self.is_declared() {
            charge(self.bytes.len(), self.value().len())
        } else {
            charge(self.key_bytes(), self.bytes.len() - self.key_bytes())
        }
    }
}

/// Key and value in one block of exactly their size.
fn join(key: &[u8], value: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(key.len() + value.len());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes.into_boxed_slice()
}

impl Entry {
    /// A free place, followed by `next` in its list.
    pub(super) fn free(next: Slot) -> Self {
        Self {
            payload: Payload::free(),
            stamp: 0,
            cas: 0,
            newer: next,
            older: NO_SLOT,
            hash: 0,
            partition: PartitionId(0),
            class: 0,
            occupied: false,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.payload.key()
    }

    pub(crate) fn charge(&self) -> u64 {
        self.payload.charge()
    }

    #[cfg(test)]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(crate) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// When it dies; `NEVER` for never.
    pub(crate) fn expires(&self) -> Instant {
        self.payload.expires
    }

    pub(crate) fn set_expires(&mut self, expires: Option<Instant>) {
        self.payload.expires = expires.unwrap_or(Instant::NEVER);
    }

    /// Whether its time has come by `now`, or its CAS is below the partition's flush.
    pub(crate) fn is_dead(&self, now: Instant, flush_floor: u64) -> bool {
        let expires = self.payload.expires;
        self.cas < flush_floor || (expires != Instant::NEVER && expires <= now)
    }

    pub(crate) fn cas(&self) -> u64 {
        self.payload.own_cas().unwrap_or(self.cas)
    }

    pub(crate) fn marks(&self) -> Marks {
        self.payload.marks()
    }

    pub(crate) fn set_marks(&mut self, marks: Marks) {
        self.payload.set_marks(marks);
    }

    pub(crate) fn last_use(&self) -> Use {
        Use(self.stamp)
    }

    pub(crate) fn item(&self) -> Item<'_> {
        let Payload { expires, flags, .. } = self.payload;
        let expires = (expires != Instant::NEVER).then_some(expires);
        Item {
            value: self.payload.value(),
            flags,
            cas: self.cas(),
            expires,
            marks: self.marks(),
            last_use: self.last_use(),
        }
    }
}
