//! Writes, driven as a node drives them, with the faults that can occur on their way.

use std::collections::BTreeSet;
use std::time::Duration;

use sherwood_cache::{Access, AccessFlags};
use sherwood_model::{Instant, ReplicaId, TenantId};
use sherwood_path::{Change, Write, WriteId, WriteOptions, WriteOrder, WriteOutcome, WriteRefused};

use crate::events::{Arrival, At, Content, Event, Stored, TENANTS, Which, key};
use crate::side::{HEALTHY, Running, partition, read, timeout};
use crate::store::value;
use crate::traffic::demand;
use crate::world::World;

impl World {
    /// Begins a client's write.
    pub(crate) fn begin_write(&mut self, backend: At, number: u8, tenant: u8, delete: bool) {
        self.version += 1;
        let version = self.version;
        let content = (!delete).then(|| value(backend, number, version));
        let change =
            content.map_or(Change::Delete, |content| Change::Put(Stored::new(content, number, None)));
        let options = WriteOptions {
            tenant: TenantId(tenant.into()),
            cache_first: self.once_in(3),
            admit: !self.once_in(4),
        };
        let partition = Some(partition(backend, tenant));
        let write = Write { key: key(number), change, partition, options };
        let alone = self.sides[backend].running.values().all(|running| running.number != number);
        let id = match self.input(backend, |machine, now, cache| machine.handle_write(now, cache, write)) {
            Ok(id) => id,
            Err(refused) => {
                let may_land = self.sides[backend].gave_up && matches!(refused, WriteRefused::NoTurn(_));
                assert!(backend != HEALTHY || may_land, "the healthy backend refused a write: {refused}");
                self.tell(|| format!("write {version} to backend {backend} is refused: {refused}"));
                return self.count(match refused {
                    WriteRefused::Full { .. } => "write refused",
                    WriteRefused::KeyFull { .. } => "write refused for its key",
                    WriteRefused::NoTurn(_) => "write refused for what may land",
                    WriteRefused::OverRate(_) => "write refused for its tenant's rate",
                    WriteRefused::Unknown(_) => unreachable!("no other node caches the values"),
                    WriteRefused::Log(_) => unreachable!("no store has a log"),
                });
            }
        };
        let side = &mut self.sides[backend];
        let places = vec![None; side.stores.written_to()];
        let (begun, beside, answered, acknowledged) = (self.now, false, None, None);
        let running = Running { id, number, begun, options, content, places, beside, answered, acknowledged };
        side.running.insert(version, running);
        if let Some(content) = content.filter(|_| options.cache_first) {
            side.shown.insert(content, None);
        }
        if side.used(tenant).writes.waiting > 0 {
            self.count("write waited for its tenant's rate");
        }
        let side = &mut self.sides[backend];
        side.ids.insert(version, id);
        let starts = side.machine.holdings().pending_actions > 0;
        self.tell(|| {
            format!(
                "write {version} to backend {backend}: number {number} becomes {content:x?} for tenant {tenant}"
            )
        });
        match (alone, starts) {
            (true, true) => {}
            (true, false) => self.count("write waited for what may land"),
            (false, true) => self.count("write beside another"),
            (false, false) => self.count("write waited for its turn"),
        }
        self.carry_out_all(backend);
    }

    /// Sends a write whose turn has come, if the backend still hands it out.
    pub(crate) fn send_write(&mut self, backend: At, id: WriteId) {
        let now = self.now;
        let Some(order) = self.sides[backend].machine.take_write(now, id) else {
            return self.count("write not handed out again");
        };
        let WriteOrder { write, replicas, key, change: _, deadline } = order;
        let (version, _) = self.sides[backend].running(write).expect("it is in flight");
        let running = self.sides[backend].running.get_mut(&version).expect("it was found");
        let content = running.content;
        assert_eq!(running.answered.replace(BTreeSet::new()), None, "a write is handed out once");
        assert!(key[1] == running.number && deadline == running.begun + timeout(backend));
        for replica in replicas {
            self.send_write_to(backend, version, replica.index(), key[1], content);
        }
    }

