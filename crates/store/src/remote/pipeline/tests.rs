//! Tests with a protocol of one byte: a request is a letter, and its reply the capital letter, or
//! `!` if the operation failed, or `-` if the connection is outdated. A `+` that precedes it is an
//! incomplete reply.

use std::future::poll_fn;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use sherwood_wire::pipeline::{Limits, Pipeline, ReplyError, Step};

use super::*;
use crate::remote::host::HostPort;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Letter;

impl pipeline::Exchange for Letter {
    type Answer = Result<u8, Cause>;
    type Error = String;

    fn read(&mut self, input: &[u8]) -> Result<Step<Self::Answer>, String> {
        match input {
            [] => Ok(Step::Incomplete(1)),
            [b'+', ..] => Ok(Step::Used(1)),
            [b'-', ..] => Ok(Step::Done(1, Err(Cause::Busy { detail: "moved".into() }))),
            [b'!', ..] => Ok(Step::Done(1, Err(Cause::Server { detail: "no".into() }))),
            [letter @ b'A'..=b'Z', ..] => Ok(Step::Done(1, Ok(*letter))),
            [other, ..] => Err(format!("{other}")),
        }
    }
}

impl Exchange for Letter {
    type Outcome = u8;

    const PROTOCOL: &'static str = "letters";

    fn is_outdated(cause: &Cause) -> bool {
        matches!(cause, Cause::Busy { .. })
    }
}

/// Reads `answer` as the reply to `exchange` when it arrives in pieces of `piece` bytes; returns
/// the result and the number of bytes used.
pub(crate) fn read_in_pieces<E: Exchange>(
    exchange: E,
    answer: &[u8],
    piece: usize,
) -> Result<(Result<E::Outcome, Cause>, usize), String> {
    let mut pipeline = Pipeline::new(Limits { in_flight_max: 1, piece_bytes_max: usize::MAX });
    pipeline.push(exchange, |_, _| {});
    for (i, bytes) in answer.chunks(piece).enumerate() {
        pipeline.room()[..bytes.len()].copy_from_slice(bytes);
        pipeline.received(bytes.len());
        match pipeline.reply() {
            Ok(None) => {}
            Ok(Some((_, outcome))) => {
                return Ok((outcome, i * piece + bytes.len() - pipeline.unread().len()));
            }
            Err(ReplyError::Exchange(error)) => return Err(error),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("it did not end".into())
}

fn letter(letter: u8) -> Operation<Letter> {
    Operation::new(Access::Read, Bytes::copy_from_slice(&[letter]), 1, Letter)
}

pub(super) fn write(letter: u8) -> Operation<Letter> {
    Operation::new(Access::Write, Bytes::copy_from_slice(&[letter]), 1, Letter)
}

pub(super) struct Fixture {
    server: TcpListener,
    pub(super) pool: Pool<Letter>,
}

impl Fixture {
    pub(super) async fn new(options: RemoteOptions) -> Self {
        Self::greeting(options, Vec::new).await
    }

    async fn greeting(
        options: RemoteOptions,
        greeting: impl Fn() -> Vec<Operation<Letter>> + Send + Sync + 'static,
    ) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let endpoint = Endpoint::new(HostPort::parse("address", &address, 1).unwrap(), &options).unwrap();
        Self { server, pool: Pool::new(endpoint, &options, None, Box::new(move |_| greeting())) }
    }

    pub(super) async fn accept(&self) -> TcpStream {
        self.server.accept().await.unwrap().0
    }

    /// Accepts a connection and answers a call on it, so that it counts as reused.
    async fn reused(&self) -> TcpStream {
        let server = async {
            let mut stream = self.accept().await;
            assert_eq!(letters(&mut stream, 1).await, "z");
            stream.write_all(b"Z").await.unwrap();
            stream
        };
        let (stream, answer) = tokio::join!(server, self.pool.call(write(b'z')));
        assert_eq!(answer, Ok(b'Z'));
        stream
    }
}

pub(super) fn one_connection() -> RemoteOptions {
    RemoteOptions { connections_max: 1, ..RemoteOptions::default() }
}

/// Reads requests of `count` letters from the client.
pub(super) async fn letters(stream: &mut TcpStream, count: usize) -> String {
    let mut read = vec![0; count];
    stream.read_exact(&mut read).await.unwrap();
    String::from_utf8(read).unwrap()
}

/// Polls a call once, so that it starts and waits for its answer.
pub(super) async fn start<F: Future + Unpin>(call: &mut F) {
    let pending = poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *call).poll(cx).is_pending())).await;
    assert!(pending, "nothing answers yet");
}

