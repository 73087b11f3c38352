//! The configuration: from a file and flags to a validated [`Config`].
//!
//! A wrong configuration is refused before anything binds, so that no node starts with part of the
//! intended settings. There are two steps. Parsing (`raw`, `read`) keeps every value with its place
//! in the file; resolution (`resolve`) checks ranges and cross-references, turns names into ids,
//! and lets flags override the file. All problems of a step are reported at once, one line each
//! ([`ConfigError`]):
//!
//! ```text
//! sherwood.toml:2:9: [memory] total is 0 bytes; it must be at least 1MiB: set total = "1GiB"
//! ```
//!
//! Everything but [`load`] is pure. Keys, units and defaults are listed in `sherwood.example.toml`.

mod changes;
mod flags;
mod meaning;
mod problem;
mod raw;
mod read;
mod resolve;
mod schema;
mod scope;
mod spanned;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) use changes::{Changes, Times};
pub use flags::Flags;
pub use meaning::{
    BUFFERS_BYTES_MAX, BackendConfig, Config, Control, Freshness, HTTP_CONNECTIONS_MAX, Listener, Memory,
    Mode, OTLP_CONNECTIONS_MAX, Partition, Protocol, Route, STALE_OK_MAX, Server, Snapshot, WriteThrough,
    Writes,
};
pub use problem::{ConfigError, Location, PROBLEMS_MAX, Problem};
pub use schema::schema;
pub use sherwood_model::Slo;
pub use sherwood_model::units::{ByteSize, Span, UnitError};
pub use sherwood_path::WriteTo;
pub use sherwood_store::{
    ComputeOptions, DynamoDbOptions, HttpOptions, KvOptions, MemcachedOptions, RedisOptions, SqliteOptions,
    StoreOptions,
};

use problem::Problems;
use raw::RawFile;
use sherwood_model::units;

/// Reads the file that `flags` name, if any, and resolves the configuration of a node.
///
/// `policies` are the names of the selectable allocation policies: those that need no options
/// besides the file's.
///
/// # Errors
/// All problems found, when the file cannot be read, is not UTF-8, is larger than 4 MiB, or is not
/// a valid configuration.
pub fn load(flags: &Flags, policies: &[&str]) -> Result<Config, ConfigError> {
    let Some(path) = &flags.config else { return resolve_all(None, flags, policies) };
    let name = path.display().to_string();
    match read_file(path) {
        Ok(text) => parse(&name, &text, flags, policies),
        Err(error) => {
            let message = format!("cannot read the configuration: {}", said(&error));
            Err(ConfigError {
                problems: vec![Problem { location: Location::File(name), message }],
                unlisted: 0,
            })
        }
    }
}

/// Resolves the configuration of a node from the `text` of a file called `name`, with `flags`
/// overriding it.
///
/// # Errors
/// All problems found.
pub fn parse(name: &str, text: &str, flags: &Flags, policies: &[&str]) -> Result<Config, ConfigError> {
    resolve_all(Some((name, text)), flags, policies)
}

fn resolve_all(file: Option<(&str, &str)>, flags: &Flags, policies: &[&str]) -> Result<Config, ConfigError> {
    let mut problems = Problems::new(file);
    let raw = match file {
        Some((_, text)) => read::read(text, &mut problems),
        None => Some(RawFile::default()),
    };
    let config = raw.map(|raw| resolve::resolve(&raw, flags, policies, &mut problems));
    problems.finish()?;
    Ok(config.expect("a file that could not be read has problems"))
}

/// Describes an I/O error with its remedy, in the system's words for unknown kinds.
fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file: check its path".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory: name the TOML file".to_owned(),
        io::ErrorKind::InvalidData => "it is not text in UTF-8: name the TOML file".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it: change its permissions".to_owned(),
        _ => error.to_string(),
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(read::FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    if text.len() > read::FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB: split it"));
    }
    Ok(text)
}
