//! Writes: driven as a node drives them, with what can befall them on their way.

use std::time::Duration;

use sherwood_cache::{Access, Value};
use sherwood_model::Instant;
use sherwood_path::{Begun, Fetched, Outcome, WriteRefused};

use crate::events::{Arrival, At, Content, Event, TENANTS, Which, key, tags};
use crate::side::{HEALTHY, Running, partition, timeout};
use crate::store::value;
use crate::world::World;

impl World {
    /// A client writes.
    pub(crate) fn begin_write(&mut self, backend: At, number: u8, tenant: u8, delete: bool) {
        self.version += 1;
        let id = self.version;
        let content = (!delete).then(|| value(backend, number, id));
        let side = &mut self.sides[backend];
        let alone = side.running.values().all(|running| *running.write.key() != number);
        let Begun { write, may_start } = match side.writes.begin(self.now, number) {
            Ok(begun) => begun,
            Err(refused) => {
                let may_land = side.gave_up && matches!(refused, WriteRefused::NoTurn(_));
                assert!(backend != HEALTHY || may_land, "the healthy backend refused a write: {refused}");
                self.tell(|| format!("write {id} to backend {backend} is refused: {refused}"));
                return self.count(match refused {
                    WriteRefused::Full { .. } => "write refused",
                    WriteRefused::KeyFull { .. } => "write refused for its key",
                    WriteRefused::NoTurn(_) => "write refused for what may land",
                });
            }
        };
        if !may_start {
            side.turns.insert(write.id(), id);
        }
        let replicas = side.stores.written_to();
        let (answers, places) = (vec![None; replicas], vec![None; replicas]);
        side.running.insert(
            id,
            Running {
                write,
                begun: self.now,
                tenant,
                content,
                answers,
                places,
                sent: may_start,
                beside: false,
            },
        );
        self.tell(|| {
            format!(
                "write {id} to backend {backend}: number {number} becomes {content:x?} for tenant {tenant}"
            )
        });
        self.plan(timeout(backend), Event::WriteDue { backend, write: id });
        if !may_start {
            self.plan(timeout(backend) / 2, Event::TurnDue { backend, write: id });
        }
        match (alone, may_start) {
            (true, true) => {}
            (true, false) => self.count("write waited for what may land"),
            (false, true) => self.count("write beside another"),
            (false, false) => self.count("write waited for its turn"),
        }
        if may_start {
            self.send_write(backend, id);
        }
    }

    pub(crate) fn send_write(&mut self, backend: At, id: u64) {
        let running = self.sides[backend].running.get_mut(&id).expect("it is under way");
        running.sent = true;
        let (number, content, replicas) = (*running.write.key(), running.content, running.answers.len());
        for replica in 0..replicas {
            self.send_write_to(backend, id, replica, number, content);
        }
    }

    /// What becomes of a write on its way to one replica.
    fn send_write_to(&mut self, backend: At, write: u64, replica: usize, number: u8, content: Content) {
        let (patience, soon) = (timeout(backend), Duration::from_millis(5));
        let answer = |outcome| Event::Written { backend, write, replica, outcome };
        let land = |answer_after| Arrival::Land { backend, write, replica, number, content, answer_after };
        let fails = self.fails(backend);
        let (on_its_way, back) = (self.draw_time(soon), self.draw(5));
        if self.sides[backend].stores.replicas[replica].dead {
            return self.plan(on_its_way, answer(Outcome::NotDone));
        }
        // The longest that the node takes into account: until its time is over, then as long again.
        let longest = self.sides[backend].running[&write].begun + 2 * patience;
        match if fails { self.draw(10) } else { 9 } {
            // Lost on its way, or refused.
            0 => {}
            1 => self.plan(on_its_way, answer(Outcome::NotDone)),
            // The answer is lost.
            2 => self.plan_arrival(self.now + on_its_way, land(None)),
            // The connection breaks, before it is done or after.
            3 => {
                self.plan(on_its_way, answer(Outcome::Unknown));
                if self.once_in(2) {
                    let lands = self.now + self.draw_time(patience);
                    self.plan_arrival(lands, land(None));
                }
            }
            // It takes its time, which may be more than anybody waits for.
            4 => {
                let lands = (self.now + self.draw_time(patience * 5 / 4)).min(longest);
                self.plan_arrival(lands, land(Some(back)));
            }
            5 if self.once_in(20) => {
                self.sides[backend].spoilt.insert(number);
                let lands = longest.max(self.now) + self.draw_time(patience);
                self.plan_arrival(lands, land(None));
            }
            _ => self.plan_arrival(self.now + on_its_way, land(Some(back))),
        }
    }

