//! The header that begins every frame.

use super::Echo;

/// Length of the header of every frame, in bytes.
pub const HEADER_BYTES: usize = 24;
/// First byte of a request.
pub(super) const REQUEST: u8 = 0x80;
/// First byte of a response.
pub(super) const RESPONSE: u8 = 0x81;

/// The fields of the header of a request or a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) echo: Echo,
    /// The status of a response; unused in requests.
    pub(super) status: u16,
    /// Length of the key in bytes.
    pub(super) key: usize,
    /// Length of the extras in bytes.
    pub(super) extras: usize,
    /// Length of extras, key and value together, in bytes.
    pub(super) body: u32,
    pub(super) cas: u64,
}

impl Header {
    /// Reads the header at the start of `bytes`; none if it is incomplete. The first byte is not
    /// checked.
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let [_, opcode, k0, k1, extras, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = *bytes;
        Some(Self {
            echo: Echo { opcode, opaque: [o0, o1, o2, o3] },
            status: u16::from_be_bytes([s0, s1]),
            key: u16::from_be_bytes([k0, k1]).into(),
            extras: extras.into(),
            body: u32::from_be_bytes([b0, b1, b2, b3]),
            cas: u64::from_be_bytes(cas),
        })
    }

    /// Returns the bytes of the header in a frame that begins with `magic`.
    #[inline]
    pub(super) fn bytes(self, magic: u8) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1], bytes[4]) = (magic, self.echo.opcode, self.extras as u8);
        bytes[2..4].copy_from_slice(&(self.key as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.status.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.body.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.echo.opaque);
        bytes[16..].copy_from_slice(&self.cas.to_be_bytes());
        bytes
    }

    /// Returns the length of the value in bytes; none if extras and key are longer than the body.
    #[inline]
    pub(super) fn value_bytes(&self) -> Option<u32> {
        self.body.checked_sub((self.extras + self.key) as u32)
    }

    /// Returns the length of the frame in bytes.
    pub(super) fn frame_bytes(&self) -> usize {
        HEADER_BYTES.saturating_add(self.body as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_binary_header_is_parsed_back_unchanged() {
        let header = Header {
            echo: Echo { opcode: 7, opaque: [1, 2, 3, 4] },
            status: 0x81,
            key: 250,
            extras: 20,
            body: u32::MAX,
            cas: u64::MAX - 1,
        };
        let bytes = header.bytes(RESPONSE);
        assert_eq!((bytes[0], Header::of(&bytes)), (RESPONSE, Some(header)));
        assert_eq!(Header::of(&bytes[1..]), None);
        assert_eq!(Header { body: 269, ..header }.value_bytes(), None);
        assert_eq!(Header { body: 271, ..header }.value_bytes(), Some(1));
    }
}
