//! Mutation of known inputs.
//!
//! Random bytes get no further than the first word of a protocol. So a known input is changed
//! slightly, mostly by parts of other inputs: their words, and numbers at the ends of the ranges
//! that codecs check.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::stream::REPEAT;

/// Longest mutated input in bytes; most are much shorter.
const INPUT_BYTES_MAX: usize = 4096;
/// Most changes that one mutated input has.
const CHANGES_MAX: usize = 6;
/// Numbers near the ends of the ranges that codecs check: of words, of lengths, of times and of
/// both protocols' limits.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "19",
    "20",
    "21",
    "40",
    "41",
    "250",
    "251",
    "2048",
    "16384",
    "20001",
    "65536",
    "99999",
    "1048576",
    "1048577",
    "2147483645",
    "2147483646",
    "4294967295",
    "4294967296",
    "536870912",
    "536870913",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "00",
    "+1",
];

/// Makes mutated inputs from a corpus; equal seeds give equal inputs.
pub(crate) struct Mutator<'a> {
    corpus: &'a [Vec<u8>],
    random: Xoshiro256PlusPlus,
}

impl<'a> Mutator<'a> {
    /// Creates a mutator of the inputs in `corpus`, which has at least one.
    pub(crate) fn new(corpus: &'a [Vec<u8>], random: Xoshiro256PlusPlus) -> Self {
        Self { corpus, random }
    }

    /// Returns the next mutated input.
    pub(crate) fn input(&mut self) -> Vec<u8> {
        let mut input = self.known().to_vec();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = input.len().min(at + self.below(8));
        let insert: Vec<u8> = match self.below(9) {
            0 => Vec::new(),
            1 => vec![self.byte()],
            2 => vec![b"\r\n \0$*-"[self.below(7)]],
            // Repetitions are mostly short, because long ones take long.
            3 => vec![REPEAT, 1 + self.below(8) as u8, self.byte() >> (2 + self.below(6))],
            4 => return self.renumber(input, at),
            5 => return input.extend_from_slice(self.known()),
            _ => {
                let word = self.word();
                input.splice(at..at, word.iter().copied());
                return;
            }
        };
        let replaced = if self.below(2) == 0 { at..at } else { at..end };
        input.splice(replaced, insert);
    }

    /// Replaces the first number in `input` from index `at` on by another one.
    fn renumber(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else {
            return;
        };
        let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = NUMBERS[self.below(NUMBERS.len())];
        input.splice(start..start + digits, number.bytes());
    }

    /// Returns a word of an input in the corpus, including the space or line end after it.
    fn word(&mut self) -> &'a [u8] {
        let known = self.known();
        let start = self.below(known.len() + 1);
        let is_end = |byte: &u8| b" \n".contains(byte);
        let start = known[..start].iter().rposition(is_end).map_or(0, |end| end + 1);
        let rest = &known[start..];
        &rest[..rest.iter().position(is_end).map_or(rest.len(), |end| end + 1)]
    }

    fn known(&mut self) -> &'a [u8] {
        &self.corpus[self.below(self.corpus.len())]
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// Draws a number from 0 to `bound` - 1; the bias of the remainder does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound as u64) as usize
    }
}
