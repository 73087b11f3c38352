//! Keys of accesses, and the nodes that have them.

use sherwood_dispatch::{Holders, Layout};
use sherwood_model::ReplicaId;
use sherwood_path::partition_of;

/// Returns the number of nodes that a layout needs.
pub(super) fn nodes(layout: Layout) -> u16 {
    layout.partitions * u16::from(layout.duplicates)
}

/// The key of an access: its number, and the layout of the store when it began. A new layout thus
/// takes effect for new accesses, while those in flight stay where they are. No two accesses have
/// the same key, so that none joins another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    bytes: [u8; 11],
}

impl Key {
    pub(super) fn new(access: u64, layout: Layout) -> Self {
        let mut bytes = [0; 11];
        bytes[..8].copy_from_slice(&access.to_le_bytes());
        bytes[8..10].copy_from_slice(&layout.partitions.to_le_bytes());
        bytes[10] = layout.duplicates;
        Self { bytes }
    }

    /// The number of the access.
    pub(super) fn access(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|at| self.bytes[at]))
    }

    /// The number of a node among the duplicates of the key.
    pub(super) fn duplicate(&self, node: ReplicaId) -> u8 {
        (node.0 % u16::from(self.bytes[10])) as u8
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the nodes that have a key of the given bytes: neighbours, as in a node's
/// [`DuplicateOptions`](sherwood_path::DuplicateOptions).
///
/// # Panics
/// If these are not the bytes of a [`Key`].
pub(super) fn holders(key: &[u8]) -> Holders {
    let (partitions, duplicates) = (u16::from_le_bytes([key[8], key[9]]), key[10]);
    let partition = partition_of(&key[..8], partitions.into());
    let first = ReplicaId::from_index(partition * usize::from(duplicates));
    Holders::Ring { first, copies: duplicates.into() }
}

#[cfg(test)]
mod tests {
    use super::super::NODES;
    use super::*;

    #[test]
    fn accesses_are_spread_over_all_partitions_of_neighbouring_nodes() {
        let layout = Layout { partitions: 72, duplicates: 2 };
        let mut accesses = [0_u32; NODES as usize];
        for access in 0..72_000 {
            let key = Key::new(access, layout);
            assert_eq!(key.access(), access);
            let nodes: Vec<_> = holders(key.as_ref()).replicas(NODES.into()).collect();
            assert_eq!((nodes.len(), nodes[0].0 % 2, nodes[1].0), (2, 0, nodes[0].0 + 1));
            assert_eq!(nodes.iter().map(|node| key.duplicate(*node)).collect::<Vec<_>>(), [0, 1]);
            nodes.iter().for_each(|node| accesses[node.index()] += 1);
        }
        assert!(accesses.iter().all(|accesses| (850..1_150).contains(accesses)), "{accesses:?}");
    }

    #[test]
    fn half_of_the_nodes_have_all_keys_when_the_others_are_switched_off() {
        let layout = Layout { partitions: 72, duplicates: 1 };
        let node = |access| {
            let key = Key::new(access, layout);
            holders(key.as_ref()).replicas(NODES.into()).map(|node| node.0).collect::<Vec<_>>()
        };
        assert!((0..1_000).all(|access| matches!(node(access)[..], [0..72])));
    }
}
