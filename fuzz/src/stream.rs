//! How bytes reach a codec, and what has to hold whichever way they do.

use std::fmt::Debug;

/// A fuzz target; its input is in the notation of [`expanded`].
pub type Target = fn(&[u8]);

/// Says in an input of a target that bytes are to be repeated; see [`expanded`].
pub const REPEAT: u8 = 0xff;
/// Longest stream in bytes: two of the longest lines of any protocol, and something after them.
const STREAM_BYTES_MAX: usize = 160 * 1024;
/// Most pieces a stream is cut into, about: lines are looked at again with each piece, and this
/// keeps that cheap.
const PIECES_MAX: usize = 256;

/// The stream that `input` stands for: itself, but for [`REPEAT`] with two bytes `n` and `m` after
/// it, which adds the last `n` bytes before it once more, `m` times `m` times. Limits of many KiB
/// are reached by inputs of a few bytes that way, which is what a fuzzer is good at. Where there
/// are no `n` bytes the three stand for themselves.
#[must_use]
pub fn expanded(input: &[u8]) -> Vec<u8> {
    let mut stream = Vec::with_capacity(input.len());
    let mut rest = input;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (REPEAT, [n, m, after @ ..]) if (1..=stream.len()).contains(&usize::from(*n)) => {
                let pattern = stream[stream.len() - usize::from(*n)..].to_vec();
                let room = STREAM_BYTES_MAX.saturating_sub(stream.len()) / pattern.len();
                stream.extend(pattern.repeat(room.min(usize::from(*m).pow(2))));
                after
            }
            _ => {
                stream.push(byte);
                after
            }
        };
    }
    stream.truncate(STREAM_BYTES_MAX);
    stream
}

/// What one call of a codec came to.
#[derive(Debug)]
pub enum Step<T> {
    /// It said something, and used up so many bytes for it.
    Said {
        /// Used up.
        consumed: usize,
        /// What.
        what: T,
    },
    /// It used up so many bytes and waits until there are `need` after them.
    Incomplete {
        /// Used up.
        consumed: usize,
        /// Wanted.
        need: usize,
    },
    /// It gave up, and is not to be called again.
    Broken(T),
}

/// How much of a stream is offered at a time.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// All of it.
    Whole,
    /// As little as possible.
    Least,
    /// No more than the codec asks for.
    Asked,
    /// Pieces of any length, drawn from this number.
    Drawn(u64),
}

/// Offers `stream` to one new codec for each way to cut it.
///
/// # Panics
/// When they do not all say the same, or one uses up more than it was offered, says something and
/// uses up nothing, or asks for no more than it has or for more than `need_max` bytes.
pub fn same_however_cut<'s, T, C>(stream: &'s [u8], need_max: usize, codec: impl Fn() -> C)
where
    T: PartialEq + Debug,
    C: FnMut(&'s [u8]) -> Step<T>,
{
    let whole = said(stream, Reading::Whole, need_max, codec());
    for reading in [Reading::Least, Reading::Asked, Reading::Drawn(checksum(stream))] {
        let pieces = said(stream, reading, need_max, codec());
        let at = pieces.iter().zip(&whole).take_while(|(one, other)| one == other).count();
        assert_eq!(
            pieces.get(at),
            whole.get(at),
            "{reading:?} against all at once, after {at} that are the same"
        );
    }
}

/// Ways to cut `stream`: all at once, in pieces as short as can be, and in pieces of any length.
#[must_use]
pub fn ways_to_cut(stream: &[u8]) -> [Vec<&[u8]>; 3] {
    [Reading::Whole, Reading::Least, Reading::Drawn(checksum(stream))].map(|reading| {
        let mut reader = Reader::new(reading, stream);
        let (mut pieces, mut start) = (Vec::new(), 0);
        while start < stream.len() {
            let end = stream.len().min(reader.next(start, start + 1));
            pieces.push(&stream[start..end]);
            start = end;
        }
        pieces
    })
}

fn said<'s, T>(
    stream: &'s [u8],
    reading: Reading,
    need_max: usize,
    mut codec: impl FnMut(&'s [u8]) -> Step<T>,
) -> Vec<T> {
    let (mut start, mut end) = (0, 0);
    let mut all = Vec::new();
    let mut reader = Reader::new(reading, stream);
    // Ends: each turn of the inner loop but its last uses up a byte, and each of the outer one
    // offers another.
    loop {
        let wanted = loop {
            let offered = &stream[start..end];
            match codec(offered) {
                Step::Said { consumed, what } => {
                    assert!(
                        (1..=offered.len()).contains(&consumed),
                        "{consumed} of {} used up",
                        offered.len()
                    );
                    start += consumed;
                    all.push(what);
                }
                Step::Incomplete { consumed, need } => {
                    assert!(consumed <= offered.len(), "{consumed} of {} used up", offered.len());
                    start += consumed;
                    assert!(need > end - start && need <= need_max, "{need} asked for with {}", end - start);
                    break need;
                }
                Step::Broken(what) => {
                    all.push(what);
                    return all;
                }
            }
        };
        if end == stream.len() {
            return all;
        }
        end = stream.len().min(reader.next(end, start + wanted));
    }
}

struct Reader {
    reading: Reading,
    least: usize,
}

impl Reader {
    fn new(reading: Reading, stream: &[u8]) -> Self {
        Self { reading, least: 1 + stream.len() / PIECES_MAX }
    }

    /// Where the next piece ends when the last one ended at `end` and the codec asks for all before
    /// `wanted`.
    fn next(&mut self, end: usize, wanted: usize) -> usize {
        match &mut self.reading {
            Reading::Whole => usize::MAX,
            Reading::Least => end + self.least,
            Reading::Asked => wanted.max(end + self.least),
            Reading::Drawn(number) => {
                *number = mixed(*number);
                // Short ones and long ones are equally likely.
                let bits = *number % 14;
                end + self.least + (*number >> (64 - bits.max(1))) as usize
            }
        }
    }
}

/// A number that changes with every byte.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| mixed(sum ^ u64::from(byte)))
}

/// One step of a generator with full period: each bit of the result depends on those before it.
fn mixed(number: u64) -> u64 {
    let next = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    next ^ (next >> 29)
}
