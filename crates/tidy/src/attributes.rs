//! A lint that is switched off says why.

use crate::code;

/// One sentence for every `#[allow(…)]` of `source` that has no `reason`.
#[must_use]
pub fn allows_without_reason(path: &str, source: &str) -> Vec<String> {
    let code = code::without_prose(source);
    ["#[allow(", "#![allow("]
        .iter()
        .flat_map(|opening| code.match_indices(opening).map(|(at, _)| at + opening.len() - 1))
        .filter(|&open| code::occurrences(code::bracketed(&code, open), "reason").is_empty())
        .map(|open| format!("{path}:{}: #[allow] without a reason", code::line_of(&code, open)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_on_another_line_counts() {
        assert!(
            allows_without_reason("a.rs", "#[allow(\n dead_code,\n reason = \"b\"\n)] fn f() {}").is_empty()
        );
    }

    #[test]
    fn a_reason_that_is_only_a_comment_does_not() {
        let found = allows_without_reason("a.rs", "\n#![allow(dead_code /* reason */)]");
        assert_eq!(found, ["a.rs:2: #[allow] without a reason"]);
    }
}
