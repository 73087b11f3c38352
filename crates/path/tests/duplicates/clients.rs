//! Clients: each makes one write at a time, and most of them carry a session.

use sherwood_model::Instant;
use sherwood_path::{Session, Write, WriteId, WriteOptions, WriteOutcome};

use crate::events::{BUSY, Event, KEYS, PARTITION, View, key, ms};
use crate::world::World;

/// A client.
#[derive(Default)]
pub(crate) struct Client {
    /// The session; none if the client carries none.
    session: Option<Session>,
    /// What the session has seen.
    sees: View,
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
        let rest = self.draw_time(ms(15));
        self.plan(rest, Event::Act(client));
    }

    pub(crate) fn act(&mut self, client: usize) {
        if self.now >= self.begun + BUSY {
            return;
        }
        self.write(client);
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
}

/// Adds to `view` what `more` sees.
fn join(view: &mut View, more: View) {
    view.iter_mut().zip(more).for_each(|(one, other)| *one = (*one).max(other));
}
