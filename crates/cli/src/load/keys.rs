//! The keys of `sherwood load`: their texts, and a warning when the target has none of them.

use std::path::{Path, PathBuf};

use sherwood_load::{LoadError, Report, TargetKind, http};
use sherwood_workload::{KeyNames, KeyValue, KeyValueOptions};

/// Texts of the keys of a key space.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeyArgs {
    /// Ask for the keys in this file, one a line, the most popular first
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "key_size", "key_format", "trace", "mix", "scenario"])]
    keys_from: Option<PathBuf>,
    // In a help text, clap takes the place of the number for a line end.
    /// Ask for keys of this form, with their numbers from 1 in place of the n in braces [default: k
    /// and the number, padded to --key-size; numbers alone for a --backend that has such keys and
    /// none of the others]
    #[arg(long, value_name = "user:{n}", conflicts_with_all = ["key_size", "trace", "mix", "scenario"])]
    key_format: Option<String>,
}

impl KeyArgs {
    /// The options given, by name.
    pub(super) fn given(&self) -> [(&'static str, bool); 2] {
        [("--keys-from", self.keys_from.is_some()), ("--key-format", self.key_format.is_some())]
    }

    /// Returns the key space with the keys that were asked for.
    pub(super) fn named(&self, options: KeyValueOptions) -> Result<KeyValueOptions, String> {
        if let Some(file) = &self.keys_from {
            let texts = read(file)?;
            let keys = texts.len() as u64;
            return Ok(KeyValueOptions { keys, names: KeyNames::listed(texts), ..options });
        }
        let names = match &self.key_format {
            Some(format) => KeyNames::numbered(format).map_err(|error| format!("--key-format: {error}"))?,
            None => KeyNames::Padded,
        };
        Ok(KeyValueOptions { names, ..options })
    }
}

fn read(file: &Path) -> Result<Vec<String>, String> {
    let shown = file.display();
    let text = sherwood_textfile::input(file).map_err(|error| format!("--keys-from {shown} {error}"))?;
    let lines = text.lines().map(|line| line.trim_end_matches('\r')).filter(|line| !line.is_empty());
    let keys: Vec<_> = lines.map(str::to_owned).collect();
    if keys.is_empty() {
        return Err(format!("--keys-from {shown} holds no key; write one a line"));
    }
    Ok(keys)
}

/// Selects numbers as keys when the gateway's backend has some of the first ones and none of the
/// default keys, as a table with an integer key does.
pub(super) fn suit(options: &http::Options, workload: &mut http::Workload) -> Result<(), LoadError> {
    let http::Workload::KeySpace { backend, options: key_space, seed, .. } = workload else { return Ok(()) };
    if http::found(options, backend, first(key_space, *seed)?)? > 0 {
        return Ok(());
    }
    let numbers = KeyValueOptions { names: KeyNames::integers(), ..key_space.clone() };
    if http::found(options, backend, first(&numbers, *seed)?)? > 0 {
        *key_space = numbers;
    }
    Ok(())
}

/// Number of keys that show whether a backend has keys of a form.
const PROBED: u64 = 10;

/// Returns the first keys of a key space.
fn first(options: &KeyValueOptions, seed: u64) -> Result<Vec<String>, LoadError> {
    let stream = KeyValue::new(options.clone(), seed)?;
    let text = |key| {
        let mut text = Vec::new();
        stream.write_key(key, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    Ok((0..options.keys.min(PROBED)).map(text).collect())
}

/// Returns examples of the keys of a key space, the most popular first.
pub(super) fn examples(options: &KeyValueOptions, seed: u64) -> String {
    let mut keys = first(options, seed).unwrap_or_default();
    keys.truncate(3);
    keys.join(", ")
}

/// Returns a warning when the target has none of the keys that were asked for, such as `examples`.
pub(super) fn warning(target: TargetKind, report: &Report, examples: &str) -> Option<String> {
    let Report { hits, misses, not_found, sets, .. } = *report;
    let such = if examples.is_empty() { String::new() } else { format!(", such as {examples}") };
    match target {
        TargetKind::Gateway if hits == 0 && misses > 0 && not_found == misses => Some(format!(
            "nothing was found: the backends have none of the {misses} keys asked for{such}; ask for keys that they have: \
             --keys-from FILE, one a line, or --key-format 'user:{{n}}' with --keys"
        )),
        TargetKind::Cache(_) if hits == 0 && misses > 0 && sets == 0 => Some(format!(
            "nothing was found: all {misses} gets missed{such}; ask for keys that the cache has (--keys-from FILE, \
             --key-format), or fill it first with --get-ratio 0, or with --look-aside"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sherwood_load::cache::Protocol;

    use super::*;

    #[test]
    fn keys_are_the_lines_of_a_file_without_empty_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        std::fs::write(&path, "b\r\n\n#a\nc d\n").unwrap();
        assert_eq!(read(&path).unwrap(), ["b", "#a", "c d"]);
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&path).unwrap_err().ends_with("holds no key; write one a line"));
    }

    #[test]
    fn load_that_finds_nothing_has_a_warning_with_its_keys() {
        let examples = examples(&KeyValueOptions { keys: 2, key_bytes: 3, ..KeyValueOptions::default() }, 1);
        assert_eq!(examples, "k00, k01");
        let report =
            |hits, misses, not_found, sets| Report { hits, misses, not_found, sets, ..Report::default() };
        let gateway = |report| warning(TargetKind::Gateway, &report, &examples);
        let said = gateway(report(0, 5, 5, 0)).unwrap();
        assert!(said.contains("none of the 5 keys asked for, such as k00, k01; ask for keys"), "{said}");
        assert_eq!(gateway(report(0, 5, 4, 0)), None, "the backend has one");
        assert_eq!(gateway(report(0, 0, 0, 0)), None);
        let cache = |report| warning(TargetKind::Cache(Protocol::Redis), &report, "");
        let said = cache(report(0, 5, 0, 0)).unwrap();
        assert!(said.starts_with("nothing was found: all 5 gets missed; ask for keys"), "{said}");
        assert_eq!((cache(report(1, 5, 0, 0)), cache(report(0, 5, 0, 5))), (None, None));
    }
}
