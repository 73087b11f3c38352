//! Reads the items, imports and paths of one Rust file.

use super::modules::{Modules, Path};
use super::tokens::{closing, is_name};

/// Keywords that are followed by the name of a definition.
const DEFINITIONS: &[&str] =
    &["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"];

/// Adds the definitions, imports and mentioned paths in the tokens of `file` to its module.
pub(super) fn module(modules: &mut Modules, file: usize, tokens: &[&str]) {
    let number = modules.of_file(file);
    body(modules, number, tokens);
}

fn body(modules: &mut Modules, module: usize, tokens: &[&str]) {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        let next = tokens.get(at + 1).copied().unwrap_or("");
        match token {
            "#" if is_test_only(tokens, at) => {
                at = item_end(tokens, closing(tokens, at + 1) + 1);
                continue;
            }
            "(" if next == "in" && at > 0 && tokens[at - 1] == "pub" => {
                at = closing(tokens, at) + 1;
                continue;
            }
            "mod" if depth == 0 && is_name(next) && tokens.get(at + 2) == Some(&"{") => {
                let close = closing(tokens, at + 2);
                let inline = modules.add_inline(module, next);
                body(modules, inline, &tokens[at + 3..close]);
                at = close + 1;
                continue;
            }
            "use" if is_name(next) || matches!(next, "::" | "{") => {
                let end = tokens[at..].iter().position(|&token| token == ";");
                let end = end.map_or(tokens.len(), |length| at + length);
                let public = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                import(modules, module, &tokens[at + 1..end], public);
                at = end;
                continue;
            }
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            _ if depth == 0 && DEFINITIONS.contains(&token) => {
                let name = if next == "!" { tokens.get(at + 2).copied().unwrap_or("") } else { next };
                if is_name(name) {
                    modules.module(module).items.insert(name.to_owned());
                }
            }
            _ if is_name(token) && (at == 0 || !matches!(tokens[at - 1], "." | "::")) => {
                let path = path(tokens, at);
                at += 2 * (path.len() - 1);
                mention(modules, module, path);
            }
            _ => {}
        }
        at += 1;
    }
}

fn mention(modules: &mut Modules, module: usize, path: Path) {
    let module = modules.module(module);
    if path.len() > 1 {
        module.mentioned.insert(path.clone());
    }
    module.words.extend(path.into_iter().next());
}

/// Returns the longest path of names that starts at token `at`.
fn path(tokens: &[&str], at: usize) -> Path {
    let mut path = vec![tokens[at].to_owned()];
    let mut end = at + 1;
    while let Some(&[separator, name]) = tokens.get(end..end + 2)
        && separator == "::"
        && is_name(name)
    {
        path.push(name.to_owned());
        end += 2;
    }
    path
}

/// Adds the imports of one `use` declaration, whose tokens are `tree`, to a module.
fn import(modules: &mut Modules, module: usize, tree: &[&str], public: bool) {
    if tree.first() == Some(&"::") {
        return;
    }
    let mut waiting = vec![(Path::new(), tree)];
    while let Some((mut path, tree)) = waiting.pop() {
        let in_path = |token: &&&str| **token == "::" || (is_name(token) && **token != "as");
        let names = tree.iter().take_while(in_path).count();
        path.extend(tree[..names].iter().filter(|token| is_name(token)).map(|name| (*name).to_owned()));
        let module = modules.module(module);
        match tree.get(names) {
            Some(&"{") => {
                let inside = &tree[names + 1..closing(tree, names)];
                waiting.extend(top_level(inside).into_iter().map(|part| (path.clone(), part)));
            }
            Some(&"*") => module.globs.push(path),
            _ => {
                if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                    path.pop();
                }
                let alias = tree.get(names + 1).copied();
                if let Some(name) = alias.or(path.last().map(String::as_str)) {
                    module.uses.insert(name.to_owned(), path.clone());
                }
                if !public {
                    module.mentioned.insert(path);
                }
            }
        }
    }
}

/// Splits an import group into its parts; nested groups stay whole.
fn top_level<'a, 'b>(group: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let mut depth = 0_usize;
    let parts = group.split(|token| {
        match *token {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        *token == "," && depth == 0
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Returns true when the attribute at token `at` compiles the next item only for tests.
fn is_test_only(tokens: &[&str], at: usize) -> bool {
    let Some(&["[", "cfg", "("]) = tokens.get(at + 1..at + 4) else { return false };
    let condition = &tokens[at + 3..closing(tokens, at + 3)];
    condition.contains(&"test") && !condition.contains(&"not")
}

/// Returns the index after the item that starts at token `at`, attributes included: after its body,
/// its semicolon, or the comma of a field.
fn item_end(tokens: &[&str], mut at: usize) -> usize {
    while tokens.get(at) == Some(&"#") {
        at = closing(tokens, at + 1) + 1;
    }
    if tokens.get(at) == Some(&"pub") {
        at += 1;
        if tokens.get(at) == Some(&"(") {
            at = closing(tokens, at) + 1;
        }
    }
    let is_import = tokens.get(at) == Some(&"use");
    let is_field = tokens.get(at + 1) == Some(&":");
    while let Some(&token) = tokens.get(at) {
        match token {
            ";" => return at + 1,
            "," if is_field => return at + 1,
            "}" | ")" | "]" => return at,
            "{" if !is_import => return closing(tokens, at) + 1,
            "{" | "(" | "[" => at = closing(tokens, at) + 1,
            _ => at += 1,
        }
    }
    at
}
