//! The meta command `mg`: reads an item. Depending on its flags it also changes the expiry, creates
//! a placeholder for a missing item, or tells one client to recache.
//!
//! Most reads change only the recency and take the same path as `get`. If the expiry is to be
//! changed or one of several clients to be told to recache, a second step reads the item again and
//! changes it.

use std::borrow::Cow;
use std::time::Duration;

use crate::backends::{FetchFailure, FetchResult, FetchedValue};
use sherwood_cache::{Change, Item, ItemKind, Marks, NewCas};
use sherwood_model::{Instant, Tags};
use sherwood_wire::memcached::{Expires, KEY_BYTES_MAX, Meta, MetaOptions, reply};

use super::answer::{self, Expiry, Shown, ttl_secs};
use super::{Asked, STALE, WON, stored};
use crate::clock::Moment;
use crate::conversation::Wanted;
use crate::counters::Count;
use crate::memcached::session::{Session, is_over};
use crate::output::Output;

/// The result of an `mg` that changed or created an item.
struct GetOutcome {
    expiry: Expiry,
    marks: Marks,
    /// True if this client is told to recache the item (to fetch its value anew and store it).
    won: bool,
    /// True if another client has been told to recache the item.
    taken: bool,
    stale: bool,
}

/// The state of an item before the `mg`.
#[derive(Clone, Copy, Default)]
struct Before {
    hit: bool,
    idle: Duration,
}

/// The result of the first step of an `mg`, which only reads.
enum Read {
    Answered,
    /// The item has to be changed by the second step.
    Unsettled {
        hit: bool,
    },
    /// The item does not exist.
    Absent,
}

/// The result of the second step of an `mg`, which changes the item.
enum Settled {
    Answered,
    Made(GetOutcome),
    Absent,
}

