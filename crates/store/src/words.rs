//! What others say, made fit for one line of an error; pure.
//!
//! A server's words may have anything in them: line ends that would forge lines of the log,
//! sequences that terminals obey, texts without end.

/// Characters of a server's message that are repeated.
const SAID_CHARS_MAX: usize = 200;

/// Characters of what a user has written that are repeated.
const SHOWN_CHARS_MAX: usize = 80;

/// The start of a server's message.
pub(crate) fn said(text: &str) -> String {
    plain(text, SAID_CHARS_MAX)
}

/// As [`said`], of bytes.
pub(crate) fn said_bytes(text: &[u8]) -> String {
    // No character has more than four bytes, and one that is cut off is not among those that are
    // kept.
    said(&String::from_utf8_lossy(&text[..text.len().min(4 * SAID_CHARS_MAX + 4)]))
}

/// The start of a text of the user's.
pub(crate) fn shown(text: &str) -> String {
    plain(text, SHOWN_CHARS_MAX)
}

/// A text of the user's in quotes, or where a password may be in it, only what it is called.
pub(crate) fn quoted(name: &str, text: &str) -> String {
    if text.contains('@') { format!("the {name}") } else { format!("\"{}\"", shown(text)) }
}

/// The first characters of a text, those that are no letters, signs or blanks written out as `\n`
/// or `\u{1b}`. Of one that is plain and short enough already, it is the same text.
pub(crate) fn plain(text: &str, chars_max: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(chars_max));
    let mut chars = text.chars();
    for c in chars.by_ref().take(chars_max) {
        if is_command(c) {
            plain.extend(c.escape_debug());
        } else {
            plain.push(c);
        }
    }
    if chars.next().is_some() {
        plain.push('…');
    }
    plain
}

/// Whether terminals and viewers of logs take it for more than a sign: ends of lines, control
/// characters, turns of direction.
fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_sign_is_written_out() {
        assert_eq!(said("table \"a\" is 'é'\\"), "table \"a\" is 'é'\\");
        assert_eq!(said("a\r\nWARN b\t\u{1b}[2J\u{7f}"), "a\\r\\nWARN b\\t\\u{1b}[2J\\u{7f}");
        assert_eq!(said("\u{202e}a\u{2028}"), "\\u{202e}a\\u{2028}");
        assert_eq!(said_bytes(b"a\xff\n"), "a\u{fffd}\\n");
    }

    #[test]
    fn what_is_long_ends_early() {
        assert_eq!(plain("12345", 5), "12345");
        assert_eq!(plain("123456", 5), "12345…");
        assert_eq!(said(&"é".repeat(10_000)), format!("{}…", "é".repeat(200)));
        assert_eq!(said_bytes("é".repeat(10_000).as_bytes()), format!("{}…", "é".repeat(200)));
    }

    #[test]
    fn what_may_hold_a_password_is_not_repeated() {
        assert_eq!(quoted("address", "h:x"), "\"h:x\"");
        assert_eq!(quoted("address", "root:secret@h"), "the address");
    }

    proptest! {
        #[test]
        fn it_is_one_line_of_bounded_length(text: String) {
            let said = said(&text);
            prop_assert!(!said.contains(is_command) && said.len() <= 10 * SAID_CHARS_MAX + 3);
        }
    }
}
