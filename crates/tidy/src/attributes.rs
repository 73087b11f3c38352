//! A lint that is switched off says why.

use crate::code;

/// Attributes that switch a lint off; `expect` does so as much as `allow`.
const LIFTS: &[&str] = &["allow", "expect"];

/// One sentence for every `#[allow(…)]` and `#[expect(…)]` of `source` that has no `reason`.
#[must_use]
pub fn lifts_without_reason(path: &str, source: &str) -> Vec<String> {
    let code = code::without_prose(source);
    let sentence = |(at, lift)| format!("{path}:{}: #[{lift}] without a reason", code::line_of(&code, at));
    attributes(&code).flat_map(|open| lifts(&code, open)).map(sentence).collect()
}

/// Where the brackets of attributes open.
fn attributes(code: &str) -> impl Iterator<Item = usize> {
    ["#[", "#!["].into_iter().flat_map(|mark| code.match_indices(mark).map(|(at, _)| at + mark.len() - 1))
}

/// What the attribute at `open` lifts without a reason, by itself or behind a condition
/// (`cfg_attr`).
fn lifts(code: &str, open: usize) -> Vec<(usize, &'static str)> {
    let attribute = code::bracketed(code, open);
    let unexplained = |end: usize| {
        attribute[end..].starts_with('(')
            && code::occurrences(code::bracketed(attribute, end), "reason").is_empty()
    };
    let places = LIFTS
        .iter()
        .flat_map(|&lift| code::occurrences(attribute, lift).into_iter().map(move |at| (at, lift)));
    places.filter(|(at, lift)| unexplained(at + lift.len())).map(|(at, lift)| (open + 1 + at, lift)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_on_another_line_counts() {
        let source = "#[allow(\n dead_code,\n reason = \"b\"\n)] #[expect(c, reason = \"d\")] fn f() {}";
        assert!(lifts_without_reason("a.rs", source).is_empty());
    }

    #[test]
    fn a_reason_that_is_only_a_comment_does_not() {
        let found = lifts_without_reason("a.rs", "\n#![allow(dead_code /* reason */)]");
        assert_eq!(found, ["a.rs:2: #[allow] without a reason"]);
    }

    #[test]
    fn an_expectation_needs_a_reason_too() {
        let found = lifts_without_reason("a.rs", "#[expect(dead_code)]\nfn f() { g.expect(\"h\"); }");
        assert_eq!(found, ["a.rs:1: #[expect] without a reason"]);
    }

    #[test]
    fn a_condition_excuses_nothing() {
        let found = lifts_without_reason("a.rs", "#[cfg_attr(test,\n allow(dead_code))]");
        assert_eq!(found, ["a.rs:2: #[allow] without a reason"]);
    }
}
