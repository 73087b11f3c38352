//! Changes of shared backends, among the nodes that cache their values.
//!
//! Each node numbers the changes that it makes and tells them to all others, by messages that may
//! be lost. So each also sends a *beat* at regular times: the number of its newest change, and for
//! each peer the newest time stamp of that peer's beats that it has received. A node that finds its
//! own stamp in a peer's beat, and has all changes up to the beat's number, has received all that
//! the peer had acknowledged when the stamp was made, by its own clock. [`Peers`] does this
//! accounting. [`SharedValues`] applies it: cached values are trusted until
//! [`SharedTerms::stale`] after the oldest such time of all peers.

mod backends;
mod change;
mod fetch_times;
mod log;
mod message;
mod peer;
mod shared;
mod standing;
mod terms;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, SplitMix64};

pub use backends::{OverallTrust, SharedBackends};
pub use change::{ChangedKeys, SharedChange};
pub use message::{Announced, Beat, Changes, PeerBeat, PeerMessage};
pub use shared::SharedValues;
pub use standing::PeerStanding;
pub use terms::{SharedTerms, WithoutBus};

use log::Log;
use peer::{Gap, Peer};

/// Divisor of the shortest [`SharedTerms::stale`] that gives the time between two beats.
const BEATS_IN_STALE: u32 = 8;
/// Number of messages with changes that are sent again between two beats, at most.
const RESENT_MESSAGES_MAX: usize = 4;
/// Largest distance of a new number of a process from the number that it has heard.
const RENUMBERED_BY_MAX: u64 = (1 << 20) - 1;
/// Number of unknown senders whose names are remembered.
const STRANGERS_MAX: usize = 16;

/// Settings of [`Peers`].
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Name of this node.
    pub node: String,
    /// Names of all nodes, this one included or not; at most 64.
    pub nodes: Vec<String>,
    /// Number of changes that can be sent again.
    pub changes_kept_max: usize,
    /// Time for which peers rely on a farewell: that the process before has ended, and the next one
    /// acknowledges no write.
    pub farewell: Duration,
    /// Time after which a process acknowledges writes even if a peer has not answered it. Longer
    /// than `farewell` by more than what clocks can differ.
    pub greeting: Duration,
    /// Time for which another process with the name of this node keeps it from acknowledging
    /// writes.
    pub namesake: Duration,
}

impl PeerOptions {
    /// Returns the settings of a node, with their defaults: 65,536 changes, a farewell of 60 s, a
    /// greeting of 61 s, 10 s for a namesake.
    #[must_use]
    pub fn new(node: String, nodes: Vec<String>) -> Self {
        let (farewell, greeting) = (Duration::from_secs(60), Duration::from_secs(61));
        let namesake = Duration::from_secs(10);
        Self { node, nodes, changes_kept_max: 65_536, farewell, greeting, namesake }
    }
}

/// An action for the driver of [`Peers`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAction<C> {
    /// Send this message to all other nodes.
    Send(PeerMessage<C>),
    /// Drop all cached values of shared backends that were fetched before now: changes of this node
    /// were lost, its process before has ended without a farewell, or it was removed without one.
    Drop(String),
    /// Report this to the operator.
    Report(PeerReport),
}

/// News for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerReport {
    /// A sender is not among the nodes of this node. Its messages are ignored.
    Stranger(String),
    /// Another process has the name of this node. Neither acknowledges writes to shared backends.
    Namesake,
    /// This node is not among the nodes of a peer, and acknowledges no writes to shared backends.
    Unknown(String),
    /// This process goes by a higher number, since a peer has heard such a process of its name: the
    /// system's clock has stepped back.
    Renumbered(u64),
}

