//! Requests, driven as a node drives them and checked when they have finished.

use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, Item, ItemKind};
use sherwood_dispatch::{AttemptId, Failure, FailureKind, FetchError, Reply, Waiters};
use sherwood_model::{Demand, Instant, PartitionId, ReplicaId};
use sherwood_path::{Action, FetchKey, Query, QueryFetch, Request, Slot, Staleness, Status};

use crate::events::{At, Content, Event, Key, Stored, key, number_of};
use crate::side::{HEALTHY, Side, partition, read, timeout};
use crate::store::Moment;
use crate::traffic::demand;
use crate::world::{World, shown};

/// A request, its queries and its arrival.
pub(crate) struct Asked {
    queries: Vec<Query<Key>>,
    request: Request<Key, u64>,
    at: Moment,
    /// Slots of the keys whose fetches the request waits for.
    fetched: Vec<Slot>,
    judged: bool,
}

impl Asked {
    /// Returns the time to call the request's timeout handler; none if that would have no effect.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.request.next_timeout()
    }
}

/// A waiter for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A request that waits for one of its keys.
    Request(usize, Slot),
    /// A listener's client that waits for its read.
    Listener(usize),
    /// A revalidation of a stale key, which no request waits for.
    Nobody,
}

/// A read of a listener's client.
pub(crate) struct Listened {
    backend: At,
    key: Key,
    at: Moment,
}

impl World {
    /// A request arrives.
    pub(crate) fn ask(&mut self, queries: Vec<Query<Key>>) {
        let id = self.arrived;
        self.arrived += 1;
        let mut request = Request::start(self.now, queries.clone());
        let fetches = request.look_up(&self.cache, &Access::at(self.now), |_, _, item| read(item));
        self.tell(|| {
            let keys = |query: &Query<Key>| format!("{} of backend {}", shown(&query.keys), query.backend.0);
            format!("request {id}: {}", queries.iter().map(keys).collect::<Vec<_>>().join(", "))
        });
        let awaited = fetches.iter().filter(|fetch| fetch.awaited);
        let fetched = awaited.flat_map(|fetch| &fetch.keys).map(|(_, slot)| *slot).collect();
        self.requests.insert(id, Asked { queries, request, at: self.moment(), fetched, judged: false });
        for fetch in fetches {
            self.fetch(id, fetch);
        }
        self.finish(id);
    }

    /// Fetches the misses of a request, and revalidates its stale keys.
    fn fetch(&mut self, id: usize, fetch: QueryFetch<Key>) {
        let QueryFetch { backend, partition, keys, demand, awaited, .. } = fetch;
        let (backend, entropy) = (backend.index(), self.draw(u64::MAX));
        let waiter = |slot| if awaited { Waiter::Request(id, slot) } else { Waiter::Nobody };
        let keys: Vec<_> =
            keys.into_iter().map(|(key, slot)| (FetchKey { partition, key }, waiter(slot))).collect();
        if awaited {
            return self.have_fetched(backend, &demand, keys, entropy);
        }
        let stale = keys.len();
        let begun = self.drive(backend, |machine, now, cache| {
            machine.handle_revalidate(now, cache, &demand, keys, entropy)
        });
        if begun < stale {
            self.count("refresh put off");
        }
    }

    fn have_fetched(
        &mut self,
        backend: At,
        demand: &Demand,
        keys: Vec<(FetchKey<Key>, Waiter)>,
        entropy: u64,
    ) {
        let Side { machine, stores, .. } = &self.sides[backend];
        let lags = |key: &Key| stores.primary && machine.is_fenced(key) && !stores.agree(number_of(*key));
        if keys.iter().any(|(key, _)| lags(&key.key)) {
            self.count("replica that lags is spared");
        }
        self.drive(backend, |machine, now, cache| machine.handle_fetch(now, cache, demand, keys, entropy));
    }

    /// Carries out one action of a backend's state machine.
    pub(crate) fn carry_out(&mut self, backend: At, action: Action<Key, Stored, Waiter>) {
        match action {
            Action::Call { attempt, replica, keys, .. } => self.serve(backend, replica, attempt, &keys),
            Action::Cancel { attempt, .. } => {
                self.tell(|| format!("backend {backend}: {attempt:?} is given up"));
            }
            Action::Probe { replica, .. } => {
                self.plan(Duration::from_millis(1), Event::Probe(backend, replica));
            }
            Action::Deliver { result, waiters, .. } => self.deliver(result, waiters),
            Action::StartWrite(write) => self.send_write(backend, write),
            Action::EndWrite { write, outcome, sent, .. } => self.end_write(backend, write, outcome, sent),
            Action::Announce(_) => unreachable!("no other node caches the values"),
            Action::Duplicate { .. } | Action::StoreLog { .. } => unreachable!("no store has duplicates"),
        }
    }