impl Session<'_> {
    /// Answers an `mg`, or returns the key to fetch before it can be answered.
    pub(super) fn meta_get(&self, asked: &Asked<'_>, out: &mut Output) -> Option<Wanted> {
        self.counters.increment(Count::CmdGet);
        let options = asked.meta.flags.options();
        let idle = self.idle(asked);
        match self.read(asked, &options, idle, out) {
            Read::Answered => {
                self.counters.increment(Count::GetHits);
                self.ended.note_hit(asked.target, asked.name);
            }
            Read::Unsettled { hit } => {
                self.counters.increment(Count::GetHits);
                self.ended.note_hit(asked.target, asked.name);
                self.settle(asked, &options, Before { hit, idle }, None, out);
            }
            Read::Absent => {
                self.counters.increment(Count::GetMisses);
                if asked.target.read_through && self.shared.service.backends.is_some() {
                    self.ended.note_read(asked.target, asked.name);
                    return Some(asked.wanted());
                }
                self.ended.note_miss(asked.target, asked.name);
                self.settle(asked, &options, Before::default(), None, out);
            }
        }
        None
    }

    /// Answers an `mg` with the result of a fetch.
    pub(in super::super) fn meta_fetched(
        &self,
        moment: Moment,
        meta: Meta<'_>,
        fetched: &FetchResult,
        out: &mut Vec<u8>,
    ) {
        self.counters.increment(Count::Fetches);
        if fetched.is_err() {
            self.counters.increment(Count::FetchErrors);
        }
        if let Some(text) = fetched.as_ref().err().and_then(FetchFailure::rejection) {
            return reply::rejected(out, &text);
        }
        let mut room = [0; KEY_BYTES_MAX];
        if let Some(asked) = self.asked(moment, meta, meta.key.bytes(&mut room)) {
            let options = meta.flags.options();
            match fetched {
                Ok(found) => self.settle(&asked, &options, Before::default(), found.as_ref(), out),
                // A failed fetch does not show that the item is missing, so no placeholder is
                // created.
                Err(_) => {
                    let options = MetaOptions { vivify: None, ..options };
                    self.settle(&asked, &options, Before::default(), None, out);
                }
            }
        }
    }

    /// Returns the time since the item's last use, or zero if flag `l` does not request it.
    fn idle(&self, asked: &Asked<'_>) -> Duration {
        if !asked.meta.flags.has(b'l') {
            return Duration::ZERO;
        }
        let cache = &self.shared.service.cache;
        let last_use = cache.peek(asked.target.partition, asked.name, &asked.access(), |item| item.last_use);
        last_use.map_or(Duration::ZERO, |last_use| cache.since(last_use, asked.moment.now))
    }

    fn read(&self, asked: &Asked<'_>, options: &MetaOptions, idle: Duration, out: &mut Output) -> Read {
        let changes = options.ttl.is_some() || options.recache.is_some();
        let passing = changes || asked.meta.flags.has(b'u');
        let access = if passing { asked.passing() } else { asked.access() };
        let cache = &self.shared.service.cache;
        let read = cache.get(asked.target.partition, asked.name, &access, |item| {
            let Some(value) = stored(&item) else { return Read::Absent };
            let before = Before { hit: item.marks.contains(Marks::USED), idle };
            let outcome = GetOutcome::of(asked, options, item.expires, item.marks, false);
            if changes || outcome.won {
                return Read::Unsettled { hit: before.hit };
            }
            let shown = shown(&item, value, &outcome, before);
            let line = |out: &mut Vec<u8>| write_line(asked, options, &outcome, &shown, out);
            match shows_value(asked, options, &shown) {
                true => out.value(&item, value, line),
                false => line(out),
            }
            Read::Answered
        });
        read.unwrap_or(Read::Absent)
    }

    /// Carries out the second step of an `mg`: changes the item or creates it, or answers with a
    /// `fetched` value that was not stored.
    fn settle(
        &self,
        asked: &Asked<'_>,
        options: &MetaOptions,
        before: Before,
        fetched: Option<&FetchedValue>,
        out: &mut Vec<u8>,
    ) {
        let access = if asked.meta.flags.has(b'u') { asked.passing() } else { asked.access() };
        let service = &self.shared.service;
        // Removed, because an expired item would stay visible to readers that accept stale values.
        let is_over = options.ttl.is_some_and(|exptime| is_over(exptime, asked.moment));
        let decide = |item: Option<Item<'_>>| match item.and_then(|item| Some((item, stored(&item)?))) {
            Some((item, value)) => {
                let outcome = GetOutcome::of(asked, options, item.expires, item.marks, false);
                write(asked, options, &outcome, &shown(&item, value, &outcome, before), out);
                let change = if is_over { Change::Remove } else { outcome.amend() };
                (change, Settled::Answered)
            }
            None if fetched.is_none() && options.vivify.is_some() => {
                let outcome = GetOutcome::of(asked, options, None, asked.marks(), true);
                (outcome.make(options), Settled::Made(outcome))
            }
            None => (if is_over { Change::Remove } else { Change::Keep }, Settled::Absent),
        };
        let update = || service.cache.update_with_cas(asked.target.partition, asked.name, &access, decide);
        let settled = if is_over { service.write(asked.target, asked.name, update) } else { update() };
        let shown = Shown {
            value: fetched.map_or(&[], |found| &found.value),
            flags: fetched.map_or(0, |found| found.flags),
            cas: 0,
            expires: None,
            marks: asked.marks(),
            hit: false,
            idle: Duration::ZERO,
        };
        match settled {
            Ok((Settled::Answered, _)) => self.touched(options, Count::TouchHits),
            Ok((Settled::Made(outcome), cas)) => {
                let shown = Shown { cas: cas.unwrap_or_default(), expires: outcome.expiry.shown, ..shown };
                write(asked, options, &outcome, &shown, out);
            }
            Ok((Settled::Absent, _)) if fetched.is_some() => {
                let outcome = GetOutcome::of(asked, options, None, asked.marks(), false);
                write(asked, options, &outcome, &shown, out);
            }
            Ok((Settled::Absent, _)) => {
                self.touched(options, Count::TouchMisses);
                self.absent(asked, out);
            }
            // Without memory for a placeholder the answer is a miss, and no client is told to
            // recache.
            Err(_) => self.absent(asked, out),
        }
    }

    fn touched(&self, options: &MetaOptions, how: Count) {
        if options.ttl.is_some() {
            self.counters.increment(Count::CmdTouch);
            self.counters.increment(how);
        }
    }

    fn absent(&self, asked: &Asked<'_>, out: &mut Vec<u8>) {
        if !asked.meta.flags.has(b'q') {
            answer::without_item(asked.meta, asked.key, b"EN", out);
        }
    }
}

