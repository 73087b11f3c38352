//! The record of an item in its slot: 24 bytes, optional fields, key and value.
//!
//! | bytes | content |
//! |---|---|
//! | 0–3, 4–7 | the next newer and the next older item of its queue |
//! | 8–14 | CAS: 56 bits last 200 years at ten million stores a second |
//! | 15 | shape: tags, negative entry or placeholder, main queue, expiry, flags, declared, run, caller's CAS |
//! | 16–17, 18–19 | length of the key, partition |
//! | 20–21 | length of a value stored in the slot |
//! | 22 | occupied (bit 0), the caller's marks (bits above) |
//! | 23 | written by readers: uses (bits 4 and 5), found by a `get` (bit 7); the deadline class (4 bits), graced or placeholder (bit 6) |
//!
//! After the header follow the optional fields: the stamp of the last use (8 bytes, under strict
//! LRU), the expiry (8), the caller's CAS (8), tags (8), the client's flags (4), the size of a
//! declared value (4), number and length of a run (4 each). Then follow key and value; those of
//! items too large for a slot are in a run.

use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, PartitionId, Tags};

use super::pages::{Handle, NO_HANDLE};
use super::s3fifo::USES_MAX;
use super::sizes::{HEADER_BYTES, SLOT_BYTES_MAX};
use super::slot::Slot;
use super::{Lookup, Runs};
use crate::access::Access;
use crate::charge;
use crate::in_place::Run;
use crate::item::{Item, ItemKind, Marks, NewItem, Use, Value};
use crate::memory::Supply;

/// Bits of the shape byte, which tells the optional parts of a record; this one: it has tags.
const TAGS: u8 = 1 << 0;
/// A negative entry or a placeholder. Stored in the shape byte, so that one comparison shows for
/// most records that they have no optional part.
const ABSENT: u8 = 1 << 1;
const MAIN: u8 = 1 << 2;
const EXPIRY: u8 = 1 << 3;
const FLAGS: u8 = 1 << 4;
const DECLARED: u8 = 1 << 5;
const RUN: u8 = 1 << 6;
const OWN_CAS: u8 = 1 << 7;

/// Bits of the shape byte for parts that only some items have.
const OPTIONAL: u8 = TAGS | ABSENT | EXPIRY | FLAGS | DECLARED | RUN | OWN_CAS;

const SHAPE_AT: usize = 15;
/// Offset of the caller's marks, shifted by one for the bit that distinguishes an item from a free
/// slot.
const OCCUPIED_AT: usize = 22;
const OCCUPIED: u8 = 1;
/// Offset of the byte that readers write: uses and [`Marks::USED`], with the deadline class and the
/// flag for a grace.
const READER_BITS_AT: usize = 23;
const CLASS: u8 = 0b1111;
const USES_SHIFT: u32 = 4;
const USES: u8 = 0b11 << USES_SHIFT;
/// Flag of an item that is kept for a grace after its expiry; with [`ABSENT`], which has no grace,
/// of a placeholder.
const GRACED: u8 = 1 << 6;
const CAS_MASK: u64 = (1 << 56) - 1;
/// Charge of a caller's CAS and of tags, as bytes of value.
const OWN_CAS_BYTES: usize = size_of::<u64>();
const TAGS_BYTES: usize = size_of::<u64>();

/// An item as stored in its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    slot: Slot<'a>,
    stamped: bool,
    runs: &'a Runs,
}

/// Number and size of the run of pages that holds a large record's key and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunAt {
    pub(super) number: u32,
    pub(super) bytes: usize,
}

impl<'a> Record<'a> {
    /// Returns the record in `slot`; `stamped` under strict LRU. `runs` holds its run, if any.
    /// Reads nothing yet.
    #[inline(always)]
    pub(super) fn new(slot: Slot<'a>, stamped: bool, runs: &'a Runs) -> Self {
        Self { slot, stamped, runs }
    }

