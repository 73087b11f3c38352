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
//! Everything but [`load`] is pure, and nothing uses a runtime, a socket or a thread. A node is
//! built from the types of `setup`. Keys, units and defaults are listed in `sherwood.example.toml`.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write files"))]

mod changes;
mod flags;
#[cfg(test)]
mod golden;
pub mod http_limits;
pub mod json_schema;
mod lines;
mod meaning;
mod problem;
mod raw;
mod read;
mod resolve;
mod schema;
mod scope;
mod setup;
mod spanned;
#[cfg(test)]
mod tests;

use std::io;

pub use changes::{Changes, ListenerChanges, Times};
pub use flags::Flags;
pub use meaning::{
    BUFFERS_BYTES_MAX, BackendConfig, BatchMode, Config, Control, Duplicates, Freshness,
    HTTP_CONNECTIONS_MAX, Listener, Memory, Mode, OTLP_CONNECTIONS_MAX, Partition, Route, STALE_OK_MAX,
    Server, Snapshot, WriteThrough, Writes,
};
pub use problem::{ConfigError, Location, PROBLEMS_MAX, Problem};
pub use schema::schema;
pub use setup::{
    AccessSetup, BusCredentials, BusServer, BusSetup, ClusterSetup, CollectorUrl, DEFAULT_SCHEDULER,
    DEFAULT_TENANT, DeadlineRule, ExportProtocol, InstanceKind, InstanceSetup, InstancesSetup, ManagedStore,
    NoBusServer, NoCollectorUrl, NoSchedulerUrl, ReplicationSetup, ResourceSetup, SchedulerSetup,
    SchedulerSource, SchedulerUrl, SloScope, SloSetup, SpanExport, SpanRule, StoresSetup, TenancyOptions,
    TenancySetup, TenantSetup, TermsError, TlsFiles, partition_name,
};
pub use sherwood_listener::{Io, Protocol};
pub use sherwood_model::Slo;
pub use sherwood_model::units::{ByteSize, Span, UnitError};
pub use sherwood_path::{SharedTerms, WithoutBus, WriteTo};
pub use sherwood_store::{
    CassandraOptions, ComputeOptions, DynamoDbOptions, HttpOptions, KvOptions, MemcachedOptions,
    RedisOptions, SqliteOptions, StoreOptions, ZookeeperOptions,
};

use problem::Problems;
use raw::RawFile;
use sherwood_model::units;
use sherwood_textfile::{ReadError, Rules};

/// Rules for a configuration file: at most 4 MiB, enough for thousands of backends.
const FILE_RULES: Rules = Rules { bytes_max: 4 << 20, ..Rules::DEFAULT };

/// Reads the file that `flags` name, if any, and resolves the configuration of a node.
///
/// `policies` are the names of the selectable allocation policies: those that need no options
/// besides the file's.
///
/// # Errors
/// All problems found, when the file cannot be read, is a pipe or a device, is not UTF-8, is larger
/// than 4 MiB, or is not a valid configuration.
pub fn load(flags: &Flags, policies: &[&str]) -> Result<Config, ConfigError> {
    let Some(path) = &flags.config else { return resolve_all(None, flags, policies) };
    let name = path.display().to_string();
    match sherwood_textfile::text(path, FILE_RULES) {
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

/// Describes the error of reading the file, with the remedy; other errors in the operating system's
/// words.
fn said(error: &ReadError) -> String {
    match error {
        ReadError::Unreadable(error) => match error.kind() {
            io::ErrorKind::NotFound => "there is no such file: check its path".to_owned(),
            io::ErrorKind::PermissionDenied => "this user may not read it: change its permissions".to_owned(),
            _ => error.to_string(),
        },
        ReadError::NotAFile("directory") => "it is a directory: name the TOML file".to_owned(),
        ReadError::NotAFile(kind) => format!(
            "it is a {kind}, which a reload could not read again: write the configuration to a file, and name that"
        ),
        ReadError::TooLarge { .. } => "it is larger than 4 MiB: split it".to_owned(),
        ReadError::NotText { .. } => {
            "it is not text in UTF-8: name the TOML file, and save it as UTF-8".to_owned()
        }
        other => format!("it {other}"),
    }
}
