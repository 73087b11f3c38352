//! A backend whose values two nodes cache: writes through one node, and reads through the other.

use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::{Access, Cache, Options, Partition, Value};
use sherwood_dispatch::{Options as DispatchOptions, Reply};
use sherwood_model::{BackendId, Demand, Instant, PartitionId, ReplicaId, SeededState, Tags, TenantId};
use sherwood_path::{
    Action, AnswerCache, Backend, BackendOptions, Change, ChangedKeys, FetchKey, Fetched, PeerAction,
    PeerOptions, Peers, Query, Request, Rules, SharedChange, SharedTerms, SharedValues, Staleness, Status,
    WithoutBus, Write, WriteOptions, WriteOutcome, WriteRefused,
};

const PARTITION: PartitionId = PartitionId(0);
const BACKEND: BackendId = BackendId(0);
const KEY: &str = "p:1";

struct Bytes<'a>(&'a Cache);

impl AnswerCache<Vec<u8>> for Bytes<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, value: &'a Vec<u8>) -> Fetched<'a> {
        Fetched { value: Value::Bytes(value), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

struct Node {
    name: &'static str,
    cache: Cache,
    backend: Backend<&'static str, Vec<u8>, u32>,
    peers: Peers<SharedChange<&'static str>>,
    values: Arc<SharedValues>,
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

impl Node {
    fn start(name: &'static str, now: Instant) -> Self {
        let partition =
            Partition { grace: Duration::from_secs(60), ..Partition::new(TenantId(0), BACKEND, 1 << 20) };
        let cache = Cache::new(Options::default(), &[partition], SeededState::new(1)).expect("valid options");
        let terms = SharedTerms { stale: Duration::from_secs(2), without_bus: WithoutBus::Bounded };
        let values = Arc::new(SharedValues::new(terms, SeededState::new(2)));
        let options = BackendOptions {
            shared: Some(Arc::clone(&values)),
            rules: Rules {
                negative_ttl: Duration::from_secs(100),
                keep_stale: Duration::from_secs(60),
                ..Rules::default()
            },
            ..BackendOptions::new(DispatchOptions::default(), 1, vec![PARTITION])
        };
        let backend = Backend::new(options, now, SeededState::new(7)).expect("valid options");
        let nodes = vec!["a".to_owned(), "b".to_owned()];
        let options = PeerOptions::new(name.to_owned(), nodes);
        let peers = Peers::new(options, 1, now, vec![Arc::clone(&values)]);
        Self { name, cache, backend, peers, values }
    }

    /// Reads the key, whose value at the store is `stored`. Returns the answer; a miss asked the
    /// store.
    fn read(
        &mut self,
        now: Instant,
        stored: Option<&[u8]>,
        staleness: Staleness,
    ) -> (Status, Option<Vec<u8>>) {
        let (backend, partition, timeout) = (BACKEND, PARTITION, Duration::from_secs(1));
        let (keys, demand, shared) = (vec![KEY], Demand::default(), Some(Arc::clone(&self.values)));
        let query = Query { backend, partition, keys, demand, timeout, staleness, shared };
        let mut request = Request::start(now, vec![query]);
        let read = |_, _: &&str, item: sherwood_cache::Item<'_>| match item.value {
            Value::Bytes(bytes) => bytes.to_vec(),
            Value::Declared(_) => panic!("all values have bytes"),
        };
        let fetches = request.look_up(&self.cache, &Access::at(now), read);
        if let Some(fetch) = fetches.into_iter().next() {
            let keys = fetch.keys.into_iter().map(|(key, slot)| (FetchKey { partition, key }, slot));
            let keys: Vec<_> = keys.map(|(key, _)| (key, 0)).collect();
            self.backend.handle_fetch(now, &Bytes(&self.cache), &fetch.demand, keys, 1);
            let Some(Action::Call { attempt, .. }) = self.backend.poll_action() else { panic!("one call") };
            let reply = Reply::Ok(vec![stored.map(<[u8]>::to_vec)]);
            self.backend.handle_reply(now, &Bytes(&self.cache), attempt, reply);
            let Some(Action::Deliver { .. }) = self.backend.poll_action() else { panic!("one delivery") };
            return (Status::Miss, stored.map(<[u8]>::to_vec));
        }
        let (_, _, answer) = request.answers().next().expect("the key has an answer");
        (answer.status, answer.value.cloned())
    }

    /// Writes the key. Returns the outcome, once it was announced if it has to be.
    fn write(
        &mut self,
        now: Instant,
        outcome: WriteOutcome,
    ) -> Result<Option<ChangedKeys<&'static str>>, WriteRefused> {
        let (change, options) = (Change::Put(b"new".to_vec()), WriteOptions::default());
        let write = Write { key: KEY, change, partition: Some(PARTITION), options };
        let id = self.backend.handle_write(now, &Bytes(&self.cache), write)?;
        assert_eq!(self.backend.poll_action(), Some(Action::StartWrite(id)));
        self.backend.take_write(now, id).expect("its turn has come");
        self.backend.handle_write_reply(now, &Bytes(&self.cache), id, ReplicaId(0), outcome);
        let mut announced = None;
        loop {
            match self.backend.poll_action().expect("the write ends") {
                Action::Announce(keys) => {
                    announced = Some(keys.clone());
                    self.peers.announce(SharedChange { backend: BACKEND, keys });
                }
                Action::EndWrite { outcome: ended, .. } => {
                    assert_eq!(ended, outcome);
                    return Ok(announced);
                }
                action => panic!("{action:?}"),
            }
        }
    }

    fn take_in(&mut self, now: Instant, from: &str, action: PeerAction<SharedChange<&'static str>>) {
        let PeerAction::Send(message) = action else { return };
        for change in self.peers.handle_message(now, from, &message) {
            let (key, is_unsettled) = match &change.keys {
                ChangedKeys::Key(key) => (key, false),
                ChangedKeys::Unsettled(key) => (key, true),
                keys => panic!("{keys:?}"),
            };
            self.backend.handle_peer_change(now, &Bytes(&self.cache), key, is_unsettled);
        }
    }
}

/// Lets both nodes send what is due, and receive it.
fn exchange(now: Instant, a: &mut Node, b: &mut Node) {
    for _ in 0..2 {
        pass(now, a, b);
        pass(now, b, a);
    }
}

fn pass(now: Instant, from: &mut Node, to: &mut Node) {
    from.peers.handle_timeout(now);
    while let Some(action) = from.peers.poll_action() {
        to.take_in(now, from.name, action);
    }
}

/// Returns two nodes that have heard each other by 1,500 ms.
fn two() -> (Node, Node) {
    let (mut a, mut b) = (Node::start("a", at(1_000)), Node::start("b", at(1_000)));
    for ms in [1_000, 1_250, 1_500] {
        exchange(at(ms), &mut a, &mut b);
    }
    (a, b)
}

#[test]
fn write_through_one_node_is_read_through_the_other_once_it_is_announced() {
    let (mut a, mut b) = two();
    let fresh = Staleness::default();
    assert_eq!(b.read(at(1_600), Some(b"old"), fresh).0, Status::Miss);
    assert_eq!(b.read(at(1_600), None, fresh), (Status::Hit, Some(b"old".to_vec())));
    assert_eq!(a.write(at(1_700), WriteOutcome::Acknowledged), Ok(Some(ChangedKeys::Key(KEY))));
    exchange(at(1_800), &mut a, &mut b);
    assert_eq!(b.read(at(1_800), Some(b"new"), fresh), (Status::Miss, Some(b"new".to_vec())));
    assert_eq!(a.read(at(1_800), None, fresh), (Status::Hit, Some(b"new".to_vec())), "the writer keeps it");
    assert_eq!(a.write(at(1_900), WriteOutcome::NotDone), Ok(None));
}

#[test]
fn write_is_refused_until_the_other_node_has_heard_the_process() {
    let mut a = Node::start("a", at(1_000));
    let refused = a.write(at(2_000), WriteOutcome::Acknowledged);
    assert_eq!(refused, Err(WriteRefused::Unknown(Some(Duration::from_secs(60)))));
    let text = refused.expect_err("refused").to_string();
    assert!(text.ends_with("nothing was sent, write again in 60s"), "{text}");
    assert!(a.write(at(62_000), WriteOutcome::Acknowledged).is_ok(), "the other node has no farewell by now");
    let (mut a, _) = two();
    assert!(a.write(at(1_500), WriteOutcome::Acknowledged).is_ok());
}

#[test]
fn values_are_stale_while_the_other_node_is_silent_and_fresh_again_afterwards() {
    let (mut a, mut b) = two();
    let fresh = Staleness::default();
    b.read(at(1_600), Some(b"old"), fresh);
    assert_eq!(b.read(at(3_400), None, fresh).0, Status::Hit);
    let (status, value) = b.read(at(4_000), Some(b"second"), fresh);
    assert_eq!((status, value.as_deref()), (Status::Miss, Some(&b"second"[..])), "fetched again");
    assert_eq!(b.read(at(5_900), None, fresh).0, Status::Hit, "for as long after its fetch");
    assert_eq!(b.read(at(6_100), Some(b"third"), fresh).0, Status::Miss);
    for ms in [8_500, 8_750, 9_000] {
        exchange(at(ms), &mut a, &mut b);
    }
    assert_eq!(b.read(at(9_000), None, fresh), (Status::Hit, Some(b"third".to_vec())));
    assert_eq!(b.values.untrusted(), 2);
}

#[test]
fn absence_is_not_trusted_while_the_other_node_is_silent() {
    let (_, mut b) = two();
    let fresh = Staleness::default();
    b.read(at(1_600), None, fresh);
    assert_eq!(b.read(at(1_700), None, fresh).0, Status::NotFound);
    assert_eq!(b.read(at(4_000), Some(b"there"), fresh), (Status::Miss, Some(b"there".to_vec())));
    assert_eq!(b.read(at(4_100), None, fresh), (Status::Hit, Some(b"there".to_vec())));
}

#[test]
fn write_of_unknown_outcome_fences_its_key_at_the_other_node_for_the_timeout() {
    let (mut a, mut b) = two();
    let fresh = Staleness::default();
    assert_eq!(a.write(at(1_600), WriteOutcome::Unknown), Ok(Some(ChangedKeys::Unsettled(KEY))));
    exchange(at(1_800), &mut a, &mut b);
    assert_eq!(b.read(at(1_900), Some(b"either"), fresh).0, Status::Miss);
    assert_eq!(b.read(at(2_000), Some(b"either"), fresh).0, Status::Miss, "it was not kept");
    let timeout = DispatchOptions::default().timeout;
    let later = at(1_900) + timeout;
    exchange(later, &mut a, &mut b);
    b.read(later, Some(b"final"), fresh);
    assert_eq!(b.read(later, None, fresh), (Status::Hit, Some(b"final".to_vec())));
}
