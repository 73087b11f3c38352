//! Bytes that have come and are not parsed yet.

use super::Protocol;
use super::protocol::{Answer, Progress, ReplyError};

/// A buffer that grows to the largest answer.
pub(super) struct Input {
    /// Those in `start..end` are not parsed yet.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// How many the answer at `start` takes at least, once it is known not to be whole.
    need: usize,
}

const BYTES: usize = 64 << 10;

impl Input {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BYTES], start: 0, end: 0, need: 0 }
    }

    /// Where bytes are to be read into; not empty at first and after each [`Self::make_room`].
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// So many bytes have been read into the room.
    pub(super) fn filled(&mut self, read: usize) {
        self.end += read;
    }

    /// The next answer that is whole.
    pub(super) fn next(&mut self, protocol: Protocol) -> Result<Option<Answer<'_>>, ReplyError> {
        match protocol.parse(&self.bytes[self.start..self.end])? {
            Progress::Answer(answer, consumed) => {
                self.start += consumed;
                Ok(Some(answer))
            }
            Progress::Incomplete(need) => {
                self.need = need;
                Ok(None)
            }
        }
    }

    /// Once all whole answers are taken: moves the rest to the front, and grows to what it needs.
    pub(super) fn make_room(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.need > self.bytes.len() {
            self.bytes.resize(self.need, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `bytes` are read as when they come `chunk` at a time, as words.
    fn read(protocol: Protocol, bytes: &[u8], chunk: usize) -> Vec<String> {
        let (mut input, mut answers, mut rest) = (Input::new(), Vec::new(), bytes);
        while !rest.is_empty() {
            let room = input.room();
            assert_ne!(room.len(), 0, "a reader would take an empty read for the end");
            let read = chunk.min(room.len()).min(rest.len());
            room[..read].copy_from_slice(&rest[..read]);
            rest = &rest[read..];
            input.filled(read);
            while let Some(answer) = input.next(protocol).unwrap() {
                answers.push(answer.to_string());
            }
            input.make_room();
        }
        answers
    }

    #[test]
    fn answers_are_the_same_wherever_their_bytes_are_cut() {
        for (protocol, bytes, words) in [
            (
                Protocol::Memcached,
                &b"VALUE k 0 2\r\nab\r\nEND\r\nSTORED\r\nSERVER_ERROR no\r\n"[..],
                ["a value", "an end of values", "that a value was set", "`SERVER_ERROR no`"],
            ),
            (
                Protocol::Redis,
                b"*2\r\n$4\r\na\r\nb\r\n$-1\r\n-OOM no\r\n",
                ["a list of 2", "a value", "no value", "`OOM no`"],
            ),
        ] {
            for chunk in 1..=bytes.len() {
                assert_eq!(read(protocol, bytes, chunk), words, "{chunk} bytes at a time");
            }
        }
    }

    #[test]
    fn the_buffer_grows_to_a_value_that_exceeds_it() {
        let value = vec![b'v'; 2 * BYTES];
        let answers = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n+OK\r\n"].concat();
        for chunk in [1_000, BYTES, answers.len()] {
            assert_eq!(read(Protocol::Redis, &answers, chunk), ["a value", "that a value was set"]);
        }
    }
}
