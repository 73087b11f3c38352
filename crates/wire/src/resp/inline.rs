//! Inline requests, which people type: words on a line, quoted if they contain spaces.
//!
//! In double quotes a backslash escapes `n`, `r`, `t`, `b`, `a`, two hexadecimal digits after `x`,
//! or any other character, which stands for itself; in single quotes it escapes only a single
//! quote. A closing quote has to be the end of its word.

use super::args::Span;

/// Splits the `line` of an inline request into words. Appends their text to `text`, which has to be
/// empty, and their positions to `spans`. Returns true if all quotes were closed.
pub(super) fn split(line: &[u8], text: &mut Vec<u8>, spans: &mut Vec<Span>) -> bool {
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return true;
        }
        let start = text.len();
        let Some(after) = word(rest, text) else { return false };
        // A word is at most as long as its line, which is at most 64 KiB.
        spans.push(Span { start: start as u32, len: (text.len() - start) as u32 });
        rest = after;
    }
}

/// Appends the word at the start of `rest`, without quotes, to `text` and returns the bytes after
/// the word; none if a quote is not closed.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t' | 0, ..] => return Some(rest.get(1..).unwrap_or_default()),
            // A closing quote ends the word, so the quoted part is its last one.
            [b'"', quoted @ ..] => return double_quoted(quoted, text),
            [b'\'', quoted @ ..] => return single_quoted(quoted, text),
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                text.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [b'"', after @ ..] => return end_of_word(after),
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'\'', after @ ..] => {
                text.push(b'\'');
                after
            }
            [b'\'', after @ ..] => return end_of_word(after),
            [byte, after @ ..] => {
                text.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

/// Returns the bytes after a closing quote if they end the word: if there are none or a space is
/// first.
fn end_of_word(after: &[u8]) -> Option<&[u8]> {
    after.first().is_none_or(|byte| is_space(*byte)).then_some(after)
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut text, &mut spans).then(|| {
            let word = |span: &Span| &text[span.start as usize..(span.start + span.len) as usize];
            spans.iter().map(|span| String::from_utf8_lossy(word(span)).into_owned()).collect()
        })
    }

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        assert_eq!(words(line).unwrap(), expected, "{line:?}");
    }

    #[test]
    fn words_of_an_inline_request_are_separated_by_white_space() {
        check("", &[]);
        check(" \t ", &[]);
        check("set  key\tvalue ", &["set", "key", "value"]);
    }

    #[test]
    fn double_quotes_of_an_inline_request_may_contain_spaces_and_escapes() {
        check(r#"set k "a b""#, &["set", "k", "a b"]);
        check(r#""\x41\n\r\t\b\a\"\\\q" x"#, &["A\n\r\t\u{8}\u{7}\"\\q", "x"]);
        check(r#""\x4g" """#, &["x4g", ""]);
        check(r#"pre"fix ed""#, &["prefix ed"]);
    }

    #[test]
    fn single_quotes_of_an_inline_request_may_contain_all_but_single_quotes() {
        check(r"'a \n b' 'it\'s'", &[r"a \n b", "it's"]);
    }

    #[test]
    fn inline_request_with_a_quote_not_closed_at_the_end_of_a_word_is_refused() {
        for line in [r#""a"#, "'a", r#""a"b"#, "'a'b", r#"set """a""" b"#, r#""a\""#, r"'a\'"] {
            assert_eq!(words(line), None, "{line:?}");
        }
    }
}
