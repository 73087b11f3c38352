//! Messages that are too large to be sent whole.

use std::collections::BTreeMap;

use prost::Message as _;

use super::generated as proto;
use super::messages::MESSAGE_BYTES_MAX;

/// Bytes of a piece: a message less what surrounds them.
const PART_BYTES: usize = MESSAGE_BYTES_MAX - 1_024;
/// Pieces of a message, at most: 2 MiB, some four times the statistics of 4,096 partitions.
const PARTS_MAX: usize = 8;

/// Nodes of which pieces are kept, at most; those of all are dropped when there are more.
const NODES_MAX: usize = 64;

/// The kind of the messages that are pieces of others.
pub(super) const KIND: &str = "parts";

/// Returns the pieces of a message, none if it is too large; `whole` is its number among those of
/// this node.
pub(super) fn split(kind: &str, whole: u64, bytes: &[u8]) -> Vec<Vec<u8>> {
    let count = bytes.len().div_ceil(PART_BYTES);
    let parts = bytes.chunks(PART_BYTES).enumerate().filter(|_| count <= PARTS_MAX);
    let part = |(index, bytes): (usize, &[u8])| proto::Part {
        kind: kind.to_owned(),
        whole,
        index: index as u32,
        count: count as u32,
        bytes: bytes.to_vec(),
    };
    parts.map(|each| part(each).encode_to_vec()).collect()
}

/// Messages of which pieces have come: the latest one of each node.
#[derive(Debug, Default)]
pub(super) struct Joined {
    latest: BTreeMap<String, Vec<proto::Part>>,
}

impl Joined {
    /// Takes a piece in. Returns the kind and the bytes of the message if it is complete, none if
    /// pieces are missing. Pieces of a message that was not complete before the next one began are
    /// dropped.
    ///
    /// # Errors
    /// If the bytes are no piece of a message.
    pub(super) fn take(
        &mut self,
        node: &str,
        bytes: &[u8],
    ) -> Result<Option<(String, Vec<u8>)>, prost::DecodeError> {
        let part = proto::Part::decode(bytes)?;
        let (count, index) = (part.count as usize, part.index as usize);
        if count > PARTS_MAX || index >= count {
            return Ok(None);
        }
        if self.latest.len() == NODES_MAX && !self.latest.contains_key(node) {
            self.latest.clear();
        }
        let parts = self.latest.entry(node.to_owned()).or_default();
        let is_same =
            |of: &proto::Part| (of.whole, of.count) == (part.whole, count as u32) && of.kind == part.kind;
        parts.retain(|of| is_same(of) && of.index != part.index);
        parts.push(part);
        if parts.len() < count {
            return Ok(None);
        }
        let mut parts = self.latest.remove(node).unwrap_or_default();
        parts.sort_by_key(|part| part.index);
        let kind = parts.first().map(|part| part.kind.clone()).unwrap_or_default();
        Ok(Some((kind, parts.into_iter().flat_map(|part| part.bytes).collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_in_any_order_and_only_if_all_have_come() {
        let bytes: Vec<u8> = (0..600_000_u32).map(|i| (i / 7) as u8).collect();
        let parts = split("snapshots", 5, &bytes);
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|part| part.len() <= MESSAGE_BYTES_MAX));
        let mut joined = Joined::default();
        let lost = split("snapshots", 4, &bytes);
        for part in [&lost[0], &lost[1], &parts[2], &parts[0], &parts[0]] {
            assert_eq!(joined.take("a", part), Ok(None));
        }
        assert_eq!(joined.take("b", &parts[1]), Ok(None), "of another node");
        assert_eq!(joined.take("a", &parts[1]), Ok(Some(("snapshots".to_owned(), bytes))));
        assert_eq!(joined.latest.keys().collect::<Vec<_>>(), ["b"]);
        (0..1_000).for_each(|node| assert_eq!(joined.take(&node.to_string(), &parts[1]), Ok(None)));
        assert!(joined.latest.len() <= NODES_MAX);
    }

    #[test]
    fn impossible_pieces_are_left_out_and_too_large_messages_have_none() {
        assert_eq!(split("statistics", 1, &vec![0; 9 * PART_BYTES]).len(), 0);
        // Pieces of messages with the same number that differ in their count.
        let other = |part: &[u8]| proto::Part { count: 2, ..proto::Part::decode(part).unwrap() };
        let bytes = vec![1; 3 * PART_BYTES];
        let parts = split("statistics", 1, &bytes);
        let mut joined = Joined::default();
        assert_eq!(joined.take("a", &parts[2]), Ok(None));
        assert_eq!(joined.take("a", &other(&parts[0]).encode_to_vec()), Ok(None));
        let part = |index, count| proto::Part { index, count, ..proto::Part::default() }.encode_to_vec();
        let mut joined = Joined::default();
        for bytes in [part(0, 0), part(1, 1), part(3, 9), part(u32::MAX, u32::MAX)] {
            assert_eq!(joined.take("a", &bytes), Ok(None));
        }
        assert!(joined.latest.is_empty());
        assert!(joined.take("a", b"\xff\xff").is_err());
    }
}
