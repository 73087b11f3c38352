//! Different spellings of a key that a database may consider equal: `7` and `07`, `abc` and `ABC`.
//!
//! The server decides which keys are equal, by the type and the collation of the compared column.
//! [`Compared::signature`] gives a necessary condition without asking the server: the server does
//! not consider keys with different signatures equal.
//!
//! Pure.

/// The way in which a server compares keys, as far as the type of the key column determines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Comparison of integers and decimal numbers.
    Decimal,
    /// Comparison of binary floating-point numbers.
    Float,
    /// Comparison of UUIDs.
    Uuid,
    /// Comparison of text by any collation.
    Text,
    /// Comparison of bytes, with or without blanks at the end.
    Bytes,
    /// Any other comparison, such as that of times.
    #[default]
    Other,
}

/// A property that keys have in common if the server may consider them equal; none for a key that
/// the server may consider equal to any other.
pub(crate) type Signature = Option<Vec<u8>>;

impl Compared {
    /// Returns the signature of a key, or of the key of a row.
    pub(crate) fn signature(self, key: &[u8]) -> Signature {
        match self {
            Self::Decimal => Some(decimal(key)),
            Self::Float => Some(float(key)),
            Self::Uuid => Some(letters(key)),
            Self::Text if is_printable(key) => Some(folded(key)),
            Self::Bytes if is_printable(key) => Some(folded(key)),
            Self::Bytes => Some(without_padding(key).to_vec()),
            Self::Text | Self::Other => None,
        }
    }

    /// True if a row in the answer to several keys can only be there because of `key`, the only one
    /// of them with the row's signature.
    ///
    /// Texts have to match except for case and padding, because a server's administrator can define
    /// collations under which any characters are equal.
    pub(crate) fn is_certain(self, key: &[u8], row: &[u8]) -> bool {
        match self {
            Self::Decimal | Self::Float | Self::Uuid => true,
            Self::Text | Self::Bytes => without_padding(key).eq_ignore_ascii_case(without_padding(row)),
            Self::Other => false,
        }
    }
}

/// True if a key consists of printable ASCII characters and blanks. Collations ignore some other
/// characters, and consider some beyond ASCII equal to these.
fn is_printable(key: &[u8]) -> bool {
    key.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Returns the key without trailing blanks, which `char(n)` and most of MySQL's collations ignore.
fn without_padding(key: &[u8]) -> &[u8] {
    let end = key.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &key[..end]
}

/// Returns the ASCII letters, in lower case, and digits of a key; those of a UUID identify it.
fn letters(key: &[u8]) -> Vec<u8> {
    key.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect()
}

/// Returns the part of a printable key that every collation compares. Collations may ignore case,
/// punctuation, blanks and zeros before a number, and may consider `i`, `j` and `y` equal (Latvian,
/// Roman), and `u`, `v` and `w` (Estonian, Roman).
fn folded(key: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(key.len());
    for byte in letters(key) {
        match byte {
            b'0' if !folded.last().is_some_and(u8::is_ascii_digit) => {}
            b'j' | b'y' => folded.push(b'i'),
            b'v' | b'w' => folded.push(b'u'),
            byte => folded.push(byte),
        }
    }
    folded
}

/// The parts of a number at the start of a text. MySQL ignores the rest of the text, and reads a
/// text that does not start with a number as zero.
struct Number<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Number<'a> {
    fn parse(key: &'a [u8]) -> Self {
        let (negative, rest) = signed(key.trim_ascii_start());
        let (whole, rest) = digits(rest);
        let (fraction, rest) = rest.strip_prefix(b".").map_or((&[][..], rest), digits);
        let (below, power) = match rest.split_first() {
            Some((b'e' | b'E', power)) => signed(power),
            _ => (false, &[][..]),
        };
        let power = digits(power)
            .0
            .iter()
            .fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
        Self { negative, whole, fraction, exponent: if below { -power } else { power } }
    }
}

/// Removes a sign from the start of `text`; true for a minus.
fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    }
}

