//! Finds the keys of memcached commands that are not parsed yet, for prefetching.

use super::line::{split_word, unsigned, without_return};
use super::{KEY_BYTES_MAX, LINE_BYTES_MAX};

/// The first key of each command in a buffer, found without parsing the commands. A server can
/// prefetch the items of commands that it has not come to yet.
///
/// The scan is approximate. It validates nothing and has no state from before the buffer, so a key
/// may be invalid, and commands after an unknown one may be missed. It takes a few nanoseconds per
/// command, skips values, and ends after the last complete line, or before the first line longer
/// than [`LINE_BYTES_MAX`].
///
/// ```
/// use sherwood_wire::memcached::Ahead;
/// let ahead = Ahead::of(b"get a b\r\nset c 0 0 3\r\nget\r\ngets d\r\nget ");
/// assert!(ahead.eq([b"a", b"c", b"d"]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a>(&'a [u8]);

impl<'a> Ahead<'a> {
    /// Scans `buf` for keys; it begins with a command.
    #[must_use]
    pub const fn of(buf: &'a [u8]) -> Self {
        Self(buf)
    }

    /// The number of bytes at the end of the buffer that have not been scanned.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.0.len()
    }

    /// Returns the key of the command on a line, and skips the value after the line if the command
    /// has one.
    fn key_of(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (verb, words) = split_word(line)?;
        let (first, after) = split_word(words)?;
        let key = match verb {
            b"gat" | b"gats" => split_word(after)?.0,
            b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
                let (_flags, after) = split_word(after)?;
                let (_exptime, after) = split_word(after)?;
                self.skip_value(after);
                first
            }
            b"ms" => {
                self.skip_value(after);
                first
            }
            _ => first,
        };
        (key.len() <= KEY_BYTES_MAX).then_some(key)
    }

    /// Skips the value of a storage command, whose length is the next of `words`.
    fn skip_value(&mut self, words: &[u8]) {
        let bytes = split_word(words).and_then(|(bytes, _)| unsigned(bytes)).unwrap_or(0);
        let block = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(b"\r\n".len());
        self.0 = self.0.get(block..).unwrap_or_default();
    }
}

impl<'a> Iterator for Ahead<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let window = &self.0[..self.0.len().min(LINE_BYTES_MAX + b"\r\n".len())];
            let (line, _) = window.split_at(memchr::memchr(b'\n', window)?);
            self.0 = &self.0[line.len() + 1..];
            let key = self.key_of(without_return(line));
            if key.is_some() {
                return key;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Command, Event, Limits, Parser};
    use super::*;

    fn seen(buf: &[u8]) -> Vec<String> {
        Ahead::of(buf).map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[test]
    fn scan_finds_the_first_key_of_every_memcached_command() {
        let all = "get a\r\ngets  b c\r\ngat 0 d\r\nmg e v\r\nadd f 0 0 1\r\nx\r\nms g 5 T0\r\nget z\r\ncas h 0 0 0 9\r\n\r\n\
                   delete i\nversion\r\nincr j 1\r\n";
        assert_eq!(seen(all.as_bytes()), ["a", "b", "d", "e", "f", "g", "h", "i", "j"]);
    }

    #[test]
    fn unscanned_bytes_begin_after_the_command_of_the_last_key_taken() {
        let mut ahead = Ahead::of(b"get a\r\nset b 0 0 2\r\nxy\r\nget c");
        assert_eq!((ahead.next(), ahead.left()), (Some(&b"a"[..]), 22));
        assert_eq!((ahead.next(), ahead.left()), (Some(&b"b"[..]), 5));
        assert_eq!((ahead.next(), ahead.left()), (None, 5));
    }

    #[test]
    fn scan_ends_at_an_incomplete_memcached_value() {
        assert_eq!(seen(b"set a 0 0 10\r\nget b\r\n"), ["a"]);
        assert_eq!(seen(b"set a 0 0 18446744073709551615\r\nget b\r\n"), ["a"]);
        assert_eq!(seen(b"set a 0 0 none\r\n\nget b\r\n"), ["a", "b"]);
    }

    /// Returns the first key of each command in `buf` as the parser reads it.
    fn parsed(mut buf: &[u8]) -> Vec<Vec<u8>> {
        let mut parser = Parser::new(Limits { value_bytes_max: 100 });
        let mut keys = Vec::new();
        loop {
            let step = parser.parse(buf);
            match step.event {
                Event::Command(Command::Retrieval(mut retrieval)) => {
                    keys.extend(retrieval.keys.next().map(<[u8]>::to_vec))
                }
                Event::Command(Command::Storage(storage)) => keys.push(storage.key.to_vec()),
                Event::Command(Command::Delete { key, .. } | Command::Arithmetic { key, .. }) => {
                    keys.push(key.to_vec())
                }
                Event::Command(_) | Event::Refused { .. } => {}
                Event::Incomplete { .. } => return keys,
            }
            buf = &buf[step.consumed..];
        }
    }

    proptest! {
        #[test]
        fn scan_finds_the_keys_that_the_memcached_parser_finds(
            commands in prop::collection::vec((0..6usize, "[a-z]{1,9}", "[a-z\r\n]{0,20}"), 0..40),
        ) {
            let text: String = commands.iter().map(|(kind, key, value)| match kind {
                0 => format!("get {key}\r\n"),
                1 => format!("gets {key} other {key}\n"),
                2 => format!("gat 5 {key}\r\n"),
                3 => format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()),
                4 => format!("cas {key} 1 0 {} 7 noreply\r\n{value}\r\n", value.len()),
                _ => format!("version\r\ndelete {key}\r\n"),
            }).collect();
            let scanned: Vec<_> = Ahead::of(text.as_bytes()).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(scanned, parsed(text.as_bytes()));
        }

        #[test]
        fn scan_of_any_bytes_for_memcached_keys_ends(buf in prop::collection::vec(prop_oneof![any::<u8>(), Just(b' '), Just(b'\n')], 0..300)) {
            prop_assert!(Ahead::of(&buf).count() <= buf.len());
        }
    }
}
