//! The meta command `ms`: conditional stores, and stores that mark the value stale if a newer one
//! is present.

use std::borrow::Cow;

use sherwood_cache::{AccessFlags, Change, Item, ItemKind, Marks, NewCas, NewItem, Refused};
use sherwood_model::{Instant, Tags};
use sherwood_wire::memcached::{MetaFlag, MetaOptions, SetMode, reply};

use super::answer;
use super::{Asked, BINARY, STALE, WON, stored};
use crate::counters::Count;
use crate::memcached::session::{Session, TOO_MUCH, expiry};
use crate::output::Output;
use crate::work::{COMMAND_MAX, rebuilt};

/// The item that an `ms` stores, and its options.
struct New<'a> {
    mode: SetMode,
    value: &'a [u8],
    options: MetaOptions,
    /// The item's expiry, from flag `T`.
    expires: Option<Instant>,
    /// The expiry of an item that an append or prepend creates, from flag `N`.
    vivify: Option<Option<Instant>>,
    marks: Marks,
    invalidate: bool,
    item_bytes_max: usize,
}

/// The result of an `ms` that was executed.
#[derive(Clone, Copy)]
struct SetOutcome {
    code: &'static [u8],
    /// Size of the item's value after the command, which includes the old one after an append.
    bytes: usize,
    cas: u64,
}

const STORED: &[u8] = b"HD";
const NOT_STORED: &[u8] = b"NS";
const EXISTS: &[u8] = b"EX";
const NOT_FOUND: &[u8] = b"NF";

impl Session<'_> {
    pub(super) fn meta_set(&self, asked: &Asked<'_>, mode: SetMode, value: &[u8], out: &mut Output) {
        self.counters.increment(Count::CmdSet);
        let options = asked.meta.flags.options();
        let adds = matches!(mode, SetMode::Append | SetMode::Prepend);
        let new = New {
            mode,
            value,
            // A new CAS of 0 is ignored, as in memcached: the item gets the next one.
            options: MetaOptions { new_cas: options.new_cas.filter(|&cas| cas != 0), ..options },
            expires: options.ttl.and_then(|exptime| expiry(exptime, asked.moment)),
            vivify: options.vivify.filter(|_| adds).map(|exptime| expiry(exptime, asked.moment)),
            marks: asked.marks(),
            invalidate: asked.meta.flags.has(b'I'),
            item_bytes_max: self.shared.service.cache.options().item_bytes_max as usize,
        };
        let service = &self.shared.service;
        let set = || self.set(asked, &new);
        let set = match mode {
            SetMode::Add => service.fill(asked.target, asked.name, set),
            _ => service.write(asked.target, asked.name, set),
        };
        self.ended.note_set((asked.target, asked.name), set.map(|outcome| outcome.code == STORED));
        match set {
            Ok(SetOutcome { code: TOO_MUCH, .. }) => out.extend_from_slice(TOO_MUCH),
            Ok(outcome) => {
                if adds {
                    out.work.add(rebuilt(outcome.bytes));
                }
                self.count(&new, outcome.code);
                write(asked, outcome, out);
            }
            Err(refused) => out.extend_from_slice(self.refused(refused)),
        }
    }

    /// Refuses the value of an `ms` that is over the limit and removes the old value, so that later
    /// reads do not return it.
    pub(super) fn meta_too_large(&self, asked: Option<&Asked<'_>>, out: &mut Vec<u8>) {
        self.counters.increment(Count::StoreTooLarge);
        if let Some(asked) = asked {
            self.remove(asked.moment, asked.target, asked.name);
        }
        out.extend_from_slice(reply::TOO_LARGE);
    }

    fn set(&self, asked: &Asked<'_>, new: &New<'_>) -> Result<SetOutcome, Refused> {
        let cache = &self.shared.service.cache;
        let (partition, mut access) = (asked.target.partition, asked.access());
        if asked.meta.flags.has(b'd') {
            access.flags = access.flags.with(AccessFlags::DEADLINE_MISSED);
        }
        if let Some(item) = new.plain() {
            let item = NewItem { received: self.received, ..item };
            let cas = cache.set(partition, asked.name, item, &access)?;
            return Ok(SetOutcome { code: STORED, bytes: item.value.len(), cas });
        }
        let ((code, bytes), cas) =
            cache.update_with_cas(partition, asked.name, &access, |item| new.over(item))?;
        let cas = cas.filter(|_| code == STORED).unwrap_or_default();
        Ok(SetOutcome { code, bytes, cas })
    }

    fn count(&self, new: &New<'_>, code: &[u8]) {
        if code == STORED {
            self.counters.increment(Count::TotalItems);
        }
        if new.compares() {
            self.counters.increment(match code {
                STORED => Count::CasHits,
                EXISTS => Count::CasBadval,
                _ => Count::CasMisses,
            });
        }
    }
}

