//! Settings of one backend.

use std::sync::Arc;
use std::time::Duration;

use sherwood_dispatch::{Acknowledge, Holders, Options};
use sherwood_model::{Instant, PartitionId, ReplicaId};

use super::duplicates::DuplicateOptions;
use super::rates::Units;
use crate::fences::FenceOptions;
use crate::{Rules, SharedValues};

/// Default of [`BackendOptions::fenced_keys_max`]: with keys and tables some 6 MiB at most.
const FENCED_KEYS_MAX: u32 = 16_384;

/// Default of [`BackendOptions::failed_keys_max`]: with keys and tables some 3 MiB at most.
const FAILED_KEYS_MAX: u32 = 8_192;

/// Settings of one [`Backend`](super::Backend).
///
/// The time limits of writes follow from the dispatcher's timeout. A write waits for its turn for
/// at most half of it, since a write sent in its last moments would have an unknown outcome and
/// delay the writes behind it. A write whose outcome is unknown may still land for one timeout
/// after its end.
#[derive(Clone, Debug)]
pub struct BackendOptions {
    /// Bounds, timeout and retries of the dispatcher.
    pub dispatch: Options,
    /// Number of replicas, 1 to 65,535.
    pub replicas: usize,
    /// The partitions that hold the backend's values, one for each tenant that has one.
    pub partitions: Vec<PartitionId>,
    /// Lifetimes of values, and when stale ones are served.
    pub rules: Rules,
    /// The rule that determines which replicas have a key.
    pub placement: Placement,
    /// The replicas, among those that have a key, that its writes are sent to.
    pub write_to: WriteTo,
    /// The number of replicas that must have made a write before it is acknowledged.
    ///
    /// After the acknowledgement, the write continues until every replica has answered or the
    /// timeout has passed. Until then, its key is read from the replica that acknowledged it last.
    /// A replica at which the write fails keeps the older value, which later reads may return; so
    /// with [`Acknowledge::First`] and [`Acknowledge::Majority`] such replicas must be repaired.
    pub acknowledge: Acknowledge,
    /// Time after an acknowledged write, or another change of the store, during which a fetch may
    /// still return the value before it, as from a replica that lags.
    pub settle: Duration,
    /// Trust in the cached values; none if no other node caches the backend's. A write is then
    /// acknowledged when it ends, whatever [`acknowledge`](Self::acknowledge) says.
    pub shared: Option<Arc<SharedValues>>,
    /// True if a read returns exactly the bytes that were written. If not, the cache drops a
    /// written key instead of keeping the written value.
    pub reads_as_written: bool,
    /// The units of reads and writes, for tenants that have rates
    /// ([`Options::tenants`](sherwood_dispatch::Options::tenants)).
    pub units: Units,
    /// The replicas as duplicates of partitions; none if [`placement`](Self::placement) says where
    /// the keys are. Changes then go through logs, and `write_to` has no effect.
    pub duplicates: Option<DuplicateOptions>,
    /// Upper bound of writes in flight, those that wait for an earlier write of their key, or for
    /// their tenant's rate, included.
    pub writes_max: u32,
    /// Upper bound of keys fenced (their fetched values not cached) one by one. Beyond it all keys
    /// of the backend are fenced.
    pub fenced_keys_max: u32,
    /// Upper bound of keys remembered because their revalidation failed.
    pub failed_keys_max: u32,
}

/// The rule that determines which replicas have a key. Reads and writes of the key go only to these
/// replicas.
#[derive(Clone, Copy, Debug, Default)]
pub enum Placement {
    /// Every replica has every key.
    #[default]
    All,
    /// The replicas that this function returns for a key. It must always return the same replicas
    /// for the same key.
    ByKey(fn(&[u8]) -> Holders),
}

impl Placement {
    /// Returns the replicas that have a key.
    #[must_use]
    pub fn holders(self, key: &[u8]) -> Holders {
        match self {
            Self::All => Holders::All,
            Self::ByKey(holders) => holders(key),
        }
    }
}

/// The replicas, among those that have a key, that its writes are sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteTo {
    /// Every replica, in the same order for each key.
    #[default]
    All,
    /// Only the key's first replica (the primary), from which the others copy.
    First,
}

impl BackendOptions {
    /// Options of a backend with these replicas, all written to, whose values are kept in
    /// `partitions` until they are evicted.
    #[must_use]
    pub fn new(dispatch: Options, replicas: usize, partitions: Vec<PartitionId>) -> Self {
        Self {
            dispatch,
            replicas,
            partitions,
            rules: Rules::default(),
            placement: Placement::All,
            write_to: WriteTo::All,
            acknowledge: Acknowledge::All,
            settle: Duration::ZERO,
            shared: None,
            reads_as_written: true,
            units: Units::default(),
            duplicates: None,
            // Each write is a call of every replica it goes to, and the stores have bounds of their
            // own.
            writes_max: dispatch.in_flight_calls_max.saturating_add(dispatch.queued_calls_max),
            fenced_keys_max: FENCED_KEYS_MAX,
            failed_keys_max: FAILED_KEYS_MAX,
        }
    }

    /// The share of the timeout that a write may wait for earlier writes of its key and for its
    /// tenant's rate.
    #[must_use]
    pub fn turn_timeout(&self) -> Duration {
        self.dispatch.timeout / 2
    }

    /// Returns true if only some of the replicas may have a key.
    pub(super) fn places_keys(&self) -> bool {
        matches!(self.placement, Placement::ByKey(_))
    }

    /// Returns true if the replicas may have different values of a key after a write.
    pub(super) fn replicas_may_lag(&self) -> bool {
        self.write_to == WriteTo::First && self.replicas > 1
    }

    /// Returns the trust in the cached values, and the time from which the age of a value counts
    /// whose fetch `began` then: a replica may lag. None if no other node caches the values.
    pub(super) fn shared_since(&self, began: Instant) -> Option<(&SharedValues, Instant)> {
        let lag = if self.replicas_may_lag() { self.settle } else { Duration::ZERO };
        Some((self.shared.as_deref()?, began - lag))
    }

    /// Returns the replicas that a write of a key is sent to.
    pub(super) fn written_replicas(&self, key: &[u8]) -> impl Iterator<Item = ReplicaId> {
        let most = match self.write_to {
            WriteTo::All => self.replicas,
            WriteTo::First => 1,
        };
        self.placement.holders(key).replicas(self.replicas).take(most)
    }

    /// Returns the options of the dispatcher: a duplicate may have evicted a key that others have.
    pub(super) fn dispatch_options(&self) -> Options {
        Options { misses_wait: self.dispatch.misses_wait || self.duplicates.is_some(), ..self.dispatch }
    }

    pub(super) fn fences(&self) -> FenceOptions {
        FenceOptions {
            writes_max: self.writes_max,
            fenced_keys_max: self.fenced_keys_max,
            in_turn: self.write_to == WriteTo::All && self.replicas > 1 && self.duplicates.is_none(),
            settle: self.settle,
            landing: self.dispatch.timeout,
            turn_timeout: self.turn_timeout(),
        }
    }
}