    /// Tells the waiters of a key how its fetch ended.
    fn deliver(&mut self, result: Result<Option<Stored>, FetchError>, waiters: Waiters<Waiter>) {
        if let Err(FetchError::OverRate(_)) = result {
            self.count("read refused for its tenant's rate");
        }
        let result = result.map(|stored| stored.map(Stored::value));
        for waiter in waiters {
            let (id, slot) = match waiter {
                Waiter::Request(id, slot) => (id, slot),
                Waiter::Listener(id) => {
                    self.hear(id, result.clone());
                    continue;
                }
                Waiter::Nobody => continue,
            };
            let asked = self.requests.get_mut(&id).expect("a request is kept until its fetches end");
            let place = asked.fetched.iter().position(|fetched| *fetched == slot);
            asked.fetched.swap_remove(place.expect("a fetch ended twice"));
            asked.request.handle_result(self.now, slot, result.clone());
            self.finish(id);
        }
    }

    /// Answers a read of a listener's client from the cache if it has a fresh value, and otherwise
    /// from the backend, as a read-through listener does.
    pub(crate) fn listen(&mut self, backend: At, number: u8, tenant: u8) {
        let (key, of) = (key(number), partition(backend, tenant));
        let (id, access) = (self.arrived, Access::at(self.now));
        self.arrived += 1;
        self.tell(|| format!("listener {id}: {key:x?} of backend {backend}"));
        let listened = Listened { backend, key, at: self.moment() };
        let fresh = self.cache.get(of, &key, &access, |item| {
            assert!(
                item.kind != ItemKind::Absent && item.stale_since(access.now).is_none(),
                "it sees neither"
            );
            read(item)
        });
        if let Some(value) = fresh {
            return self.judge(id, backend, key, Status::Hit, Some(value), listened.at);
        }
        let sees_absent = Access { flags: AccessFlags::SEE_ABSENT, ..access };
        if self.cache.peek(of, &key, &sees_absent, |item| item.kind) == Some(ItemKind::Absent) {
            self.count("listener asked though absence was kept");
        }
        self.listened.insert(id, listened);
        let entropy = self.draw(u64::MAX);
        let key = FetchKey { partition: of, key };
        self.have_fetched(backend, &demand(tenant), vec![(key, Waiter::Listener(id))], entropy);
    }

    /// Ends a read of a listener's client with the result of its fetch.
    fn hear(&mut self, id: usize, result: Result<Content, FetchError>) {
        let Listened { backend, key, at } = self.listened.remove(&id).expect("a read ended twice");
        let (status, value) = match result {
            Ok(Some(value)) => (Status::Miss, Some(value)),
            Ok(None) => (Status::NotFound, None),
            Err(_) => (Status::Error, None),
        };
        self.judge(id, backend, key, status, value, at);
    }