    /// Key and value of a record in its slot, followed by unused bytes, if it has no optional part
    /// or only a declared size: one comparison shows that for most records.
    #[inline(always)]
    fn plain_body(&self) -> Option<&'a [u8]> {
        match self.shape() & OPTIONAL {
            0 => Some(&self.slot.rest[self.expiry_at()..]),
            DECLARED => Some(&self.slot.rest[self.expiry_at() + 4..]),
            _ => None,
        }
    }

    /// Returns key and value of a record with optional parts. Takes `self` by value, since callers
    /// have the record in registers and rarely call this.
    #[inline(never)]
    fn key_and_value(self) -> (&'a [u8], &'a [u8]) {
        let key_bytes = self.key_bytes();
        match self.run_and_bytes() {
            Some((run, value_bytes)) => (run.key(key_bytes), run.value(value_bytes)),
            None => {
                let (key, rest) = self.slot.rest[self.run_field_at()..].split_at(key_bytes);
                (key, &rest[..self.value_bytes()])
            }
        }
    }

    /// The run of a large record, and the length of its value.
    fn run_and_bytes(&self) -> Option<(&'a Run, usize)> {
        let RunAt { number, bytes } = self.run_at()?;
        Some((self.runs.at(number), bytes - self.key_bytes()))
    }

    #[inline(always)]
    fn shape(&self) -> u8 {
        self.slot.head[SHAPE_AT]
    }

    #[inline(always)]
    fn has(&self, part: u8) -> bool {
        self.shape() & part != 0
    }

    /// Offsets after the header of the optional fields: expiry, caller's CAS, tags, flags, declared
    /// size, run, and of the body.
    #[inline]
    fn expiry_at(&self) -> usize {
        8 * usize::from(self.stamped)
    }

    #[inline]
    fn own_cas_at(&self) -> usize {
        self.expiry_at() + 8 * usize::from(self.has(EXPIRY))
    }

    #[inline]
    fn tags_at(&self) -> usize {
        self.own_cas_at() + 8 * usize::from(self.has(OWN_CAS))
    }

    #[inline]
    fn flags_at(&self) -> usize {
        self.tags_at() + 8 * usize::from(self.has(TAGS))
    }

    #[inline]
    fn declared_at(&self) -> usize {
        self.flags_at() + 4 * usize::from(self.has(FLAGS))
    }

    #[inline]
    fn run_field_at(&self) -> usize {
        self.declared_at() + 4 * usize::from(self.has(DECLARED))
    }

    #[inline]
    pub(super) fn run_at(&self) -> Option<RunAt> {
        self.has(RUN).then(|| {
            let at = self.run_field_at();
            RunAt { number: read_u32(self.slot.rest, at), bytes: read_u32(self.slot.rest, at + 4) as usize }
        })
    }

    #[inline(always)]
    fn key_bytes(&self) -> usize {
        usize::from(read_u16(self.slot.head, 16))
    }

    /// Length of a value stored in the slot.
    #[inline(always)]
    fn value_bytes(&self) -> usize {
        usize::from(read_u16(self.slot.head, 20))
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &'a [u8] {
        match self.plain_body() {
            Some(body) => &body[..self.key_bytes()],
            None => self.key_and_value().0,
        }
    }

    /// True if the record has the key and the partition of `lookup`.
    #[inline(always)]
    pub(super) fn is_of(&self, lookup: &Lookup<'_>) -> bool {
        self.key_bytes() == lookup.key.len()
            && self.partition() == lookup.partition
            && is_equal(self.key(), lookup.key)
    }

    #[inline]
    fn value(&self) -> Value<'a> {
        if self.has(DECLARED) {
            return Value::Declared(read_u32(self.slot.rest, self.declared_at()));
        }
        Value::Bytes(self.key_and_value().1)
    }

    #[inline]
    pub(crate) fn charge(&self) -> u64 {
        let key_bytes = self.key_bytes();
        let value_bytes = match self.shape() & OPTIONAL {
            0 => self.value_bytes(),
            DECLARED => read_u32(self.slot.rest, self.expiry_at()) as usize,
            _ => {
                let part = |part, bytes| if self.has(part) { bytes } else { 0 };
                self.value().len() + part(OWN_CAS, OWN_CAS_BYTES) + part(TAGS, TAGS_BYTES)
            }
        };
        charge(key_bytes, value_bytes)
    }

    /// Used bytes of the slot.
    pub(super) fn bytes_used(&self) -> usize {
        let body = if self.has(RUN) { 8 } else { self.key_bytes() + self.value_bytes() };
        HEADER_BYTES + self.run_field_at() + body
    }

    #[inline]
    pub(crate) fn partition(&self) -> PartitionId {
        PartitionId(read_u16(self.slot.head, 18))
    }

    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.slot.reader_bits() & CLASS
    }

    #[inline]
    pub(super) fn is_main(&self) -> bool {
        self.has(MAIN)
    }

    /// Number of uses since the item entered its queue, at most 3.
    #[inline]
    pub(super) fn uses(&self) -> u8 {
        (self.slot.reader_bits() & USES) >> USES_SHIFT
    }

    /// Records that a `get` with `class`, if any, found the item; concurrent readers may call it.
    /// Returns true if nothing else is to be done, false if the item must move to that class. An
    /// unchanged byte is not written, so that a hot item stays in the caches of all cores.
    #[inline(always)]
    pub(crate) fn note_use(&self, class: Option<u8>) -> bool {
        let before = self.slot.reader_bits();
        if class.is_some_and(|class| before & CLASS != class) {
            return false;
        }
        let more = if before & USES < USES_MAX << USES_SHIFT { 1 << USES_SHIFT } else { 0 };
        let after = (before + more) | Marks::USED.0;
        if after != before {
            self.slot.set_reader_bits(after);
        }
        true
    }

    /// CAS drawn from the cache's counter when the value was stored. Flushes use it even if the
    /// caller gave a CAS.
    #[inline]
    pub(super) fn cas(&self) -> u64 {
        read_u64(self.slot.head, 8) & CAS_MASK
    }

    #[inline]
    fn own_cas(&self) -> Option<u64> {
        self.has(OWN_CAS).then(|| read_u64(self.slot.rest, self.own_cas_at()))
    }

    /// Marks of the item; none for a declared value.
    #[inline(always)]
    pub(crate) fn marks(&self) -> Marks {
        if self.has(DECLARED) {
            return Marks::NONE;
        }
        Marks(self.slot.head[OCCUPIED_AT] >> 1 | self.slot.reader_bits() & Marks::USED.0)
    }

    /// Plain, kept for a grace after its expiry, a negative entry, or a placeholder to be filled.
    pub(crate) fn kind(&self) -> ItemKind {
        match (self.has(ABSENT), self.slot.reader_bits() & GRACED != 0) {
            (false, false) => ItemKind::Plain,
            (false, true) => ItemKind::Graced,
            (true, false) => ItemKind::Absent,
            (true, true) => ItemKind::Placeholder,
        }
    }

    fn tags(&self) -> Tags {
        Tags::from_bits(if self.has(TAGS) { read_u64(self.slot.rest, self.tags_at()) } else { 0 })
    }

    /// Last use of the item; its store where no stamps are kept.
    #[inline]
    pub(crate) fn last_use(&self) -> Use {
        Use(self.stamp())
    }

    pub(super) fn annotations(&self) -> Annotations {
        Annotations { marks: self.marks(), cas: self.own_cas() }
    }

    /// Tick of the last use; the CAS where no stamps are kept.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        if self.stamped { read_u64(self.slot.rest, 0) } else { self.cas() }
    }

    /// State of the record in index and queues.
    pub(super) fn state(&self) -> RecordState {
        RecordState {
            partition: self.partition(),
            class: self.class(),
            is_main: self.is_main(),
            uses: self.uses(),
            cas: self.cas(),
            stamp: self.stamp(),
            newer: self.newer(),
            older: self.older(),
        }
    }

    #[inline]
    pub(super) fn newer(&self) -> Handle {
        neighbours(&self.slot).0
    }

    #[inline]
    pub(super) fn older(&self) -> Handle {
        neighbours(&self.slot).1
    }

    /// Time of expiry, or of becoming stale if it is graced; `NEVER` for none.
    #[inline]
    pub(crate) fn expires(&self) -> Instant {
        if self.has(EXPIRY) {
            Instant::from_nanos(read_u64(self.slot.rest, self.expiry_at()))
        } else {
            Instant::NEVER
        }
    }

    /// Time after which no access sees the item, by its own expiry; `NEVER` for none. `grace` is
    /// called for a graced item only.
    #[inline]
    pub(crate) fn dies(&self, grace: impl FnOnce() -> Duration) -> Instant {
        let expires = self.expires();
        if expires != Instant::NEVER && self.kind() == ItemKind::Graced { expires + grace() } else { expires }
    }

    /// True if the item has died by `now`, or its CAS is below the partition's flush floor.
    #[inline(always)]
    pub(crate) fn is_dead(&self, now: Instant, flush_floor: u64, grace: impl FnOnce() -> Duration) -> bool {
        self.cas() < flush_floor || (self.is_past(now) && self.dies(grace) <= now)
    }

    /// Visibility to an access, in a partition with this `flush_floor` and `grace`. Most records
    /// have neither expiry nor kind, which one comparison shows.
    #[inline(always)]
    pub(crate) fn visibility(
        &self,
        access: &Access,
        flush_floor: u64,
        grace: impl FnOnce() -> Duration,
    ) -> Visibility {
        if self.cas() < flush_floor {
            return Visibility::Dead;
        }
        if !self.has(EXPIRY | ABSENT) || !(self.has(ABSENT) || self.is_past(access.now)) {
            return Visibility::Fresh;
        }
        self.visibility_by_kind(access, grace())
    }

    /// Visibility of a record that is past its expiry or has no value. Takes `self` by value, since
    /// it is rarely called.
    #[inline(never)]
    fn visibility_by_kind(self, access: &Access, grace: Duration) -> Visibility {
        match self.kind() {
            _ if self.is_past(access.now) && self.dies(|| grace) <= access.now => Visibility::Dead,
            ItemKind::Graced if access.flags.sees_stale() => Visibility::Stale,
            ItemKind::Absent if access.flags.sees_absent() => Visibility::Fresh,
            ItemKind::Placeholder if access.flags.sees_placeholders() => Visibility::Fresh,
            ItemKind::Plain | ItemKind::Graced | ItemKind::Absent | ItemKind::Placeholder => {
                Visibility::Hidden
            }
        }
    }

    /// True if the item's expiry is not after `now`.
    #[inline(always)]
    fn is_past(&self, now: Instant) -> bool {
        let expires = self.expires();
        expires != Instant::NEVER && expires <= now
    }

    #[inline(always)]
    pub(crate) fn item(&self) -> Item<'a> {
        let value = match self.shape() & OPTIONAL {
            0 => Value::Bytes(&self.slot.rest[self.expiry_at() + self.key_bytes()..][..self.value_bytes()]),
            DECLARED => Value::Declared(read_u32(self.slot.rest, self.expiry_at())),
            _ => return self.item_of_all_parts(),
        };
        Item {
            value,
            flags: 0,
            cas: self.cas(),
            expires: None,
            kind: ItemKind::Plain,
            tags: Tags::NONE,
            marks: self.marks(),
            run: None,
            last_use: self.last_use(),
        }
    }

    /// Returns the item of a record with optional parts. Takes `self` by value, since it is rarely
    /// called.
    #[inline(never)]
    fn item_of_all_parts(self) -> Item<'a> {
        let expires = self.expires();
        Item {
            value: self.value(),
            flags: if self.has(FLAGS) { read_u32(self.slot.rest, self.flags_at()) } else { 0 },
            cas: self.own_cas().unwrap_or(self.cas()),
            expires: (expires != Instant::NEVER).then_some(expires),
            kind: self.kind(),
            tags: self.tags(),
            marks: self.marks(),
            run: self.run_and_bytes().map(|(run, _)| run),
            last_use: self.last_use(),
        }
    }
}

