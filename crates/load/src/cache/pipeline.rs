//! The operations in flight on one connection: the requests sent for them, and what their answers
//! lead to.
//!
//! No socket and no bytes of a protocol: requests are appended by [`Protocol`], which also parses
//! the answers.

use std::time::Duration;

use sherwood_wire::pipeline::{self, Exchange, Limits, Step};
use thiserror::Error;

use super::operations::{Operation, VALUE_BYTES_MAX, Verb};
use super::protocol::{ANSWER_BYTES_MAX, Answer, Deadline, Progress, ReplyError};
use super::tally::Tally;
use super::{Ended, Options, Protocol};

/// An operation in flight, and the part of its answers that has arrived.
struct InFlight {
    protocol: Protocol,
    operation: Operation,
    intended_ns: u64,
    stage: Stage,
    /// Number of values found so far.
    found: u32,
    /// Keys without a value, known once all answers to a get have arrived.
    missed: u32,
    /// The target's text about the first key of a list that it rejected.
    rejection: Option<String>,
}

#[derive(Clone, Copy)]
enum Stage {
    Getting,
    /// Answers for single keys still to arrive in a list; never 0.
    Listing(u32),
    Storing,
}

/// The result of a request, once all its answers have arrived.
enum CommandOutcome {
    /// A get was answered.
    LookedUp,
    /// A set was answered.
    Stored,
    /// The target refused the request; its error text.
    Refused(String),
    /// The target rejected a key, because its answer would have come too late; its error text.
    Rejected(String),
}

/// Bytes that do not answer the first request in flight: later answers cannot be told apart.
#[derive(Debug, Error)]
pub(super) enum AnswerError {
    #[error(transparent)]
    Reply(#[from] ReplyError),
    #[error("the target answered {0} out of turn")]
    OutOfTurn(String),
    #[error(
        "the target announced an answer of {0} bytes; values of at most {VALUE_BYTES_MAX} are read: ask for smaller ones"
    )]
    TooLarge(usize),
}

impl Exchange for InFlight {
    type Answer = CommandOutcome;
    type Error = AnswerError;

    fn read(&mut self, input: &[u8]) -> Result<Step<CommandOutcome>, AnswerError> {
        let (answer, consumed) = match self.protocol.parse(input)? {
            Progress::Answer(answer, consumed) => (answer, consumed),
            Progress::Incomplete(need) => return Ok(Step::Incomplete(need)),
        };
        Ok(match self.take(answer)? {
            Some(outcome) => Step::Done(consumed, outcome),
            None => Step::Used(consumed),
        })
    }
}

impl InFlight {
    /// Takes the next answer to this operation; returns the outcome if it is the last one.
    fn take(&mut self, answer: Answer<'_>) -> Result<Option<CommandOutcome>, AnswerError> {
        let keys = self.operation.keys;
        Ok(match (self.stage, answer) {
            (Stage::Getting, Answer::Found) if self.found < keys => {
                self.found += 1;
                None
            }
            (Stage::Getting, Answer::End) => Some(CommandOutcome::LookedUp),
            (Stage::Getting, Answer::List(len)) if keys > 1 && len == keys as usize => {
                self.stage = Stage::Listing(keys);
                None
            }
            (Stage::Getting, Answer::Next(hit)) if keys == 1 => {
                self.found = u32::from(hit);
                Some(CommandOutcome::LookedUp)
            }
            (Stage::Listing(left), Answer::Next(hit)) => {
                self.found += u32::from(hit);
                self.stage = Stage::Listing(left - 1);
                (left == 1).then(|| self.list_ended())
            }
            (Stage::Listing(left), answer @ Answer::Rejected { .. }) => {
                self.rejection.get_or_insert_with(|| answer.to_string());
                self.stage = Stage::Listing(left - 1);
                (left == 1).then(|| self.list_ended())
            }
            (Stage::Getting, answer @ Answer::Rejected { .. }) => {
                Some(CommandOutcome::Rejected(answer.to_string()))
            }
            (Stage::Storing, Answer::Stored) => Some(CommandOutcome::Stored),
            // In a list it would answer one of several keys, for which no cache sends other errors.
            (Stage::Getting | Stage::Storing, Answer::Refused { .. }) => {
                Some(CommandOutcome::Refused(answer.to_string()))
            }
            (_, answer) => return Err(AnswerError::OutOfTurn(answer.to_string())),
        })
    }
}

impl InFlight {
    fn list_ended(&mut self) -> CommandOutcome {
        self.rejection.take().map_or(CommandOutcome::LookedUp, CommandOutcome::Rejected)
    }
}

/// The operations in flight on one connection.
pub(super) struct Pipeline {
    protocol: Protocol,
    deadline: Option<Duration>,
    requests: pipeline::Pipeline<InFlight>,
}

