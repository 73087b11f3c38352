//! Limit on the length of functions, so that each has one purpose and can be read at once.

use crate::code;

/// Longest function, in lines from `fn` to its closing bracket.
pub const LINES_MAX: usize = 60;

/// Returns a sentence for every function in `code` that is longer than [`LINES_MAX`]; `code`
/// belongs to the [`product`](crate::product).
#[must_use]
pub fn overlong(path: &str, code: &str) -> Vec<String> {
    code::occurrences(code, "fn").into_iter().filter_map(|at| violation(path, code, at)).collect()
}

fn violation(path: &str, code: &str, at: usize) -> Option<String> {
    let name: String =
        code[at + "fn".len()..].trim_start().chars().take_while(|&c| code::is_word(c)).collect();
    let open = body(code, at).filter(|_| !name.is_empty())?;
    let lines = code::bracketed(code, open).matches('\n').count() + code[at..open].matches('\n').count() + 1;
    (lines > LINES_MAX).then(|| {
        let line = code::line_of(code, at);
        format!("{path}:{line}: `{name}` has {lines} lines, at most {LINES_MAX}: give each part a function")
    })
}

/// Returns the offset of the bracket that opens the body of the function at `at`; none if it is a
/// declaration without a body.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.checked_sub(1)?,
            '{' if depth == 0 => return Some(at + offset),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!(
            "impl X {{\n    pub fn long(a: [u8; 2]) -> u8 {{\n{}    }}\n}}\n",
            "    a();\n".repeat(lines - 2)
        )
    }

    #[test]
    fn function_longer_than_the_limit_is_reported_with_its_line_number() {
        assert!(overlong("a.rs", &function(LINES_MAX)).is_empty());
        assert_eq!(
            overlong("a.rs", &function(LINES_MAX + 1)),
            ["a.rs:2: `long` has 61 lines, at most 60: give each part a function"]
        );
    }

    #[test]
    fn function_types_and_declarations_without_a_body_are_ignored() {
        let source =
            format!("trait X {{ fn a(&self);\nfn b(); }}\ntype F = fn(u8);\n{{{}}}", "\n".repeat(99));
        assert!(overlong("a.rs", &source).is_empty());
    }
}