/// Visibility of a record to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Visible, and not past its expiry.
    Fresh,
    /// Visible although past its expiry.
    Stale,
    /// Not visible to this access, but to others.
    Hidden,
    /// Visible to no access.
    Dead,
}

impl Visibility {
    /// True if the access sees an item.
    #[inline(always)]
    pub(crate) fn is_seen(self) -> bool {
        matches!(self, Self::Fresh | Self::Stale)
    }
}

/// A record to be written, prepared before the shard is locked.
#[derive(Debug)]
pub(crate) struct NewRecord<'a> {
    key: &'a [u8],
    item: NewItem<'a>,
    annotations: Annotations,
    stamped: bool,
    /// Key and value of an item too large for a slot.
    run: Option<Run>,
}

/// Marks and CAS given by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Annotations {
    pub(crate) marks: Marks,
    /// CAS given by the caller; none for a number of the cache.
    pub(crate) cas: Option<u64>,
}

impl Annotations {
    /// Charge of `item` with these marks and CAS.
    pub(crate) fn charge(&self, key_bytes: usize, item: &NewItem<'_>) -> u64 {
        let own_cas = if self.cas.is_some() { OWN_CAS_BYTES } else { 0 };
        let tags = if item.tags.is_empty() { 0 } else { TAGS_BYTES };
        charge(key_bytes, item.value.len() + own_cas + tags)
    }
}

