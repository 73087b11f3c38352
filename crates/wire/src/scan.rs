//! Search for a byte in short texts.

/// Bytes that are searched here, eight at a time.
const NEAR_BYTES: usize = 48;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Returns the place of the first `byte` in `text`.
///
/// Words and lines of commands are mostly shorter than 48 bytes, where this takes half the
/// instructions of `memchr`, which prepares for long texts; what is behind is left to it.
#[inline]
pub(crate) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let pattern = LOW_BITS * u64::from(byte);
    let near = &text[..text.len().min(NEAR_BYTES)];
    let (words, rest) = near.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        // Equal bytes become zero, and the lowest zero byte has the lowest high bit set.
        let differing = u64::from_le_bytes(*word) ^ pattern;
        let equal = differing.wrapping_sub(LOW_BITS) & !differing & HIGH_BITS;
        if equal != 0 {
            return Some(number * 8 + equal.trailing_zeros() as usize / 8);
        }
    }
    if let Some(at) = rest.iter().position(|&other| other == byte) {
        return Some(words.len() * 8 + at);
    }
    memchr::memchr(byte, &text[near.len()..]).map(|at| near.len() + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn byte_is_found_where_it_is_first(
            text in proptest::collection::vec(prop_oneof![Just(b' '), Just(0x80), Just(0x00), Just(0xff), any::<u8>()], 0..120),
            byte in prop_oneof![Just(b' '), Just(b'\n'), Just(0_u8), Just(0x81), any::<u8>()],
        ) {
            let first = text.iter().position(|&other| other == byte);
            prop_assert_eq!(find(byte, &text), first);
        }
    }
}