    /// Checks a fill: after it no older value is left that could be served as stale, whether the
    /// answer was kept or not.
    pub(crate) fn check_fill(&mut self, backend: At, partition: PartitionId, key: Key, answer: Content) {
        let flags = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
        let access = Access { flags, ..Access::at(self.now) };
        let seen = |item: Item<'_>| {
            let content = (item.kind != ItemKind::Absent).then(|| read(item));
            (content, item.stale_since(self.now).is_some())
        };
        let cached = self.cache.peek(partition, &key, &access, seen);
        self.tell(|| {
            format!("backend {backend}: {key:x?} is filled with {answer:x?}: {cached:x?} is cached")
        });
        assert!(
            !cached.is_some_and(|(content, is_stale)| is_stale && content != answer),
            "backend {backend} has answered {answer:x?} for {key:x?}, and {cached:x?} may be served as stale"
        );
        if answer.is_none() && cached == Some((None, false)) {
            self.count("absence kept");
        }
    }

    /// Wakes the requests whose time has come.
    pub(crate) fn wake_requests(&mut self) {
        let is_due = |asked: &Asked| asked.next_timeout().is_some_and(|at| at <= self.now);
        let due: Vec<_> =
            self.requests.iter().filter(|(_, asked)| is_due(asked)).map(|(id, _)| *id).collect();
        for id in due {
            let asked = self.requests.get_mut(&id).expect("it was there");
            asked.request.handle_timeout(self.now);
            self.finish(id);
        }
    }

    /// Reads keys at a replica at once. The reply arrives later, never, or twice.
    fn serve(&mut self, backend: At, replica: ReplicaId, attempt: AttemptId, keys: &[FetchKey<Key>]) {
        self.tell(|| {
            format!("backend {backend}: {attempt:?} asks replica {} for {}", replica.0, shown(&keys))
        });
        let faulty = self.fails(backend);
        if faulty && self.once_in(10) {
            return;
        }
        let stores = &self.sides[backend].stores;
        let reply = if stores.replicas[replica.index()].dead {
            Reply::Failed(Failure::new(FailureKind::Unreachable, "connection refused"))
        } else if faulty && self.once_in(10) {
            Reply::Failed(Failure::new(FailureKind::Reset, "connection reset"))
        } else {
            let good_for = self.once_in(4).then(|| Duration::from_millis(self.draw(50)));
            let stores = &self.sides[backend].stores;
            let read = |key: &FetchKey<Key>| {
                let number = number_of(key.key);
                let value = stores.read(replica.index(), number)?;
                Some(Stored::new(value, number, good_for))
            };
            Reply::Ok(keys.iter().map(read).collect())
        };
        let delay_max = if faulty { timeout(backend) * 5 / 4 } else { Duration::from_millis(8) };
        for _ in 0..if faulty { self.draw(2) + 1 } else { 1 } {
            let delay = self.draw_time(delay_max);
            self.plan(delay, Event::Reply(backend, attempt, reply.clone()));
        }
    }

    /// Checks a request that has finished, and forgets it once its fetches have ended.
    fn finish(&mut self, id: usize) {
        let Some(asked) = self.requests.remove(&id) else { return };
        let judged = asked.judged || asked.request.finished().is_some();
        if judged && !asked.judged {
            self.judge_all(id, &asked);
        }
        if !judged || !asked.fetched.is_empty() {
            self.requests.insert(id, Asked { judged, ..asked });
        }
    }

    fn judge_all(&mut self, id: usize, asked: &Asked) {
        let Asked { queries, request, at, .. } = asked;
        let finished = request.finished().expect("it has finished");
        let mut answers = request.answers();
        let mut slowest = (Duration::ZERO, Vec::new());
        for query in queries {
            let mut counted = Duration::ZERO;
            for key in &query.keys {
                let (backend, answered, answer) = answers.next().expect("every key has its answer");
                assert_eq!((backend, answered), (query.backend, key));
                self.judge(id, backend.index(), *key, answer.status, answer.value.copied(), *at);
                assert_eq!(answer.error.is_some(), answer.status.is_failure());
                assert_eq!(answer.stale_for.is_some(), answer.status == Status::Stale);
                let Staleness { while_revalidate, if_error, when_late, .. } = query.staleness;
                let oldest = while_revalidate.max(if_error).max(when_late);
                assert!(
                    answer.stale_for.is_none_or(|age| age <= oldest),
                    "no query takes one so old: {answer:?}"
                );
                let penalty = answer.status.is_failure() && !query.demand.best_effort;
                counted =
                    counted.max(answer.latency).max(if penalty { query.timeout } else { Duration::ZERO });
            }
            if !query.keys.is_empty() && counted >= slowest.0 {
                if counted > slowest.0 {
                    slowest = (counted, Vec::new());
                }
                slowest.1.push(query.backend);
            }
        }
        assert!(answers.next().is_none());
        assert_eq!(u128::from(finished.latency_us), slowest.0.as_micros());
        assert_eq!(finished.blocking().is_none(), slowest.1.is_empty());
        assert!(finished.blocking().is_none_or(|blocking| slowest.1.contains(&blocking)));
    }

    /// Checks the answer for one key of a request.
    fn judge(&mut self, id: usize, backend: At, key: Key, status: Status, value: Option<u64>, asked: Moment) {
        self.tell(|| format!("request {id}: {key:x?} of backend {backend} ended as {status:?}: {value:x?}"));
        self.count(match status {
            Status::Hit => "key: Hit",
            Status::Miss => "key: Miss",
            Status::Stale => "key: Stale",
            Status::NotFound => "key: NotFound",
            Status::Rejected => "key: Rejected",
            Status::Timeout => "key: Timeout",
            Status::Error => "key: Error",
        });
        assert_eq!(value.is_some(), matches!(status, Status::Hit | Status::Miss | Status::Stale));
        assert!(backend != HEALTHY || !status.is_failure(), "the healthy backend failed: {status:?}");
        if status.is_failure() {
            return;
        }
        let Side { stores, shown, .. } = &self.sides[backend];
        // A value that is not in the store yet, or never will be, since its write failed later.
        let was_shown = |value| shown.get(&value).is_some_and(|ended| ended.is_none_or(|at| at >= asked.now));
        if value.is_some_and(was_shown) && stores.have_never_had(number_of(key), value) {
            return self.count("value read before the store had it");
        }
        assert!(
            stores.may_be_read(number_of(key), value, asked),
            "request {id} asked at {asked:?} for {key:x?} of backend {backend} and was answered {value:x?}, which is older than what \
             was acknowledged then, or was never written: {stores:x?}"
        );
    }

    /// Checks that no request outlives its timeouts.
    pub(crate) fn check_requests(&self) {
        for Asked { queries, request, .. } in self.requests.values().filter(|asked| !asked.judged) {
            let latest = queries.iter().map(|query| query.timeout).max().unwrap_or_default();
            assert!(request.started() + latest > self.now, "a request outlived its timeouts");
        }
        for Listened { backend, at, .. } in self.listened.values() {
            assert!(at.now + timeout(*backend) > self.now, "a listener's read outlived its timeout");
        }
    }
}
