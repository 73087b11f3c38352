//! The Redis command `LCS`: the longest common subsequence of two values.

use sherwood_wire::resp::{Args, reply};

use super::failure::{Failure, SYNTAX};
use super::session::{CommandResult, Session, arg, is, number};
use crate::output::Output;
use crate::work::pairs;

/// Maximum product of the lengths of both values: each pair of bytes takes a bit, and all of them a
/// third of a millisecond.
const PAIRS_MAX: usize = 4 << 20;
const TOO_LONG: Failure = Failure::text(
    "ERR LCS compares values of which the product of the lengths is at most 4194304 (twice 2 KiB); compare larger ones in the client",
);
const BOTH: Failure = Failure::text("ERR If you want both the length and indexes, please just use IDX.");

/// The options of the command.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    len: bool,
    idx: bool,
    with_match_len: bool,
    match_len_min: i64,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Self, Failure> {
        let (mut options, mut index) = (Self::default(), 3);
        while let Some(word) = args.get(index) {
            index += 1;
            match word {
                _ if is(word, "len") => options.len = true,
                _ if is(word, "idx") => options.idx = true,
                _ if is(word, "withmatchlen") => options.with_match_len = true,
                _ if is(word, "minmatchlen") => {
                    options.match_len_min = number(args.get(index).ok_or(SYNTAX)?)?;
                    index += 1;
                }
                _ => return Err(SYNTAX),
            }
        }
        if options.len && options.idx { Err(BOTH) } else { Ok(options) }
    }
}

/// A part that both values have, by its first and last positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

/// Executes the Redis command `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len]
/// [WITHMATCHLEN]`.
pub(super) fn lcs(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let options = Options::parse(args)?;
    let (a, b) =
        (session.read(arg(args, 1), |old| old.unlocked()), session.read(arg(args, 2), |old| old.unlocked()));
    let (a, b) = (a.as_deref().unwrap_or_default(), b.as_deref().unwrap_or_default());
    if a.len().saturating_mul(b.len()) > PAIRS_MAX {
        return Err(TOO_LONG);
    }
    out.work.begin(pairs(a.len(), b.len()))?;
    let table = Table::of(a, b);
    if options.len {
        reply::integer(out, table.len() as i64);
    } else if options.idx {
        let (_, mut matches) = table.walk_back();
        matches.retain(|Match { a: (first, last), .. }| (last - first + 1) as i64 >= options.match_len_min);
        reply::map(out, session.version(), 2);
        reply::bulk(out, b"matches");
        reply::array(out, matches.len());
        for Match { a, b } in matches {
            reply::array(out, 2 + usize::from(options.with_match_len));
            for (first, last) in [a, b] {
                reply::array(out, 2);
                reply::integer(out, first as i64);
                reply::integer(out, last as i64);
            }
            if options.with_match_len {
                reply::integer(out, (a.1 - a.0 + 1) as i64);
            }
        }
        reply::bulk(out, b"len");
        reply::integer(out, table.len() as i64);
    } else {
        reply::bulk(out, &table.walk_back().0);
    }
    Ok(())
}

/// The lengths of the longest common subsequences (LCS) of all pairs of prefixes of two values. For
/// each pair of bytes, one bit tells whether the length grows there; 64 bits are computed at a time
/// (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004).
struct Table<'v> {
    /// The shorter value. The table has a row for each of its prefixes, the empty one first.
    short: &'v [u8],
    /// The longer value. Each row has a bit for each of its bytes, set if the LCS does not become
    /// longer with that byte.
    long: &'v [u8],
    /// True if `short` is the second value of the command.
    swapped: bool,
    /// Number of 64-bit words per row.
    words: usize,
    rows: Vec<u64>,
}

impl<'v> Table<'v> {
    /// Computes the table in O(a × b / 64) time. It takes a × b bits of memory, and as much again
    /// during the computation.
    fn of(a: &'v [u8], b: &'v [u8]) -> Self {
        let swapped = a.len() > b.len();
        let (short, long) = if swapped { (b, a) } else { (a, b) };
        let words = long.len().div_ceil(64);
        let masks = Masks::of(short, long);
        let mut rows = Vec::with_capacity((short.len() + 1) * words);
        rows.resize(words, u64::MAX);
        for (above, &byte) in short.iter().enumerate() {
            let mut carry = false;
            for (word, mask) in masks.of_byte(byte).iter().enumerate() {
                let flat = rows[above * words + word];
                let alike = flat & mask;
                let (sum, over) = flat.overflowing_add(alike);
                let (sum, carried) = sum.overflowing_add(u64::from(carry));
                carry = over | carried;
                rows.push(sum | (flat ^ alike));
            }
        }
        Self { short, long, swapped, words, rows }
    }