/// State of a record in index and queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordState {
    pub(super) partition: PartitionId,
    pub(super) class: u8,
    pub(super) is_main: bool,
    pub(super) uses: u8,
    pub(super) cas: u64,
    pub(super) stamp: u64,
    pub(super) newer: Handle,
    pub(super) older: Handle,
}

impl<'a> NewRecord<'a> {
    /// Prepares a record. A declared value gets neither marks nor CAS.
    pub(crate) fn new(
        key: &'a [u8],
        item: NewItem<'a>,
        annotations: Annotations,
        stamped: bool,
        supply: &Arc<Supply>,
    ) -> Self {
        let annotations =
            if matches!(item.value, Value::Declared(_)) { Annotations::default() } else { annotations };
        let mut record = Self { key, item, annotations, stamped, run: None };
        if record.bytes_beside_body() + record.body_bytes() > SLOT_BYTES_MAX {
            let value = if let Value::Bytes(value) = item.value { value } else { &[] };
            let kept = item.received.and_then(|received| received.run_of(key, value));
            record.run = Some(kept.unwrap_or_else(|| Run::copy_of(key, value, supply)));
        }
        record
    }

    /// Bytes of the slot that the record needs.
    pub(crate) fn slot_bytes(&self) -> usize {
        let body = if self.run.is_some() { 8 } else { self.body_bytes() };
        self.bytes_beside_body() + body
    }