    /// Draws what happens to a write on its way to one replica.
    fn send_write_to(&mut self, backend: At, write: u64, replica: usize, number: u8, content: Content) {
        let (limit, soon) = (timeout(backend), Duration::from_millis(5));
        let answer = |outcome| Event::Written { backend, write, replica, outcome };
        let land = |answer_after| Arrival::Land { backend, write, replica, number, content, answer_after };
        let fails = self.fails(backend);
        let (on_its_way, back) = (self.draw_time(soon), self.draw(5));
        if self.sides[backend].stores.replicas[replica].dead {
            return self.plan(on_its_way, answer(WriteOutcome::NotDone));
        }
        // The latest time of landing that the node allows for: its timeout, then as long again.
        let longest = self.sides[backend].running[&write].begun + 2 * limit;
        match if fails { self.draw(10) } else { 9 } {
            // Lost on its way, or refused.
            0 => {}
            1 => self.plan(on_its_way, answer(WriteOutcome::NotDone)),
            // The answer is lost.
            2 => self.plan_arrival(self.now + on_its_way, land(None)),
            // The connection breaks, before it is done or after.
            3 => {
                self.plan(on_its_way, answer(WriteOutcome::Unknown));
                if self.once_in(2) {
                    let lands = self.now + self.draw_time(limit);
                    self.plan_arrival(lands, land(None));
                }
            }
            // It is slow, and may land after the timeout.
            4 => {
                let lands = (self.now + self.draw_time(limit * 5 / 4)).min(longest);
                self.plan_arrival(lands, land(Some(back)));
            }
            5 if self.once_in(20) => {
                self.sides[backend].spoilt.insert(number);
                let lands = longest.max(self.now) + self.draw_time(limit);
                self.plan_arrival(lands, land(None));
            }
            _ => self.plan_arrival(self.now + on_its_way, land(Some(back))),
        }
    }

    /// Carries out an arrival at a store, at a time at which the node may have been suspended.
    pub(crate) fn arrive_at_store(&mut self, at: Instant, arrival: Arrival) {
        let (backend, replica) = match &arrival {
            Arrival::Land { backend, replica, .. } | Arrival::Copy { backend, replica, .. } => {
                (*backend, *replica)
            }
        };
        let primary = self.sides[backend].stores.primary;
        let side = &mut self.sides[backend];
        match arrival {
            Arrival::Copy { number, content, .. } => {
                side.stores.store(replica, number, content);
            }
            Arrival::Land { .. } if side.stores.replicas[replica].dead => {
                self.tell(|| format!("backend {backend}: a write finds replica {replica} dead"));
            }
            Arrival::Land { write, number, content, answer_after, .. } => {
                let place = side.stores.store(replica, number, content);
                let late = match side.running.get_mut(&write) {
                    Some(running) => {
                        running.places[replica] = Some(place);
                        false
                    }
                    None => true,
                };
                self.tell(|| {
                    format!(
                        "write {write} lands at replica {replica} of backend {backend}{}",
                        if late { ", after its end" } else { "" }
                    )
                });
                if late {
                    self.count("write landed after its end");
                }
                if primary {
                    self.plan_copies(at, backend, number, content);
                }
                if let Some(after) = answer_after {
                    let outcome = WriteOutcome::Acknowledged;
                    self.plan_at(
                        at + Duration::from_millis(after),
                        Event::Written { backend, write, replica, outcome },
                    );
                }
            }
        }
    }

    /// Sends a change that the primary made at `at` to the replicas that copy from it.
    fn plan_copies(&mut self, at: Instant, backend: At, number: u8, content: Content) {
        let settle = self.sides[backend].stores.settle;
        for replica in 1..self.sides[backend].stores.replicas.len() {
            let lag = self.draw_time(settle);
            let last = &mut self.sides[backend].stores.replicas[replica].last_copy;
            *last = (at + lag).max(*last);
            let arrives = *last;
            self.plan_arrival(arrives, Arrival::Copy { backend, replica, number, content });
        }
    }

    /// Reports a replica's answer to a write, which may have ended.
    pub(crate) fn written(&mut self, backend: At, version: u64, replica: usize, outcome: WriteOutcome) {
        let Some(id) = self.sides[backend].ids.get(&version).copied() else { return };
        match self.sides[backend].running.get_mut(&version) {
            Some(running) => {
                running.answered.iter_mut().for_each(|answered| {
                    answered.insert(replica);
                });
            }
            None => self.count("write answered after its end"),
        }
        let replica = ReplicaId::from_index(replica);
        self.drive(backend, |machine, now, cache| {
            machine.handle_write_reply(now, cache, id, replica, outcome);
        });
    }