impl GetOutcome {
    fn of(
        asked: &Asked<'_>,
        options: &MetaOptions,
        expires: Option<Instant>,
        marks: Marks,
        made: bool,
    ) -> Self {
        let expiry = Expiry::of(asked.meta.flags, expires, made, asked.moment);
        let (taken, stale) = (marks.contains(WON), marks.contains(STALE));
        let won = made || !taken && (stale || runs_out(options, expiry.compared, asked.moment));
        let marks = if won { marks.with(WON) } else { marks };
        let used = if asked.meta.flags.has(b'u') || made { marks } else { marks.with(Marks::USED) };
        Self { expiry, marks: used, won, taken, stale }
    }

    fn amend(&self) -> Change<'static> {
        Change::Amend { expires: self.expiry.last, marks: self.marks, cas: NewCas::Keep }
    }

    fn make(&self, options: &MetaOptions) -> Change<'static> {
        Change::StoreMarked {
            value: Cow::Borrowed(b""),
            flags: 0,
            expires: self.expiry.last,
            kind: ItemKind::Placeholder,
            tags: Tags::NONE,
            marks: self.marks,
            cas: options.new_cas,
        }
    }
}

/// Returns true if the item's remaining time to live is below that of flag `R`, so that a client is
/// to recache it.
fn runs_out(options: &MetaOptions, expires: Option<Instant>, moment: Moment) -> bool {
    match options.recache.map(|exptime| exptime.resolve(moment.unix_secs)) {
        Some(Expires::After(least)) => ttl_secs(expires, moment).is_some_and(|left| left < least.as_secs()),
        _ => false,
    }
}

fn shown<'a>(item: &Item<'_>, value: &'a [u8], outcome: &GetOutcome, before: Before) -> Shown<'a> {
    Shown {
        value,
        flags: item.flags,
        cas: item.cas,
        expires: outcome.expiry.shown,
        marks: outcome.marks,
        hit: before.hit,
        idle: before.idle,
    }
}

/// Appends an answer with a copy of its value, if it has one.
fn write(
    asked: &Asked<'_>,
    options: &MetaOptions,
    outcome: &GetOutcome,
    shown: &Shown<'_>,
    out: &mut Vec<u8>,
) {
    let with_value = shows_value(asked, options, shown);
    if with_value {
        out.reserve(reply::VALUE_LINE_BYTES_MAX + shown.value.len());
    }
    write_line(asked, options, outcome, shown, out);
    if with_value {
        out.extend_from_slice(shown.value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns true if a value and a line end follow the line of an answer.
fn shows_value(asked: &Asked<'_>, options: &MetaOptions, shown: &Shown<'_>) -> bool {
    asked.meta.flags.has(b'v') && options.cas != Some(shown.cas)
}

/// Appends the line of an answer.
fn write_line(
    asked: &Asked<'_>,
    options: &MetaOptions,
    outcome: &GetOutcome,
    shown: &Shown<'_>,
    out: &mut Vec<u8>,
) {
    if shows_value(asked, options, shown) {
        reply::meta_value(out, shown.value.len());
    } else {
        out.extend_from_slice(b"HD");
    }
    answer::item_flags(asked, shown, out);
    for (letter, is_so) in [(b" Z", outcome.taken), (b" X", outcome.stale), (b" W", outcome.won)] {
        if is_so {
            out.extend_from_slice(letter);
        }
    }
    out.extend_from_slice(b"\r\n");
}