    pub(crate) fn charge(&self) -> u64 {
        self.annotations.charge(self.key.len(), &self.item)
    }

    /// Time after which no access will see the item, in a partition with this `grace`; `NEVER` for
    /// none.
    pub(crate) fn dies(&self, grace: Duration) -> Instant {
        match self.item.expires {
            Some(expires) if self.item.kind == ItemKind::Graced => expires + grace,
            Some(expires) => expires,
            None => Instant::NEVER,
        }
    }

    pub(super) fn take_run(&mut self) -> Option<Run> {
        self.run.take()
    }

    /// Writes the record into its slot; `run` is the number of its run, if any.
    pub(super) fn write(&self, slot: &mut [u8], state: &RecordState, run: Option<u32>) {
        let Self { key, item, annotations, .. } = self;
        let part = |part, is| if is { part } else { 0 };
        let declared = matches!(item.value, Value::Declared(_));
        let shape = part(EXPIRY, item.expires.is_some())
            | part(ABSENT, matches!(item.kind, ItemKind::Absent | ItemKind::Placeholder))
            | part(OWN_CAS, annotations.cas.is_some())
            | part(TAGS, !item.tags.is_empty())
            | part(FLAGS, item.flags != 0)
            | part(DECLARED, declared)
            | part(RUN, run.is_some())
            | part(MAIN, state.is_main);
        let here = if declared || run.is_some() { 0 } else { item.value.len() };
        let graced = match item.kind {
            ItemKind::Plain | ItemKind::Absent => 0,
            ItemKind::Graced => part(GRACED, item.expires.is_some()),
            ItemKind::Placeholder => GRACED,
        };
        // Written as three words, each with one store.
        let words = [
            u64::from(state.newer) | u64::from(state.older) << 32,
            (state.cas & CAS_MASK) | (u64::from(shape) << 56),
            u64::from(key.len() as u16)
                | u64::from(state.partition.0) << 16
                | u64::from(here as u16) << 32
                | u64::from(OCCUPIED) << (8 * (OCCUPIED_AT - 16))
                | u64::from(state.class | state.uses << USES_SHIFT | graced) << (8 * (READER_BITS_AT - 16)),
        ];
        for (at, word) in words.iter().enumerate() {
            slot[8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        edit::set_marks(slot, annotations.marks);
        let mut rest = &mut slot[HEADER_BYTES..];
        if self.stamped {
            rest = put(rest, &state.stamp.to_le_bytes());
        }
        if let Some(expires) = item.expires {
            rest = put(rest, &expires.as_nanos().to_le_bytes());
        }
        if let Some(cas) = annotations.cas {
            rest = put(rest, &cas.to_le_bytes());
        }
        if !item.tags.is_empty() {
            rest = put(rest, &item.tags.bits().to_le_bytes());
        }
        if item.flags != 0 {
            rest = put(rest, &item.flags.to_le_bytes());
        }
        if let Value::Declared(bytes) = item.value {
            rest = put(rest, &bytes.to_le_bytes());
        }
        match run {
            Some(number) => {
                rest = put(rest, &number.to_le_bytes());
                put(rest, &(self.body_bytes() as u32).to_le_bytes());
            }
            None => self.write_body(&mut rest[..self.body_bytes()]),
        }
    }

    fn write_body(&self, body: &mut [u8]) {
        let (key, value) = body.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        if let Value::Bytes(bytes) = self.item.value {
            value.copy_from_slice(bytes);
        }
    }

    fn body_bytes(&self) -> usize {
        let value = if let Value::Bytes(bytes) = self.item.value { bytes.len() } else { 0 };
        self.key.len() + value
    }

    fn bytes_beside_body(&self) -> usize {
        let NewItem { value, flags, expires, kind: _, tags, received: _ } = self.item;
        let declared = matches!(value, Value::Declared(_));
        let some = |is, bytes| if is { bytes } else { 0 };
        HEADER_BYTES
            + some(self.stamped, 8)
            + some(expires.is_some(), 8)
            + some(self.annotations.cas.is_some(), OWN_CAS_BYTES)
            + some(!tags.is_empty(), TAGS_BYTES)
            + some(flags != 0, 4)
            + some(declared, 4)
    }
}

/// In-place changes of the record in `bytes`.
pub(super) mod edit {
    use super::{
        CLASS, DECLARED, Field, HEADER_BYTES, Handle, MAIN, Marks, OCCUPIED, OCCUPIED_AT, READER_BITS_AT,
        SHAPE_AT, USES, USES_SHIFT,
    };

    pub(crate) fn set_links(bytes: &mut [u8], newer: Handle, older: Handle) {
        let word = u64::from(newer) | u64::from(older) << 32;
        bytes[..8].copy_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn set_newer(bytes: &mut [u8], newer: Handle) {
        bytes[0..4].copy_from_slice(&newer.to_le_bytes());
    }

    pub(crate) fn set_older(bytes: &mut [u8], older: Handle) {
        bytes[4..8].copy_from_slice(&older.to_le_bytes());
    }

    pub(crate) fn set_stamp(bytes: &mut [u8], stamp: u64) {
        bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&stamp.to_le_bytes());
    }

    pub(crate) fn set_class(bytes: &mut [u8], class: u8) {
        bytes[READER_BITS_AT] = bytes[READER_BITS_AT] & !CLASS | class;
    }

    /// Sets all marks; a declared value gets none.
    pub(crate) fn set_marks(bytes: &mut [u8], marks: Marks) {
        if bytes[SHAPE_AT] & DECLARED == 0 {
            bytes[READER_BITS_AT] = bytes[READER_BITS_AT] & !Marks::USED.0 | marks.0 & Marks::USED.0;
            bytes[OCCUPIED_AT] = OCCUPIED | marks.0 << 1;
        }
    }

    /// Sets [`Marks::USED`].
    pub(crate) fn set_found(bytes: &mut [u8]) {
        bytes[READER_BITS_AT] |= Marks::USED.0;
    }

    pub(crate) fn set_uses(bytes: &mut [u8], uses: u8) {
        bytes[READER_BITS_AT] = bytes[READER_BITS_AT] & !USES | uses << USES_SHIFT;
    }

    pub(crate) fn set_main(bytes: &mut [u8]) {
        bytes[SHAPE_AT] |= MAIN;
    }

    pub(crate) fn set_free(bytes: &mut [u8]) {
        bytes[OCCUPIED_AT] = 0;
    }

    /// Sets a field if the record has it; returns true if so.
    pub(crate) fn set_field(bytes: &mut [u8], stamped: bool, field: Field) -> bool {
        let fits = bytes[SHAPE_AT] & field.part() != 0;
        if fits {
            let at = field.offset(bytes, stamped);
            bytes[at..at + 8].copy_from_slice(&field.value().to_le_bytes());
        }
        fits
    }
}

/// An optional field of 8 bytes that a record may get after it was stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    Expiry(Instant),
    OwnCas(u64),
}

impl Field {
    fn part(self) -> u8 {
        match self {
            Self::Expiry(_) => EXPIRY,
            Self::OwnCas(_) => OWN_CAS,
        }
    }