#[tokio::test]
async fn calls_that_share_a_pipelined_connection_receive_their_own_answers() {
    let fixture = Fixture::new(one_connection()).await;
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 3).await, "abc");
        stream.write_all(b"A!").await.unwrap();
        stream.write_all(b"C").await.unwrap();
        stream
    };
    let pool = &fixture.pool;
    let calls =
        async { tokio::join!(pool.call(letter(b'a')), pool.call(letter(b'b')), pool.call(letter(b'c'))) };
    let (_stream, (a, b, c)) = tokio::join!(server, calls);
    assert_eq!((a, c), (Ok(b'A'), Ok(b'C')));
    assert_eq!(b.unwrap_err().label(), "server");
}

#[tokio::test]
async fn answer_to_a_dropped_call_is_discarded() {
    let fixture = Fixture::new(one_connection()).await;
    let mut dropped = Box::pin(fixture.pool.call(letter(b'a')));
    start(&mut dropped).await;
    let mut stream = fixture.accept().await;
    assert_eq!(letters(&mut stream, 1).await, "a");
    drop(dropped);
    let server = async {
        assert_eq!(letters(&mut stream, 1).await, "b");
        stream.write_all(b"AB").await.unwrap();
    };
    let (answer, ()) = tokio::join!(fixture.pool.call(letter(b'b')), server);
    assert_eq!(answer, Ok(b'B'));
}

#[tokio::test]
async fn call_dropped_before_it_is_sent_is_not_sent() {
    let fixture = Fixture::new(one_connection()).await;
    let mut dropped = Box::pin(fixture.pool.call(letter(b'a')));
    start(&mut dropped).await;
    drop(dropped);
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 1).await, "b");
        stream.write_all(b"B").await.unwrap();
        stream
    };
    let (answer, _stream) = tokio::join!(fixture.pool.call(letter(b'b')), server);
    assert_eq!(answer, Ok(b'B'));
}

#[tokio::test]
async fn broken_connection_fails_sent_operations_and_is_replaced() {
    let fixture = Fixture::new(one_connection()).await;
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 2).await, "ab");
        stream.write_all(b"A").await.unwrap();
    };
    let pool = &fixture.pool;
    let calls = async { tokio::join!(pool.call(write(b'a')), pool.call(write(b'b'))) };
    let ((), (a, b)) = tokio::join!(server, calls);
    assert_eq!((a, b.unwrap_err().label()), (Ok(b'A'), "reset"));
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 1).await, "c");
        stream.write_all(b"C").await.unwrap();
        stream
    };
    let (_stream, answer) = tokio::join!(server, pool.call(letter(b'c')));
    assert_eq!(answer, Ok(b'C'));
}

