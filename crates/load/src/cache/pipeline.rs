//! Operations under way on one connection: what is sent for them, and what answers lead to.
//!
//! No socket and no bytes of a protocol: commands are appended by [`Protocol`], answers come in
//! parsed.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use super::operations::{Operation, Verb};
use super::protocol::Answer;
use super::tally::Tally;
use super::{Ended, Protocol};

pub(super) struct Pipeline {
    protocol: Protocol,
    /// Bytes to send; the first `sent` of them are gone. Bounded by the operations under way.
    out: Vec<u8>,
    sent: usize,
    /// In the order of their answers.
    in_flight: VecDeque<InFlight>,
}

struct InFlight {
    operation: Operation,
    intended_ns: u64,
    stage: Stage,
    /// Values that have come.
    found: u32,
    /// Keys that had none, known once all answers to a get have come.
    missed: u32,
}

#[derive(Clone, Copy)]
enum Stage {
    Getting,
    /// So many answers of a list are to come; never 0.
    Listing(u32),
    Storing,
}

/// An answer that does not belong to what was asked: nothing that follows can be told apart any
/// more.
#[derive(Debug, Error)]
#[error("the target answered {0} out of turn")]
pub(super) struct OutOfTurn(String);

/// What answers lead to; borrowed for the time of one reading.
pub(super) struct Ending<'a, 'o> {
    pub(super) now_ns: u64,
    pub(super) look_aside: bool,
    pub(super) tally: &'a mut Tally<'o>,
    pub(super) values: &'a mut Values,
    /// Takes back the operations that ended.
    pub(super) spare: &'a mut Vec<Operation>,
}

/// The bytes that values are made of, as many as the largest one sent so far.
#[derive(Default)]
pub(super) struct Values(Vec<u8>);

impl Values {
    fn of(&mut self, bytes: u32) -> &[u8] {
        let bytes = bytes as usize;
        if self.0.len() < bytes {
            self.0.resize(bytes, b'v');
        }
        &self.0[..bytes]
    }
}

