//! Splits Rust code into the tokens that paths and items consist of.

use crate::code::is_word;

/// Splits `code` (without prose, see [`without_prose`](crate::code::without_prose)) into words,
/// `::`, and single other characters; blanks are left out.
pub(super) fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            "::".len()
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Returns the index of the token that closes the bracket at index `open`, or the last index where
/// none does.
pub(super) fn closing(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    tokens.len().saturating_sub(1)
}

/// Returns true when `token` can be a name: it is neither punctuation nor a number.
pub(super) fn is_name(token: &str) -> bool {
    token.chars().next().is_some_and(|c| is_word(c) && !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_path_separators_are_single_tokens() {
        assert_eq!(tokens("use a_b::{C};\n x: 1"), ["use", "a_b", "::", "{", "C", "}", ";", "x", ":", "1"]);
    }

    #[test]
    fn closing_bracket_is_the_one_that_matches() {
        let tokens = tokens("f(a[b], {c}) d");
        assert_eq!(tokens[closing(&tokens, 1)..], [")", "d"]);
    }
}