    /// Checks the acknowledgement of a write that has not ended.
    pub(crate) fn acknowledge_write(&mut self, backend: At, id: WriteId) {
        let (moment, needed) = (self.moment(), self.sides[backend].needed());
        let (version, _) = self.sides[backend].running(id).expect("it has not ended");
        let side = &mut self.sides[backend];
        let running = side.running.get_mut(&version).expect("it was found");
        assert_eq!(running.acknowledged.replace(moment), None, "a write is acknowledged once");
        let made = running.places.iter().flatten().count();
        assert!((needed..running.places.len()).contains(&running.answered.as_ref().map_or(0, BTreeSet::len)));
        assert!(made >= needed, "{made} of {needed} replicas have made an acknowledged write");
        side.stores.raise_early(running.number, moment, &running.places);
        let number = running.number;
        for tenant in 0..TENANTS {
            let access = Access { flags: AccessFlags::SEE_STALE, ..Access::at(self.now) };
            let cached = self.cache.peek(partition(backend, tenant), &key(number), &access, read);
            assert_eq!(cached, None, "an acknowledged write leaves a value of before in the cache");
        }
        self.count("write acknowledged before its end");
    }

    /// Opens a connection and asks for a call over it, ends such a call, or ends a connection,
    /// which may have expired.
    pub(crate) fn connect(&mut self, backend: At) {
        if self.once_in(2)
            && let Some(lease) = self.sides[backend].leased.pop()
        {
            let is_answer = self.once_in(2);
            self.drive(backend, |machine, now, cache| machine.end_call(now, cache, lease, is_answer));
        }
        if self.once_in(2)
            && let Some(connection) = self.sides[backend].connections.pop()
        {
            self.drive(backend, |machine, now, cache| machine.disconnect(now, cache, connection));
            return self.count("connection ended");
        }
        let (lasts, entropy) = (self.draw_time(timeout(backend)), self.draw(u64::MAX));
        let demand = demand(0);
        let connected = self.drive(backend, |machine, now, cache| {
            let connection = machine.connect(now, cache, &demand, lasts, entropy);
            connection.inspect(|&connection| machine.ask(now, cache, connection, entropy))
        });
        match connected {
            Ok(connection) => self.sides[backend].connections.push(connection),
            Err(_) => self.count("connection refused"),
        }
    }

    /// Reports what did not happen, like a negligent driver: an answer that the machine has
    /// already, an answer to a write that was not sent or has ended, the answer of a replica that
    /// is not written to, a turn that has not come or is over, or a probe that was not sent.
    pub(crate) fn report_strays(&mut self, backend: At) {
        if self.once_in(2) {
            let replicas = self.sides[backend].stores.replicas.len() as u64;
            let replica = self.draw(replicas + 1) as usize;
            let is_up = self.sides[backend].stores.replicas.get(replica).is_some_and(|replica| !replica.dead);
            let replica = ReplicaId::from_index(replica);
            return self
                .drive(backend, |machine, now, cache| machine.handle_probe(now, cache, replica, is_up));
        }
        let writes = self.sides[backend].ids.len() as u64;
        if writes == 0 {
            return;
        }
        let nth = self.draw(writes.min(8)) as usize;
        let (&version, &id) = self.sides[backend].ids.iter().nth_back(nth).expect("there are so many");
        if self.once_in(4) {
            self.send_write(backend, id);
            return self.carry_out_all(backend);
        }
        let written_to = self.sides[backend].stores.written_to();
        let replica = self.draw(written_to as u64 + 1) as usize;
        let what = match self.sides[backend].running.get(&version).map(|running| &running.answered) {
            _ if replica == written_to => "answer of a replica that is not written to",
            None => "answer to a write that has ended",
            Some(None) => "answer to a write that was not sent",
            Some(Some(answered)) if answered.contains(&replica) => "answer to a write repeated",
            Some(Some(_)) => return,
        };
        self.count(what);
        let outcomes = [WriteOutcome::Acknowledged, WriteOutcome::NotDone, WriteOutcome::Unknown];
        let outcome = outcomes[self.draw(3) as usize];
        self.tell(|| format!("backend {backend}: {what}: write {version}, replica {replica}, {outcome:?}"));
        let (holdings, replica) =
            (self.sides[backend].machine.holdings().writes, ReplicaId::from_index(replica));
        self.drive(backend, |machine, now, cache| {
            machine.handle_write_reply(now, cache, id, replica, outcome);
        });
        assert_eq!(self.sides[backend].machine.holdings().writes, holdings, "{what} ended a write");
    }

