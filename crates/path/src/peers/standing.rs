//! The state of a node's peers, for people.

use std::time::Duration;

use sherwood_model::Instant;

use super::{Announced, Peers, SharedTerms};

/// A peer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStanding {
    /// Name of the peer.
    pub node: String,
    /// Number of the peer's process; 0 if none was heard.
    pub incarnation: u64,
    /// Time since the latest message; none if none was heard.
    pub silent_for: Option<Duration>,
    /// Time until which cached values are trusted as far as this peer's changes are concerned, by
    /// the shortest bound of all shared backends; none if none of its changes were received.
    pub trusted_until: Option<Instant>,
    /// True if the peer has heard this process.
    pub answered: bool,
    /// True if this node is not among the peer's nodes.
    pub lacks_us: bool,
}

impl<C: Announced> Peers<C> {
    /// Returns the peers, by name.
    #[must_use]
    pub fn standings(&self, now: Instant) -> Vec<PeerStanding> {
        let spans = self.values.iter().map(|values| values.span());
        let span = spans.min().unwrap_or(SharedTerms::default().stale);
        let standing = |(node, peer): (&String, &super::Peer)| PeerStanding {
            node: node.clone(),
            incarnation: peer.incarnation,
            silent_for: peer.heard_at.map(|at| now - at),
            trusted_until: (peer.complete_until > Instant::ZERO).then(|| peer.complete_until + span),
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
