//! Exact addition of decimal numbers.
//!
//! `INCRBYFLOAT` reads and writes text. Redis computes in the 80-bit format of x86 processors,
//! which few languages support, and prints 17 decimals. Adding in decimal gives the same text where
//! that format is exact enough, and elsewhere a text without its rounding errors.

/// Decimals that a number keeps: more than are printed, so that a sum is rounded only once.
const SCALE: usize = 40;
/// Decimals of a number that are printed, as in Redis.
const SHOWN: usize = 17;
/// Most digits of a number before the decimal point: Redis's format ends at 1.19 × 10⁴⁹³².
const INTEGER_DIGITS_MAX: usize = 4932;
/// Maximum length of a number's text, in bytes, as in Redis.
pub(super) const TEXT_BYTES_MAX: usize = 5 * 1024;

/// Returns the maximum number of digits of the number `text` once its exponent is written out.
pub(super) fn digits_max(text: &[u8]) -> usize {
    let has_exponent = text.iter().any(|byte| matches!(byte, b'e' | b'E'));
    if has_exponent { TEXT_BYTES_MAX } else { text.len().min(TEXT_BYTES_MAX) }
}

/// A decimal number with [`SCALE`] decimals and up to [`INTEGER_DIGITS_MAX`] digits before them.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    /// Digits of the number without leading zeros, least significant first.
    digits: Vec<u8>,
}

/// A parsed number: finite or infinite.
#[derive(Clone, Debug)]
pub(super) enum Number {
    Finite(Decimal),
    /// `inf` or `infinity`: a valid number, but refused in additions.
    Infinite,
}

impl Number {
    /// Parses `text` as a number like C's `strtold` without hexadecimal: optional sign, digits with
    /// an optional point, optional exponent, nothing else. None for other text and numbers out of
    /// range.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::Infinite);
        }
        let (mantissa, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&rest[..at], exponent(&rest[at + 1..])?),
            None => (rest, 0),
        };
        let point = mantissa.iter().position(|&byte| byte == b'.');
        let (whole, fraction) = match point {
            Some(at) => (&mantissa[..at], &mantissa[at + 1..]),
            None => (mantissa, &b""[..]),
        };
        let digits: Vec<u8> =
            whole.iter().chain(fraction).rev().map(|byte| byte.wrapping_sub(b'0')).collect();
        if digits.is_empty() || digits.iter().any(|&digit| digit > 9) {
            return None;
        }
        let shift = exponent + SCALE as i64 - fraction.len() as i64;
        Decimal { negative, digits: trimmed(digits) }.shifted(shift).map(Self::Finite)
    }
}

impl Decimal {
    /// Returns the number times 10 to the power of `places`, truncated after the last decimal, or
    /// none if it is too large.
    fn shifted(mut self, places: i64) -> Option<Self> {
        if self.digits.is_empty() {
            return Some(self);
        }
        if self.digits.len() as i64 + places > (INTEGER_DIGITS_MAX + SCALE) as i64 {
            return None;
        }
        match usize::try_from(places) {
            Ok(zeros) => drop(self.digits.splice(0..0, std::iter::repeat_n(0, zeros))),
            Err(_) => drop(self.digits.drain(..self.digits.len().min(places.unsigned_abs() as usize))),
        }
        Some(self)
    }

    /// Returns the sum of two numbers, or none if it is too large.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let sum = if self.negative == other.negative {
            Self { negative: self.negative, digits: added(&self.digits, &other.digits) }
        } else if is_less(&self.digits, &other.digits) {
            Self { negative: other.negative, digits: subtracted(&other.digits, &self.digits) }
        } else {
            Self { negative: self.negative, digits: subtracted(&self.digits, &other.digits) }
        };
        (sum.digits.len() <= INTEGER_DIGITS_MAX + SCALE).then_some(sum)
    }

    /// Formats the number with up to 17 decimals, rounded half to even, without trailing zeros, and
    /// without a sign if it is 0.
    pub(super) fn text(&self) -> String {
        let (cut, kept) = self.digits.split_at(self.digits.len().min(SCALE - SHOWN));
        let cut = trimmed(cut.to_vec());
        let half = [vec![0; SCALE - SHOWN - 1], vec![5]].concat();
        let odd = at_or_0(kept, 0) % 2 == 1;
        let up = is_less(&half, &cut) || (odd && cut == half);
        let mut shown = added(kept, &[u8::from(up)]);
        let negative = self.negative && !shown.is_empty();
        shown.resize(shown.len().max(SHOWN + 1), 0);
        let digit = |digit: &u8| char::from(b'0' + digit);
        let whole: String = shown[SHOWN..].iter().rev().map(digit).collect();
        let fraction: String = shown[..SHOWN].iter().rev().map(digit).collect();
        let sign = if negative { "-" } else { "" };
        match fraction.trim_end_matches('0') {
            "" => format!("{sign}{whole}"),
            fraction => format!("{sign}{whole}.{fraction}"),
        }
    }
}