impl<'a> New<'a> {
    /// Returns the item to store if the `ms` is unconditional and uses neither marks nor a given
    /// CAS.
    fn plain(&self) -> Option<NewItem<'a>> {
        let MetaOptions { cas, new_cas, client_flags, .. } = self.options;
        let plain =
            self.mode == SetMode::Set && cas.is_none() && new_cas.is_none() && self.marks == Marks::NONE;
        let item = NewItem { flags: client_flags, expires: self.expires, ..NewItem::bytes(self.value) };
        plain.then_some(item)
    }

    /// Returns true if the `ms` stores only over an item with a given CAS.
    fn compares(&self) -> bool {
        self.options.cas.is_some() && matches!(self.mode, SetMode::Set | SetMode::Replace)
    }

    /// Returns the change that the `ms` makes to `item`, the present one if there is any, with the
    /// code of the answer and the size of the value.
    fn over(&self, item: Option<Item<'_>>) -> (Change<'a>, (&'static [u8], usize)) {
        let old = item.and_then(|item| Some((item, stored(&item)?)));
        let keep = |code| (Change::Keep, (code, self.value.len()));
        match (old, self.mode) {
            (None, _) if self.compares() => keep(NOT_FOUND),
            (None, SetMode::Set | SetMode::Add) => self.store(self.expires, self.marks),
            (None, SetMode::Replace) => keep(NOT_STORED),
            (None, SetMode::Append | SetMode::Prepend) => match self.vivify {
                Some(expires) => self.store(expires, self.marks),
                None => keep(NOT_STORED),
            },
            (Some((old, _)), SetMode::Add) => {
                // A refused `add` counts as a use of the present item.
                let used = Change::Amend { expires: old.expires, marks: old.marks, cas: NewCas::Keep };
                (used, (NOT_STORED, self.value.len()))
            }
            (Some((old, _)), SetMode::Set | SetMode::Replace) => match self.options.cas {
                Some(cas) if cas == old.cas && cas != 0 => self.store(self.expires, self.marks),
                Some(cas) if self.invalidate && cas < old.cas && cas != 0 => {
                    let won = if old.marks.contains(WON) { WON } else { Marks::NONE };
                    self.store(old.expires, self.marks.with(STALE).with(won))
                }
                Some(_) => keep(EXISTS),
                None => self.store(self.expires, self.marks),
            },
            (Some((old, value)), SetMode::Append | SetMode::Prepend) => {
                match self.options.cas.filter(|&cas| cas != 0) {
                    Some(cas) if cas != old.cas => keep(EXISTS),
                    _ => self.join(&old, value),
                }
            }
        }
    }

    fn store(&self, expires: Option<Instant>, marks: Marks) -> (Change<'a>, (&'static [u8], usize)) {
        let change = Change::StoreMarked {
            value: Cow::Borrowed(self.value),
            flags: self.options.client_flags,
            expires,
            kind: ItemKind::Plain,
            tags: Tags::NONE,
            marks,
            cas: self.options.new_cas,
        };
        (change, (STORED, self.value.len()))
    }

    /// Appends the new value to the present one, or prepends it; the present value is kept
    /// unchanged if the result would be too large.
    fn join(&self, old: &Item<'_>, value: &[u8]) -> (Change<'a>, (&'static [u8], usize)) {
        let bytes = value.len() + self.value.len();
        if bytes > self.item_bytes_max {
            return (Change::Keep, (NOT_STORED, self.value.len()));
        }
        if rebuilt(bytes) > COMMAND_MAX {
            return (Change::Keep, (TOO_MUCH, self.value.len()));
        }
        let parts = if self.mode == SetMode::Prepend { [self.value, value] } else { [value, self.value] };
        let change = Change::StoreMarked {
            value: Cow::Owned(parts.concat()),
            flags: old.flags,
            expires: old.expires,
            kind: ItemKind::Plain,
            tags: old.tags,
            marks: old.marks.only(BINARY.with(STALE)),
            cas: self.options.new_cas,
        };
        (change, (STORED, bytes))
    }
}

fn write(asked: &Asked<'_>, outcome: SetOutcome, out: &mut Vec<u8>) {
    let SetOutcome { code, bytes, cas } = outcome;
    if code == STORED && asked.meta.flags.has(b'q') {
        return;
    }
    out.extend_from_slice(code);
    for flag in asked.meta.flags {
        match flag {
            MetaFlag::Opaque(opaque) => answer::word(opaque, out),
            MetaFlag::ReturnKey => reply::meta_key(out, asked.key, asked.meta.key.is_base64()),
            MetaFlag::ReturnCas => reply::meta_number(out, b'c', cas),
            MetaFlag::ReturnSize => reply::meta_number(out, b's', bytes as u64),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}
