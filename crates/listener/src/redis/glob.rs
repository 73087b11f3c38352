//! Glob patterns of keys, as `KEYS`, `SCAN` and `CONFIG GET` take them.
//!
//! `*` matches any text, `?` any byte, `[a-c]`, `[abc]` and `[^a]` one byte of a class, and a
//! backslash makes the next byte literal.

/// Returns true if all of `text` matches `pattern`; case is ignored if `any_case`.
///
/// Takes at most as many steps as the product of their lengths: after a mismatch only the last `*`
/// is extended, since extending an earlier one cannot match more.
pub(super) fn matches(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    // Position after the last star, and start of the text that the star does not cover.
    let mut star = None;
    loop {
        let rest = &pattern[pattern_at..];
        if rest.first() == Some(&b'*') {
            star = Some((pattern_at + 1, text_at));
            pattern_at += 1;
            continue;
        }
        if text_at == text.len() {
            return rest.is_empty();
        }
        match one(rest, text[text_at], any_case) {
            Some(used) => (pattern_at, text_at) = (pattern_at + used, text_at + 1),
            None => {
                let Some((after, from)) = star else { return false };
                (pattern_at, text_at) = (after, from + 1);
                star = Some((after, from + 1));
            }
        }
    }
}

/// Returns the most steps [`matches`] takes with a text of `text_bytes`: the pattern after the
/// first star may be tried at every position of the text.
pub(super) fn steps_max(pattern: &[u8], text_bytes: usize) -> usize {
    match pattern.iter().position(|&byte| byte == b'*') {
        Some(star) => pattern.len() + text_bytes * (pattern.len() - star),
        None => pattern.len(),
    }
}

/// Returns the work of `steps` matching steps: the most expensive kind, through a character class,
/// takes one and a half nanoseconds.
pub(super) fn work(steps: usize) -> u64 {
    6 * steps as u64
}

/// Returns the length in bytes of the first element of `pattern`, if that element matches `byte`.
fn one(pattern: &[u8], byte: u8, any_case: bool) -> Option<usize> {
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (is_in, used) = in_class(class, fold(byte), fold);
            is_in.then_some(1 + used)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte)).then_some(2),
        [literal, ..] => (fold(*literal) == fold(byte)).then_some(1),
        [] => None,
    }
}

/// Returns true if `byte` is in the class, which starts after its bracket, and the class's length.
/// An unterminated class extends to the end of the pattern, as in Redis.
fn in_class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let (not, mut at) = match class.first() {
        Some(b'^') => (true, 1),
        _ => (false, 0),
    };
    let mut found = false;
    loop {
        match &class[at..] {
            [] => return (found != not, at),
            [b']', ..] => return (found != not, at + 1),
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (fold(*low), fold(*high));
                found |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= fold(*literal) == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_special_character_of_a_glob_matches_as_in_redis() {
        for (pattern, yes, no) in [
            ("", vec![""], vec!["a"]),
            ("*", vec!["", "a", "a/b"], vec![]),
            ("h?llo", vec!["hello", "h*llo"], vec!["hllo", "heello", "Hello"]),
            ("h*llo", vec!["hllo", "heeello"], vec!["hell", "hllox"]),
            ("h[ae]llo", vec!["hallo", "hello"], vec!["hillo", "hllo"]),
            ("h[^e]llo", vec!["hallo"], vec!["hello"]),
            ("h[c-a]llo", vec!["hallo", "hbllo"], vec!["hdllo"]),
            (r"h\*llo", vec!["h*llo"], vec!["hello"]),
            (r"[\]]", vec!["]"], vec!["a"]),
            ("[ab", vec!["a", "b"], vec!["c", "ab"]),
            ("a\\", vec!["a\\"], vec!["a"]),
            ("*a*b", vec!["ab", "xaxxb", "aabab"], vec!["ba", "abx"]),
            ("user:*:name", vec!["user:1:name"], vec!["user:1:age"]),
        ] {
            yes.iter().for_each(|text| {
                assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}")
            });
            no.iter().for_each(|text| {
                assert!(!matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}")
            });
        }
    }

    #[test]
    fn steps_max_of_a_glob_counts_the_pattern_after_a_star_at_every_position() {
        let steps =
            ["", "user:1", "user:*", "*", "*:1", r"\*[a*]"].map(|pattern| steps_max(pattern.as_bytes(), 10));
        assert_eq!(steps, [0, 6, 16, 11, 33, 56]);
    }

    #[test]
    fn glob_ignores_case_only_with_any_case() {
        assert!(matches(b"MAX[A-C]*", b"maxbeta", true) && !matches(b"MAX*", b"maxbeta", false));
    }

    #[test]
    fn glob_of_many_stars_takes_few_steps() {
        assert!(!matches(&b"a*".repeat(500), &[b'a'; 499], false));
        assert!(!matches(&[b"*a".repeat(500), b"b".to_vec()].concat(), &[b'a'; 5000], false));
    }

    proptest! {
        #[test]
        fn escaped_glob_matches_its_own_text_only(text in "[]a*?^\\[\\\\-]{0,8}", other in "[]a*?^\\[\\\\-]{0,8}") {
            let pattern: Vec<u8> = text.bytes().flat_map(|byte| [b'\\', byte]).collect();
            prop_assert_eq!(matches(&pattern, other.as_bytes(), false), text == other);
        }

        #[test]
        fn glob_matches_if_exhaustive_search_finds_a_match(pattern in "[]ab*?^\\[\\\\-]{0,10}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), naive(pattern.as_bytes(), text.as_bytes()));
        }
    }

    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', after @ ..], text) => (0..=text.len()).any(|from| naive(after, &text[from..])),
            (_, []) => false,
            (pattern, [byte, rest @ ..]) => {
                one(pattern, *byte, false).is_some_and(|used| naive(&pattern[used..], rest))
            }
        }
    }
}
