//! Makes texts of servers and users safe for one line of an error; pure.
//!
//! A server's text may contain anything: line ends that would forge lines of a log, terminal escape
//! sequences, unbounded length.

/// Most characters of a server's message that are quoted.
const MESSAGE_CHARS_MAX: usize = 200;

/// Most characters of a user's text that are quoted.
const USER_TEXT_CHARS_MAX: usize = 80;

/// Escapes the start of a server's message.
pub(crate) fn message(text: &str) -> String {
    plain(text, MESSAGE_CHARS_MAX)
}

/// Escapes the start of a server's message given as bytes.
pub(crate) fn message_bytes(text: &[u8]) -> String {
    // A character has at most four bytes, and one that is cut off here is after those that are
    // kept.
    message(&String::from_utf8_lossy(&text[..text.len().min(4 * MESSAGE_CHARS_MAX + 4)]))
}

/// Escapes the start of a user's text.
pub(crate) fn user_text(text: &str) -> String {
    plain(text, USER_TEXT_CHARS_MAX)
}

/// Returns an option's text in quotes; if it may contain a password, only the option's name.
pub(crate) fn quoted(name: &str, text: &str) -> String {
    if text.contains('@') { format!("the {name}") } else { format!("\"{}\"", user_text(text)) }
}

/// Returns the first characters of a text, with control characters escaped, such as `\n` or
/// `\u{1b}`. A short text without such characters is returned unchanged.
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

/// True for characters with an effect on terminals and log viewers: line ends, control characters
/// and changes of text direction.
fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(message("table \"a\" is 'é'\\"), "table \"a\" is 'é'\\");
        assert_eq!(message("a\r\nWARN b\t\u{1b}[2J\u{7f}"), "a\\r\\nWARN b\\t\\u{1b}[2J\\u{7f}");
        assert_eq!(message("\u{202e}a\u{2028}"), "\\u{202e}a\\u{2028}");
        assert_eq!(message_bytes(b"a\xff\n"), "a\u{fffd}\\n");
    }

    #[test]
    fn text_longer_than_the_limit_is_truncated() {
        assert_eq!(plain("12345", 5), "12345");
        assert_eq!(plain("123456", 5), "12345…");
        assert_eq!(message(&"é".repeat(10_000)), format!("{}…", "é".repeat(200)));
        assert_eq!(message_bytes("é".repeat(10_000).as_bytes()), format!("{}…", "é".repeat(200)));
    }

    #[test]
    fn text_that_may_contain_a_password_is_not_quoted() {
        assert_eq!(quoted("address", "h:x"), "\"h:x\"");
        assert_eq!(quoted("address", "root:secret@h"), "the address");
    }

    proptest! {
        #[test]
        fn any_text_becomes_one_line_of_bounded_length(text: String) {
            let message = message(&text);
            prop_assert!(!message.contains(is_command) && message.len() <= 10 * MESSAGE_CHARS_MAX + 3);
        }
    }
}