    /// Something arrives at a store, at a time that the node may have slept through.
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
                    let outcome = Outcome::Acknowledged;
                    self.plan_at(
                        at + Duration::from_millis(after),
                        Event::Written { backend, write, replica, outcome },
                    );
                }
            }
        }
    }

    /// What the primary has done at `at` is on its way to those that copy from it.
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

    /// A replica has answered.
    pub(crate) fn written(&mut self, backend: At, write: u64, replica: usize, outcome: Outcome) {
        let Some(running) = self.sides[backend].running.get_mut(&write) else { return };
        running.answers[replica] = Some(outcome);
        if running.answers.iter().all(Option::is_some) {
            self.end_write(backend, write);
        }
    }

    /// A write that still waits for its turn waits no longer.
    pub(crate) fn give_up_turn(&mut self, backend: At, id: u64) {
        if self.sides[backend].running.get(&id).is_some_and(|running| !running.sent) {
            self.end_write(backend, id);
        }
    }

    /// A write ends, by its answers or by its time, if it has not ended already.
    pub(crate) fn end_write(&mut self, backend: At, id: u64) {
        let side = &mut self.sides[backend];
        let Some(Running { write, begun: _, tenant, content, answers, places, sent, beside }) =
            side.running.remove(&id)
        else {
            return;
        };
        side.turns.remove(&write.id());
        let outcome = match sent {
            true => Outcome::of_all(answers.into_iter().map(|answer| answer.unwrap_or(Outcome::Unknown))),
            false => Outcome::NotDone,
        };
        let number = *write.key();
        let ended = side.writes.end(self.now, write, outcome);
        side.invalidate(number);
        self.tell(|| format!("write {id} to backend {backend} ends: {outcome:?}, {ended:?}"));
        let access = Access::at(self.now);
        for own in 0..TENANTS {
            let (partition, key) = (partition(backend, own), key(number, own));
            match content {
                Some(value) if ended.keep && own == tenant => {
                    let value = value.to_le_bytes();
                    let fetched =
                        Fetched { value: Value::Bytes(&value), flags: 0, good_for: None, tags: tags(number) };
                    match self.sides[backend].rules.item(&key, Some(fetched), self.now) {
                        Some(item) => {
                            self.cache.set(partition, &key, item, &access).expect("there is room for one");
                        }
                        None => {
                            self.cache.remove(partition, &key, &access);
                        }
                    }
                }
                _ => {
                    self.cache.remove(partition, &key, &access);
                }
            }
        }
        self.count(match outcome {
            Outcome::Acknowledged => "write: Acknowledged",
            Outcome::NotDone => "write: NotDone",
            Outcome::Unknown => "write: Unknown",
        });
        if ended.keep {
            self.count("write kept");
        }
        if outcome == Outcome::Acknowledged {
            let places: Option<Vec<_>> = places.into_iter().collect();
            let places = places.expect("what is acknowledged has landed");
            let moment = self.moment();
            let side = &mut self.sides[backend];
            side.stores.raise_floors(number, moment, &places);
            if !beside {
                side.doubtful.remove(&number);
            }
        } else {
            let side = &mut self.sides[backend];
            assert!(backend != HEALTHY || side.gave_up, "the healthy backend did not write");
            if outcome == Outcome::Unknown {
                side.doubtful.insert(number);
                side.unsettled.insert(number, self.now + side.write_options.landing);
            }
        }
        let next = ended.next.and_then(|next| self.sides[backend].turns.remove(&next));
        if let Some(next) = next {
            self.send_write(backend, next);
        }
    }

    /// Somebody else changes the store, at all replicas alike; likely what is being written just
    /// now, and likely they tell the node.
    pub(crate) fn change_foreign(&mut self, backend: At, number: u8) {
        let written = self.sides[backend].running.values().next().map(|running| *running.write.key());
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

    /// A listener's client changes the store and then the cache, which is its own tenant's only.
    pub(crate) fn change(&mut self, backend: At, number: u8, tenant: u8, delete: bool) {
        self.version += 1;
        let content = (!delete).then(|| value(backend, number, self.version));
        self.store_elsewhere(backend, number, content);
        self.change_cache(backend, number, tenant, content);
        let side = &mut self.sides[backend];
        let may_land = side.unsettled.get(&number).is_some_and(|until| self.now < *until);
        // What it has put into the cache may be overtaken at the store by what lands after it.
        if delete || !may_land {
            side.foreign.remove(&(number, tenant));
        }
        self.count("listener changed the cache");
    }

    /// Somebody stores a content past the node: at all replicas at once, or at the one that the
    /// others copy from.
    fn store_elsewhere(&mut self, backend: At, number: u8, content: Content) {
        let side = &mut self.sides[backend];
        let replicas = side.stores.written_to();
        for replica in 0..replicas {
            side.stores.store(replica, number, content);
        }
        side.foreign.extend((0..TENANTS).map(|tenant| ((number, tenant), self.version)));
        // With a write on its way the replicas may get the two in different order.
        for running in side.running.values_mut().filter(|running| *running.write.key() == number) {
            running.beside = true;
            side.doubtful.insert(number);
        }
        if side.unsettled.get(&number).is_some_and(|until| self.now < *until) {
            side.doubtful.insert(number);
        }
        if side.stores.primary {
            self.plan_copies(self.now, backend, number, content);
        }
        self.tell(|| format!("somebody else makes number {number} of backend {backend} {content:x?}"));
    }
}
