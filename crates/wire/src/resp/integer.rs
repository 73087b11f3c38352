//! Integers in Redis's canonical form.

/// Parses a 64-bit integer in its canonical form: digits without leading zeros, with an optional
/// minus sign; no plus sign, space or `-0`. Redis reads lengths, numeric arguments and the values
/// of counters in this form, so that a number read and written again is the same text.
///
/// ```
/// use sherwood_wire::resp::integer;
/// assert_eq!(integer(b"-12"), Some(-12));
/// assert_eq!((integer(b"012"), integer(b"+1"), integer(b"-0"), integer(b"1 ")), (None, None, None, None));
/// ```
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= DIGITS_MAX => {}
        _ => return None,
    }
    let mut value = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // Nineteen digits fit in 64 bits.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Number of digits of the greatest 63-bit number.
const DIGITS_MAX: usize = 19;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_at_the_ends_of_the_range_are_parsed_and_those_beyond_refused() {
        assert_eq!(integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!((integer(b"9223372036854775808"), integer(b"-9223372036854775809")), (None, None));
        assert_eq!(integer(b"99999999999999999999"), None);
    }

    #[test]
    fn integers_not_in_canonical_form_are_refused() {
        for text in ["", "-", "--1", "00", "01", "-0", "-01", "1x", "x", "1.0", " 1", "1\0", "/", ":"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn formatted_integer_is_parsed_as_the_same_number(number: i64) {
            prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn parsed_integer_is_formatted_as_the_same_text(text in "[-0-9]{0,21}") {
            if let Some(number) = integer(text.as_bytes()) {
                prop_assert_eq!(number.to_string(), text);
            }
        }
    }
}
