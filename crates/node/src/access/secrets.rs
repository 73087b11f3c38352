//! Hashes of tokens and passwords, compared in constant time.
//!
//! Comparing byte by byte tells by the time it takes how much of a guess was right. So nothing is
//! compared but keyed hashes, under a key that this process drew and nobody knows: which bytes of a
//! hash agree says nothing of what it was made of, and every hash is looked at whatever the others
//! said. It also means that secrets are not kept, and that no dump of memory and no `Debug` shows
//! them.

use std::fmt;

use ring::hmac;
use ring::rand::SystemRandom;

/// Secrets, each of one or two parts.
pub(crate) struct Secrets {
    key: hmac::Key,
    known: Vec<hmac::Tag>,
}

impl Secrets {
    /// Creates the hashes of `secrets`.
    ///
    /// # Panics
    /// When the system has no random numbers, which it always has on what this runs on.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = [&'a [u8]; 2]>) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.expect("the system has random numbers");
        let known = secrets.into_iter().map(|parts| tag(&key, parts)).collect();
        Self { key, known }
    }

    /// Returns whether this is a known secret, after the same time whether it is or not.
    pub(crate) fn know(&self, parts: [&[u8]; 2]) -> bool {
        let tag = tag(&self.key, parts);
        self.known.iter().fold(false, |found, known| found | (known.as_ref() == tag.as_ref()))
    }
}

fn tag(key: &hmac::Key, [first, second]: [&[u8]; 2]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    // Where one part ends and the other begins has to be told apart.
    context.update(&(first.len() as u64).to_le_bytes());
    context.update(first);
    context.update(second);
    context.sign()
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
    fn nothing_is_known_but_what_was_given() {
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
