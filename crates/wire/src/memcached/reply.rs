//! Writes the replies of a memcached server. Every function appends to `out`.

use super::base64;

/// Reply: the value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// Reply: the condition of an `add`, `replace`, `append` or `prepend` was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// Reply: the item of a `cas` was changed since it was read.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// Reply: the item does not exist.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// Reply: the item was removed.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// Reply: the item has its new expiry time.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// Reply: the command succeeded.
pub const OK: &[u8] = b"OK\r\n";
/// Reply: the statistics were reset.
pub const RESET: &[u8] = b"RESET\r\n";
/// End of a reply that lists values or statistics.
pub const END: &[u8] = b"END\r\n";
/// Reply: the command is unknown.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// Reply: the value is over the limit on its length.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// Reply: the value is within the limit but does not fit into the cache.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// Reply: the item of an `incr` or `decr` is not a number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Reply `MN` to the meta command `mn`.
pub const META_NO_OP: &[u8] = b"MN\r\n";
/// Reply: there are too many connections; this one is closed afterwards.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

/// Appends `VALUE <key> <flags> <bytes> [<cas>]` and the value.
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
    out.reserve(VALUE_LINE_BYTES_MAX + value.len());
    value_line(out, key, flags, cas, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line `VALUE <key> <flags> <bytes> [<cas>]`, which a value of this size and a line
/// end have to follow.
pub fn value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, bytes: usize) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    decimal(out, u64::from(flags));
    out.push(b' ');
    decimal(out, bytes as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        decimal(out, cas);
    }
    out.extend_from_slice(b"\r\n");
}

/// Most bytes [`value`] appends besides the value itself: the words, the longest key, three numbers
/// and two line ends.
pub const VALUE_LINE_BYTES_MAX: usize = 6 + super::KEY_BYTES_MAX + 1 + 10 + 1 + 20 + 1 + 20 + 4;

/// Appends ` <letter><number>`, the value that a flag of a meta command requested.
pub fn meta_number(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    decimal(out, number);
}

/// Appends ` k<key>`, the key that a meta command requested, or ` k<key> b` with the key in base64.
pub fn meta_key(out: &mut Vec<u8>, key: &[u8], base64: bool) {
    out.extend_from_slice(b" k");
    if base64 {
        base64::encode(out, key);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

/// Appends `VA <size>`, the start of a reply to a meta command that ends with a value.
pub fn meta_value(out: &mut Vec<u8>, bytes: usize) {
    out.extend_from_slice(b"VA ");
    decimal(out, bytes as u64);
}

/// Appends `ME <key> <word>=<value>*`, the reply to `me`.
pub fn meta_debug(out: &mut Vec<u8>, key: &[u8], base64: bool, about: &MetaDebug) {
    let MetaDebug { ttl_secs, idle_secs, cas, hit, bytes } = about;
    out.extend_from_slice(b"ME ");
    if base64 {
        base64::encode(out, key);
    } else {
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b" exp=");
    match ttl_secs {
        Some(secs) => decimal(out, *secs),
        None => out.extend_from_slice(b"-1"),
    }
    out.extend_from_slice(b" la=");
    decimal(out, *idle_secs);
    out.extend_from_slice(b" cas=");
    decimal(out, *cas);
    out.extend_from_slice(if *hit { b" fetch=yes" } else { b" fetch=no" });
    out.extend_from_slice(b" cls=0 size=");
    decimal(out, *bytes);
    out.extend_from_slice(b"\r\n");
}

/// The properties of an item that `me` returns. The slab class, `cls`, is always 0: there are no
/// slab classes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebug {
    /// Seconds that the item has to live; none if it does not expire.
    pub ttl_secs: Option<u64>,
    /// Seconds since the item's last use.
    pub idle_secs: u64,
    /// The unique number (CAS) of the item.
    pub cas: u64,
    /// True if the item was read since it was stored.
    pub hit: bool,
    /// Bytes of the item that are charged to the cache's budget.
    pub bytes: u64,
}

/// Appends the error of a key whose fetch was rejected, for the reason `text`, which has no line
/// end.
pub fn rejected(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"SERVER_ERROR rejected: ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the result of an `incr` or `decr`.
pub fn number(out: &mut Vec<u8>, number: u64) {
    decimal(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends `STAT <name> <value>`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends `VERSION <version>`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(super) fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_reply_has_the_length_and_the_cas_if_given() {
        let mut out = Vec::new();
        value(&mut out, b"k", 7, None, b"ab");
        value(&mut out, b"k", u32::MAX, Some(9), b"");
        assert_eq!(out, b"VALUE k 7 2\r\nab\r\nVALUE k 4294967295 0 9\r\n\r\n");
    }

    #[test]
    fn meta_reply_consists_of_its_appended_parts() {
        let mut out = Vec::new();
        meta_value(&mut out, 2);
        meta_number(&mut out, b't', 30);
        meta_key(&mut out, b"foo", false);
        meta_key(&mut out, b"foo", true);
        assert_eq!(out, b"VA 2 t30 kfoo kZm9v b");
        out.clear();
        let about = MetaDebug { ttl_secs: None, idle_secs: 3, cas: 7, hit: true, bytes: 62 };
        meta_debug(&mut out, b"foo", false, &about);
        meta_debug(&mut out, b"foo", true, &MetaDebug { ttl_secs: Some(9), hit: false, ..about });
        let expected = "ME foo exp=-1 la=3 cas=7 fetch=yes cls=0 size=62\r\n\
                        ME Zm9v exp=9 la=3 cas=7 fetch=no cls=0 size=62\r\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn longest_value_line_has_value_line_bytes_max_bytes() {
        let mut out = Vec::new();
        value(&mut out, &[b'k'; super::super::KEY_BYTES_MAX], u32::MAX, Some(u64::MAX), b"");
        assert_eq!(out.len() + 19, VALUE_LINE_BYTES_MAX, "an empty value's length has one digit, not twenty");
    }
}
