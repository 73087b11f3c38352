//! Memcached commands of a write-through listener that change values: they go to the store first.
//!
//! `set`, `delete`, and plain `ms` and `md` say what the store is to have. A command whose result
//! depends on the present value (`add`, `cas`, `incr` and others) is refused, because only the
//! store knows that value for certain, and it may change between a look and the write. So are
//! client flags, which stores do not keep.

use bytes::Bytes;
use sherwood_wire::memcached::{
    Command, Exptime, Meta, MetaFlag, MetaVerb, SetMode, Storage, StorageVerb, reply,
};

use super::session::{AfterCommand, Session, expiry, is_over};
use crate::backends::{StoreChange, StoreFailure};
use crate::clock::Moment;
use crate::conversation::Stored;
use crate::counters::Count;
use crate::routing::Target;
use crate::shared::REFUSED_CHANGE;
use crate::store::StoreWrite;

/// A write that the store has to acknowledge, and the answer to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClientWrite {
    pub(super) write: StoreWrite,
    pub(super) answer: Answer,
}

/// A write and the answer to its client if the store acknowledges it, or the refusal.
type Judged = Result<(StoreWrite, Vec<u8>), &'static [u8]>;

/// The answer to a client whose write has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Answers nothing, whatever the outcome.
    Nothing,
    /// Answers this if the store has acknowledged the write, else an error.
    IfStored(Vec<u8>),
}

const CONDITIONAL: &[u8] = b"SERVER_ERROR this command is refused by a write-through listener: it depends on a value that only the store knows; use get, set and delete\r\n";
const FLAGS: &[u8] =
    b"SERVER_ERROR client flags are refused by a write-through listener, since its store does not keep them; use 0\r\n";

