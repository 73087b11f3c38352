//! Writes answers to memcached's meta commands.

use std::time::Duration;

use sherwood_cache::Marks;
use sherwood_model::Instant;
use sherwood_wire::memcached::{Meta, MetaFlag, MetaFlags, reply};

use super::{Asked, BINARY};
use crate::clock::Moment;
use crate::memcached::session::expiry;

/// The attributes of an item that the answer to a meta command can show.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) value: &'a [u8],
    pub(super) flags: u32,
    pub(super) cas: u64,
    /// The item's expiry at the position of `t` among the command's flags.
    pub(super) expires: Option<Instant>,
    pub(super) marks: Marks,
    /// True if the item was read before.
    pub(super) hit: bool,
    /// The time since the item's last use.
    pub(super) idle: Duration,
}

/// Appends the item's attributes that the flags of an `mg` request, in the order of the flags.
pub(super) fn item_flags(asked: &Asked<'_>, shown: &Shown<'_>, out: &mut Vec<u8>) {
    for flag in asked.meta.flags {
        match flag {
            MetaFlag::ReturnCas => reply::meta_number(out, b'c', shown.cas),
            MetaFlag::ReturnFlags => reply::meta_number(out, b'f', shown.flags.into()),
            MetaFlag::ReturnHit => reply::meta_number(out, b'h', shown.hit.into()),
            MetaFlag::ReturnIdle => reply::meta_number(out, b'l', shown.idle.as_secs()),
            MetaFlag::ReturnSize => reply::meta_number(out, b's', shown.value.len() as u64),
            MetaFlag::ReturnTtl => ttl(shown.expires, asked.moment, out),
            MetaFlag::ReturnKey => {
                // Other clients than those of the text protocol store keys that no line can hold.
                let base64 = shown.marks.contains(BINARY) || !is_of_one_word(asked.key);
                reply::meta_key(out, asked.key, base64);
            }
            MetaFlag::Opaque(opaque) => word(opaque, out),
            _ => {}
        }
    }
}

/// Returns true if the key can be one word of a text line: it has no space, line end or zero byte.
fn is_of_one_word(key: &[u8]) -> bool {
    !key.iter().any(|byte| b"\0\r\n ".contains(byte))
}

/// Appends a complete answer that consists of `code` and, if requested, key and opaque of the
/// request, but no attributes of an item.
pub(super) fn without_item(meta: Meta<'_>, key: &[u8], code: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(code);
    for flag in meta.flags {
        match flag {
            MetaFlag::ReturnKey => reply::meta_key(out, key, meta.key.is_base64()),
            MetaFlag::Opaque(opaque) => word(opaque, out),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends ` t` and the remaining seconds to live of an item, or -1 if it does not expire.
pub(super) fn ttl(expires: Option<Instant>, moment: Moment, out: &mut Vec<u8>) {
    match ttl_secs(expires, moment) {
        Some(secs) => reply::meta_number(out, b't', secs),
        None => out.extend_from_slice(b" t-1"),
    }
}

/// Appends a space and a word of the request.
pub(super) fn word(word: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(word);
}

/// Returns the remaining seconds to live of an item, rounded up, so that an item just stored for 30
/// seconds has 30.
pub(super) fn ttl_secs(expires: Option<Instant>, moment: Moment) -> Option<u64> {
    let left = expires?.since(moment.now);
    Some(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}

/// An item's expiry at several positions among the flags of a meta command, which take effect in
/// order.
#[derive(Clone, Copy)]
pub(super) struct Expiry {
    /// Expiry at the position of `t`, which reports it.
    pub(super) shown: Option<Instant>,
    /// Expiry at the position of `R`, which compares it.
    pub(super) compared: Option<Instant>,
    /// Expiry that the item has after all flags.
    pub(super) last: Option<Instant>,
}

impl Expiry {
    /// Applies the flags in order to the expiry `before` the command, as memcached does: `t`
    /// reports, and `R` compares, the expiry set by the flags before it. `N` applies only if the
    /// item was just `made`.
    pub(super) fn of(flags: MetaFlags<'_>, before: Option<Instant>, made: bool, moment: Moment) -> Self {
        let mut expiry_of = Self { shown: before, compared: before, last: before };
        for flag in flags {
            match flag {
                MetaFlag::Ttl(exptime) => expiry_of.last = expiry(exptime, moment),
                MetaFlag::Vivify(exptime) if made => expiry_of.last = expiry(exptime, moment),
                MetaFlag::ReturnTtl => expiry_of.shown = expiry_of.last,
                MetaFlag::Recache(_) => expiry_of.compared = expiry_of.last,
                _ => {}
            }
        }
        expiry_of
    }
}