#[tokio::test]
async fn unanswered_reads_of_a_reused_connection_that_ends_are_resent_on_one_new_connection() {
    let fixture = Fixture::new(RemoteOptions { connections_max: 3, ..RemoteOptions::default() }).await;
    let mut stream = fixture.reused().await;
    let server = async {
        assert_eq!(letters(&mut stream, 3).await, "abc");
        stream.write_all(b"A").await.unwrap();
        drop(stream);
        let mut stream = fixture.accept().await;
        // In the order in which the callers were told.
        let asked = letters(&mut stream, 2).await;
        stream.write_all(asked.to_ascii_uppercase().as_bytes()).await.unwrap();
        stream
    };
    let pool = &fixture.pool;
    let calls =
        async { tokio::join!(pool.call(letter(b'a')), pool.call(letter(b'b')), pool.call(letter(b'c'))) };
    let (_stream, answers) = tokio::join!(server, calls);
    assert_eq!(answers, (Ok(b'A'), Ok(b'B'), Ok(b'C')));
    assert_eq!(pool.link.opened.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn read_is_resent_on_a_connection_opened_after_the_previous_one_ended() {
    let fixture = Fixture::new(RemoteOptions { connections_max: 2, ..RemoteOptions::default() }).await;
    let mut first = fixture.reused().await;
    let long = Operation::new(Access::Read, Bytes::from_static(b"l"), PACKED_KEYS, Letter);
    let mut long = Box::pin(fixture.pool.call(long));
    start(&mut long).await;
    let mut read = Box::pin(fixture.pool.call(letter(b'a')));
    start(&mut read).await;
    let mut second = fixture.accept().await;
    assert_eq!((letters(&mut first, 1).await, letters(&mut second, 1).await), ("l".into(), "a".into()));
    second.write_all(b"A").await.unwrap();
    assert_eq!(read.await, Ok(b'A'));
    // Both are idle now, and the first ends as it is used.
    first.write_all(b"L").await.unwrap();
    assert_eq!(long.await, Ok(b'L'));
    let server = async {
        assert_eq!(letters(&mut first, 1).await, "b");
        drop(first);
        let mut third = fixture.accept().await;
        assert_eq!(letters(&mut third, 1).await, "b");
        third.write_all(b"B").await.unwrap();
        third
    };
    let (_third, answer) = tokio::join!(server, fixture.pool.call(letter(b'b')));
    assert_eq!(answer, Ok(b'B'));
    drop(second);
}

#[tokio::test]
async fn read_is_resent_at_most_once() {
    let fixture = Fixture::new(one_connection()).await;
    let mut stream = fixture.reused().await;
    let server = async {
        assert_eq!(letters(&mut stream, 1).await, "a");
        drop(stream);
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 2).await, "ab");
        stream.write_all(b"+").await.unwrap();
    };
    let calls = async { tokio::join!(fixture.pool.call(letter(b'a')), fixture.pool.call(letter(b'b'))) };
    let ((), (a, b)) = tokio::join!(server, calls);
    // The new connection had not answered before, so its end is no reason to try again either.
    assert_eq!((a.unwrap_err().label(), b.unwrap_err().label()), ("reset", "reset"));
    assert_eq!(fixture.pool.link.opened.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn writes_and_partly_answered_reads_are_not_resent() {
    for (operation, reply) in [(write(b'a'), &b""[..]), (letter(b'a'), b"+")] {
        let fixture = Fixture::new(one_connection()).await;
        let mut stream = fixture.reused().await;
        let server = async {
            assert_eq!(letters(&mut stream, 1).await, "a");
            stream.write_all(reply).await.unwrap();
            drop(stream);
        };
        let (answer, ()) = tokio::join!(fixture.pool.call(operation), server);
        assert_eq!(answer.unwrap_err().label(), "reset");
        assert_eq!(fixture.pool.link.opened.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn read_on_a_new_connection_that_ends_at_once_is_not_resent() {
    let fixture = Fixture::new(one_connection()).await;
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 1).await, "a");
    };
    let (answer, ()) = tokio::join!(fixture.pool.call(letter(b'a')), server);
    assert_eq!(answer.unwrap_err().label(), "reset");
    assert_eq!(fixture.pool.link.opened.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn write_of_which_no_byte_was_sent_moves_to_a_new_connection_if_its_own_ends() {
    let fixture = Fixture::new(one_connection()).await;
    let mut stream = fixture.reused().await;
    // More than the buffers of both sockets hold, so that the write after it waits.
    let long = Operation::new(Access::Write, vec![b'x'; 32 << 20].into(), 1, Letter);
    let (mut long, mut second) =
        (Box::pin(fixture.pool.call(long)), Box::pin(fixture.pool.call(write(b'b'))));
    start(&mut long).await;
    start(&mut second).await;
    assert_eq!(letters(&mut stream, 1).await, "x");
    drop(stream);
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 1).await, "b");
        stream.write_all(b"B").await.unwrap();
        stream
    };
    let (long, second, _stream) = tokio::join!(long, second, server);
    assert_eq!((long.unwrap_err().label(), second), ("reset", Ok(b'B')));
}

#[tokio::test]
async fn answer_to_a_request_that_is_not_sent_yet_is_a_protocol_error() {
    let fixture = Fixture::new(one_connection()).await;
    // The first request fills the connection, so that the second one waits.
    let (io, mut server) = tokio::io::duplex(2);
    let (queue, mut operations) = mpsc::channel(2);
    let (weight, mut answers) = (Arc::new(AtomicUsize::new(0)), Vec::new());
    for request in ["ab", "c"] {
        let (reply, answer) = oneshot::channel();
        let operation = Operation::new(Access::Read, Bytes::from_static(request.as_bytes()), 1, Letter);
        queue.try_send(Queued { operation, reply, _counted: Counted::new(&weight, 1) }).ok().unwrap();
        answers.push(answer);
    }
    let mut driver = connection::Driver::new(Box::new(io), &fixture.pool.link);
    let mut serve = Box::pin(driver.serve(&fixture.pool.link, &mut operations));
    start(&mut serve).await;
    server.write_all(b"AC").await.unwrap();
    assert_eq!(serve.await.label(), "protocol");
    let labels = answers.iter_mut().map(|answer| match answer.try_recv().unwrap() {
        Ok(letter) => letter.to_string(),
        Err(Failed::Cause(cause) | Failed::Ended(cause)) => cause.label().to_owned(),
        Err(Failed::Returned { .. }) => "returned".to_owned(),
    });
    assert_eq!(labels.collect::<Vec<_>>(), ["65", "protocol"]);
}

#[tokio::test]
async fn outdated_connection_is_replaced_after_its_pending_answers_at_most_once_a_second() {
    let fixture = Fixture::new(one_connection()).await;
    let mut stream = fixture.reused().await;
    for (is_replaced, opened) in [(true, 2), (false, 2)] {
        if !is_replaced {
            // The second has not passed.
            *fixture.pool.link.outdated.lock().unwrap() = Some(Instant::now() + OUTDATED_INTERVAL);
        }
        let server = async {
            assert_eq!(letters(&mut stream, 2).await, "ab");
            stream.write_all(b"-B").await.unwrap();
            if is_replaced {
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "it is closed");
                stream = fixture.accept().await;
            }
            assert_eq!(letters(&mut stream, 1).await, "c");
            stream.write_all(b"C").await.unwrap();
        };
        let calls = async {
            let first = tokio::join!(fixture.pool.call(letter(b'a')), fixture.pool.call(write(b'b')));
            (first, fixture.pool.call(letter(b'c')).await)
        };
        let ((), ((a, b), c)) = tokio::join!(server, calls);
        assert_eq!((a.unwrap_err().label(), b, c), ("busy", Ok(b'B'), Ok(b'C')));
        assert_eq!(fixture.pool.link.opened.load(Ordering::Relaxed), opened);
    }
}

