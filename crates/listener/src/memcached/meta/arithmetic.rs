//! The meta command `ma`: increments and decrements.

use std::borrow::Cow;

use sherwood_cache::{Change, Item, ItemKind};
use sherwood_model::query_times::Operation;
use sherwood_model::{Instant, Tags};
use sherwood_wire::memcached::{ArithmeticMode, Delta, MetaFlag, MetaOptions, reply};

use super::answer::{self, Expiry};
use super::{Asked, stored};
use crate::counters::Count;
use crate::memcached::session::{Session, number, recounted};

/// The result of the meta command `ma`, which increments or decrements.
enum CountOutcome {
    Counted {
        number: u64,
        /// The item's expiry at the position of `t` among the command's flags.
        expires: Option<Instant>,
        made: bool,
    },
    NotFound,
    /// The item has another CAS than the command requires.
    Exists,
    NonNumeric,
}

impl Session<'_> {
    pub(super) fn meta_arithmetic(&self, asked: &Asked<'_>, mode: ArithmeticMode, out: &mut Vec<u8>) {
        let options = asked.meta.flags.options();
        let cache = &self.shared.service.cache;
        let counted = self.shared.service.write(asked.target, asked.name, || {
            cache.update_with_cas(asked.target.partition, asked.name, &asked.access(), |item| match item {
                Some(item) => count(asked, mode, &options, &item),
                None => make(asked, &options),
            })
        });
        match counted {
            Ok((outcome, cas)) => {
                self.count_arithmetic(asked, mode, &outcome);
                write(asked, &outcome, cas.unwrap_or_default(), out);
            }
            Err(refused) => out.extend_from_slice(self.refused(refused)),
        }
    }

    fn count_arithmetic(&self, asked: &Asked<'_>, mode: ArithmeticMode, outcome: &CountOutcome) {
        let missed = matches!(outcome, CountOutcome::NotFound | CountOutcome::Counted { made: true, .. });
        self.ended.note(asked.target, Operation::Other, !missed);
        self.counters.increment(if missed { misses(mode) } else { hits(mode) });
    }
}

fn hits(mode: ArithmeticMode) -> Count {
    match mode {
        ArithmeticMode::Increase => Count::IncrHits,
        ArithmeticMode::Decrease => Count::DecrHits,
    }
}

pub(super) fn misses(mode: ArithmeticMode) -> Count {
    match mode {
        ArithmeticMode::Increase => Count::IncrMisses,
        ArithmeticMode::Decrease => Count::DecrMisses,
    }
}

fn count(
    asked: &Asked<'_>,
    mode: ArithmeticMode,
    options: &MetaOptions,
    item: &Item<'_>,
) -> (Change<'static>, CountOutcome) {
    if options.cas.is_some_and(|cas| cas != 0 && cas != item.cas) {
        return (Change::Keep, CountOutcome::Exists);
    }
    let Some((value, old)) = stored(item).and_then(|value| Some((value, number(value)?))) else {
        return (Change::Keep, CountOutcome::NonNumeric);
    };
    let delta = match mode {
        ArithmeticMode::Increase => Delta::Increase(options.delta),
        ArithmeticMode::Decrease => Delta::Decrease(options.delta),
    };
    let number = delta.apply(old);
    let expiry = Expiry::of(asked.meta.flags, item.expires, false, asked.moment);
    let (value, marks) = recounted(number, value, item.marks);
    let change = Change::StoreMarked {
        value,
        flags: item.flags,
        expires: expiry.last,
        kind: ItemKind::Plain,
        tags: item.tags,
        marks,
        cas: options.new_cas,
    };
    (change, CountOutcome::Counted { number, expires: expiry.shown, made: false })
}

/// Creates the missing item of an `ma`, with the initial value of flag `J`, if the command has a
/// flag `N`.
fn make(asked: &Asked<'_>, options: &MetaOptions) -> (Change<'static>, CountOutcome) {
    if options.vivify.is_none() {
        return (Change::Keep, CountOutcome::NotFound);
    }
    let expiry = Expiry::of(asked.meta.flags, None, true, asked.moment);
    let change = Change::StoreMarked {
        value: Cow::Owned(options.initial.to_string().into_bytes()),
        flags: 0,
        expires: expiry.last,
        kind: ItemKind::Plain,
        tags: Tags::NONE,
        marks: asked.marks(),
        cas: options.new_cas,
    };
    (change, CountOutcome::Counted { number: options.initial, expires: expiry.shown, made: true })
}

fn write(asked: &Asked<'_>, outcome: &CountOutcome, cas: u64, out: &mut Vec<u8>) {
    let flags = asked.meta.flags;
    let (number, expires) = match outcome {
        CountOutcome::Counted { .. } if flags.has(b'q') => return,
        CountOutcome::Counted { number, expires, .. } => (number.to_string(), *expires),
        CountOutcome::NotFound => return answer::without_item(asked.meta, asked.key, b"NF", out),
        CountOutcome::Exists => return answer::without_item(asked.meta, asked.key, b"EX", out),
        CountOutcome::NonNumeric => return out.extend_from_slice(reply::NON_NUMERIC),
    };
    if flags.has(b'v') {
        reply::meta_value(out, number.len());
    } else {
        out.extend_from_slice(b"HD");
    }
    for flag in flags {
        match flag {
            MetaFlag::ReturnCas => reply::meta_number(out, b'c', cas),
            MetaFlag::ReturnTtl => answer::ttl(expires, asked.moment, out),
            MetaFlag::Opaque(opaque) => answer::word(opaque, out),
            MetaFlag::ReturnKey => reply::meta_key(out, asked.key, asked.meta.key.is_base64()),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
    if flags.has(b'v') {
        out.extend_from_slice(number.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
