//! Names of keys in the cache, where a listener has several databases.
//!
//! A key of database 0 has its own name, which it shares with other listeners and the gateway. One
//! of database *n* is stored behind a zero byte and the byte *n*, and so is a key of database 0
//! that begins with a zero byte itself: no key that a client writes in one database is a key of
//! another.

use std::borrow::Cow;

/// First byte of the names of keys that are stored with the number of their database.
const MARK: u8 = 0;

/// Returns the database of a key by its name in the cache, and the key's own name; none for a name
/// that no client of a listener with databases can write.
pub(super) fn own_name(stored: &[u8]) -> Option<(u8, &[u8])> {
    match stored {
        [MARK, database, name @ ..] if *database > 0 || name.first() == Some(&MARK) => {
            Some((*database, name))
        }
        [MARK, ..] => None,
        _ => Some((0, stored)),
    }
}

/// Returns the name in the cache of a key called `name` in `database`.
pub(super) fn stored_name(name: &[u8], database: u8) -> Cow<'_, [u8]> {
    if database == 0 && name.first() != Some(&MARK) {
        return Cow::Borrowed(name);
    }
    Cow::Owned([&[MARK, database], name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_key_in_the_cache_tells_its_database_and_its_own_name() {
        for database in [0, 1, 15] {
            for name in [&b"k"[..], b"\0", b"\0\x01k", b"\0\0\0", b"\x01k"] {
                let stored = stored_name(name, database);
                assert_eq!(own_name(&stored), Some((database, name)), "{stored:?}");
            }
        }
        assert_eq!(stored_name(b"k", 0), &b"k"[..], "keys of other listeners keep their names");
        for foreign in [&b"\0"[..], b"\0\0k", b"\0\0"] {
            assert_eq!(own_name(foreign), None, "{foreign:?}");
        }
    }
}