    fn value(self) -> u64 {
        match self {
            Self::Expiry(expires) => expires.as_nanos(),
            Self::OwnCas(cas) => cas,
        }
    }

    /// Offset of the field in a record, present or not.
    fn offset(self, record: &[u8], stamped: bool) -> usize {
        let expiry_at = HEADER_BYTES + 8 * usize::from(stamped);
        match self {
            Self::Expiry(_) => expiry_at,
            Self::OwnCas(_) => expiry_at + 8 * usize::from(record[SHAPE_AT] & EXPIRY != 0),
        }
    }

    /// Copies the record `from`, of which `used` bytes are in use and which lacks the field, to
    /// `to` with the field added.
    pub(super) fn add(self, from: &[u8], used: usize, stamped: bool, to: &mut [u8]) {
        let at = self.offset(from, stamped);
        to[..at].copy_from_slice(&from[..at]);
        to[SHAPE_AT] |= self.part();
        to[at..at + 8].copy_from_slice(&self.value().to_le_bytes());
        to[at + 8..used + 8].copy_from_slice(&from[at..used]);
    }

    /// Adds the field to the parts of a record that is written anew.
    pub(super) fn add_to(self, expires: &mut Option<Instant>, annotations: &mut Annotations) {
        match self {
            Self::Expiry(at) => *expires = Some(at),
            Self::OwnCas(cas) => annotations.cas = Some(cas),
        }
    }
}

/// The next newer and the next older item in the queue of a slot's item.
#[inline]
pub(super) fn neighbours(slot: &Slot<'_>) -> (Handle, Handle) {
    (read_u32(slot.head, 0), read_u32(slot.head, 4))
}

/// True if a slot holds an item.
pub(super) fn is_occupied(slot: &Slot<'_>) -> bool {
    slot.head[OCCUPIED_AT] & OCCUPIED != 0
}

/// Compares byte strings. Keys of 8 to 16 bytes, which are common in caches of small items, are
/// compared as two words that may overlap: a call to `memcmp` costs several times as much.
#[inline]
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    match one.len() {
        bytes @ 8..=16 if other.len() == bytes => {
            let differ = |at: usize| read_u64(one, at) ^ read_u64(other, at);
            differ(0) | differ(bytes - 8) == 0
        }
        _ => one == other,
    }
}

impl RecordState {
    /// Returns the state of a record that is not in a queue yet.
    pub(super) fn new(partition: PartitionId, class: u8, tick: u64) -> Self {
        Self {
            partition,
            class,
            is_main: false,
            uses: 0,
            cas: tick,
            stamp: tick,
            newer: NO_HANDLE,
            older: NO_HANDLE,
        }
    }
}

#[inline]
fn put<'a>(to: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (here, rest) = to.split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    rest
}

#[inline]
fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
