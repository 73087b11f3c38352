//! Base64 with the standard alphabet and padding, for binary keys of meta commands.

use super::KEY_BYTES_MAX;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PADDING: u8 = b'=';

/// The number of bytes that the base64 `text` encodes; none if it is not base64: at least four
/// characters and a multiple of four, with padding only at the end. Unused bits of the last
/// character are ignored.
pub(super) fn decoded_bytes(text: &[u8]) -> Option<usize> {
    let unpadded = text.strip_suffix(b"=").map_or(text, |text| text.strip_suffix(b"=").unwrap_or(text));
    let whole = !text.is_empty() && text.len().is_multiple_of(4);
    let valid = whole && unpadded.iter().all(|&character| digit(character).is_some());
    valid.then(|| unpadded.len() * 3 / 4)
}

/// Decodes a base64 text that [`decoded_bytes`] accepted into `room`. Of a text longer than a key
/// may be, only the start is decoded.
pub(super) fn decode<'b>(text: &[u8], room: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8] {
    let (mut bits, mut count, mut length) = (0_u32, 0, 0);
    for value in text.iter().map_while(|&character| digit(character)) {
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8
            && let Some(byte) = room.get_mut(length)
        {
            count -= 8;
            *byte = (bits >> count) as u8;
            length += 1;
        }
    }
    &room[..length]
}

/// Appends `bytes` to `out` as base64.
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let character = ALPHABET[(bits >> (18 - 6 * at)) as usize % ALPHABET.len()];
            out.push(if at <= three.len() { character } else { PADDING });
        }
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        let mut room = [0; KEY_BYTES_MAX];
        let bytes = decoded_bytes(text)?;
        let decoded = decode(text, &mut room);
        assert_eq!(decoded.len(), bytes);
        Some(decoded.to_vec())
    }

    #[test]
    fn base64_examples_of_rfc_4648_round_trip() {
        for (bytes, text) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            encode(&mut out, bytes.as_bytes());
            assert_eq!(out, text.as_bytes());
            assert_eq!(decoded(text.as_bytes()), Some(bytes.into()));
        }
    }

    #[test]
    fn key_that_is_not_base64_is_refused() {
        for text in ["", "Z", "Zg", "Zg=", "====", "Z===", "=Zg=", "Zg==Zg==", "Zm9-", "Zm 9v", "Zm9v\n"] {
            assert_eq!(decoded_bytes(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decoded(b"YR=="), Some(b"a".to_vec()), "bits beyond the last byte are ignored");
    }

    proptest! {
        #[test]
        fn bytes_encoded_as_base64_are_decoded_to_the_same_bytes(bytes in vec(any::<u8>(), 1..=KEY_BYTES_MAX / 4 * 3)) {
            let mut text = Vec::new();
            encode(&mut text, &bytes);
            prop_assert_eq!(decoded(&text), Some(bytes));
        }

        #[test]
        fn decoding_any_bytes_as_base64_does_not_panic(text in vec(any::<u8>(), 0..400)) {
            decode(&text, &mut [0; KEY_BYTES_MAX]);
        }
    }
}
