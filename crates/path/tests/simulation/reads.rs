//! Requests: driven as a node drives them, and judged when they have finished.

use std::time::Duration;

use sherwood_cache::{Access, Value};
use sherwood_dispatch::{Action, CallId, Failure, FailureKind, Reply};
use sherwood_model::ReplicaId;
use sherwood_path::{Query, Request, Status, fill};

use crate::events::{At, Event, Key, parts};
use crate::side::{HEALTHY, partition, read, timeout};
use crate::store::Moment;
use crate::world::{World, shown};

/// A request, what it asked and when.
pub(crate) struct Asked {
    queries: Vec<Query<Key>>,
    request: Request<Key, u64>,
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
        self.requests.insert(id, Asked { queries, request, at: self.moment() });
        for fetch in fetches {
            let entropy = self.draw(u64::MAX);
            let keys = fetch.keys.into_iter().map(|(key, slot)| (key, (id, slot)));
            let backend = fetch.backend.index();
            self.sides[backend].dispatch.handle_fetch(self.now, keys, entropy);
            self.carry_out(backend);
        }
        self.finish(id);
    }

    /// Does what a dispatcher asks for.
    pub(crate) fn carry_out(&mut self, backend: At) {
        while let Some(action) = self.sides[backend].dispatch.poll_action() {
            match action {
                Action::Call { call, replica, keys, .. } => self.serve(backend, replica, call, &keys),
                Action::Cancel { call, .. } => {
                    self.tell(|| format!("backend {backend}: {call:?} is given up"))
                }
                Action::Probe { replica, .. } => {
                    self.plan(Duration::from_millis(1), Event::Probe(backend, replica));
                }
                Action::Deliver { key, result, fill: may_fill, waiters } => {
                    if may_fill {
                        self.fill(backend, key, result.clone().expect("a value").expect("a value"));
                    }
                    for (id, slot) in waiters {
                        let Asked { request, .. } =
                            self.requests.get_mut(&id).expect("only the unfinished wait");
                        let ended = request.answers().count();
                        request.handle_result(self.now, slot, result.clone());
                        assert!(request.answers().count() > ended, "a key ended twice");
                        self.finish(id);
                    }
                }
            }
        }
    }

    fn fill(&mut self, backend: At, key: Key, value: u64) {
        let (number, tenant) = parts(key);
        if !self.sides[backend].writes.may_fill(&number) {
            self.tell(|| format!("backend {backend}: {key:x?} is not filled"));
            return self.count("fill withheld");
        }
        let ttl = self.once_in(2).then(|| Duration::from_millis(100));
        let (bytes, access) = (value.to_le_bytes(), Access::at(self.now));
        let filled = fill(&self.cache, partition(backend, tenant), &key, Value::Bytes(&bytes), ttl, &access);
        let filled = filled.expect("there is room for one");
        self.tell(|| {
            format!(
                "backend {backend}: {key:x?} is {} with {value:x}",
                if filled { "filled" } else { "there, not filled" }
            )
        });
    }

    /// A replica reads, now; what it has read arrives when it does, if it does, and maybe twice.
    fn serve(&mut self, backend: At, replica: ReplicaId, call: CallId, keys: &[Key]) {
        self.tell(|| format!("backend {backend}: {call:?} asks replica {} for {}", replica.0, shown(&keys)));
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
            Reply::Ok(keys.iter().map(|&key| self.read(backend, replica.index(), key)).collect())
        };
        let delay_max = if faulty { timeout(backend) * 5 / 4 } else { Duration::from_millis(8) };
        for _ in 0..if faulty { self.draw(2) + 1 } else { 1 } {
            let delay = self.draw_time(delay_max);
            self.plan(delay, Event::Reply(backend, call, reply.clone()));
        }
    }

    fn read(&mut self, backend: At, replica: usize, key: Key) -> Option<u64> {
        let (stores, number) = (&self.sides[backend].stores, parts(key).0);
        let content = stores.read(replica, number);
        if content != stores.read(0, number) && stores.primary {
            self.count("replica lagged");
        }
        content
    }

    /// Judges and forgets a request that has finished.
    fn finish(&mut self, id: usize) {
        let Some(Asked { request, .. }) = self.requests.get(&id) else { return };
        let Some(finished) = request.finished() else { return };
        let Asked { queries, request, at } = self.requests.remove(&id).expect("it was there");
        let mut answers = request.answers();
        let mut slowest = (Duration::ZERO, Vec::new());
        for query in &queries {
            let mut counted = Duration::ZERO;
            for key in &query.keys {
                let (backend, answered, answer) = answers.next().expect("every key has its answer");
                assert_eq!((backend, answered), (query.backend, key));
                self.judge(id, backend.index(), *key, answer.status, answer.value.copied(), at);
                assert_eq!(answer.error.is_some(), answer.status.is_failure());
                let penalty = answer.status.is_failure() && !query.best_effort;
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
            Status::NotFound => "key: NotFound",
            Status::Rejected => "key: Rejected",
            Status::Timeout => "key: Timeout",
            Status::Error => "key: Error",
        });
        assert_eq!(value.is_some(), matches!(status, Status::Hit | Status::Miss));
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
        for Asked { queries, request, .. } in self.requests.values() {
            let latest = queries.iter().map(|query| query.timeout).max().unwrap_or_default();
            assert!(request.started() + latest > self.now, "a request outlived its time-outs");
        }
    }
}
