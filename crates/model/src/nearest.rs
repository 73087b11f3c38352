//! The known name that an unknown one was probably meant to be.

/// Returns the name in `known` with the smallest edit distance from `word`, if that is small for
/// its length; otherwise the first that begins with `word`.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let edits_max = 1 + word.chars().count().min(12) / 4;
    let near = known.iter().map(|&name| (edits(word, name), name)).min()?;
    let begun = || known.iter().copied().find(|name| word.len() >= BEGINNING && name.starts_with(word));
    if near.0 <= edits_max { Some(near.1) } else { begun() }
}

/// Returns the question that ends an error about the unknown `word`, such as `: did you mean
/// "static"?`; empty if no name in `known` is near.
#[must_use]
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    nearest(word, known).map_or(String::new(), |near| format!(": did you mean {near:?}?"))
}

/// Minimum length, in characters, of an unknown word for which a known name that it begins is
/// suggested.
const BEGINNING: usize = 4;

/// Edit distance from `a` to `b` (insertions, deletions, replacements and swaps of neighbours) over
/// the first 64 characters.
fn edits(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|word| word.chars().take(64).collect::<Vec<char>>());
    // `table[i][j]` is the distance from the first `i` characters of `a` to the first `j` of `b`.
    let mut table: Vec<Vec<usize>> = (0..=a.len()).map(|i| (i..=i + b.len()).collect()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let least = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            let swaps = i > 1 && j > 1 && a[i - 2] == b[j - 1] && a[i - 1] == b[j - 2];
            table[i][j] = if swaps { least.min(table[i - 2][j - 2] + 1) } else { least };
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_for_an_unknown_name_is_a_similar_name_or_none() {
        assert_eq!(nearest("totl", &["max_item_size", "total"]), Some("total"));
        assert_eq!(nearest("colour", &["total", "bind"]), None);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("same", "same")), (3, 3, 0));
        assert_eq!((edits("stroe", "store"), edits("ab", "ba"), edits("abcd", "badc")), (1, 1, 2));
        assert_eq!(nearest("stroe", &["stale", "store", "ttl"]), Some("store"));
        assert_eq!(nearest("password", &["path", "password_file", "password_env"]), Some("password_file"));
    }
}