/// The changes of shared backends that this node announces, and those of its peers.
///
/// # What it guarantees
/// No look-up that begins more than [`SharedTerms::stale`] after a write was acknowledged is
/// answered with an older value, whatever messages are lost, late, repeated or out of order, and
/// whichever nodes pause or restart. Clocks have no common origin; they run within 1% of each
/// other. With [`WithoutBus::Ttl`] the backend does without the guarantee.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`announce`](Self::announce) when the store has a change, before its client is told;
///   [`handle_message`](Self::handle_message); [`leave`](Self::leave) when the process ends and
///   acknowledges no more writes; [`set_nodes`](Self::set_nodes).
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none. The
///   driver carries out an action, and applies received changes, before the next input: values are
///   trusted by the next beat.
/// - Wake-ups: [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout).
///   Later makes values untrusted earlier and has no other effect.
///
/// # Complexity and memory
/// Every input is linear in the nodes. The latest 65,536 changes are kept.
///
/// ```
/// use sherwood_model::{Instant, PartitionId, SeededState};
/// use sherwood_path::{
///     Announced, PeerAction, PeerOptions, Peers, SharedTerms, SharedValues,
/// };
/// use std::sync::Arc;
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Key(&'static str);
///
/// impl Announced for Key {
///     fn bytes(&self) -> usize {
///         self.0.len()
///     }
/// }
///
/// let nodes = vec!["a".to_owned(), "b".to_owned()];
/// let values = Arc::new(SharedValues::new(SharedTerms::default(), SeededState::new(1)));
/// let of = |node: &str| PeerOptions::new(node.to_owned(), nodes.clone());
/// let start = Instant::from_secs(1);
/// let mut a = Peers::new(of("a"), 1, start, vec![Arc::clone(&values)]);
/// let mut b = Peers::new(of("b"), 1, start, Vec::new());
///
/// // After two beats of each node, every change of `b` is known in `a` to have been received.
/// for second in [1, 2] {
///     let now = Instant::from_secs(second);
///     a.handle_timeout(now);
///     while let Some(PeerAction::Send(message)) = a.poll_action() {
///         b.handle_message(now, "a", &message);
///     }
///     b.announce(Key("p:1"));
///     b.handle_timeout(now);
///     while let Some(action) = b.poll_action() {
///         let PeerAction::Send(message) = action else { continue };
///         for Key(key) in a.handle_message(now, "b", &message) {
///             println!("remove {key} from the cache");
///         }
///         while a.poll_action().is_some() {}
///     }
/// }
/// assert!(values.trusted_until() > Instant::from_secs(3));
/// ```
#[derive(Debug)]
pub struct Peers<C> {
    options: PeerOptions,
    incarnation: u64,
    /// Time from which this process counts as started: writes wait for the peers until
    /// [`PeerOptions::greeting`] after it.
    started: Instant,
    peers: BTreeMap<String, Peer>,
    log: Log<C>,
    values: Vec<Arc<SharedValues>>,
    beat_interval: Duration,
    next_beat: Instant,
    /// Time at which another process with this node's name was last heard.
    namesake_at: Option<Instant>,
    /// True if the process ends, and acknowledges no further writes.
    writes_ended: bool,
    leaves: bool,
    strangers: Vec<String>,
    /// While values are dropped because nodes were removed: time until which all changes of these
    /// were received.
    removed_until: Option<Instant>,
    actions: VecDeque<PeerAction<C>>,
}

impl<C: Announced> Peers<C> {
    /// Creates the record of a process that starts at `now` and has heard no peer. `incarnation` is
    /// to be larger than that of the node's process before, such as the system's time. `values` are
    /// those of all shared backends.
    #[must_use]
    pub fn new(options: PeerOptions, incarnation: u64, now: Instant, values: Vec<Arc<SharedValues>>) -> Self {
        let stale = values.iter().map(|values| values.terms().stale).min();
        let mut peers = Self {
            incarnation: incarnation.max(1),
            started: now,
            peers: BTreeMap::new(),
            log: Log::new(options.changes_kept_max),
            values,
            beat_interval: stale.unwrap_or(SharedTerms::default().stale) / BEATS_IN_STALE,
            next_beat: now,
            namesake_at: None,
            writes_ended: false,
            leaves: false,
            strangers: Vec::new(),
            removed_until: None,
            actions: VecDeque::new(),
            options,
        };
        peers.set_nodes(now, peers.options.nodes.clone());
        peers
    }

    /// Sets the names of all nodes. Values are untrusted until each new one was heard. A removed
    /// one, which must have ended, is waited for no longer; values from before are dropped if
    /// changes of it may be missing.
    pub fn set_nodes(&mut self, now: Instant, nodes: Vec<String>) {
        let own = &self.options.node;
        let removed = self.peers.extract_if(.., |node, _| !nodes.contains(node));
        for (node, peer) in removed.filter(|(_, peer)| !peer.has_ended(now)).collect::<Vec<_>>() {
            let until = self.removed_until.unwrap_or(Instant::NEVER).min(peer.complete_until);
            self.removed_until = Some(until);
            self.actions.push_back(PeerAction::Drop(node));
        }
        for node in nodes.iter().filter(|node| *node != own) {
            self.peers.entry(node.clone()).or_default();
        }
        self.options.nodes = nodes;
        self.strangers.clear();
        self.publish(now);
    }

    /// Numbers a change, for all peers. The store must have it, or may get it later, and its client
    /// must not have been told.
    pub fn announce(&mut self, change: C) {
        self.log.push(change);
    }

    /// Refuses writes from now on, before [`leave`](Self::leave): those under way end in between.
    pub fn end_writes(&mut self, now: Instant) {
        self.writes_ended = true;
        self.publish(now);
    }

    /// Ends this process's announcements. No write may be acknowledged from now on.
    pub fn leave(&mut self, now: Instant) {
        (self.writes_ended, self.leaves) = (true, true);
        self.next_beat = now;
        self.handle_timeout(now);
    }

    /// Takes a message from the node `from`. Returns the changes to apply to the cache: values that
    /// were fetched before now are to be dropped, and fetches in flight not to be cached.
    /// Messages with numbers or times that no node reaches are ignored.
    pub fn handle_message<'a>(&mut self, now: Instant, from: &str, message: &'a PeerMessage<C>) -> &'a [C] {
        if !message.is_plausible() {
            return &[];
        }
        let (incarnation, known) = match message {
            PeerMessage::Beat(beat) => (beat.incarnation, beat.last),
            PeerMessage::Changes(Changes { incarnation, .. }) => (*incarnation, message.last()),
        };
        if from == self.options.node {
            self.hear_namesake(now, incarnation);
            return &[];
        }
        let Some(peer) = self.peers.get_mut(from) else {
            self.hear_stranger(from);
            return &[];
        };
        let is_first = peer.incarnation < incarnation;
        let Some(mut gap) = peer.hear(now, incarnation, known) else { return &[] };
        let changes = match message {
            PeerMessage::Changes(Changes { first, changes, .. }) => {
                peer.receive(*first, message.last());
                &changes[..]
            }
            PeerMessage::Beat(beat) => {
                let own = beat.peers.iter().find(|own| own.node == self.options.node);
                let (farewell, number) = (self.options.farewell, self.incarnation);
                // Values from before a gap are dropped first.
                let present = own.filter(|own| own.incarnation == number);
                let usable = present.filter(|_| gap == Gap::None);
                gap = gap.max(peer.beat(now, beat, usable, |stamp| stamp + farewell));
                peer.answered |= present.is_some();
                self.hear_of_self(now, from, own);
                &[]
            }
        };
        if gap == Gap::Lost {
            self.actions.push_back(PeerAction::Drop(from.to_owned()));
        }
        if is_first {
            // The new process waits for this node's answer.
            self.next_beat = now;
        }
        self.publish(now);
        changes
    }

    /// Sends the beat that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_beat {
            return;
        }
        self.next_beat = now + self.beat_interval;
        if !self.actions.iter().any(|action| matches!(action, PeerAction::Drop(_))) {
            // Values from before have been dropped since the last input.
            self.removed_until = None;
        }
        self.send_unsent();
        let beat = self.beat(now);
        self.send(PeerMessage::Beat(beat));
        for _ in 0..RESENT_MESSAGES_MAX {
            let Some(changes) = self.log.next_resent(self.incarnation) else { break };
            self.send(PeerMessage::Changes(changes));
        }
        self.publish(now);
    }

    /// Returns the time of the next beat.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.next_beat
    }

    /// Returns the next action for the driver, or none until the next input.
    pub fn poll_action(&mut self) -> Option<PeerAction<C>> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let changes = self.log.next_unsent(self.incarnation)?;
        Some(PeerAction::Send(PeerMessage::Changes(changes)))
    }

    fn send_unsent(&mut self) {
        while let Some(changes) = self.log.next_unsent(self.incarnation) {
            self.send(PeerMessage::Changes(changes));
        }
    }

    fn send(&mut self, message: PeerMessage<C>) {
        self.actions.push_back(PeerAction::Send(message));
    }

    fn beat(&self, now: Instant) -> Beat {
        Beat {
            incarnation: self.incarnation,
            stamp_ns: now.as_nanos(),
            first: self.log.first(),
            last: self.log.last(),
            leaves: self.leaves,
            peers: self.peers.iter().map(|(node, peer)| peer.reported(node)).collect(),
        }
    }

    /// Takes in what the beat of the peer `from` says about this node; nothing if it does not know
    /// the node.
    fn hear_of_self(&mut self, now: Instant, from: &str, own: Option<&PeerBeat>) {
        let Some(peer) = self.peers.get_mut(from) else { return };
        let lacked_us = std::mem::replace(&mut peer.lacks_us, own.is_none());
        let Some(own) = own else {
            if !lacked_us {
                self.report(PeerReport::Unknown(from.to_owned()));
            }
            return;
        };
        if own.incarnation == self.incarnation {
            own.missing.into_iter().for_each(|from| self.log.resend(from));
        }
        if own.incarnation > self.incarnation && self.namesake(now).is_none() {
            self.renumber(now, own.incarnation);
        }
    }

    /// Continues under a number above `heard`. The log stays: peers have ignored all that was
    /// announced under the lower number.
    fn renumber(&mut self, now: Instant, heard: u64) {
        // Two processes one after the other may both hear of the same earlier one.
        let number = heard + 1 + (SplitMix64::new(self.incarnation).next_u64() & RENUMBERED_BY_MAX);
        (self.incarnation, self.started) = (number, now);
        self.peers.values_mut().for_each(|peer| peer.answered = false);
        self.next_beat = now;
        self.report(PeerReport::Renumbered(number));
    }

    fn hear_namesake(&mut self, now: Instant, incarnation: u64) {
        if incarnation == self.incarnation {
            // A message of this process, returned by the bus.
            return;
        }
        if self.namesake(now).is_none() {
            self.report(PeerReport::Namesake);
        }
        self.namesake_at = Some(now);
        self.publish(now);
    }

    fn hear_stranger(&mut self, from: &str) {
        if self.strangers.len() < STRANGERS_MAX && !self.strangers.iter().any(|known| known == from) {
            self.strangers.push(from.to_owned());
            self.report(PeerReport::Stranger(from.to_owned()));
        }
    }

    /// Returns the time until which another process with this node's name counts as present.
    fn namesake(&self, now: Instant) -> Option<Instant> {
        self.namesake_at.map(|at| at + self.options.namesake).filter(|until| now < *until)
    }

    fn report(&mut self, report: PeerReport) {
        self.actions.push_back(PeerAction::Report(report));
    }

    /// Returns the time until which all changes of all peers were received.
    fn complete_until(&self) -> Instant {
        let each = self.peers.values().map(|peer| peer.complete_until);
        each.chain(self.removed_until).min().unwrap_or(Instant::NEVER)
    }

    /// Returns the time from which writes may be acknowledged.
    fn writes_from(&self, now: Instant) -> Instant {
        if self.writes_ended || self.peers.values().any(|peer| peer.lacks_us) {
            return Instant::NEVER;
        }
        let all_answered = self.peers.values().all(|peer| peer.answered);
        let from = if all_answered { Instant::ZERO } else { self.started + self.options.greeting };
        self.namesake(now).map_or(from, |until| from.max(until))
    }

    /// Tells look-ups and writes of shared backends what has changed.
    fn publish(&self, now: Instant) {
        let (complete_until, writes_from) = (self.complete_until(), self.writes_from(now));
        self.values.iter().for_each(|values| values.set(complete_until, writes_from));
    }
}

impl<C> PeerMessage<C> {
    /// Returns true if all numbers and times are so small that they can be counted on for ever.
    fn is_plausible(&self) -> bool {
        const NUMBER_MAX: u64 = u64::MAX / 2;
        match self {
            Self::Beat(Beat { incarnation, stamp_ns, first, last, peers, .. }) => {
                let of_peers = peers
                    .iter()
                    .flat_map(|peer| [peer.incarnation, peer.stamp_ns, peer.missing.unwrap_or_default()]);
                [*incarnation, *stamp_ns, *first, *last].into_iter().chain(of_peers).max() <= Some(NUMBER_MAX)
            }
            Self::Changes(Changes { incarnation, first, .. }) => *incarnation.max(first) <= NUMBER_MAX,
        }
    }

    /// Number of the newest change that the message has or announces.
    fn last(&self) -> u64 {
        match self {
            Self::Beat(beat) => beat.last,
            Self::Changes(Changes { first, changes, .. }) => {
                first.saturating_add(changes.len() as u64).saturating_sub(1)
            }
        }
    }
}

#[cfg(test)]
mod tests;
