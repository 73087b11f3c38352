//! Base64 with the standard alphabet and padding, for binary keys of meta commands.

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

use super::KEY_BYTES_MAX;

/// The codec, which like memcached ignores unused bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Returns true if `text`, of at most [`KEY_BYTES_MAX`], is base64 of at least one byte.
pub(super) fn is_valid(text: &[u8]) -> bool {
    decode(text, &mut [0; KEY_BYTES_MAX]).is_some()
}

/// Decodes a text of at most [`KEY_BYTES_MAX`] into the buffer `room`; none if it is not
/// [valid](is_valid).
pub(super) fn decode<'b>(text: &[u8], room: &'b mut [u8; KEY_BYTES_MAX]) -> Option<&'b [u8]> {
    let length = BASE64.decode_slice(text, room).ok().filter(|&length| length > 0)?;
    Some(&room[..length])
}

/// Appends `bytes` to `out` as base64.
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    BASE64.encode_slice(bytes, &mut out[start..]).expect("as long as the text");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        decode(text, &mut [0; KEY_BYTES_MAX]).map(<[u8]>::to_vec)
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
            assert_eq!(decoded(text.as_bytes()), None, "{text}");
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
            let _ = decode(&text, &mut [0; KEY_BYTES_MAX]);
        }
    }
}