/// Splits `text` after its leading digits.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the number at the start of a key as its sign, digits without leading and trailing zeros,
/// and exponent.
fn decimal(key: &[u8]) -> Vec<u8> {
    let Number { negative, whole, fraction, exponent } = Number::parse(key);
    let mut digits: Vec<u8> = whole.iter().chain(fraction).copied().collect();
    let mut exponent = exponent.saturating_sub_unsigned(fraction.len() as u64);
    while digits.pop_if(|last| *last == b'0').is_some() {
        exponent = exponent.saturating_add(1);
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    digits.drain(..zeros);
    if digits.is_empty() {
        return digits;
    }
    digits.extend_from_slice(if negative { b"-" } else { b"+" });
    digits.extend_from_slice(&exponent.to_le_bytes());
    digits
}

/// Returns the number at the start of a key in single precision: numbers that are equal in double
/// precision are also equal in single precision.
fn float(key: &[u8]) -> Vec<u8> {
    let Number { negative, whole, fraction, exponent } = Number::parse(key);
    let text = [whole, b".", fraction, b"e", exponent.to_string().as_bytes()].concat();
    let text = String::from_utf8(text).expect("digits are ASCII");
    let number = text.parse::<f64>().unwrap_or_default() as f32;
    // Negative zero equals zero.
    let number = if negative && number != 0.0 { -number } else { number };
    number.to_bits().to_le_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_similar(compared: Compared, one: &str, other: &str) -> bool {
        let of = |key: &str| compared.signature(key.as_bytes());
        of(one).is_none() || of(other).is_none() || of(one) == of(other)
    }

    #[test]
    fn equal_numbers_have_equal_signatures_however_they_are_spelled() {
        for (one, other) in [
            ("7", "07"),
            ("7", "+7.00"),
            ("7", " 7e0x"),
            ("1.5", "15e-1"),
            ("1200", "1.2e3"),
            ("-0", "0"),
            ("0", "junk"),
            ("NaN", "nan"),
            ("", "0.000"),
        ] {
            assert!(are_similar(Compared::Decimal, one, other), "{one} {other}");
            assert!(are_similar(Compared::Float, one, other), "{one} {other}");
        }
        for (one, other) in
            [("7", "-7"), ("7", "70"), ("1.5", "1.05"), ("1e2", "1e-2"), ("1e99999999999", "1")]
        {
            assert!(!are_similar(Compared::Decimal, one, other), "{one} {other}");
            assert!(!are_similar(Compared::Float, one, other), "{one} {other}");
        }
        assert!(!are_similar(Compared::Decimal, "16777217", "16777216"));
        assert!(are_similar(Compared::Float, "0.1", "0.10000000149011612"), "as a `real` and a `double`");
    }

    #[test]
    fn texts_that_are_equal_under_some_collation_have_equal_signatures() {
        for (one, other) in [
            ("abc", "ABC"),
            ("a", "a  "),
            ("a-1", "A01"),
            ("Iulius", "Julius"),
            ("w", "v"),
            ("e", "é"),
            ("a", "a\u{7}"),
        ] {
            assert!(are_similar(Compared::Text, one, other), "{one} {other}");
        }
        assert!(!are_similar(Compared::Text, "abc", "abd") && !are_similar(Compared::Text, "10", "1"));
        assert!(!are_similar(Compared::Bytes, "e", "é") && !are_similar(Compared::Bytes, "è", "é"));
        assert!(are_similar(Compared::Bytes, "é", "é "));
        let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        assert!(are_similar(Compared::Uuid, uuid, "{6BA7B8109DAD11D180B400C04FD430C8}"));
        assert!(are_similar(Compared::Other, "2024-02-29", "today"));
    }

    #[test]
    fn row_is_a_certain_match_if_its_text_differs_from_the_key_only_in_case_and_padding() {
        assert!(Compared::Text.is_certain(b"ABC", b"abc  ") && Compared::Decimal.is_certain(b"7", b"7.0"));
        assert!(
            !Compared::Text.is_certain(b"julius", b"iulius") && !Compared::Other.is_certain(b"t", b"true")
        );
    }
}