/// The effects of answers: counts, sets after misses, and operations that ended.
pub(super) struct Ending<'a, 'o> {
    pub(super) now_ns: u64,
    pub(super) look_aside: bool,
    pub(super) tally: &'a mut Tally<'o>,
    pub(super) values: &'a mut Values,
    /// Operations that ended, to be reused.
    pub(super) spare: &'a mut Vec<Operation>,
}

/// The bytes of values, as many as the largest one sent so far.
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
    /// The pipeline of a connection of a run with these options.
    pub(super) fn new(options: &Options) -> Self {
        let Options { protocol, pipeline: in_flight_max, deadline, .. } = *options;
        let limits = Limits { in_flight_max, piece_bytes_max: ANSWER_BYTES_MAX };
        Self { protocol, deadline, requests: pipeline::Pipeline::new(limits) }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    pub(super) fn is_full(&self) -> bool {
        self.requests.is_full()
    }

    /// Returns the bytes of requests that are still to be sent.
    pub(super) fn unsent(&self) -> &[u8] {
        self.requests.unsent()
    }

    /// Removes the first `bytes` bytes, which have been sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.requests.sent(bytes);
    }

    /// Returns the space to receive answers into.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.requests.room()
    }

    /// Appends the operation's request to the bytes to send.
    pub(super) fn start(&mut self, operation: Operation, intended_ns: u64, values: &mut Values) {
        let protocol = self.protocol;
        let stage = match operation.verb {
            Verb::Get => Stage::Getting,
            Verb::Set => Stage::Storing,
        };
        let begun =
            InFlight { protocol, operation, intended_ns, stage, found: 0, missed: 0, rejection: None };
        self.push(begun, false, values);
    }

    /// Appends the request of an operation. `missed` is true for a set after a miss that has taken
    /// longer than the deadline.
    fn push(&mut self, in_flight: InFlight, missed: bool, values: &mut Values) {
        let within = self.deadline;
        let deadline = within.map(|within| Deadline { within, missed });
        self.requests.push(in_flight, |InFlight { protocol, operation, stage, .. }, out| match stage {
            Stage::Storing => protocol.set(out, operation, values.of(operation.value_bytes), deadline),
            Stage::Getting | Stage::Listing(_) => protocol.get(out, operation, within),
        });
    }

    /// Takes `bytes` received bytes; ends or continues the operations whose answers are complete.
    pub(super) fn received(&mut self, bytes: usize, ending: &mut Ending<'_, '_>) -> Result<(), AnswerError> {
        self.requests.received(bytes);
        while let Some((first, outcome)) = self.requests.reply().map_err(|error| self.answer_error(error))? {
            match outcome {
                CommandOutcome::LookedUp => self.looked_up(first, ending),
                CommandOutcome::Stored => {
                    ending.tally.sets += 1;
                    end(first, OperationEnd::Done, ending);
                }
                CommandOutcome::Refused(text) => {
                    ending.tally.refused(text);
                    end(first, OperationEnd::Failed, ending);
                }
                CommandOutcome::Rejected(text) => {
                    ending.tally.rejected(text);
                    end(first, OperationEnd::Rejected, ending);
                }
            }
        }
        Ok(())
    }

    fn answer_error(&self, error: pipeline::ReplyError<AnswerError>) -> AnswerError {
        match error {
            pipeline::ReplyError::Exchange(error) => error,
            pipeline::ReplyError::TooLong { bytes, .. } => AnswerError::TooLarge(bytes),
            pipeline::ReplyError::Unsolicited => match self.protocol.parse(self.requests.unread()) {
                Ok(Progress::Answer(answer, _)) => AnswerError::OutOfTurn(answer.to_string()),
                Ok(Progress::Incomplete(_)) => AnswerError::OutOfTurn(Answer::Other.to_string()),
                Err(error) => error.into(),
            },
        }
    }

    /// Counts a get whose answers have all arrived; a miss is followed by a set in the get's place
    /// in the pipeline.
    fn looked_up(&mut self, mut get: InFlight, ending: &mut Ending<'_, '_>) {
        get.missed = get.operation.keys - get.found;
        ending.tally.looked_up(get.operation.partition, get.found, get.missed);
        if get.missed > 0 && ending.look_aside && get.operation.cacheable {
            get.stage = Stage::Storing;
            let took = Duration::from_nanos(ending.now_ns.saturating_sub(get.intended_ns));
            let missed = self.deadline.is_some_and(|within| took > within);
            self.push(get, missed, ending.values);
        } else {
            end(get, OperationEnd::Done, ending);
        }
    }

    /// Ends every operation in flight as failed, because no answers will arrive.
    pub(super) fn give_up(&mut self, ending: &mut Ending<'_, '_>) {
        self.requests.abandon().for_each(|in_flight| end(in_flight, OperationEnd::Failed, ending));
    }
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperationEnd {
    Done,
    Failed,
    Rejected,
}