impl Answer {
    /// Appends the answer after the write has ended.
    pub(super) fn append(self, stored: &Stored, out: &mut Vec<u8>) {
        match (self, stored) {
            (Self::Nothing, _) => {}
            (Self::IfStored(answer), Ok(())) => out.extend_from_slice(&answer),
            (Self::IfStored(_), Err(failure)) => {
                let (code, reason) = match failure {
                    StoreFailure::Refused(reason) => (&b"SERVER_ERROR rejected: "[..], reason),
                    StoreFailure::TimedOut(reason) | StoreFailure::Failed(reason) => {
                        (&b"SERVER_ERROR "[..], reason)
                    }
                };
                out.extend_from_slice(code);
                out.extend(reason.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

impl Session<'_> {
    /// Executes a command that changes a value of a write-through partition: appends its refusal to
    /// `out`, or returns the write. None if the command changes no such value.
    pub(super) fn write_through<'c>(
        &self,
        moment: Moment,
        command: &Command<'c>,
        out: &mut Vec<u8>,
    ) -> Option<AfterCommand<'c>> {
        if !self.routing.writes_through() {
            return None;
        }
        let (outcome, noreply) = match *command {
            Command::Storage(ref storage) => {
                let (target, key) = self.through(storage.key)?;
                (self.put(moment, target, key, storage), storage.noreply)
            }
            Command::Delete { key, noreply } => {
                let (target, key) = self.through(key)?;
                (Ok((write(target, key, StoreChange::Delete), reply::DELETED.to_vec())), noreply)
            }
            Command::Arithmetic { key, noreply, .. } => {
                self.through(key)?;
                (Err(CONDITIONAL), noreply)
            }
            Command::Meta(meta) => {
                let outcome = self.meta_write(moment, meta)?;
                // A quiet command has no answer if it succeeds, but its errors are sent.
                let quiet = |(write, _)| (write, Vec::new());
                (if meta.flags.has(b'q') { outcome.map(quiet) } else { outcome }, false)
            }
            _ => return None,
        };
        match outcome {
            Ok((write, answer)) => {
                let answer = if noreply { Answer::Nothing } else { Answer::IfStored(answer) };
                return Some(AfterCommand::Store(ClientWrite { write, answer }));
            }
            Err(refusal) if !noreply => out.extend_from_slice(refusal),
            Err(_) => {}
        }
        Some(AfterCommand::Continue)
    }

    /// Refuses a command that changes a key, or flushes all, while the other nodes would miss that.
    /// Returns false, and answers nothing, for others.
    pub(super) fn refuses(&self, moment: Moment, command: &Command<'_>, out: &mut Vec<u8>) -> bool {
        let service = &self.shared.service;
        let is_past = |exptime: Option<Exptime>| exptime.is_some_and(|exptime| is_over(exptime, moment));
        let mut room = [0; sherwood_wire::memcached::KEY_BYTES_MAX];
        let (key, noreply) = match command {
            Command::Storage(storage) if storage.verb != StorageVerb::Add => {
                (Some(storage.key), storage.noreply)
            }
            Command::Delete { key, noreply } | Command::Arithmetic { key, noreply, .. } => {
                (Some(*key), *noreply)
            }
            // An expiry in the past removes the key.
            Command::Touch { key, exptime, noreply } if is_past(Some(*exptime)) => (Some(*key), *noreply),
            Command::Retrieval(list) if is_past(list.touch) => {
                let mut keys = list.keys;
                let refused = keys.find(|key| service.refuses_change(self.routing, Some(key)));
                let Some(key) = refused else { return false };
                // The last part of a long key list ends the answer to all of them.
                (Some(key), !list.last)
            }
            Command::FlushAll { noreply, .. } => (None, *noreply),
            Command::Meta(meta) => match meta.verb {
                MetaVerb::Set { mode: SetMode::Add, .. } => return false,
                MetaVerb::Get if !is_past(meta.flags.options().ttl) => return false,
                MetaVerb::Get | MetaVerb::Set { .. } | MetaVerb::Delete | MetaVerb::Arithmetic(_) => {
                    (Some(meta.key.bytes(&mut room)), false)
                }
                MetaVerb::TooLarge | MetaVerb::Debug => return false,
            },
            _ => return false,
        };
        let refused = service.refuses_change(self.routing, key);
        if refused && !noreply {
            out.extend_from_slice(b"SERVER_ERROR ");
            out.extend_from_slice(REFUSED_CHANGE.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        refused
    }

    /// Returns the target of a key and the key without its prefix, if its partition is
    /// write-through.
    fn through<'k>(&self, key: &'k [u8]) -> Option<(Target, &'k [u8])> {
        self.find(key).filter(|(target, _)| target.write_through)
    }

    fn put(&self, moment: Moment, target: Target, key: &[u8], storage: &Storage<'_>) -> Judged {
        self.counters.increment(Count::CmdSet);
        if storage.verb != StorageVerb::Set {
            return Err(CONDITIONAL);
        }
        if storage.flags != 0 {
            return Err(FLAGS);
        }
        let value = Bytes::copy_from_slice(storage.value);
        let change = StoreChange::Put { value, expires: expiry(storage.exptime, moment) };
        Ok((write(target, key, change), reply::STORED.to_vec()))
    }

    /// Returns the write of a meta command and its answer, or its refusal; none if it changes no
    /// value of a write-through partition.
    fn meta_write(&self, moment: Moment, meta: Meta<'_>) -> Option<Judged> {
        let mut room = [0; sherwood_wire::memcached::KEY_BYTES_MAX];
        let key = meta.key.bytes(&mut room);
        let (target, name) = self.through(key)?;
        let options = meta.flags.options();
        let change = match meta.verb {
            MetaVerb::Set { mode: SetMode::Set, value } => {
                if options.client_flags != 0 {
                    return Some(Err(FLAGS));
                }
                let expires = options.ttl.and_then(|exptime| expiry(exptime, moment));
                StoreChange::Put { value: Bytes::copy_from_slice(value), expires }
            }
            MetaVerb::Delete => StoreChange::Delete,
            MetaVerb::Set { .. } | MetaVerb::Arithmetic(_) => return Some(Err(CONDITIONAL)),
            MetaVerb::Get | MetaVerb::TooLarge | MetaVerb::Debug => return None,
        };
        self.counters.increment(Count::CmdMeta);
        // A comparison, a given CAS, a mark of staleness, or a value that is removed alone.
        if [b'C', b'E', b'I', b'x', b'N', b'c'].iter().any(|flag| meta.flags.has(*flag)) {
            return Some(Err(CONDITIONAL));
        }
        let mut answer = b"HD".to_vec();
        for flag in meta.flags {
            match flag {
                MetaFlag::Opaque(opaque) => answer.extend([b" ", opaque].concat()),
                MetaFlag::ReturnKey => reply::meta_key(&mut answer, key, meta.key.is_base64()),
                _ => {}
            }
        }
        answer.extend_from_slice(b"\r\n");
        Some(Ok((write(target, name, change), answer)))
    }
}

fn write(target: Target, key: &[u8], change: StoreChange) -> StoreWrite {
    StoreWrite { partition: target.partition, key: Bytes::copy_from_slice(key), change }
}