/// Parses a number's exponent. Values beyond the largest useful one are clamped.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let limit = 10 * TEXT_BYTES_MAX as i64;
    let value = digits.iter().fold(0, |value, byte| (value * 10 + i64::from(byte - b'0')).min(limit));
    Some(if negative { -value } else { value })
}

fn added(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut sum: Vec<u8> = (0..a.len().max(b.len()))
        .map(|at| {
            let digit = at_or_0(a, at) + at_or_0(b, at) + carry;
            carry = digit / 10;
            digit % 10
        })
        .collect();
    sum.push(carry);
    trimmed(sum)
}

/// Returns `a - b` of two digit sequences; `b` is at most `a`.
fn subtracted(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let difference = (0..a.len())
        .map(|at| {
            let digit = 10 + at_or_0(a, at) - at_or_0(b, at) - borrow;
            borrow = u8::from(digit < 10);
            digit % 10
        })
        .collect();
    trimmed(difference)
}

fn is_less(a: &[u8], b: &[u8]) -> bool {
    a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev())).is_lt()
}

fn at_or_0(digits: &[u8], at: usize) -> u8 {
    digits.get(at).copied().unwrap_or(0)
}

fn trimmed(mut digits: Vec<u8>) -> Vec<u8> {
    let zeros = digits.iter().rev().take_while(|digit| **digit == 0).count();
    digits.truncate(digits.len() - zeros);
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Option<Decimal> {
        match Number::parse(text.as_bytes())? {
            Number::Finite(decimal) => Some(decimal),
            Number::Infinite => None,
        }
    }

    fn sum(a: &str, b: &str) -> String {
        parse(a).unwrap().plus(&parse(b).unwrap()).unwrap().text()
    }

    #[test]
    fn decimal_sums_are_exact_and_printed_without_trailing_zeros() {
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("10.50", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "200"), "5200");
        assert_eq!(sum("1", "-1.1"), "-0.1");
        assert_eq!(sum("17179869184", "1.5"), "17179869185.5");
        assert_eq!(sum("3", "-3"), "0");
        assert_eq!(sum("-0.5", "-.5"), "-1");
        assert_eq!(sum("99.999", ".001"), "100");
    }

    #[test]
    fn decimal_is_printed_with_seventeen_rounded_decimals_and_zero_without_sign() {
        assert_eq!(sum("0.123456789012345678", "0"), "0.12345678901234568");
        assert_eq!(
            (sum("0.000000000000000005", "0"), sum("-0.000000000000000015", "0")),
            ("0".into(), "-0.00000000000000002".into())
        );
        assert_eq!(sum("-0.000000000000000001", "0"), "0");
        assert_eq!(sum("1e-30", "1e-30"), "0");
    }

    #[test]
    fn text_that_is_not_a_decimal_number_is_refused() {
        for text in ["", "-", ".", "1 ", " 1", "1x", "e5", "1e", "1e+", "nan", "1.2.3", "--1", "0x10", "1\0"]
        {
            assert!(Number::parse(text.as_bytes()).is_none(), "{text:?}");
        }
        assert!(matches!(Number::parse(b"+Inf"), Some(Number::Infinite)));
    }

    #[test]
    fn decimal_beyond_the_range_of_redis_is_refused() {
        let greatest = parse("9e4931").unwrap();
        assert!(parse("1e4932").is_none() && greatest.plus(&greatest).is_none());
        assert_eq!(greatest.text().len(), 4932);
        assert_eq!(parse("0e99999999").unwrap().text(), "0");
        assert!(Number::parse(&[b'1'; TEXT_BYTES_MAX + 1]).is_none());
    }

    proptest! {
        #[test]
        fn decimal_sum_of_whole_numbers_equals_integer_addition(a: i64, b: i64) {
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), (i128::from(a) + i128::from(b)).to_string());
        }

        #[test]
        fn any_text_is_parsed_as_a_decimal_or_refused_without_panic(text in "[-+.0-9eEinf]{0,12}") {
            if let Some(decimal) = parse(&text) {
                prop_assert_eq!(parse(&decimal.text()).unwrap().text(), decimal.text());
            }
        }
    }
}
