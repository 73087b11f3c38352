//! Messages between the nodes of a cluster about changes of shared backends.

/// A message of one node to all others. It may be lost, late, repeated or overtaken by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage<C> {
    /// The state of the node's announcements, sent at regular times.
    Beat(Beat),
    /// Announced changes, in the order of their numbers.
    Changes(Changes<C>),
}

/// The state of a node's announcements, and of what it has received of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Number of the process among those of its node's name. Larger for each later one.
    pub incarnation: u64,
    /// Time of the sender's own clock at which this was sent, nanoseconds.
    pub stamp_ns: u64,
    /// Number of the oldest change that the sender can send again.
    pub first: u64,
    /// Number of the newest change; 0 before the first.
    pub last: u64,
    /// True if the sender ends and announces nothing after `last`.
    pub leaves: bool,
    /// State of each of the sender's peers, at most 64.
    pub peers: Vec<PeerBeat>,
}

/// State of one peer, as the sender of a [`Beat`] has received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerBeat {
    /// Name of the peer.
    pub node: String,
    /// The peer's process that was heard last; 0 if none was.
    pub incarnation: u64,
    /// The newest [`Beat::stamp_ns`] that was received of that process; 0 if none was.
    pub stamp_ns: u64,
    /// Number of the first change of that process that was not received, if later ones exist.
    pub missing: Option<u64>,
}

/// Changes that a process has announced, with consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<C> {
    /// Number of the process, as in [`Beat::incarnation`].
    pub incarnation: u64,
    /// Number of the first of the changes, at least 1.
    pub first: u64,
    /// The changes; at least one.
    pub changes: Vec<C>,
}

/// A change that can be announced.
pub trait Announced: Clone {
    /// The size of the change in a message, bytes.
    fn bytes(&self) -> usize;
}
