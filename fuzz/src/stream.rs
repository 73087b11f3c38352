//! Delivery of bytes to a codec in pieces, and the properties that hold for every way to cut them.

use std::fmt::Debug;

/// A fuzz target; its input is in the notation that [`expanded`] describes.
pub type Target = fn(&[u8]);

/// The byte that begins a repetition in an input; see [`expanded`].
pub const REPEAT: u8 = 0xff;
/// Longest stream of expanded input in bytes: two of the longest lines of any protocol, and some
/// more.
const STREAM_BYTES_MAX: usize = 160 * 1024;
/// Approximate maximum number of pieces that a stream is cut into. Lines are scanned again for each
/// piece; the limit keeps that cheap.
const PIECES_MAX: usize = 256;

/// Expands the repetitions in `input`. [`REPEAT`] followed by two bytes `n` and `m` appends the
/// previous `n` bytes `m` times `m` times. So inputs of a few bytes, which fuzzers handle best,
/// reach limits of many KiB. Where there are no `n` bytes, the three bytes are kept as they are.
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

/// The result of one call of a codec under test.
#[derive(Debug)]
pub enum Step<T> {
    /// The codec returned a result.
    Said {
        /// Bytes consumed for the result.
        consumed: usize,
        /// The result in a form that can be compared.
        what: T,
    },
    /// The codec returned no result: it consumed some bytes and needs at least `need` bytes from
    /// there on.
    Incomplete {
        /// Bytes consumed without a result.
        consumed: usize,
        /// Bytes needed from the first one not consumed.
        need: usize,
    },
    /// The codec returned a fatal error, after which it is not called again.
    Broken(T),
}

/// The way in which a stream is offered to a codec.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// All bytes of the stream at once.
    Whole,
    /// As few bytes of the stream as possible at a time.
    Least,
    /// No more bytes of the stream at a time than the codec asks for.
    Asked,
    /// Pieces of the stream of any length, drawn from this seed.
    Drawn(u64),
}

/// Offers `stream` to a new codec for each way to cut it.
///
/// # Panics
/// When the results differ, or a codec consumes more than it was offered, returns a result without
/// consuming anything, asks for no more than it has, or asks for more than `need_max` bytes.
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

/// Cuts `stream` into pieces in three ways: not at all, into the shortest pieces, and into pieces
/// of any length.
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
    // Terminates: each iteration of the inner loop except the last consumes a byte, and each of the
    // outer one offers another.
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

    /// Returns the end of the next piece of the stream, when the last piece ended at `end` and the
    /// codec asks for all bytes before `wanted`.
    fn next(&mut self, end: usize, wanted: usize) -> usize {
        match &mut self.reading {
            Reading::Whole => usize::MAX,
            Reading::Least => end + self.least,
            Reading::Asked => wanted.max(end + self.least),
            Reading::Drawn(number) => {
                *number = mixed(*number);
                // Short and long pieces are equally likely.
                let bits = *number % 14;
                end + self.least + (*number >> (64 - bits.max(1))) as usize
            }
        }
    }
}

/// Hashes all bytes of a stream, for the seed of its cuts.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |sum, &byte| mixed(sum ^ u64::from(byte)))
}

/// Returns the next number of a generator with full period: each bit depends on the lower bits of
/// `number`.
fn mixed(number: u64) -> u64 {
    let next = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    next ^ (next >> 29)
}
