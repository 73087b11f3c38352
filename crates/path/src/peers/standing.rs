//! The state of a node's peers, for people.

use std::time::Duration;

use sherwood_model::Instant;

use super::{Announced, Peers};

/// One peer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStanding {
    /// Name of the peer.
    pub node: String,
    /// Number of the peer's process; 0 if none was heard.
    pub incarnation: u64,
    /// Time since the latest message; none if none was heard.
    pub silent_for: Option<Duration>,
    /// Time until which all changes of the peer were received.
    pub complete_until: Instant,
    /// True if the peer has heard this process.
    pub answered: bool,
    /// True if this node is not among the peer's nodes.
    pub lacks_us: bool,
}

impl<C: Announced> Peers<C> {
    /// Returns the peers, by name.
    #[must_use]
    pub fn standings(&self, now: Instant) -> Vec<PeerStanding> {
        let standing = |(node, peer): (&String, &super::Peer)| PeerStanding {
            node: node.clone(),
            incarnation: peer.incarnation,
            silent_for: peer.heard_at.map(|at| now - at),
            complete_until: peer.complete_until,
            answered: peer.answered,
            lacks_us: peer.lacks_us,
        };
        self.peers.iter().map(standing).collect()
    }

    /// Returns the number of this process.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}
