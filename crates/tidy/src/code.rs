//! Rust source without comments and literals.
//!
//! Rules about code must ignore prose: a comment may explain, for example, why there is no clock. A
//! full parser is not needed, so this module only recognises the ends of comments, strings and
//! characters.

/// Replaces every comment and the contents of every string and character literal by blanks. Line
/// breaks stay, so line numbers do not change. Linear in the length.
#[must_use]
pub fn without_prose(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = prose_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

/// Returns the line number, from 1, of the byte at `offset` of `text`.
#[must_use]
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

/// Returns true when `c` may be part of an identifier.
#[must_use]
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the offsets of `word` in `code` where it is not part of a longer identifier.
#[must_use]
pub fn occurrences(code: &str, word: &str) -> Vec<usize> {
    let alone = |&at: &usize| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    code.match_indices(word).map(|(at, _)| at).filter(alone).collect()
}

/// Returns the text between the bracket at `open` and its closing bracket, or the rest if there is
/// none.
#[must_use]
pub fn bracketed(code: &str, open: usize) -> &str {
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return &code[open + 1..open + at];
                }
            }
            _ => {}
        }
    }
    code.get(open + 1..).unwrap_or("")
}

/// Returns the end of the comment or literal that starts at index `at`, or `at` if neither starts
/// there.
fn prose_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => line_comment_end(chars, at),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at),
        'r' if at == 0 || !is_word(chars[at - 1]) || chars[at - 1] == 'b' => raw_string_end(chars, at),
        '\'' => character_end(chars, at),
        _ => at,
    }
}

fn line_comment_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |length| at + length)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut end = at;
    while end + 1 < chars.len() {
        match (chars[end], chars[end + 1]) {
            ('/', '*') => (depth, end) = (depth + 1, end + 2),
            ('*', '/') => (depth, end) = (depth - 1, end + 2),
            _ => end += 1,
        }
        if depth == 0 {
            return end;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut end = at + 1;
    while end < chars.len() {
        match chars[end] {
            '\\' => end += 2,
            '"' => return end + 1,
            _ => end += 1,
        }
    }
    chars.len()
}

fn raw_string_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return at;
    }
    let closes = |from: usize| chars[from + 1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    (open + 1..chars.len())
        .find(|&end| chars[end] == '"' && closes(end))
        .map_or(chars.len(), |end| end + 1 + hashes)
}

/// Returns the end of a character literal that starts at index `at`, which holds one character or
/// an escape; a quote may also begin a lifetime.
fn character_end(chars: &[char], at: usize) -> usize {
    match chars.get(at + 1) {
        Some('\\') => {
            let close = chars.get(at + 3..).and_then(|rest| rest.iter().position(|&c| c == '\''));
            close.map_or(chars.len(), |length| at + 3 + length + 1)
        }
        Some(_) if chars.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(source: &str) -> String {
        without_prose(source).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_in_code_become_blanks() {
        assert_eq!(squeezed("a // b \"c\nd /* e /* f */ g */ h"), "a d h");
        assert_eq!(squeezed(r#"let s = "tokio \" // no"; x"#), "let s = ; x");
        assert_eq!(squeezed("let s = r#\"a \" b\"#; y"), "let s = ; y");
        assert_eq!(squeezed(r"match c { '\'' | '/' | '\u{41}' => z }"), "match c { | | => z }");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_not_taken_for_literals() {
        assert_eq!(squeezed("fn f<'a>(x: &'a str) -> r#type"), "fn f<'a>(x: &'a str) -> r#type");
    }

    #[test]
    fn lines_keep_their_numbers_without_comments_and_literals() {
        let source = "/* one\ntwo */\nthree";
        let code = without_prose(source);
        assert_eq!(line_of(&code, code.find("three").expect("code stays")), 3);
    }

    #[test]
    fn unterminated_comment_or_literal_ends_with_the_file() {
        for source in ["/* a", "\"a", "r#\"a\"", "'\\", "'", "/", "\"\\"] {
            assert_eq!(without_prose(source).len(), source.len(), "{source}");
        }
    }

    #[test]
    fn occurrences_of_a_word_within_longer_identifiers_are_ignored() {
        assert_eq!(occurrences("tokio my_tokio tokio_util tokio", "tokio"), [0, 26]);
    }

    #[test]
    fn bracketed_text_ends_at_the_matching_bracket() {
        assert_eq!(bracketed("f(a(b), c) d", 1), "a(b), c");
        assert_eq!(bracketed("f(a", 1), "a");
    }
}
