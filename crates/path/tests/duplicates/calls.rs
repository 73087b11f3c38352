//! Calls of the dispatcher: reads at the servers, at any time between the question and the answer.

use sherwood_dispatch::{AttemptId, Failure, FailureKind, Reply};
use sherwood_path::FetchKey;

use crate::events::{Event, Key, Version, ms};
use crate::world::World;

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    attempt: AttemptId,
    server: usize,
    keys: Vec<FetchKey<Key>>,
    reply: Option<Reply<Version>>,
    is_given_up: bool,
}

impl World {
    /// Asks a server for keys. The answer arrives later, never, or twice.
    pub(crate) fn call(&mut self, attempt: AttemptId, server: usize, keys: Vec<FetchKey<Key>>) {
        let number = self.called;
        self.called += 1;
        self.tell(|| format!("call {number} asks server {server} for {keys:?}"));
        let call = Call { attempt, server, keys, reply: None, is_given_up: false };
        self.calls.insert(number, call);
        if self.servers[server].cut_off_until > self.now || (self.faulty && self.once_in(25)) {
            return self.count("call lost");
        }
        let delay = self.call_delay();
        self.plan(delay, Event::Read(number));
    }

    fn call_delay(&mut self) -> std::time::Duration {
        let longest = if self.faulty && self.once_in(10) { ms(120) } else { ms(3) };
        self.draw_time(longest)
    }

    /// A server reads the keys of a call.
    pub(crate) fn read(&mut self, number: u64) {
        let Some(call) = self.calls.get(&number) else { return };
        let server = &self.servers[call.server];
        if server.paused_until > self.now && !server.is_down(self.now) {
            return self.plan_at(server.paused_until, Event::Read(number));
        }
        let is_down = server.is_down(self.now);
        let values = call.keys.iter().map(|key| self.value_at(call.server, key.key).map(Version::new));
        let values = Reply::Ok(values.collect());
        let reply = if is_down {
            Reply::Failed(Failure::new(FailureKind::Unreachable, "connection refused"))
        } else if self.faulty && self.once_in(25) {
            Reply::Failed(Failure::new(FailureKind::Reset, "connection reset"))
        } else {
            values
        };
        self.tell(|| format!("call {number} reads {reply:?}"));
        if matches!(reply, Reply::Failed(_)) {
            self.count("call failed");
        }
        self.calls.get_mut(&number).expect("it was there").reply = Some(reply);
        let delay = self.call_delay();
        self.plan(delay, Event::Answer(number));
        if self.faulty && self.once_in(20) {
            self.count("answer repeated");
            let delay = self.call_delay();
            self.plan(delay, Event::Answer(number));
        }
    }

    /// Passes an answer on. The machine ignores one that is late or repeated.
    pub(crate) fn answer(&mut self, number: u64) {
        let Some(Call { attempt, reply: Some(reply), is_given_up, .. }) = self.calls.get(&number) else {
            return;
        };
        let (attempt, reply, is_given_up) = (*attempt, reply.clone(), *is_given_up);
        if is_given_up {
            self.count("answer after its end");
        }
        self.drive(|machine, now, cache| machine.handle_reply(now, cache, attempt, reply));
    }

    /// Notes that the answer of a call is no longer needed.
    pub(crate) fn give_up_call(&mut self, attempt: AttemptId) {
        self.count("call given up");
        let calls = self.calls.values_mut().filter(|call| call.attempt == attempt);
        calls.for_each(|call| call.is_given_up = true);
    }
}
