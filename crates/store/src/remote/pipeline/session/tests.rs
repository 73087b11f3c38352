//! Tests of sessions, with the protocol of the pool's tests.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::tests::{Fixture, Letter, letters, one_connection, start, write};
use super::*;
use crate::remote::RemoteOptions;

/// Opens a session, and the server's end of its connection.
async fn opened(options: RemoteOptions) -> (Fixture, Session<Letter>, TcpStream) {
    let fixture = Fixture::new(options).await;
    let (session, stream) = tokio::join!(fixture.pool.session(), fixture.accept());
    (fixture, session.unwrap(), stream)
}

fn label(answer: Answer<Letter>) -> String {
    match answer {
        Answer::Done(letter) => char::from(letter).to_string(),
        Answer::Refused(cause) => cause.label().to_owned(),
        Answer::Ended => "ended".to_owned(),
    }
}

#[tokio::test]
async fn operations_of_a_session_are_sent_in_order_without_waiting_for_answers() {
    let (_fixture, session, mut stream) = opened(one_connection()).await;
    let mut sent = Vec::new();
    for request in *b"abc" {
        sent.push(session.send(write(request)).await);
    }
    assert_eq!(letters(&mut stream, 3).await, "abc");
    stream.write_all(b"A!C").await.unwrap();
    let mut answers = Vec::new();
    for one in sent {
        answers.push(label(one.answer().await));
    }
    assert_eq!(answers, ["A", "server", "C"]);
}

#[tokio::test]
async fn session_that_ends_tells_answered_operations_from_others_and_is_not_reopened() {
    let (fixture, mut session, mut stream) = opened(one_connection()).await;
    let (first, second) = (session.send(write(b'a')).await, session.send(write(b'b')).await);
    assert_eq!(letters(&mut stream, 2).await, "ab");
    stream.write_all(b"A").await.unwrap();
    drop(stream);
    assert_eq!((label(first.answer().await), label(second.answer().await)), ("A".into(), "ended".into()));
    assert_eq!(session.ended().await.label(), "reset");
    assert_eq!(label(session.send(write(b'c')).await.answer().await), "ended");
    assert_eq!(session.call(write(b'd')).await.unwrap_err().label(), "reset");
    assert_eq!(fixture.pool.link.opened.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn session_without_an_answer_in_time_ends() {
    let options = RemoteOptions { answer_timeout_ms: 20, ..one_connection() };
    let (_fixture, mut session, mut stream) = opened(options).await;
    assert!(matches!(session.call(write(b'a')).await, Err(Cause::Unanswered { waited_ms: 20, .. })));
    assert_eq!(letters(&mut stream, 1).await, "a");
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "it is closed");
    // A late answer reaches nobody.
    let _ = stream.write_all(b"A").await;
    assert_eq!(label(session.send(write(b'b')).await.answer().await), "ended");
}

#[tokio::test]
async fn end_of_an_idle_session_is_noticed_without_a_call() {
    let (_fixture, mut session, stream) = opened(one_connection()).await;
    {
        let mut ended = Box::pin(session.ended());
        start(&mut ended).await;
    }
    drop(stream);
    assert_eq!(session.ended().await.label(), "reset");
    assert_eq!(session.ended().await.label(), "reset");
}

#[tokio::test]
async fn dropped_session_closes_its_connection_though_an_answer_is_missing() {
    let (_fixture, session, mut stream) = opened(one_connection()).await;
    drop(session.send(write(b'a')).await);
    let _unanswered = session.send(write(b'b')).await;
    assert_eq!(letters(&mut stream, 1).await, "b", "nobody waits for the answer to `a`");
    drop(session);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}
