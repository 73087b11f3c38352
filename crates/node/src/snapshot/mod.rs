//! A warm restart: what the cache holds, written when the node stops and read when it starts.
//!
//! A cache that starts empty is its backends' worst moment. One that is stopped in good order need
//! not: its items go to a file, those used last first, so that running out of time loses the
//! coldest, and the next start reads them.
//!
//! Three rules keep this from serving what is wrong:
//! - *A file is read once.* It is taken away before it is used. A node that is killed writes none,
//!   and then starts cold rather than from a file that does not know what was written since.
//! - *Nothing outlives its time.* Expiry is a date in the file; the time between stop and start
//!   counts. A file from the future (somebody has set the clock back) is refused.
//! - *Other backends, other values.* The file has a fingerprint of the backends' configuration, and
//!   is refused by a node that has another.
//!
//! And one from serving what somebody else put there: the file is the node's own, and nobody else
//! may change it. A file that is not the node's is not touched either (`place`).
//!
//! What is read is read before the first client is served: a key that is deleted while an older
//! value of it is still to be read would come back. So a start takes as long as the reading: a few
//! seconds for a GiB.
//!
//! A write whose outcome nobody knows may land while the node is down, or after it is back. Until
//! when is in the file, too.
//!
//! What a backend is told by others while the node is down it does not hear of, as ever; what must
//! not be older than that has a `ttl`.
//!
//! The format is in `file` (blocks and checksums) and `record` (an item in bytes); `write` and
//! `read` go through the cache.

mod file;
mod place;
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

use place::{Foreign, foreign};
use read::{Restored, read};
use write::{try_out, write};

impl SnapshotSetup {
    /// Sees whether the file can be written, which has to be known before there is anything to
    /// lose, and that it takes nobody else's place.
    pub(crate) fn try_out(&self) -> Result<(), StartError> {
        let failed = |error| StartError::Snapshot { path: self.path.display().to_string(), error };
        if let Some(Foreign { path, what }) = foreign(self).map_err(failed)? {
            return Err(StartError::SnapshotPlace { path: path.display().to_string(), what });
        }
        try_out(self).map_err(failed)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// A name is on the disk, or gone from it, when its directory is.
    fn sync_directory(&self) -> io::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// What is kept beside the items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// Of each partition, bytes.
    budgets: Vec<u64>,
    /// Of each backend, until when a write may land whose outcome is not known.
    unsettled: Vec<Option<Instant>>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    items: u64,
    /// Of keys and values.
    bytes: u64,
    /// Whether all there was is in it.
    whole: bool,
}

/// Why there is no snapshot, or not all of it.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    /// The system's words.
    #[error("{doing} the snapshot {path}: {error}; look at the path and its file system ([memory] snapshot)")]
    Io {
        /// `writing` or `reading`.
        doing: &'static str,
        /// The file.
        path: String,
        /// The system's words.
        error: io::Error,
    },
    /// It is no snapshot of this version.
    #[error("the snapshot {path} is not used: {why}")]
    Refused {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
}

/// Reads the snapshot of the last stop, with the budgets that were learnt, and says what came of
/// it. A node that finds none, or one it cannot use, starts cold.
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

/// Writes the snapshot of a node that nobody asks any more.
pub(crate) fn keep(setup: &SnapshotSetup, core: &Core) {
    let begun = Monotonic::now();
    let unsettled = core.backends.iter().map(|backend| backend.as_ref()?.shut_down()).collect();
    let standing = Standing { budgets: core.control().budgets(), unsettled };
    match write(setup, &core.cache, &core.names, standing, &core.clock) {
        Ok(Written { items, bytes, whole }) => {
            let took = begun.elapsed().as_millis();
            let ending = if whole { "" } else { "; there was no time for more (max_time)" };
            let message = format!("snapshot: {items} items of {bytes} bytes in {took} ms{ending}");
            core.events.say(
                "node",
                message,
                json!({"items": items, "bytes": bytes, "whole": whole, "ms": took as u64}),
            );
        }
        Err(error) => tracing::error!("{error}"),
    }
}

#[cfg(test)]
mod tests;
