use sherwood_cache::{Cache, Partition, Value};
use sherwood_dispatch::{BatchEnd, Marker, Options, Reply};
use sherwood_model::{BackendId, Demand, Tags, TenantId};

use super::*;
use crate::backend::{Action, AnswerCache, Backend, BackendOptions, FetchKey, Write, WriteOptions};
use crate::{Fetched, WriteOutcome};

const PARTITION: PartitionId = PartitionId(0);

struct Cached(Cache);

impl AnswerCache<&'static str> for Cached {
    fn cache(&self) -> &Cache {
        &self.0
    }

    fn fetched<'a>(&self, value: &'a &'static str) -> Fetched<'a> {
        Fetched { value: Value::Bytes(value.as_bytes()), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

type Machine = Backend<&'static str, &'static str, u32>;
type Act = Action<&'static str, &'static str, u32>;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A backend of one partition, whose timeout is 100 ms and whose duplicates were reached at once.
struct Store {
    machine: Machine,
    cached: Cached,
}

impl Store {
    fn new(duplicates: usize, acknowledge: Acknowledge, consistency: Consistency) -> Self {
        let duplicates_of = DuplicateOptions {
            partitions: 1,
            duplicates,
            consistency,
            entries_max: 8,
            bytes_max: 800,
            epoch: 7,
        };
        let dispatch = Options { timeout: Duration::from_millis(100), ..Options::default() };
        let options = BackendOptions {
            duplicates: Some(duplicates_of),
            acknowledge,
            ..BackendOptions::new(dispatch, duplicates, vec![PARTITION])
        };
        let partitions = [Partition::new(TenantId(0), BackendId(0), 1 << 20)];
        let cache =
            Cache::new(sherwood_cache::Options::default(), &partitions, SeededState::new(1)).expect("valid");
        let machine = Backend::new(options, at(0), SeededState::new(2)).expect("valid");
        let mut store = Self { machine, cached: Cached(cache) };
        store.wake(0);
        for ms in [0, 100] {
            store.wake(ms);
            for replica in 0..duplicates {
                store.event(ms, replica, DuplicateEvent::Inspected(Ok(None)));
            }
        }
        // Each records where it starts.
        (0..duplicates).for_each(|replica| store.applied(100, replica));
        store.drain();
        store
    }

    fn wake(&mut self, ms: u64) {
        self.machine.handle_timeout(at(ms), &self.cached);
    }

    fn event(&mut self, ms: u64, replica: usize, event: DuplicateEvent<'_>) {
        self.machine.handle_duplicate(at(ms), &self.cached, 0, ReplicaId::from_index(replica), event);
    }

    fn applied(&mut self, ms: u64, replica: usize) {
        self.event(ms, replica, DuplicateEvent::Applied(BatchEnd::Answered(&[])));
    }

    fn drain(&mut self) -> Vec<Act> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    fn put(&mut self, ms: u64, key: &'static str, value: &'static str) -> WriteId {
        let write = Write {
            key,
            change: Change::Put(value),
            partition: Some(PARTITION),
            options: WriteOptions::default(),
        };
        self.machine.handle_write(at(ms), &self.cached, write).expect("the log has room")
    }

    fn fetch(&mut self, ms: u64, session: Session, key: &'static str) -> Vec<Act> {
        let keys = [(FetchKey { partition: PARTITION, key }, 1)];
        self.machine.handle_fetch_in_session(at(ms), &self.cached, &Demand::default(), session, keys, 9);
        self.drain()
    }

    fn cached(&self, key: &str) -> Option<String> {
        let access = sherwood_cache::Access::at(at(0));
        let text = |value: Value<'_>| match value {
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Declared(_) => String::new(),
        };
        self.cached.0.get(PARTITION, key.as_bytes(), &access, |item| text(item.value))
    }
}

fn replicas_called(actions: &[Act]) -> Vec<usize> {
    let called = actions.iter().filter_map(|action| match action {
        Action::Call { replica, .. } => Some(replica.index()),
        _ => None,
    });
    called.collect()
}

fn ended(actions: &[Act]) -> Option<(WriteId, WriteOutcome, Option<Session>)> {
    actions.iter().find_map(|action| match action {
        Action::EndWrite { write, outcome, session, .. } => Some((*write, *outcome, *session)),
        _ => None,
    })
}

#[test]
fn write_goes_to_all_duplicates_and_the_cache_keeps_it_once_they_have_it() {
    let mut store = Store::new(2, Acknowledge::First, Consistency::Eventual);
    let write = store.put(100, "k", "new");
    let steps: Vec<_> = store.drain();
    assert_eq!(steps.len(), 2);
    for (replica, step) in steps.iter().enumerate() {
        let Action::Duplicate { replica: to, step: DuplicateStep::Apply { marker, entries }, .. } = step
        else {
            panic!("{step:?}")
        };
        assert_eq!(
            (to.index(), *marker),
            (replica, Marker { epoch: 7, sent: 1, partitions: 1, ..Marker::default() })
        );
        assert_eq!((entries[0].key, &entries[0].change.change), ("k", &Change::Put("new")));
    }
    store.applied(101, 0);
    let (of, outcome, session) = ended(&store.drain()).expect("one has it");
    assert_eq!(
        (of, outcome, session.map(|one| one.to_string())),
        (write, WriteOutcome::Acknowledged, Some("7.1".into()))
    );
    assert_eq!(store.cached("k"), None, "a read at the other would return the older value");
    store.applied(102, 1);
    assert_eq!(store.cached("k").as_deref(), Some("new"));
}

#[test]
fn session_reads_its_write_where_that_is_applied_and_waits_until_then() {
    let mut store = Store::new(2, Acknowledge::First, Consistency::ReadYourWrites);
    store.put(100, "k", "new");
    store.drain();
    store.applied(101, 1);
    let (.., session) = ended(&store.drain()).expect("acknowledged");
    let session = session.expect("acknowledged");
    for _ in 0..4 {
        assert_eq!(replicas_called(&store.fetch(101, session, "k")), [1]);
        store.machine.handle_invalidate(at(101), &store.cached, crate::Invalidation::All);
    }
    store.event(102, 1, DuplicateEvent::Broken);
    store.drain();
    assert!(replicas_called(&store.fetch(103, session, "k")).is_empty(), "no other has it");
    let other = store.fetch(103, Session::default(), "k");
    assert_eq!(replicas_called(&other), [0], "it has not seen the write");
    store.applied(104, 0);
    assert_eq!(replicas_called(&store.drain()), [0]);
}

#[test]
fn read_that_waits_for_a_change_ends_at_the_timeout() {
    let mut store = Store::new(1, Acknowledge::All, Consistency::Causal);
    store.put(100, "k", "new");
    store.drain();
    assert!(replicas_called(&store.fetch(110, Session::LATEST, "k")).is_empty());
    assert_eq!(store.machine.next_timeout(), Some(at(200)));
    store.wake(200);
    let unknown = ended(&store.drain());
    assert!(matches!(unknown, Some((_, WriteOutcome::Unknown, None))), "{unknown:?}");
    store.wake(210);
    let delivered = store.drain();
    assert!(matches!(&delivered[..], [Action::Deliver { result: Err(_), .. }]), "{delivered:?}");
}

#[test]
fn read_that_has_waited_for_a_change_has_the_rest_of_its_timeout_left() {
    let mut store = Store::new(1, Acknowledge::All, Consistency::Causal);
    store.put(100, "k", "new");
    store.drain();
    assert!(replicas_called(&store.fetch(110, Session::LATEST, "k")).is_empty());
    store.applied(190, 0);
    assert_eq!(replicas_called(&store.drain()), [0]);
    store.wake(210);
    let ended = store.drain();
    assert!(ended.iter().any(|action| matches!(action, Action::Deliver { result: Err(_), .. })), "{ended:?}");
}

#[test]
fn read_after_an_acknowledgement_does_not_join_an_earlier_fetch() {
    let mut store = Store::new(1, Acknowledge::All, Consistency::Eventual);
    assert_eq!(replicas_called(&store.fetch(100, Session::default(), "k")), [0]);
    // The second is sent once the first is applied, so that the key does not settle with that.
    store.put(100, "k", "first");
    store.put(100, "k", "second");
    store.applied(101, 0);
    assert!(ended(&store.drain()).is_some_and(|(_, outcome, _)| outcome == WriteOutcome::Acknowledged));
    assert_eq!(replicas_called(&store.fetch(102, Session::default(), "k")), [0]);
}

#[test]
fn value_fetched_before_a_change_was_applied_everywhere_is_not_cached() {
    let mut store = Store::new(2, Acknowledge::All, Consistency::Eventual);
    let [Action::Call { attempt, .. }] = store.fetch(100, Session::default(), "k")[..] else {
        panic!("a call")
    };
    store.put(100, "k", "new");
    store.applied(101, 0);
    store.applied(101, 1);
    store.drain();
    store.machine.handle_reply(at(102), &store.cached, attempt, Reply::Ok(vec![Some("old")]));
    assert_eq!(store.cached("k").as_deref(), Some("new"));
}

#[test]
fn value_fetched_before_an_earlier_change_of_a_refused_one_was_applied_is_not_cached() {
    let mut store = Store::new(2, Acknowledge::First, Consistency::Eventual);
    store.put(100, "k", "new");
    store.applied(101, 0);
    store.put(102, "k", "too large");
    store.event(103, 0, DuplicateEvent::Applied(BatchEnd::Broken(0)));
    store.drain();
    store.wake(202);
    assert!(matches!(ended(&store.drain()), Some((_, WriteOutcome::Unknown, None))));
    // The key is not fenced any more because of the write whose outcome is unknown.
    let [Action::Call { attempt, .. }] = store.fetch(310, Session::default(), "k")[..] else {
        panic!("a call")
    };
    store.applied(320, 1);
    store.event(330, 1, DuplicateEvent::Applied(BatchEnd::Answered(&[2])));
    store.machine.handle_reply(at(340), &store.cached, attempt, Reply::Ok(vec![Some("old")]));
    assert!(matches!(store.drain().last(), Some(Action::Deliver { result: Ok(Some("old")), .. })));
    assert_eq!(store.cached("k"), None);
}

#[test]
fn change_that_the_only_duplicate_refuses_is_not_done() {
    let mut store = Store::new(1, Acknowledge::All, Consistency::Eventual);
    let write = store.put(100, "k", "too large");
    assert_eq!(store.machine.write_of(0, 1), Some(write));
    store.event(101, 0, DuplicateEvent::Applied(BatchEnd::Answered(&[1])));
    assert!(matches!(ended(&store.drain()), Some((of, WriteOutcome::NotDone, None)) if of == write));
    assert_eq!(store.machine.write_of(0, 1), None);
}

#[test]
fn log_without_room_refuses_a_write_and_nothing_follows() {
    let mut store = Store::new(1, Acknowledge::All, Consistency::Eventual);
    for _ in 0..8 {
        store.put(100, "k", "v");
    }
    store.drain();
    let write = Write {
        key: "k",
        change: Change::Delete,
        partition: Some(PARTITION),
        options: WriteOptions::default(),
    };
    let refused = store.machine.handle_write(at(100), &store.cached, write).expect_err("no room");
    assert!(refused.to_string().contains("is full, with 8 entries"), "{refused}");
    assert_eq!(store.drain(), []);
    let logs = store.machine.logs().expect("it has logs");
    assert_eq!((logs.entries, logs.counts.refused, logs.duplicates[0].lag), (8, 1, 8));
}

#[test]
fn partition_of_a_key_never_changes() {
    let of = |partitions: usize, key: &str| {
        let options = DuplicateOptions {
            partitions,
            duplicates: 1,
            consistency: Consistency::Eventual,
            entries_max: 1,
            bytes_max: 1,
            epoch: 1,
        };
        options.partition(key.as_bytes())
    };
    let known = ["", "a", "user:1", "user:2", "a longer key than the others"].map(|key| of(1_000, key));
    assert_eq!(known, [531, 314, 249, 449, 281]);
    for key in ["a", "b", "c", "d", "e"] {
        assert_eq!(of(144, key) / 2, of(72, key));
    }
}

#[test]
fn session_of_another_process_asks_for_nothing() {
    let store = Store::new(1, Acknowledge::All, Consistency::Causal);
    let session = store.machine.session_of_reader().expect("reads count");
    assert_eq!(session.to_string(), "7.0");
    let earlier: Session = "6.ffff".parse().expect("a session");
    assert_eq!(
        (earlier.stamp_in(7..=8), earlier.stamp_in(5..=6), Session::LATEST.stamp_in(7..=7)),
        (0, 0xffff, u64::MAX)
    );
    for text in ["", "1", "1.", ".1", "1.g", "11111111111111111.1", "1.1.1", "-1.1"] {
        let error = text.parse::<Session>().expect_err(text).to_string();
        assert!(error.contains(&format!("\"{text}\" is not a session")), "{error}");
    }
}
