//! Commands of a write-through listener that change values: they go to the store first.
//!
//! The same commands are accepted as in the text protocol: `set` and `delete` without a CAS, and
//! without client flags.

use bytes::Bytes;
use sherwood_wire::memcached::binary::{Command, Echo, Request, Status, response};
use sherwood_wire::memcached::{Storage, StorageVerb};

use super::{AfterRequest, Failure};
use crate::backends::{StoreChange, StoreFailure};
use crate::clock::Moment;
use crate::conversation::Stored;
use crate::counters::Count;
use crate::memcached::session::{Session, expiry, is_over};
use crate::store::StoreWrite;

/// The data needed to answer a client once its write has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    echo: Echo,
    quiet: bool,
}

const CONDITIONAL: Failure = Failure {
    status: Status::NotSupported,
    text: "this command is refused by a write-through listener: it depends on a value that only the store knows; use \
           get, set and delete",
};
const FLAGS: Failure = Failure {
    status: Status::NotSupported,
    text: "client flags are refused by a write-through listener, since its store does not keep them; use 0",
};

impl Acknowledgement {
    /// Appends the answer after the write has ended; with a CAS of 0, since the CAS of the value in
    /// the cache is unknown.
    pub(super) fn append(self, stored: &Stored, out: &mut Vec<u8>) {
        let Self { echo, quiet } = self;
        match stored {
            Ok(()) if quiet => {}
            Ok(()) => response::success(out, echo, 0),
            Err(StoreFailure::Refused(reason)) => {
                response::error_text(out, echo, Status::TemporaryFailure, reason);
            }
            Err(StoreFailure::TimedOut(reason) | StoreFailure::Failed(reason)) => {
                response::error_text(out, echo, Status::Internal, reason);
            }
        }
    }
}

impl Session<'_> {
    /// Handles a request that changes a value of a write-through partition: returns the write for
    /// the store, or appends an error to `out` if the command is not supported. None for other
    /// requests.
    pub(super) fn binary_write_through(
        &self,
        moment: Moment,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Option<AfterRequest> {
        if !self.routing.writes_through() {
            return None;
        }
        let Request { echo, quiet, cas, ref command } = *request;
        let (Command::Storage(Storage { key, .. })
        | Command::Delete { key }
        | Command::Arithmetic { key, .. }) = *command
        else {
            return None;
        };
        let (target, name) = self.find(key).filter(|(target, _)| target.write_through)?;
        let change = match command {
            Command::Storage(storage) => {
                self.counters.increment(Count::CmdSet);
                put(moment, storage)
            }
            Command::Delete { .. } if cas == 0 => Ok(StoreChange::Delete),
            _ => Err(CONDITIONAL),
        };
        Some(match change {
            Ok(change) => {
                let key = Bytes::copy_from_slice(name);
                let write = StoreWrite { partition: target.partition, key, change };
                AfterRequest::Store(write, Acknowledgement { echo, quiet })
            }
            Err(failure) => {
                failure.append(echo, out);
                AfterRequest::Continue
            }
        })
    }

    /// Returns true for a request that changes a key, or flushes all, while the other nodes would
    /// miss that.
    pub(super) fn binary_refuses(&self, moment: Moment, request: &Request<'_>) -> bool {
        let key = match request.command {
            Command::Storage(Storage { key, verb, .. }) if verb != StorageVerb::Add => Some(key),
            Command::Delete { key } | Command::Arithmetic { key, .. } => Some(key),
            // An expiry in the past removes the key.
            Command::Touch { key, exptime } | Command::Get { key, touch: Some(exptime), .. }
                if is_over(exptime, moment) =>
            {
                Some(key)
            }
            Command::Flush { .. } => None,
            _ => return false,
        };
        self.shared.service.refuses_change(self.routing, key)
    }
}

fn put(moment: Moment, storage: &Storage<'_>) -> Result<StoreChange, Failure> {
    if storage.verb != StorageVerb::Set {
        return Err(CONDITIONAL);
    }
    if storage.flags != 0 {
        return Err(FLAGS);
    }
    let value = Bytes::copy_from_slice(storage.value);
    Ok(StoreChange::Put { value, expires: expiry(storage.exptime, moment) })
}
