//! Clients: each makes one read or write at a time, and most of them carry a session.

use sherwood_cache::{Access, AccessFlags, Item, ItemKind, Value};
use sherwood_dispatch::{FetchError, Waiters};
use sherwood_model::{Demand, Instant};
use sherwood_path::{
    Acknowledge, Consistency, FetchKey, Session, Write, WriteId, WriteOptions, WriteOutcome,
};

use crate::events::{Event, KEYS, PARTITION, Version, View, key, ms};
use crate::world::World;

/// A client.
#[derive(Default)]
pub(crate) struct Client {
    /// The session; none if the client carries none.
    session: Option<Session>,
    /// The writes that its reads have to reflect.
    sees: View,
    /// Number of keys that it waits for.
    waits: usize,
}

/// A read of one key in flight.
pub(crate) struct Read {
    client: usize,
    key: usize,
    /// The place of the write that it must reflect.
    least: u64,
    begun: (Instant, u64),
}

/// A write in flight.
pub(crate) struct Running {
    client: usize,
    number: u64,
    begun: Instant,
}

impl World {
    pub(crate) fn add_clients(&mut self) {
        for client in 0..6 {
            let session = (client > 0).then(Session::default);
            self.clients.push(Client { session, ..Client::default() });
            self.rest(client);
        }
    }

    /// Has a client act again after some time.
    fn rest(&mut self, client: usize) {
        let rest = self.quiet_until.since(self.now) + self.draw_time(ms(15));
        self.plan(rest, Event::Act(client));
    }

    pub(crate) fn act(&mut self, client: usize) {
        if self.now >= self.busy_until {
            return;
        }
        if self.once_in(3) {
            return self.write(client);
        }
        let first = self.draw(KEYS as u64) as usize;
        let keys = if self.once_in(3) { vec![first, (first + 1) % KEYS] } else { vec![first] };
        self.clients[client].waits = keys.len();
        let missing: Vec<_> = keys.into_iter().filter_map(|key| self.look_up(client, key)).collect();
        if missing.is_empty() {
            return;
        }
        let (session, entropy) = (self.clients[client].session.unwrap_or_default(), self.draw(u64::MAX));
        self.tell(|| format!("client {client} fetches {missing:?} in session {session}"));
        let calls = self.called;
        self.drive(|machine, now, cache| {
            let demand = Demand::default();
            machine.handle_fetch_in_session(now, cache, &demand, session, missing, entropy);
        });
        if self.called == calls && self.clients[client].waits > 0 {
            self.count("read waited for a change");
        }
    }

    /// Looks a key up in the cache, and returns what has to be fetched.
    fn look_up(&mut self, client: usize, number: usize) -> Option<(FetchKey<crate::events::Key>, u64)> {
        let id = self.asked;
        self.asked += 1;
        let access = Access { flags: AccessFlags::SEE_ABSENT, ..Access::at(self.now) };
        if self.once_in(2) {
            // Evicted.
            self.cache.remove(PARTITION, &key(number), &access);
        }
        let consistency = self.duplicates.consistency;
        let of_session = match consistency {
            Consistency::Eventual => 0,
            Consistency::ReadYourWrites | Consistency::Causal => self.clients[client].sees[number],
        };
        let of_all = match self.options.acknowledge {
            Acknowledge::All => self.history.acknowledged()[number],
            Acknowledge::First | Acknowledge::Majority => 0,
        };
        let least = of_session.max(of_all).max(self.kept[number]);
        let read = Read { client, key: number, least, begun: (self.now, self.step) };
        self.reads.insert(id, read);
        let Some(content) = self.cache.get(PARTITION, &key(number), &access, content) else {
            return Some((FetchKey { partition: PARTITION, key: key(number) }, id));
        };
        self.count(if content.is_some() { "read: hit" } else { "read: cached absence" });
        self.end_read(id, content);
        None
    }

    /// Tells clients how a fetch ended.
    pub(crate) fn deliver(&mut self, result: Result<Option<Version>, FetchError>, waiters: Waiters<u64>) {
        for id in waiters {
            let Read { client, begun, .. } = self.reads[&id];
            self.tell(|| format!("read {id} of client {client} ends with {result:?}"));
            assert!(self.now <= begun.0 + self.options.dispatch.timeout, "read {id} outlived its timeout");
            match &result {
                Ok(value) => {
                    self.count(if value.is_some() { "read: fetched" } else { "read: absent" });
                    self.end_read(id, value.map(Version::number));
                }
                Err(_) => {
                    self.count("read: failed");
                    self.reads.remove(&id);
                    self.note_end(client);
                }
            }
        }
    }

