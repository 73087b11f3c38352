//! Warm restart: the cache's contents, written when the node stops and read when it starts.
//!
//! A cache that starts empty sends its backends the most queries. A node that stops regularly
//! therefore writes its items to a file, the most recently used first, so that a time limit loses
//! the coldest, and the next start reads them.
//!
//! Three rules keep outdated values from being served:
//! - *A file is read once.* It is moved away before it is used. A node that is killed writes none,
//!   and then starts cold rather than from a file older than the latest writes.
//! - *Expiry times hold.* Expiry is a date in the file; the time between stop and start counts. A
//!   file from the future (the clock was set back) is refused.
//! - *Values belong to a configuration.* The file has a fingerprint of the backends' configuration,
//!   and a node with another one refuses it.
//!
//! The file must also be the node's own, writable only by the node's user, so that no other user
//! can plant values. Files that are not the node's are never modified (`foreign`).
//!
//! The file is read before the first client is served: otherwise a key that is deleted could come
//! back when an older value of it is read afterwards. Reading delays the start by a few seconds per
//! GiB.
//!
//! A write with unknown outcome may take effect while the node is down, or after it is back. The
//! file keeps the time until which that may happen.
//!
//! Changes that other programs make to a backend's data while the node is down are not seen, as in
//! normal operation; data with a limited age needs a `ttl`.
//!
//! The format is in `file` (blocks and checksums) and `record` (an item in bytes); `write` and
//! `read` transfer between cache and file.

mod file;
mod foreign;
mod read;
mod record;
mod write;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant as Monotonic;

use serde_json::json;
use sherwood_model::Instant;

use crate::core::Core;
use crate::setup::SnapshotSetup;
use crate::start::StartError;

use foreign::{Foreign, foreign};
use read::{Restored, read};
use write::{try_out, write};

impl SnapshotSetup {
    /// Checks at start-up that the file can be written and that it would replace no foreign file.
    /// If a file at this path may be a damaged snapshot, returns the reason for which the node runs
    /// without snapshots.
    pub(crate) fn try_out(&self) -> Result<Option<String>, StartError> {
        let failed = |error| StartError::Snapshot { path: self.path.display().to_string(), error };
        if let Some(Foreign { path, what, may_be_damaged }) = foreign(self).map_err(failed)? {
            let path = path.display().to_string();
            if !may_be_damaged {
                return Err(StartError::SnapshotPlace { path, what });
            }
            return Ok(Some(format!(
                "cold start: {path} is {what}; it stays as it is, and no snapshot is written: remove it, or choose another \
                 path ([memory] snapshot)"
            )));
        }
        try_out(self).map(|()| None).map_err(failed)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Syncs the directory, which makes the creation or removal of a file durable.
    fn sync_directory(&self) -> io::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// State that a snapshot has in addition to the cache's items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// Budgets of the partitions, bytes.
    budgets: Vec<u64>,
    /// Per backend, time until which a write with unknown outcome may take effect.
    unsettled: Vec<Option<Instant>>,
}

/// Summary of a snapshot that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    items: u64,
    /// Bytes of the keys and values that were written.
    bytes: u64,
    /// True if all items were written in time.
    whole: bool,
}

/// Failure to write or read a snapshot.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    /// An I/O error.
    #[error("{doing} the snapshot {path}: {error}; look at the path and its file system ([memory] snapshot)")]
    Io {
        /// Operation that failed: `writing` or `reading`.
        doing: &'static str,
        /// Path of the snapshot file.
        path: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The file is not a snapshot that this node can use.
    #[error("the snapshot {path} is not used: {why}")]
    Refused {
        /// Path of the snapshot file.
        path: String,
        /// Reason why the file is refused.
        why: String,
    },
}

/// Restores items and budgets from the snapshot of the last stop, and reports the result as an
/// event. A node without a usable snapshot starts cold.
pub(crate) fn restore(setup: &SnapshotSetup, core: &Core) {
    let begun = Monotonic::now();
    let regain = |Standing { budgets, unsettled }: Standing| {
        core.control().restore(&budgets);
        let known = core.backends.iter().zip(unsettled);
        known
            .filter_map(|(backend, until)| Some((backend.as_ref()?, until?)))
            .for_each(|(backend, until)| backend.restart(until));
    };
    match read(setup, &core.cache, &core.names, &core.clock, regain) {
        Ok(None) => {}
        Ok(Some(Restored { items, bytes, expired, damaged })) => {
            let took = begun.elapsed().as_millis();
            let ending =
                if damaged { "; the file was damaged, and what was behind that is lost" } else { "" };
            let message = format!(
                "warm start: {items} items of {bytes} bytes in {took} ms, {expired} were over their time{ending}"
            );
            let data = json!({"items": items, "bytes": bytes, "expired": expired, "damaged": damaged, "ms": took as u64});
            if damaged {
                core.events.warn("node", message, data)
            } else {
                core.events.say("node", message, data)
            }
        }
        Err(error) => {
            core.events.warn("node", format!("cold start: {error}"), json!({"error": error.to_string()}))
        }
    }
}

/// Writes the snapshot of a node that serves no more requests.
///
/// # Errors
/// The reason when it cannot be written.
pub(crate) fn keep(setup: &SnapshotSetup, core: &Core) -> Result<(), String> {
    let begun = Monotonic::now();
    let unsettled = core.backends.iter().map(|backend| backend.as_ref()?.shut_down()).collect();
    let standing = Standing { budgets: core.control().budgets(), unsettled };
    let Written { items, bytes, whole } =
        write(setup, &core.cache, &core.names, standing, &core.clock).map_err(|error| error.to_string())?;
    let took = begun.elapsed().as_millis();
    let ending = if whole { "" } else { "; there was no time for more (max_time)" };
    let message = format!("snapshot: {items} items of {bytes} bytes in {took} ms{ending}");
    core.events.say(
        "node",
        message,
        json!({"items": items, "bytes": bytes, "whole": whole, "ms": took as u64}),
    );
    Ok(())
}

#[cfg(test)]
mod tests;