fn end(in_flight: InFlight, how: OperationEnd, ending: &mut Ending<'_, '_>) {
    ending.tally.ended(&Ended {
        intended: Duration::from_nanos(in_flight.intended_ns),
        latency: Duration::from_nanos(ending.now_ns.saturating_sub(in_flight.intended_ns)),
        hits: in_flight.found,
        misses: in_flight.missed,
        failed: how != OperationEnd::Done,
        rejected: how == OperationEnd::Rejected,
    });
    ending.spare.push(in_flight.operation);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ROOM: Answer<'static> = Answer::Refused { kind: "", text: b"OOM no room" };

    /// The results of operations, after the answers of a target were played.
    #[derive(Debug, PartialEq)]
    struct AnswerCounts {
        ended: Vec<(u32, u32, bool)>,
        sets: u64,
        first_error: Option<String>,
        error: Option<String>,
        in_flight: usize,
    }

    fn options(protocol: Protocol) -> Options {
        Options {
            protocol,
            address: String::new(),
            pace: crate::Pace::Closed,
            connections: 1,
            pipeline: 8,
            duration: None,
            operations_max: None,
            look_aside: false,
            deadline: None,
            tls: None,
            login: None,
            seed: 1,
        }
    }

    fn operation(verb: Verb, keys: u32) -> Operation {
        let key = vec!["k"; keys as usize].join(" ").into_bytes();
        Operation { verb, key, keys, cacheable: keys == 1, ..Operation::default() }
    }

    /// Plays `bytes` as the answers to `operations`, `piece` bytes at a time.
    fn play_bytes(
        protocol: Protocol,
        operations: Vec<Operation>,
        bytes: &[u8],
        piece: usize,
        look_aside: bool,
    ) -> AnswerCounts {
        let mut ended = Vec::new();
        let mut observe = |end: &Ended| ended.push((end.hits, end.misses, end.failed));
        let (mut tally, mut values, mut spare) =
            (Tally::new(None, &mut observe), Values::default(), Vec::new());
        let mut pipeline = Pipeline::new(&options(protocol));
        for operation in operations {
            pipeline.start(operation, 0, &mut values);
        }
        let (mut rest, mut error) = (bytes, None);
        while !rest.is_empty() && error.is_none() {
            let received = piece.min(rest.len()).min(pipeline.room().len());
            pipeline.room()[..received].copy_from_slice(&rest[..received]);
            rest = &rest[received..];
            let mut ending =
                Ending { now_ns: 1, look_aside, tally: &mut tally, values: &mut values, spare: &mut spare };
            error = pipeline.received(received, &mut ending).err().map(|error| error.to_string());
        }
        let (sets, first_error) = (tally.sets, tally.first_error.take());
        AnswerCounts { ended, sets, first_error, error, in_flight: pipeline.in_flight() }
    }

    /// Plays `answers` to `operations`, encoded in the protocol that has such answers.
    fn play(operations: Vec<Operation>, answers: &[Answer<'_>], look_aside: bool) -> AnswerCounts {
        let is_memcached = answers.iter().any(|answer| matches!(answer, Answer::Found | Answer::End));
        let protocol = if is_memcached { Protocol::Memcached } else { Protocol::Redis };
        let bytes = answers.iter().map(|answer| match *answer {
            Answer::Found => "VALUE k 0 1\r\nv\r\n".to_owned(),
            Answer::End => "END\r\n".to_owned(),
            Answer::List(len) => format!("*{len}\r\n"),
            Answer::Next(true) => "$1\r\nv\r\n".to_owned(),
            Answer::Next(false) => "$-1\r\n".to_owned(),
            Answer::Stored if is_memcached => "STORED\r\n".to_owned(),
            Answer::Stored => "+OK\r\n".to_owned(),
            Answer::Refused { text, .. } => format!("-{}\r\n", String::from_utf8_lossy(text)),
            Answer::Rejected { text } => format!("-{}\r\n", String::from_utf8_lossy(text)),
            Answer::Other => ":1\r\n".to_owned(),
        });
        let bytes: String = bytes.collect();
        play_bytes(protocol, operations, bytes.as_bytes(), bytes.len(), look_aside)
    }

    #[test]
    fn get_ends_with_its_last_answer_in_each_protocol() {
        let sequences: [&[Answer<'_>]; 2] = [
            &[Answer::Found, Answer::Found, Answer::End],
            &[Answer::List(3), Answer::Next(true), Answer::Next(false), Answer::Next(true)],
        ];
        for answers in sequences {
            let seen = play(vec![operation(Verb::Get, 3)], answers, true);
            assert_eq!((seen.ended, seen.sets, seen.error), (vec![(2, 1, false)], 0, None));
        }
    }

    #[test]
    fn rejected_key_ends_its_operation_and_nothing_else() {
        let text = b"REJECTED the answer is expected after 7 ms, too late";
        let rejected = Answer::Rejected { text };
        let said = Some(format!("`{}`", String::from_utf8_lossy(text)));
        let gets = || vec![operation(Verb::Get, 1), operation(Verb::Get, 1)];
        let seen = play(gets(), &[rejected, Answer::Next(true)], true);
        assert_eq!(
            (seen.ended, seen.first_error, seen.sets),
            (vec![(0, 0, true), (1, 0, false)], said.clone(), 0)
        );
        let list = [Answer::List(3), Answer::Next(true), rejected, rejected];
        let seen = play(vec![operation(Verb::Get, 3)], &list, true);
        assert_eq!((seen.ended, seen.first_error, seen.error), (vec![(1, 0, true)], said, None));

        let bytes = b"SERVER_ERROR rejected: the answer is expected after 7 ms, too late\r\nVA 1\r\nv\r\nEN\r\nHD\r\n";
        let gets = (0..3).map(|_| operation(Verb::Get, 1)).collect();
        let seen = play_bytes(Protocol::Memcached, gets, bytes, 1, true);
        assert_eq!((seen.ended, seen.sets), (vec![(0, 0, true), (1, 0, false), (0, 1, false)], 1));
    }

    #[test]
    fn miss_is_followed_by_a_set_in_the_place_of_its_get() {
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
    fn refused_operations_are_counted_the_first_text_is_kept_and_later_answers_are_matched() {
        let operations = vec![operation(Verb::Get, 2), operation(Verb::Set, 1), operation(Verb::Set, 1)];
        let other = Answer::Refused { kind: "", text: b"ERR another" };
        let seen = play(operations, &[NO_ROOM, other, Answer::Stored], false);
        assert_eq!(seen.ended, [(0, 0, true), (0, 0, true), (0, 0, false)]);
        assert_eq!(seen.first_error.as_deref(), Some("`OOM no room`"));
    }

    #[test]
    fn answer_to_another_request_is_an_error() {
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
            let error = seen.error.unwrap_or_default();
            let expected = format!("the target answered {words}");
            assert!(error.starts_with(&expected) && error.ends_with("out of turn"), "{answers:?}: {error:?}");
        }
    }

    #[test]
    fn results_of_operations_do_not_depend_on_how_answers_are_split() {
        for (protocol, keys, bytes, ended, error) in [
            (
                Protocol::Memcached,
                1,
                &b"VALUE k 0 2\r\nab\r\nEND\r\nSTORED\r\nSERVER_ERROR no\r\n"[..],
                vec![(1, 0, false), (0, 0, false), (0, 0, true)],
                "`SERVER_ERROR no`",
            ),
            (
                Protocol::Redis,
                2,
                b"*2\r\n$4\r\na\r\nb\r\n$-1\r\n+OK\r\n-OOM no\r\n",
                vec![(1, 1, false), (0, 0, false), (0, 0, true)],
                "`OOM no`",
            ),
        ] {
            let operations =
                || vec![operation(Verb::Get, keys), operation(Verb::Set, 1), operation(Verb::Set, 1)];
            for piece in 1..=bytes.len() {
                let seen = play_bytes(protocol, operations(), bytes, piece, false);
                let expected = AnswerCounts {
                    ended: ended.clone(),
                    sets: 1,
                    first_error: Some(error.to_owned()),
                    error: None,
                    in_flight: 0,
                };
                assert_eq!(seen, expected, "{piece} bytes at a time");
            }
        }
    }

    #[test]
    fn value_larger_than_the_receive_buffer_is_read() {
        let value = vec![b'v'; 200_000];
        let answers = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n+OK\r\n"].concat();
        for piece in [1_000, 64 << 10, answers.len()] {
            let operations = vec![operation(Verb::Get, 1), operation(Verb::Set, 1)];
            let seen = play_bytes(Protocol::Redis, operations, &answers, piece, false);
            assert_eq!((seen.ended, seen.error), (vec![(1, 0, false), (0, 0, false)], None));
        }
    }

    #[test]
    fn answer_too_large_to_hold_is_refused_when_it_is_announced() {
        let announced = |bytes: u32| {
            let line = format!("${bytes}\r\n");
            play_bytes(Protocol::Redis, vec![operation(Verb::Get, 1)], line.as_bytes(), 64, false)
        };
        assert_eq!(announced(VALUE_BYTES_MAX).error, None);
        let error = announced(2 * VALUE_BYTES_MAX).error.unwrap_or_default();
        assert!(error.contains("ask for smaller ones"), "{error}");
    }
}
