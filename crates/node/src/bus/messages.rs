//! Messages of peers, as Protocol Buffers.

use bytes::Bytes;
use prost::Message as _;
use sherwood_model::BackendId;
use sherwood_path::{Beat, ChangedKeys, Changes, PeerBeat, PeerMessage};

use super::generated as proto;
use crate::cluster::Change;
use crate::names::Names;

/// Bytes of a message, at most.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// Returns the kind of a message, for its subject, and its bytes.
pub(super) fn encode(names: &Names, message: &PeerMessage<Change>) -> (&'static str, Vec<u8>) {
    match message {
        PeerMessage::Beat(beat) => ("beats", encode_beat(beat).encode_to_vec()),
        PeerMessage::Changes(changes) => ("changes", encode_changes(names, changes).encode_to_vec()),
    }
}

/// Returns the message of these bytes; none if it is empty, or of another kind.
///
/// # Errors
/// If the bytes are no such message.
pub(super) fn decode(
    names: &Names,
    kind: &str,
    bytes: &[u8],
) -> Result<Option<PeerMessage<Change>>, prost::DecodeError> {
    Ok(match kind {
        "beats" => Some(PeerMessage::Beat(decode_beat(proto::Beat::decode(bytes)?))),
        "changes" => decode_changes(names, proto::Changes::decode(bytes)?).map(PeerMessage::Changes),
        _ => None,
    })
}

fn encode_beat(Beat { incarnation, stamp_ns, first, last, leaves, peers }: &Beat) -> proto::Beat {
    let peer = |PeerBeat { node, incarnation, stamp_ns, missing }: &PeerBeat| proto::PeerBeat {
        node: node.clone(),
        incarnation: *incarnation,
        stamp_ns: *stamp_ns,
        missing: *missing,
    };
    proto::Beat {
        incarnation: *incarnation,
        stamp_ns: *stamp_ns,
        first: *first,
        last: *last,
        leaves: *leaves,
        peers: peers.iter().map(peer).collect(),
    }
}

fn decode_beat(proto::Beat { incarnation, stamp_ns, first, last, leaves, peers }: proto::Beat) -> Beat {
    let peer = |proto::PeerBeat { node, incarnation, stamp_ns, missing }| PeerBeat {
        node,
        incarnation,
        stamp_ns,
        missing,
    };
    Beat { incarnation, stamp_ns, first, last, leaves, peers: peers.into_iter().map(peer).collect() }
}

fn encode_changes(names: &Names, changes: &Changes<Change>) -> proto::Changes {
    use proto::change::Keys;
    let mut backends: Vec<String> = Vec::new();
    let mut change = |Change { backend, keys }: &Change| {
        let name = names.backend(*backend);
        let known = backends.iter().position(|known| known == name);
        let backend = known.unwrap_or_else(|| {
            backends.push(name.to_owned());
            backends.len() - 1
        });
        let keys = match keys {
            ChangedKeys::Key(key) => Keys::Key(key.to_vec()),
            ChangedKeys::Unsettled(key) => Keys::Unsettled(key.to_vec()),
            ChangedKeys::Prefix(prefix) => Keys::Prefix(prefix.to_vec()),
            ChangedKeys::Tag(tag) => Keys::Tag(tag.to_vec()),
            ChangedKeys::All => Keys::All(true),
            // No node announces it; it refers to no backend.
            ChangedKeys::None => return proto::Change { backend: u32::MAX, keys: None },
        };
        proto::Change { backend: backend as u32, keys: Some(keys) }
    };
    let each = changes.changes.iter().map(&mut change).collect();
    proto::Changes { incarnation: changes.incarnation, first: changes.first, backends, changes: each }
}

/// Returns the changes of a message. Each has its place, since they are numbered: one of a backend
/// that this node does not have is without effect, and one of an unknown kind is of all keys.
fn decode_changes(names: &Names, message: proto::Changes) -> Option<Changes<Change>> {
    use proto::change::Keys;
    let proto::Changes { incarnation, first, backends, changes } = message;
    let change = |proto::Change { backend, keys }| {
        let known = backends.get(backend as usize).and_then(|name| names.backend_id(name));
        let Some(backend) = known else {
            return Change { backend: BackendId(0), keys: ChangedKeys::None };
        };
        let keys = match keys {
            Some(Keys::Key(key)) => ChangedKeys::Key(Bytes::from(key)),
            Some(Keys::Unsettled(key)) => ChangedKeys::Unsettled(Bytes::from(key)),
            Some(Keys::Prefix(prefix)) => ChangedKeys::Prefix(prefix.into()),
            Some(Keys::Tag(tag)) => ChangedKeys::Tag(tag.into()),
            Some(Keys::All(_)) | None => ChangedKeys::All,
        };
        Change { backend, keys }
    };
    let changes: Vec<_> = changes.into_iter().map(change).collect();
    (first > 0 && !changes.is_empty()).then_some(Changes { incarnation, first, changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(backends: &[&str]) -> Names {
        Names::new(backends.iter().map(|name| (*name).to_owned()).collect(), vec!["t".to_owned()], &[])
    }

    fn through(message: &PeerMessage<Change>, to: &Names) -> Option<PeerMessage<Change>> {
        let (kind, bytes) = encode(&names(&["a", "b"]), message);
        decode(to, kind, &bytes).expect("it was encoded")
    }

    #[test]
    fn beats_and_changes_are_received_as_they_were_sent() {
        let peer = PeerBeat { node: "b".to_owned(), incarnation: 9, stamp_ns: 77, missing: Some(3) };
        let peers = vec![peer, PeerBeat { node: "c".to_owned(), ..PeerBeat::default() }];
        let beat = Beat { incarnation: 7, stamp_ns: 5, first: 2, last: 4, leaves: true, peers };
        let beat = PeerMessage::Beat(beat);
        assert_eq!(through(&beat, &names(&["a", "b"])), Some(beat));
        let key = || Bytes::from_static(b"k\xff");
        let keys = [
            ChangedKeys::Key(key()),
            ChangedKeys::Unsettled(key()),
            ChangedKeys::Prefix((*b"p:").into()),
            ChangedKeys::Tag((*b"user:7").into()),
            ChangedKeys::All,
        ];
        let change = |(index, keys): (usize, &ChangedKeys<Bytes>)| Change {
            backend: BackendId::from_index(index % 2),
            keys: keys.clone(),
        };
        let changes = keys.iter().enumerate().map(change).collect();
        let changes = PeerMessage::Changes(Changes { incarnation: 7, first: 3, changes });
        assert_eq!(through(&changes, &names(&["a", "b"])), Some(changes));
    }

    #[test]
    fn change_of_an_unknown_backend_keeps_its_number_and_ids_follow_from_names() {
        let change = |backend| Change { backend: BackendId(backend), keys: ChangedKeys::All };
        let sent = Changes { incarnation: 7, first: 1, changes: vec![change(0), change(1)] };
        let received = through(&PeerMessage::Changes(sent), &names(&["z", "b"]));
        let unknown = Change { backend: BackendId(0), keys: ChangedKeys::None };
        let changes = vec![unknown, change(1)];
        assert_eq!(received, Some(PeerMessage::Changes(Changes { incarnation: 7, first: 1, changes })));
    }

    #[test]
    fn malformed_and_empty_messages_are_refused_and_other_kinds_ignored() {
        let names = names(&["a"]);
        assert!(decode(&names, "changes", b"\xff\xff\xff").is_err());
        assert_eq!(decode(&names, "changes", b""), Ok(None));
        assert_eq!(decode(&names, "rates", b"\xff"), Ok(None));
    }
}
