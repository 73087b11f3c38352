//! The operations on keys that have ended in the present turn of a thread's client.

use std::sync::Arc;

use sherwood_cache::Refused;
use sherwood_model::HotKeys;
use sherwood_model::query_times::{Operation, QueryOutcome};

use super::requests::TurnKeys;
use super::shared::Service;
use super::times::{ThreadTimes, of_set};
use crate::routing::Target;

/// The operations on keys that have ended in the present turn of a thread's client: those that are
/// timed, with the keys read among them, and the keys that its batch has missed or written.
pub(super) struct EndedOperations {
    pub(super) times: ThreadTimes,
    pub(super) turn_keys: TurnKeys,
    hot_keys: Option<Arc<HotKeys>>,
}

impl EndedOperations {
    /// Creates the operations of a thread that has no turn yet.
    pub(super) fn new(service: &Service) -> Self {
        Self {
            times: ThreadTimes::new(service.times.recorder()),
            turn_keys: TurnKeys::new(service.batches.clone()),
            hot_keys: service.hot_keys.clone(),
        }
    }

    /// Notes the end of an operation on a key, with true if it existed.
    #[inline]
    pub(super) fn note(&self, target: Target, operation: Operation, found: bool) {
        let outcome = if found { QueryOutcome::Hit } else { QueryOutcome::Miss };
        self.times.note(target.partition, operation, outcome);
    }

    /// Notes that a key that the cache has is read.
    #[inline]
    pub(super) fn note_hit(&self, target: Target, name: &[u8]) {
        if self.times.is_timing() {
            self.times.note(target.partition, Operation::Get, QueryOutcome::Hit);
            self.note_timed_read(target, name);
        }
    }

    /// Notes that a key is answered as a miss.
    pub(super) fn note_miss(&self, target: Target, name: &[u8]) {
        self.note(target, Operation::Get, false);
        self.note_read(target, name);
        self.turn_keys.note_missed(target.partition, name);
    }

    /// Notes that a key is read which its backend is asked for; the query ends with the answer.
    pub(super) fn note_read(&self, target: Target, name: &[u8]) {
        if self.times.is_timing() {
            self.note_timed_read(target, name);
        }
    }

    #[cold]
    fn note_timed_read(&self, target: Target, name: &[u8]) {
        self.hot_keys.iter().for_each(|keys| keys.note(target.partition, name));
    }

    /// Notes the end of a store of a key, with true if the value was stored.
    #[inline]
    pub(super) fn note_set(&self, (target, name): (Target, &[u8]), stored: Result<bool, Refused>) {
        self.turn_keys.note_written(target.partition, name);
        self.times.note(target.partition, Operation::Set, of_set(stored));
    }
}
