//! Splits a memcached command line into words and parses numbers.

/// Most words of a line that are kept: those of the longest command without a key list, `cas` with
/// `noreply`, and one more to detect that there are too many.
const WORDS_MAX: usize = 8;

/// The words of a command line, in order. Words from the ninth on are counted as one and not kept.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    count: usize,
}

impl<'a> Words<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        let mut words = Self { words: [b""; WORDS_MAX], count: 0 };
        let mut rest = line;
        while let Some((word, after)) = split_word(rest) {
            if words.count == WORDS_MAX {
                words.count += 1;
                break;
            }
            words.words[words.count] = word;
            words.count += 1;
            rest = after;
        }
        words
    }

    /// The number of words on the line, the command's name included; 9 if there are more than 8.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The word at `index`, empty if the line has no such word.
    pub(super) fn get(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or_default()
    }

    /// True if the last word of the line is `noreply`, and is not the command itself.
    pub(super) fn noreply(&self) -> bool {
        self.count > 1 && self.get(self.count - 1) == b"noreply"
    }
}

/// Splits off the first word of a line; none if the line is empty. Only spaces separate words.
pub(super) fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = line.iter().position(|&byte| byte != b' ')?;
    let rest = &line[start..];
    let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// Removes the carriage return at the end of a line.
pub(super) fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses a number of decimal digits without a sign; none if it does not fit into 64 bits.
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses a number of decimal digits with an optional sign; none if it does not fit into 64 bits.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', digits @ ..] => 0_i64.checked_sub_unsigned(unsigned(digits)?),
        [b'+', digits @ ..] | digits => unsigned(digits)?.try_into().ok(),
    }
}

/// Parses client flags, a 32-bit number.
pub(super) fn flags(word: &[u8]) -> Option<u32> {
    unsigned(word)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_spaces_separates_the_words_of_a_line() {
        let words = Words::of(b"  set  a b ");
        assert_eq!(
            (words.count(), words.get(0), words.get(1), words.get(2)),
            (3, &b"set"[..], &b"a"[..], &b"b"[..])
        );
        assert_eq!(words.get(3), b"");
        assert_eq!(Words::of(b"").count(), 0);
        assert_eq!(Words::of(b"1 2 3 4 5 6 7 8 9 10 11").count(), 9);
    }

    #[test]
    fn noreply_is_recognised_only_as_the_last_word_of_a_line() {
        assert!(Words::of(b"set a noreply").noreply());
        assert!(!Words::of(b"set noreply a").noreply());
        assert!(!Words::of(b"noreply").noreply());
        assert!(!Words::of(b"1 2 3 4 5 6 7 8 noreply").noreply());
    }

    #[test]
    fn number_that_does_not_fit_into_its_bits_is_refused() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(
            (unsigned(b""), unsigned(b"-1"), unsigned(b"1x"), unsigned(b"+1")),
            (None, None, None, None)
        );
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!((signed(b"9223372036854775808"), signed(b"-"), signed(b"--1")), (None, None, None));
        assert_eq!(
            (signed(b"+7"), flags(b"4294967295"), flags(b"4294967296")),
            (Some(7), Some(u32::MAX), None)
        );
    }
}