#[tokio::test]
async fn idle_connection_closed_by_the_server_fails_no_call() {
    let fixture = Fixture::new(one_connection()).await;
    for asked in [b'a', b'b', b'c'] {
        let server = async {
            let mut stream = fixture.accept().await;
            assert_eq!(letters(&mut stream, 1).await.as_bytes(), [asked]);
            stream.write_all(&[asked.to_ascii_uppercase()]).await.unwrap();
        };
        let (answer, ()) = tokio::join!(fixture.pool.call(letter(asked)), server);
        assert_eq!(answer, Ok(asked.to_ascii_uppercase()));
        // The connection's task reads the end of the connection, and leaves the pool.
        while fixture.pool.connections.lock().unwrap().iter().any(|connection| !connection.queue.is_closed())
        {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn calls_of_few_keys_share_a_connection_and_calls_of_many_use_more_up_to_the_bound() {
    let fixture = Fixture::new(RemoteOptions { connections_max: 2, ..RemoteOptions::default() }).await;
    let of = |letter: u8, keys| Operation::new(Access::Read, Bytes::copy_from_slice(&[letter]), keys, Letter);
    let asked = [(b'a', 1), (b'b', PACKED_KEYS - 1), (b'c', 1), (b'd', PACKED_KEYS), (b'e', 1)];
    let mut calls: Vec<_> = asked.map(|(letter, keys)| Box::pin(fixture.pool.call(of(letter, keys)))).into();
    for call in &mut calls {
        start(call).await;
    }
    let (mut first, mut second) = (fixture.accept().await, fixture.accept().await);
    assert_eq!(fixture.pool.connections.lock().unwrap().len(), 2);
    let mut said = [letters(&mut first, 3).await, letters(&mut second, 2).await];
    said.sort();
    assert_eq!(said, ["abe", "cd"], "no connection has room for `d` and `e`, which go to the least busy");
}

#[tokio::test]
async fn small_call_does_not_share_a_connection_with_the_write_of_a_long_value() {
    let fixture = Fixture::new(RemoteOptions { connections_max: 2, ..RemoteOptions::default() }).await;
    let long = Operation::new(Access::Write, vec![b'x'; 2 * PACKED_KEYS * BYTES_PER_KEY].into(), 1, Letter);
    let (mut long, mut small) =
        (Box::pin(fixture.pool.call(long)), Box::pin(fixture.pool.call(letter(b'a'))));
    start(&mut long).await;
    start(&mut small).await;
    assert_eq!(fixture.pool.connections.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn call_over_the_bound_of_queued_calls_is_refused() {
    let fixture = Fixture::new(RemoteOptions { queued_calls_max: 1, ..one_connection() }).await;
    let mut first = Box::pin(fixture.pool.call(letter(b'a')));
    start(&mut first).await;
    assert_eq!(fixture.pool.call(letter(b'b')).await, Err(Cause::Overloaded { queued_calls_max: 1 }));
}

#[tokio::test]
async fn connection_to_a_silent_server_is_closed_after_the_timeout() {
    let fixture = Fixture::new(RemoteOptions { answer_timeout_ms: 20, ..one_connection() }).await;
    let (answer, stream) = tokio::join!(fixture.pool.call(letter(b'a')), fixture.accept());
    let address = fixture.server.local_addr().unwrap().to_string();
    // The request was sent: a write may have been executed.
    assert_eq!(answer, Err(Cause::Unanswered { address, waited_ms: 20 }));
    drop(stream);
}

#[tokio::test]
async fn login_without_an_answer_times_out_and_a_refused_login_has_its_cause() {
    let options = RemoteOptions { connect_timeout_ms: 20, ..one_connection() };
    let fixture = Fixture::greeting(options, || vec![letter(b'h')]).await;
    let (answer, _stream) = tokio::join!(fixture.pool.call(letter(b'a')), fixture.accept());
    assert!(matches!(answer, Err(Cause::Silent { .. })), "nothing was asked yet: {answer:?}");

    let fixture = Fixture::greeting(one_connection(), || vec![letter(b'h'), letter(b'i')]).await;
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 1).await, "h");
        stream.write_all(b"H").await.unwrap();
        assert_eq!(letters(&mut stream, 1).await, "i");
        stream.write_all(b"!").await.unwrap();
    };
    let (answer, ()) = tokio::join!(fixture.pool.call(letter(b'a')), server);
    assert_eq!(answer, Err(Cause::Server { detail: "no".into() }));
}

#[tokio::test]
async fn invalid_reply_ends_the_connection_and_is_quoted_in_the_error() {
    let fixture = Fixture::new(one_connection()).await;
    let server = async {
        let mut stream = fixture.accept().await;
        assert_eq!(letters(&mut stream, 1).await, "a");
        stream.write_all(b"?").await.unwrap();
    };
    let (answer, ()) = tokio::join!(fixture.pool.call(letter(b'a')), server);
    let said = answer.unwrap_err().to_string();
    assert!(said.contains("letters") && said.contains("63"), "{said}");
}

#[tokio::test]
async fn answers_are_read_while_a_long_request_is_being_written() {
    let fixture = Fixture::new(one_connection()).await;
    let long = Operation::new(Access::Write, vec![b'x'; 8 << 20].into(), 1, Letter);
    let server = async {
        let mut stream = fixture.accept().await;
        // The server answers before it has read the whole request.
        assert_eq!(letters(&mut stream, 1).await, "x");
        stream.write_all(b"A").await.unwrap();
        let mut rest = vec![0; (8 << 20) - 1];
        stream.read_exact(&mut rest).await.unwrap();
        stream
    };
    let (answer, _stream) = tokio::join!(fixture.pool.call(long), server);
    assert_eq!(answer, Ok(b'A'));
}
