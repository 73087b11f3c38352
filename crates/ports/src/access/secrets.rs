//! Hashes of tokens and passwords, and their comparison.
//!
//! The time of a comparison byte by byte reveals how much of a guess was right. So only keyed
//! hashes are compared, under a random key of this process: the number of equal bytes of two hashes
//! reveals nothing about the secrets. Every known hash is compared, whatever the others gave.
//! Secrets themselves are not kept, so no memory dump and no `Debug` output shows them.

use std::fmt;

use ring::hmac;
use ring::rand::SystemRandom;

/// A set of secrets, each of one or two parts.
pub(crate) struct Secrets {
    key: hmac::Key,
    known: Vec<hmac::Tag>,
}

impl Secrets {
    /// Creates the set of these secrets.
    ///
    /// # Panics
    /// Panics when the system has no random numbers, which supported systems always have.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = [&'a [u8]; 2]>) -> Self {
        let key = random_key();
        let known = secrets.into_iter().map(|parts| tag(&key, parts)).collect();
        Self { key, known }
    }

    /// Returns true if `parts` are one of the secrets. Takes the same time in all cases.
    pub(crate) fn know(&self, parts: [&[u8]; 2]) -> bool {
        let tag = tag(&self.key, parts);
        self.known.iter().fold(false, |found, known| found | (known.as_ref() == tag.as_ref()))
    }
}

/// Returns a random key for the hashes of this process.
///
/// # Panics
/// Panics when the system has no random numbers, which supported systems always have.
pub(crate) fn random_key() -> hmac::Key {
    let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
    key.expect("the system has random numbers")
}

/// Returns the hash of a secret of two parts.
pub(crate) fn tag(key: &hmac::Key, parts: [&[u8]; 2]) -> hmac::Tag {
    hmac::sign(key, &joined(parts))
}

/// Returns true if `tag` is the hash of the secret, which takes the same time in all cases.
pub(crate) fn verify(key: &hmac::Key, parts: [&[u8]; 2], tag: &hmac::Tag) -> bool {
    hmac::verify(key, &joined(parts), tag.as_ref()).is_ok()
}

/// Joins the parts of a secret; the length separates them unambiguously.
fn joined([first, second]: [&[u8]; 2]) -> Vec<u8> {
    [&(first.len() as u64).to_le_bytes()[..], first, second].concat()
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.known.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_known_only_if_all_its_parts_were_given() {
        let secrets = Secrets::new([[&b"alice"[..], b"sesame"], [b"", b"token"]]);
        assert!(secrets.know([b"alice", b"sesame"]) && secrets.know([b"", b"token"]));
        let others: [[&[u8]; 2]; 6] = [
            [b"alice", b"sesam"],
            [b"alices", b"esame"],
            [b"", b"alicesesame"],
            [b"", b"sesame"],
            [b"", b""],
            [b"token", b""],
        ];
        assert!(others.into_iter().all(|parts| !secrets.know(parts)));
        assert!(!Secrets::new([]).know([b"", b""]));
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }
}
