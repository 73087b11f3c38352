//! Requests: driven as a node drives them, and judged when they have finished.

use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, Item, Kind, Value};
use sherwood_dispatch::{Action, AttemptId, Failure, FailureKind, FetchError, Reply};
use sherwood_model::{Demand, Instant, ReplicaId};
use sherwood_path::{Fetched, Query, QueryFetch, Request, Slot, Staleness, Status};

use crate::events::{At, Content, Event, Key, key, parts, tags};
use crate::side::{HEALTHY, Side, partition, read, timeout};
use crate::store::Moment;
use crate::world::{World, shown};

/// A request, what it asked and when.
pub(crate) struct Asked {
    queries: Vec<Query<Key>>,
    request: Request<Key, u64>,
    at: Moment,
    /// What is fetched for it and has not ended.
    fetched: Vec<Slot>,
    judged: bool,
}

impl Asked {
    /// When it wants to be woken, if it has not had all of its answers.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.request.next_timeout()
    }
}

/// Who waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A request, for one of its keys.
    Request(usize, Slot),
    /// A read of a listener's client.
    Listener(usize),
}

/// What a listener's client asked for and when.
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
        let fetched = fetches.iter().flat_map(|fetch| &fetch.keys).map(|(_, slot)| *slot).collect();
        self.requests.insert(id, Asked { queries, request, at: self.moment(), fetched, judged: false });
        for fetch in fetches {
            self.fetch(id, fetch);
        }
        self.finish(id);
    }

    /// Has what a request wants fetched, but for what is to be made fresh again later.
    fn fetch(&mut self, id: usize, QueryFetch { backend, keys, demand, awaited, .. }: QueryFetch<Key>) {
        let (backend, now, entropy) = (backend.index(), self.now, self.draw(u64::MAX));
        let side = &mut self.sides[backend];
        let mut begins = |key: &Key| !side.dispatch.is_joinable(key) && side.refreshes.may_begin(now, key);
        let (keys, put_off): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(key, _)| awaited || begins(key));
        if !put_off.is_empty() {
            let asked = self.requests.get_mut(&id).expect("what is put off is still to be fetched");
            asked.fetched.retain(|slot| put_off.iter().all(|(_, off)| off != slot));
            self.count("refresh put off");
        }
        let keys = keys.into_iter().map(|(key, slot)| (key, Waiter::Request(id, slot)));
        self.have_fetched(backend, &demand, keys, entropy);
    }

    /// Has keys fetched, from the replica that is written to where others may be behind.
    fn have_fetched(
        &mut self,
        backend: At,
        demand: &Demand,
        keys: impl Iterator<Item = (Key, Waiter)>,
        entropy: u64,
    ) {
        let Side { dispatch, writes, stores, .. } = &mut self.sides[backend];
        let believed = |key: &Key| !stores.primary || writes.may_fill(&parts(*key).0);
        let (any, first): (Vec<_>, Vec<_>) = keys.partition(|(key, _)| believed(key));
        let lags = first.iter().any(|(key, _)| !stores.agree(parts(*key).0));
        dispatch.handle_fetch(self.now, demand, any, entropy);
        dispatch.handle_fetch_from(self.now, ReplicaId(0), demand, first, entropy);
        if lags {
            self.count("replica that lags is spared");
        }
        self.carry_out(backend);
    }

    /// Does what a dispatcher asks for.
    pub(crate) fn carry_out(&mut self, backend: At) {
        while let Some(action) = self.sides[backend].dispatch.poll_action() {
            match action {
                Action::Call { attempt, replica, keys, .. } => self.serve(backend, replica, attempt, &keys),
                Action::Cancel { attempt, .. } => {
                    self.tell(|| format!("backend {backend}: {attempt:?} is given up"))
                }
                Action::Probe { replica, .. } => {
                    self.plan(Duration::from_millis(1), Event::Probe(backend, replica));
                }
                Action::Deliver { key, result, fill: may_fill, waiters } => {
                    if may_fill {
                        self.fill(
                            backend,
                            key,
                            *result.as_ref().expect("only what the backend said may be kept"),
                        );
                    }
                    self.sides[backend].refreshes.note(self.now, &key, result.is_err());
                    for waiter in waiters {
                        let (id, slot) = match waiter {
                            Waiter::Request(id, slot) => (id, slot),
                            Waiter::Listener(id) => {
                                self.hear(id, result.clone());
                                continue;
                            }
                        };
                        let asked = self.requests.get_mut(&id).expect("nothing is fetched for nobody");
                        let place = asked.fetched.iter().position(|fetched| *fetched == slot);
                        asked.fetched.swap_remove(place.expect("a fetch ended twice"));
                        asked.request.handle_result(self.now, slot, result.clone());
                        self.finish(id);
                    }
                }
            }
        }
    }

    /// A listener's client reads: what is fresh and there, as one that reads through serves it, or
    /// what the backend says.
    pub(crate) fn listen(&mut self, backend: At, number: u8, tenant: u8) {
        let (key, of) = (key(number, tenant), partition(backend, tenant));
        let (id, access) = (self.arrived, Access::at(self.now));
        self.arrived += 1;
        self.tell(|| format!("listener {id}: {key:x?} of backend {backend}"));
        let listened = Listened { backend, key, at: self.moment() };
        let fresh = self.cache.get(of, &key, &access, |item| {
            assert!(item.kind != Kind::Absent && item.stale_since(access.now).is_none(), "it sees neither");
            read(item)
        });
        if let Some(value) = fresh {
            return self.judge(id, backend, key, Status::Hit, Some(value), listened.at);
        }
        let sees_absent = Access { flags: AccessFlags::SEE_ABSENT, ..access };
        if self.cache.peek(of, &key, &sees_absent, |item| item.kind) == Some(Kind::Absent) {
            self.count("listener asked though absence was kept");
        }
        self.listened.insert(id, listened);
        let entropy = self.draw(u64::MAX);
        self.have_fetched(backend, &Demand::default(), [(key, Waiter::Listener(id))].into_iter(), entropy);
    }

    /// What was fetched for a listener's client has come, or will not.
    fn hear(&mut self, id: usize, result: Result<Content, FetchError>) {
        let Listened { backend, key, at } = self.listened.remove(&id).expect("a read ended twice");
        let (status, value) = match result {
            Ok(Some(value)) => (Status::Miss, Some(value)),
            Ok(None) => (Status::NotFound, None),
            Err(_) => (Status::Error, None),
        };
        self.judge(id, backend, key, status, value, at);
    }

    fn fill(&mut self, backend: At, key: Key, content: Content) {
        let (number, tenant) = parts(key);
        if !self.sides[backend].writes.may_fill(&number) {
            self.tell(|| format!("backend {backend}: {key:x?} is not filled"));
            return self.count("fill withheld");
        }
        let good_for = self.once_in(4).then(|| Duration::from_millis(self.draw(50)));
        let bytes = content.unwrap_or_default().to_le_bytes();
        let fetched = Fetched { value: Value::Bytes(&bytes), flags: 0, good_for, tags: tags(number) };
        let (fetched, access) = (content.map(|_| fetched), Access::at(self.now));
        let rules = &self.sides[backend].rules;
        let filled = rules.fill(&self.cache, partition(backend, tenant), &key, fetched, &access);
        let filled = filled.expect("there is room for one");
        self.tell(|| {
            let what = if filled { "filled" } else { "not filled, by the rules or for what is there," };
            format!("backend {backend}: {key:x?} is {what} with {content:x?}")
        });
        self.assert_nothing_older(backend, key, content);
        if filled && content.is_none() {
            self.count("absence kept");
        }
    }

    /// What a backend has just said of a key, kept or not, leaves no stale value of it but that.
    fn assert_nothing_older(&self, backend: At, key: Key, said: Content) {
        let access = Access { flags: AccessFlags::SEE_STALE, ..Access::at(self.now) };
        let is_other = |item: Item<'_>| item.stale_since(self.now).is_some() && Some(read(item)) != said;
        let older = self.cache.peek(partition(backend, parts(key).1), &key, &access, is_other);
        assert_ne!(
            older,
            Some(true),
            "backend {backend} has said {said:x?} of {key:x?}, and an older value may be served"
        );
    }

    /// Wakes the requests that want to be.
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

    /// A replica reads, now; what it has read arrives when it does, if it does, and maybe twice.
    fn serve(&mut self, backend: At, replica: ReplicaId, attempt: AttemptId, keys: &[Key]) {
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
            let stores = &self.sides[backend].stores;
            Reply::Ok(keys.iter().map(|&key| stores.read(replica.index(), parts(key).0)).collect())
        };
        let delay_max = if faulty { timeout(backend) * 5 / 4 } else { Duration::from_millis(8) };
        for _ in 0..if faulty { self.draw(2) + 1 } else { 1 } {
            let delay = self.draw_time(delay_max);
            self.plan(delay, Event::Reply(backend, attempt, reply.clone()));
        }
    }

    /// Judges a request that has finished, and forgets it when nothing is fetched for it any more.
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
                    "nobody takes one so old: {answer:?}"
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
        assert_eq!(finished.blocking.is_none(), slowest.1.is_empty());
        assert!(finished.blocking.is_none_or(|blocking| slowest.1.contains(&blocking)));
    }

    /// Judges how one key ended.
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
        let stores = &self.sides[backend].stores;
        assert!(
            stores.may_be_read(parts(key).0, value, asked),
            "request {id} asked at {asked:?} for {key:x?} of backend {backend} and was answered {value:x?}, which is older than what \
             was acknowledged then, or was never written: {stores:x?}"
        );
    }

    /// No request outlives its time-outs.
    pub(crate) fn check_requests(&self) {
        for Asked { queries, request, .. } in self.requests.values().filter(|asked| !asked.judged) {
            let latest = queries.iter().map(|query| query.timeout).max().unwrap_or_default();
            assert!(request.started() + latest > self.now, "a request outlived its time-outs");
        }
        for Listened { backend, at, .. } in self.listened.values() {
            assert!(at.now + timeout(*backend) > self.now, "a listener's read outlived its time-out");
        }
    }
}