    /// Returns the length of the LCS of the first `short` bytes of the shorter value and the first
    /// `long` bytes of the longer one. O(long / 64).
    fn at(&self, short: usize, long: usize) -> u32 {
        let row = &self.rows[short * self.words..];
        let whole: u32 = row[..long / 64].iter().map(|word| word.count_zeros()).sum();
        let rest = long % 64;
        if rest == 0 { whole } else { whole + (!row[long / 64] & ((1 << rest) - 1)).count_ones() }
    }

    /// Returns by how much the LCS with the first `short` bytes becomes longer with byte number
    /// `long` of the longer value: 0 or 1.
    fn growth(&self, short: usize, long: usize) -> u32 {
        let (word, bit) = ((long - 1) / 64, (long - 1) % 64);
        u32::from(self.rows[short * self.words + word] >> bit & 1 == 0)
    }

    fn len(&self) -> u32 {
        self.at(self.short.len(), self.long.len())
    }

    /// Returns the subsequence and its contiguous parts, the last one first; of several solutions
    /// the one that Redis finds. O(a × b / 64).
    fn walk_back(&self) -> (Vec<u8>, Vec<Match>) {
        let (mut found, mut matches) = (Vec::new(), Vec::new());
        let (mut short, mut long) = (self.short.len(), self.long.len());
        let mut part: Option<Match> = None;
        let row_above = |short: usize, long| short.checked_sub(1).map_or(0, |short| self.at(short, long));
        // The lengths here, and without the last byte of the shorter value.
        let (mut here, mut above) = (self.len(), row_above(short, long));
        while short > 0 && long > 0 {
            if self.short[short - 1] == self.long[long - 1] {
                (short, long) = (short - 1, long - 1);
                (here, above) = (here - 1, row_above(short, long));
                found.push(self.short[short]);
                let last = part.map_or((short, long), |Match { a: (_, last), b: (_, other) }| (last, other));
                part = Some(Match { a: (short, last.0), b: (long, last.1) });
                continue;
            }
            matches.extend(part.take());
            let before = here - self.growth(short, long);
            // Redis drops a byte of the second value unless that makes the subsequence shorter.
            let drops_short = if self.swapped { above >= before } else { above > before };
            if drops_short {
                short -= 1;
                (here, above) = (above, row_above(short, long));
            } else {
                above -= self.growth(short - 1, long);
                (here, long) = (before, long - 1);
            }
        }
        matches.extend(part);
        if self.swapped {
            matches.iter_mut().for_each(|Match { a, b }| std::mem::swap(a, b));
        }
        found.reverse();
        (found, matches)
    }
}

/// For each distinct byte of the shorter value, a bit mask of its positions in the longer value.
struct Masks {
    words: usize,
    /// The index of each byte among the distinct bytes of the shorter value.
    numbers: [Option<u8>; 256],
    bits: Vec<u64>,
}

impl Masks {
    fn of(short: &[u8], long: &[u8]) -> Self {
        let words = long.len().div_ceil(64);
        let mut numbers = [None; 256];
        let mut count = 0;
        for &byte in short {
            numbers[usize::from(byte)].get_or_insert_with(|| {
                count += 1;
                (count - 1) as u8
            });
        }
        let mut bits = vec![0; count * words];
        for (place, &byte) in long.iter().enumerate() {
            if let Some(number) = numbers[usize::from(byte)] {
                bits[usize::from(number) * words + place / 64] |= 1 << (place % 64);
            }
        }
        Self { words, numbers, bits }
    }

    /// Returns the mask of a byte that the shorter value has.
    fn of_byte(&self, byte: u8) -> &[u64] {
        let number = self.numbers[usize::from(byte)].map_or(0, usize::from);
        &self.bits[number * self.words..][..self.words]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_subsequence(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    #[test]
    fn parts_of_the_example_in_the_manual_of_redis_are_found() {
        let (a, b) = (b"ohmytext", b"mynewtext");
        let (found, matches) = Table::of(a, b).walk_back();
        assert_eq!(found, b"mytext");
        assert_eq!(matches, [Match { a: (4, 7), b: (5, 8) }, Match { a: (2, 3), b: (0, 1) }]);
    }

    proptest! {
        #[test]
        fn common_subsequence_is_in_both_values_and_none_is_longer(a in "[ab]{0,9}", b in "[abc]{0,9}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            let table = Table::of(a, b);
            let (found, matches) = table.walk_back();
            prop_assert!(is_subsequence(&found, a) && is_subsequence(&found, b));
            let subsets = (0..1_u32 << a.len()).map(|set| -> Vec<u8> {
                (0..a.len()).filter(|at| set >> at & 1 == 1).map(|at| a[at]).collect()
            });
            let longest = subsets.filter(|part| is_subsequence(part, b)).map(|part| part.len()).max();
            prop_assert_eq!(Some(found.len()), longest);
            prop_assert_eq!(table.len() as usize, found.len());
            let parts: Vec<u8> = matches.iter().rev().flat_map(|part| a[part.a.0..=part.a.1].to_vec()).collect();
            prop_assert_eq!(parts, found);
        }
    }
}