impl Pipeline {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self { protocol, out: Vec::new(), sent: 0, in_flight: VecDeque::new() }
    }

    pub(super) fn under_way(&self) -> usize {
        self.in_flight.len()
    }

    /// What is still to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// So many bytes of it were sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Appends the operation's command.
    pub(super) fn start(&mut self, operation: Operation, intended_ns: u64, values: &mut Values) {
        let stage = match operation.verb {
            Verb::Get => {
                self.protocol.get(&mut self.out, &operation);
                Stage::Getting
            }
            Verb::Set => {
                self.append_set(&operation, values);
                Stage::Storing
            }
        };
        self.in_flight.push_back(InFlight { operation, intended_ns, stage, found: 0, missed: 0 });
    }

    fn append_set(&mut self, operation: &Operation, values: &mut Values) {
        self.protocol.set(&mut self.out, operation, values.of(operation.value_bytes));
    }

    /// Ends the first operation or carries it on.
    pub(super) fn handle(
        &mut self,
        answer: Answer<'_>,
        ending: &mut Ending<'_, '_>,
    ) -> Result<(), OutOfTurn> {
        let Some(first) = self.in_flight.front_mut() else { return Err(OutOfTurn(answer.to_string())) };
        let keys = first.operation.keys;
        match (first.stage, answer) {
            (Stage::Getting, Answer::Found) if first.found < keys => first.found += 1,
            (Stage::Getting, Answer::End) => self.looked_up(ending),
            (Stage::Getting, Answer::List(len)) if keys > 1 && len == keys as usize => {
                first.stage = Stage::Listing(keys);
            }
            (Stage::Getting, Answer::Next(hit)) if keys == 1 => {
                first.found = u32::from(hit);
                self.looked_up(ending);
            }
            (Stage::Listing(left), Answer::Next(hit)) => {
                first.found += u32::from(hit);
                match left {
                    1 => self.looked_up(ending),
                    _ => first.stage = Stage::Listing(left - 1),
                }
            }
            (Stage::Storing, Answer::Stored) => {
                ending.tally.sets += 1;
                self.end_first(true, ending);
            }
            // In a list it would answer one of several keys: no cache sends that.
            (Stage::Getting | Stage::Storing, Answer::Refused { .. }) => {
                ending.tally.refused(&answer);
                self.end_first(false, ending);
            }
            (_, answer) => return Err(OutOfTurn(answer.to_string())),
        }
        Ok(())
    }

    /// The first operation is a get, and all its answers have come.
    fn looked_up(&mut self, ending: &mut Ending<'_, '_>) {
        let Some(first) = self.in_flight.front_mut() else { return };
        first.missed = first.operation.keys - first.found;
        ending.tally.looked_up(first.operation.partition, first.found, first.missed);
        if first.missed > 0 && ending.look_aside && first.operation.cacheable {
            self.fill(ending);
        } else {
            self.end_first(true, ending);
        }
    }

    /// Sends the value of the first operation, a get that missed; its answer comes after those
    /// already asked for.
    fn fill(&mut self, ending: &mut Ending<'_, '_>) {
        let Some(mut first) = self.in_flight.pop_front() else { return };
        first.stage = Stage::Storing;
        self.append_set(&first.operation, ending.values);
        self.in_flight.push_back(first);
    }

    fn end_first(&mut self, ok: bool, ending: &mut Ending<'_, '_>) {
        let Some(first) = self.in_flight.pop_front() else { return };
        ending.tally.ended(&Ended {
            intended: Duration::from_nanos(first.intended_ns),
            latency: Duration::from_nanos(ending.now_ns.saturating_sub(first.intended_ns)),
            hits: first.found,
            misses: first.missed,
            failed: !ok,
        });
        ending.spare.push(first.operation);
    }

    /// Ends everything under way as failed.
    pub(super) fn give_up(&mut self, ending: &mut Ending<'_, '_>) {
        while !self.in_flight.is_empty() {
            self.end_first(false, ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ROOM: Answer<'static> = Answer::Refused { kind: "", text: b"OOM no room" };

    /// What became of operations whose target gave these answers.
    #[derive(Debug, PartialEq)]
    struct Seen {
        ended: Vec<(u32, u32, bool)>,
        sets: u64,
        first_error: Option<String>,
        out_of_turn: Option<String>,
        under_way: usize,
    }

    fn operation(verb: Verb, keys: u32) -> Operation {
        let key = vec!["k"; keys as usize].join(" ").into_bytes();
        Operation { verb, key, keys, cacheable: keys == 1, ..Operation::default() }
    }

    fn play(operations: Vec<Operation>, answers: &[Answer<'_>], look_aside: bool) -> Seen {
        let mut ended = Vec::new();
        let mut observe = |end: &Ended| ended.push((end.hits, end.misses, end.failed));
        let (mut tally, mut values, mut spare) = (Tally::new(&mut observe), Values::default(), Vec::new());
        let mut pipeline = Pipeline::new(Protocol::Redis);
        for operation in operations {
            pipeline.start(operation, 0, &mut values);
        }
        let mut ending =
            Ending { now_ns: 1, look_aside, tally: &mut tally, values: &mut values, spare: &mut spare };
        let out_of_turn =
            answers.iter().find_map(|&answer| pipeline.handle(answer, &mut ending).err()).map(|one| one.0);
        let (sets, first_error) = (tally.sets, tally.first_error.take());
        Seen { ended, sets, first_error, out_of_turn, under_way: pipeline.under_way() }
    }

    #[test]
    fn a_get_ends_with_its_values_however_the_protocol_counts_them() {
        let sequences: [&[Answer<'_>]; 2] = [
            &[Answer::Found, Answer::Found, Answer::End],
            &[Answer::List(3), Answer::Next(true), Answer::Next(false), Answer::Next(true)],
        ];
        for answers in sequences {
            let seen = play(vec![operation(Verb::Get, 3)], answers, true);
            assert_eq!((seen.ended, seen.sets, seen.out_of_turn), (vec![(2, 1, false)], 0, None));
        }
    }

    #[test]
    fn a_miss_is_filled_in_the_place_of_its_get() {
        let gets = || vec![operation(Verb::Get, 1), operation(Verb::Get, 1)];
        for missed in [Answer::Next(false), Answer::End] {
            let found: &[Answer<'_>] =
                if missed == Answer::End { &[Answer::Found, Answer::End] } else { &[Answer::Next(true)] };
            let answers = [&[missed], found, &[Answer::Stored]].concat();
            let seen = play(gets(), &answers, true);
            assert_eq!((seen.ended, seen.sets), (vec![(1, 0, false), (0, 1, false)], 1));
        }
    }

    #[test]
    fn errors_are_counted_the_first_is_kept_and_what_follows_is_in_step() {
        let operations = vec![operation(Verb::Get, 2), operation(Verb::Set, 1), operation(Verb::Set, 1)];
        let other = Answer::Refused { kind: "", text: b"ERR another" };
        let seen = play(operations, &[NO_ROOM, other, Answer::Stored], false);
        assert_eq!(seen.ended, [(0, 0, true), (0, 0, true), (0, 0, false)]);
        assert_eq!(seen.first_error.as_deref(), Some("`OOM no room`"));
    }

    #[test]
    fn an_answer_to_something_else_is_refused() {
        let cases: [(Operation, &[Answer<'_>], &str); 8] = [
            (operation(Verb::Get, 2), &[Answer::Next(true)], "a value"),
            (operation(Verb::Get, 2), &[Answer::List(3)], "a list of 3"),
            (operation(Verb::Get, 1), &[Answer::List(1)], "a list of 1"),
            (operation(Verb::Get, 2), &[Answer::List(2), NO_ROOM], "`OOM no room`"),
            (operation(Verb::Get, 1), &[Answer::Found, Answer::Found], "a value"),
            (operation(Verb::Get, 1), &[Answer::Stored], "that a value was set"),
            (operation(Verb::Set, 1), &[Answer::Next(false)], "no value"),
            (operation(Verb::Set, 1), &[Answer::Stored, Answer::Other], "what no get or set"),
        ];
        for (asked, answers, words) in cases {
            let seen = play(vec![asked], answers, false);
            let said = seen.out_of_turn.unwrap_or_default();
            assert!(said.starts_with(words), "{answers:?}: {said:?}");
        }
    }
}