    /// Checks a write that has ended.
    pub(crate) fn end_write(&mut self, backend: At, id: WriteId, outcome: WriteOutcome, sent: bool) {
        let side = &mut self.sides[backend];
        let (version, _) = side.running(id).expect("a write ends once");
        let Running { number, options, content, places, beside, acknowledged, .. } =
            side.running.remove(&version).expect("it was found");
        if let Some(moment) = acknowledged.filter(|_| outcome != WriteOutcome::Acknowledged) {
            side.stores.withdraw(number, moment);
        }
        let tenant = options.tenant.0 as u8;
        if let Some(ended) = content.and_then(|content| side.shown.get_mut(&content)) {
            *ended = Some(self.now);
        }
        assert!(sent || outcome == WriteOutcome::NotDone, "{outcome:?} of a write that was not sent");
        self.tell(|| format!("write {version} to backend {backend} ends: {outcome:?}"));
        if !sent {
            self.count("write never sent");
        }
        let kept = self.cached_after_write(backend, number, tenant);
        assert!(kept.is_none_or(|kept| Some(kept) == content), "an ended write leaves {kept:x?} cached");
        self.count(match outcome {
            WriteOutcome::Acknowledged => "write: Acknowledged",
            WriteOutcome::NotDone => "write: NotDone",
            WriteOutcome::Unknown => "write: Unknown",
        });
        if kept.is_some() {
            assert_eq!(outcome, WriteOutcome::Acknowledged);
            self.count("write kept");
        }
        if outcome == WriteOutcome::Acknowledged {
            let places: Option<Vec<_>> = places.into_iter().collect();
            let places = places.expect("an acknowledged write has landed");
            let moment = self.moment();
            let side = &mut self.sides[backend];
            side.stores.raise_floors(number, moment, &places);
            if !beside {
                side.doubtful.remove(&number);
            }
        } else {
            let side = &mut self.sides[backend];
            assert!(backend != HEALTHY || side.gave_up, "the healthy backend did not write");
            if outcome == WriteOutcome::Unknown {
                side.doubtful.insert(number);
                side.unsettled.insert(number, self.now + side.landing());
            }
        }
    }

    /// Returns the value that the writing tenant's cache has of a number after a write. The other
    /// tenants' caches have none.
    fn cached_after_write(&self, backend: At, number: u8, tenant: u8) -> Option<u64> {
        let flags = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
        let access = Access { flags, ..Access::at(self.now) };
        // The next write of the key may have begun, and the cache may show its value.
        let is_next = |value: &u64| self.sides[backend].shown.get(value).is_some_and(Option::is_none);
        let cached = |tenant| {
            let cached = self.cache.peek(partition(backend, tenant), &key(number), &access, read);
            cached.filter(|value| !is_next(value))
        };
        for other in (0..TENANTS).filter(|other| *other != tenant) {
            assert_eq!(cached(other), None, "a write leaves the key in another tenant's cache");
        }
        cached(tenant)
    }

    /// Changes the store without the node's knowledge, at all replicas alike: often a number that
    /// is being written, and often with an invalidation.
    pub(crate) fn change_foreign(&mut self, backend: At, number: u8) {
        let written = self.sides[backend].running.values().next().map(|running| running.number);
        let number = written.filter(|_| self.once_in(2)).unwrap_or(number);
        if self.once_in(2) {
            let soon = self.draw_time(Duration::from_millis(2));
            let odd = number & 1;
            let which = if self.once_in(2) { Which::Tag(odd) } else { Which::Beginning(odd) };
            self.plan(soon, Event::Invalidate { backend, which });
        }
        self.version += 1;
        let content = Some(value(backend, number, self.version));
        self.store_elsewhere(backend, number, content);
        self.count("changed behind the node's back");
    }

    /// Changes the store and then the tenant's cache, as a listener's client does.
    pub(crate) fn change(&mut self, backend: At, number: u8, tenant: u8, delete: bool) {
        self.version += 1;
        let content = (!delete).then(|| value(backend, number, self.version));
        self.store_elsewhere(backend, number, content);
        self.change_cache(backend, number, tenant, content);
        let side = &mut self.sides[backend];
        let may_land = side.unsettled.get(&number).is_some_and(|until| self.now < *until);
        // A write that lands at the store afterwards may overtake the value in the cache.
        if delete || !may_land {
            side.foreign.remove(&(number, tenant));
        }
        self.count("listener changed the cache");
    }

    /// Stores a content without the node: at all replicas at once, or at the one that the others
    /// copy from.
    fn store_elsewhere(&mut self, backend: At, number: u8, content: Content) {
        let side = &mut self.sides[backend];
        let replicas = side.stores.written_to();
        for replica in 0..replicas {
            side.stores.store(replica, number, content);
        }
        side.foreign.extend((0..TENANTS).map(|tenant| ((number, tenant), self.version)));
        // The replicas may get this and a write in flight in different orders.
        for running in side.running.values_mut().filter(|running| running.number == number) {
            running.beside = true;
            side.doubtful.insert(number);
        }
        if side.unsettled.get(&number).is_some_and(|until| self.now < *until) {
            side.doubtful.insert(number);
        }
        if side.stores.primary {
            self.plan_copies(self.now, backend, number, content);
        }
        self.tell(|| format!("another program makes number {number} of backend {backend} {content:x?}"));
    }
}
