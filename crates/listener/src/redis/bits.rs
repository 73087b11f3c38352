//! Redis commands on the bits of a value: `SETBIT`, `GETBIT` and `BITCOUNT`.
//!
//! Bit 0 is the most significant one of the first byte.

use sherwood_cache::Change;
use sherwood_model::Tags;
use sherwood_wire::resp::{Args, integer, reply};

use super::failure::{Failure, SYNTAX};
use super::session::{CommandResult, Session, arg, is, number};
use crate::output::Output;
use crate::work::rebuilt;

const OFFSET: Failure = Failure::text("ERR bit offset is not an integer or out of range");
const BIT: Failure = Failure::text("ERR bit is not an integer or out of range");

/// The place of a bit in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    byte: usize,
    /// A byte with this bit only.
    mask: u8,
}

impl Place {
    /// Parses the offset of a bit in a value of at most `bytes_max` bytes.
    fn parse(offset: &[u8], bytes_max: usize) -> Result<Self, Failure> {
        let offset = integer(offset).and_then(|offset| u64::try_from(offset).ok()).ok_or(OFFSET)?;
        let byte = usize::try_from(offset / 8).ok().filter(|&byte| byte < bytes_max).ok_or(OFFSET)?;
        Ok(Self { byte, mask: 0x80 >> (offset % 8) })
    }

    fn read(self, value: &[u8]) -> bool {
        value.get(self.byte).is_some_and(|byte| byte & self.mask != 0)
    }
}

/// Executes the Redis command `SETBIT key offset value`.
pub(super) fn setbit(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let place = Place::parse(arg(args, 2), session.value_bytes_max())?;
    let on = match arg(args, 3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(BIT),
    };
    let was = session.try_update(arg(args, 1), |old| {
        let len = old.map_or(0, |old| old.value.len()).max(place.byte + 1);
        out.work.begin(rebuilt(len))?;
        let mut value = old.map_or_else(Vec::new, |old| old.value.to_vec());
        let was = place.read(&value);
        value.resize(len, 0);
        value[place.byte] = if on { value[place.byte] | place.mask } else { value[place.byte] & !place.mask };
        let change = match old {
            Some(old) => old.with(value),
            None => Change::StoreOwned { value, flags: 0, expires: None, tags: Tags::NONE },
        };
        Ok((change, was))
    })?;
    reply::integer(out, i64::from(was));
    Ok(())
}

/// Executes the Redis command `GETBIT key offset`.
pub(super) fn getbit(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    // As in Redis, an offset beyond every value is an error here, too.
    let place = Place::parse(arg(args, 2), session.value_bytes_max())?;
    let on = session.read(arg(args, 1), |old| place.read(old.value)).unwrap_or(false);
    reply::integer(out, i64::from(on));
    Ok(())
}

/// Executes the Redis command `BITCOUNT key [start end [BYTE | BIT]]`.
pub(super) fn bitcount(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let by_bit = match args.get(4) {
        Some(unit) if is_bit(unit) => true,
        Some(unit) if !is(unit, "byte") => return Err(SYNTAX),
        _ => false,
    };
    let range = match args.len() {
        2 => None,
        4 | 5 => Some((number(arg(args, 2))?, number(arg(args, 3))?)),
        _ => return Err(SYNTAX),
    };
    let count = match session.read(arg(args, 1), |old| old.unlocked()) {
        Some(value) => {
            let part = Part::of(&value, range, by_bit);
            out.work.begin(part.bytes.len() as u64)?;
            part.count()
        }
        None => 0,
    };
    reply::integer(out, count);
    Ok(())
}

/// Returns true if the unit argument of a `BITCOUNT` is `BIT`.
pub(super) fn is_bit(unit: &[u8]) -> bool {
    is(unit, "bit")
}

/// The part of a value that a `BITCOUNT` counts.
#[derive(Clone, Copy)]
struct Part<'v> {
    bytes: &'v [u8],
    /// Masks of the bits not counted in the first byte (`before`) and in the last byte (`after`).
    before: u8,
    after: u8,
}

impl<'v> Part<'v> {
    /// Finds the part from `start` to `end`, both inclusive, in bytes or in bits; negative indices
    /// count from the end of the value.
    fn of(value: &'v [u8], range: Option<(i64, i64)>, by_bit: bool) -> Self {
        let whole = |bytes| Self { bytes, before: 0, after: 0 };
        let Some((start, end)) = range else { return whole(value) };
        let len = value.len() as i64 * if by_bit { 8 } else { 1 };
        let from_start = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
        let both_from_end_and_crossed = start < 0 && end < 0 && start > end;
        let (start, end) = (from_start(start), from_start(end).min(len - 1));
        if both_from_end_and_crossed || start > end {
            return whole(&[]);
        }
        if !by_bit {
            return whole(&value[start as usize..=end as usize]);
        }
        let bytes = &value[start as usize / 8..=end as usize / 8];
        Self { bytes, before: !(0xff >> (start % 8)), after: 0x7f >> (end % 8) }
    }

    fn count(self) -> i64 {
        let outside =
            |byte: Option<&u8>, mask: u8| byte.map_or(0, |byte| i64::from((byte & mask).count_ones()));
        let Self { bytes, before, after } = self;
        ones(bytes) - outside(bytes.first(), before) - outside(bytes.last(), after)
    }
}

/// Counts the set bits, eight bytes at a time: ten times as fast as byte by byte.
fn ones(bytes: &[u8]) -> i64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words: i64 = words.iter().map(|&word| i64::from(u64::from_ne_bytes(word).count_ones())).sum();
    of_words + rest.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_of_a_range_are_counted_like_one_by_one(value: Vec<u8>, start in -40..40_i64, end in -40..40_i64, by_bit: bool) {
            let bits: Vec<bool> = value.iter().flat_map(|byte| (0..8).map(move |bit| byte & 0x80 >> bit != 0)).collect();
            let unit = if by_bit { 1 } else { 8 };
            let len = (bits.len() / unit) as i64;
            let at = |index: i64| if index < 0 { (len + index).max(0) } else { index };
            let is_in = |bit: usize| {
                let place = (bit / unit) as i64;
                at(start) <= place && place <= at(end) && !(start < 0 && end < 0 && start > end)
            };
            let expected = bits.iter().enumerate().filter(|&(bit, &on)| on && is_in(bit)).count() as i64;
            prop_assert_eq!(Part::of(&value, Some((start, end)), by_bit).count(), expected);
        }
    }

    #[test]
    fn extreme_indices_of_a_range_are_clamped_to_the_value() {
        let count = |value, range, by_bit| Part::of(value, range, by_bit).count();
        for by_bit in [false, true] {
            assert_eq!(count(b"\xff\x0f", Some((i64::MIN, i64::MAX)), by_bit), 12);
            assert_eq!(count(b"\xff\x0f", Some((i64::MAX, i64::MIN)), by_bit), 0);
            assert_eq!(count(b"", Some((0, -1)), by_bit), 0);
        }
    }
}