    /// Checks what a read returned, and has the session of its client include it.
    fn end_read(&mut self, id: u64, content: Option<u64>) {
        let Read { client, key, least, begun } = self.reads.remove(&id).expect("a read ended twice");
        let seen = self.history.explain(key, content, least, begun.1).unwrap_or_else(|reason| {
            panic!("read {id} of key {key} by client {client} returned {content:?}, but {reason}")
        });
        if self.history.place(seen) < self.history.place(self.history.last(key)) {
            self.count("read returned an older value than the last");
        }
        if least > 0 {
            self.count("read had to reflect something");
        }
        if let (Some(session), Some(reader)) =
            (&mut self.clients[client].session, self.machine.session_of_reader())
        {
            session.join(reader);
            join(&mut self.clients[client].sees, self.history.sees(seen));
        }
        self.note_end(client);
    }

    fn note_end(&mut self, client: usize) {
        self.clients[client].waits -= 1;
        if self.clients[client].waits == 0 {
            self.rest(client);
        }
    }

    fn write(&mut self, client: usize) {
        let (number, is_put) = (self.draw(KEYS as u64) as usize, !self.once_in(6));
        let options = WriteOptions { admit: !self.once_in(4), ..WriteOptions::default() };
        let write = self.history.begin(number, is_put, self.clients[client].sees);
        self.tell(|| format!("client {client} makes write {write} of key {number}, put: {is_put}"));
        let order =
            Write { key: key(number), change: self.change(write), partition: Some(PARTITION), options };
        let accepted = self.input(|machine, now, cache| machine.handle_write(now, cache, order));
        match accepted {
            Ok(id) => {
                let partition = self.duplicates.partition(&key(number));
                let logs = self.machine.logs().expect("it has logs");
                let in_log = logs.duplicates.iter().find(|one| one.partition == partition);
                self.numbers.insert((partition, in_log.expect("a duplicate").last), write);
                self.writes.insert(id, Running { client, number: write, begun: self.now });
            }
            Err(reason) => {
                self.tell(|| format!("refused: {reason}"));
                self.count("write refused");
                self.history.end(write, WriteOutcome::NotDone, self.step);
                self.rest(client);
            }
        }
        self.carry_out_all();
    }

    /// Takes in the end of a write.
    pub(crate) fn end_write(&mut self, id: WriteId, outcome: WriteOutcome, session: Option<Session>) {
        let Running { client, number, begun } = self.writes.remove(&id).expect("a write ended twice");
        self.tell(|| format!("write {number} of client {client} ends as {outcome:?}: {session:?}"));
        assert!(self.now <= begun + self.options.dispatch.timeout, "write {number} outlived its timeout");
        assert_eq!(session.is_some(), outcome == WriteOutcome::Acknowledged);
        self.count(match outcome {
            WriteOutcome::Acknowledged => "write: Acknowledged",
            WriteOutcome::NotDone => "write: NotDone",
            WriteOutcome::Unknown => "write: Unknown",
        });
        self.history.end(number, outcome, self.step);
        if let (Some(own), Some(made)) = (&mut self.clients[client].session, session) {
            own.join(made);
            join(&mut self.clients[client].sees, self.history.sees(number));
        }
        self.rest(client);
    }

    /// Ends all that clients wait for, since the process has ended. Their sessions ask the next one
    /// for nothing.
    pub(crate) fn abandon_clients(&mut self) {
        let running = std::mem::take(&mut self.writes);
        for Running { number, .. } in running.values() {
            self.history.end(*number, WriteOutcome::Unknown, self.step);
        }
        self.reads.clear();
        self.events.retain(|_, event| !matches!(event, Event::Act(_)));
        for client in 0..self.clients.len() {
            (self.clients[client].sees, self.clients[client].waits) = ([0; KEYS], 0);
            self.rest(client);
        }
    }
}

/// Adds to `view` what `more` sees.
fn join(view: &mut View, more: View) {
    view.iter_mut().zip(more).for_each(|(one, other)| *one = (*one).max(other));
}

/// The write that a cached item is of, none for a cached absence.
pub(crate) fn content(item: Item<'_>) -> Option<u64> {
    match item.value {
        _ if item.kind == ItemKind::Absent => None,
        Value::Bytes(bytes) => Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes"))),
        Value::Declared(_) => panic!("nothing is declared here"),
    }
}
