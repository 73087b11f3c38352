//! A peer of a node, as the node knows it.

use sherwood_model::Instant;

use super::message::{Beat, PeerBeat};

/// The announcements of one peer, and the peer's knowledge of this node.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// The peer's process that was heard last; 0 before the first.
    pub(super) incarnation: u64,
    /// The newest stamp received of that process, nanoseconds of the peer's clock.
    stamp_ns: u64,
    /// All changes up to this number were received.
    received: u64,
    /// True if changes after `received` were announced or received.
    misses: bool,
    /// Time of this node's clock until which all changes of the peer were received.
    pub(super) complete_until: Instant,
    /// True if the process has ended and all its changes were received.
    has_left: bool,
    /// Time of the latest message; none before the first.
    pub(super) heard_at: Option<Instant>,
    /// True if the peer has heard this node's present process.
    pub(super) answered: bool,
    /// True if this node is not among the peer's nodes.
    pub(super) lacks_us: bool,
}

/// The consequence of a message for cached values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    /// No change was lost that cannot be sent again.
    None,
    /// Changes were lost for good: values from before are to be dropped.
    Lost,
}

impl Peer {
    /// Takes in that a message of this process was received, whose changes up to `known` are
    /// covered if values from before are dropped. Returns none if the process is an earlier one,
    /// whose messages are to be ignored.
    pub(super) fn hear(&mut self, now: Instant, incarnation: u64, known: u64) -> Option<Gap> {
        if incarnation < self.incarnation {
            return None;
        }
        self.heard_at = Some(now);
        if incarnation == self.incarnation {
            return Some(Gap::None);
        }
        let before = std::mem::take(self);
        *self = Self { incarnation, heard_at: Some(now), lacks_us: before.lacks_us, ..Self::default() };
        if before.has_ended(now) {
            self.complete_until = now;
            return Some(Gap::None);
        }
        self.complete_until = before.complete_until;
        self.received = known;
        Some(Gap::Lost)
    }

    /// Returns true if the process has announced all its changes, and no other one of the node has
    /// acknowledged a write since: it would have waited for this node's answer until the trust in
    /// the farewell has ended.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.has_left && now <= self.complete_until
    }

    /// Takes in received changes with the numbers `first` to `last`.
    pub(super) fn receive(&mut self, first: u64, last: u64) {
        if first <= self.received + 1 {
            self.received = self.received.max(last);
        }
        self.misses = self.received < last;
    }

    /// Takes in a beat of the present process. `own` is what it says about this node's present
    /// process; none if that is not to be used. `farewell_until` returns the time until which a
    /// process that had left at some time is relied on.
    pub(super) fn beat(
        &mut self,
        now: Instant,
        beat: &Beat,
        own: Option<&PeerBeat>,
        farewell_until: impl Fn(Instant) -> Instant,
    ) -> Gap {
        self.stamp_ns = self.stamp_ns.max(beat.stamp_ns);
        let is_lost = self.received + 1 < beat.first;
        if is_lost {
            self.received = self.received.max(beat.last);
        }
        self.misses = self.received < beat.last;
        // The peer sent the beat after it had received this stamp of ours. Changes that it had
        // acknowledged by the time of the stamp have numbers up to the beat's last. Values from
        // before a gap are still to be dropped, so that they are trusted by the next beat.
        if let Some(own) = own.filter(|_| !is_lost && !self.misses) {
            let stamp = Instant::from_nanos(own.stamp_ns);
            if stamp <= now && stamp > Instant::ZERO {
                let until = if beat.leaves { farewell_until(stamp) } else { stamp };
                self.has_left |= beat.leaves;
                self.complete_until = self.complete_until.max(until);
            }
        }
        if is_lost { Gap::Lost } else { Gap::None }
    }

    /// Returns the peer's part of this node's beat.
    pub(super) fn reported(&self, node: &str) -> PeerBeat {
        let Self { incarnation, stamp_ns, .. } = *self;
        let missing = self.misses.then_some(self.received + 1);
        PeerBeat { node: node.to_owned(), incarnation, stamp_ns, missing }
    }
}
