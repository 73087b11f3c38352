//! The Redis command `LCS`: the longest common subsequence of two values.

use sherwood_wire::resp::{Args, reply};

use super::failure::{Failure, SYNTAX};
use super::session::{CommandResult, Session, arg, is, number};
use crate::output::Output;

/// Largest product of the lengths of both values: 4 bytes each, and some milliseconds in which the
/// thread serves no other client.
const CELLS_MAX: usize = 4 << 20;
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
    let read = |key| session.read(key, |old| old.value.to_vec()).unwrap_or_default();
    let (a, b) = (read(arg(args, 1)), read(arg(args, 2)));
    if a.len().saturating_mul(b.len()) > CELLS_MAX {
        return Err(TOO_LONG);
    }
    let table = Table::of(&a, &b);
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

/// The lengths of the longest common subsequences of all beginnings of two values.
struct Table<'v> {
    a: &'v [u8],
    b: &'v [u8],
    /// By the length of a's beginning, then that of b's.
    lengths: Vec<u32>,
}

impl<'v> Table<'v> {
    /// O(a × b) in time and memory.
    fn of(a: &'v [u8], b: &'v [u8]) -> Self {
        let width = b.len() + 1;
        let mut lengths = vec![0; (a.len() + 1) * width];
        for (row, &left) in a.iter().enumerate() {
            let (above, current) = lengths[row * width..(row + 2) * width].split_at_mut(width);
            for (column, &right) in b.iter().enumerate() {
                current[column + 1] = match left == right {
                    true => above[column] + 1,
                    false => above[column + 1].max(current[column]),
                };
            }
        }
        Self { a, b, lengths }
    }

    fn at(&self, a: usize, b: usize) -> u32 {
        self.lengths[a * (self.b.len() + 1) + b]
    }

    fn len(&self) -> u32 {
        self.at(self.a.len(), self.b.len())
    }

    /// Returns the subsequence and the parts that it consists of, the last one first, by the same
    /// way through the table as Redis.
    fn walk_back(&self) -> (Vec<u8>, Vec<Match>) {
        let (mut found, mut matches) = (Vec::new(), Vec::new());
        let (mut at_a, mut at_b) = (self.a.len(), self.b.len());
        let mut part: Option<Match> = None;
        while at_a > 0 && at_b > 0 {
            if self.a[at_a - 1] == self.b[at_b - 1] {
                (at_a, at_b) = (at_a - 1, at_b - 1);
                found.push(self.a[at_a]);
                let Match { a: (_, last_a), b: (_, last_b) } =
                    part.unwrap_or(Match { a: (at_a, at_a), b: (at_b, at_b) });
                part = Some(Match { a: (at_a, last_a), b: (at_b, last_b) });
            } else {
                matches.extend(part.take());
                match self.at(at_a - 1, at_b) > self.at(at_a, at_b - 1) {
                    true => at_a -= 1,
                    false => at_b -= 1,
                }
            }
        }
        matches.extend(part);
        found.reverse();
        (found, matches)
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
