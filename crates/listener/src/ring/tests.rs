//! The ring on real sockets of this system. Without io_uring the tests have nothing to test, and
//! say so.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;

use super::*;

/// A ring, unless the system has none.
fn ring(entries: u32) -> Option<Ring> {
    Ring::with_entries(entries).inspect_err(|error| eprintln!("io_uring is not tested: {error}")).ok()
}

/// Connections whose listener's side never blocks.
fn connections(count: usize) -> Vec<(OwnedFd, UnixStream)> {
    let pair = |_| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (OwnedFd::from(ours), theirs)
    };
    (0..count).map(pair).collect()
}

fn receive(
    ring: &mut Ring,
    connections: &[(OwnedFd, UnixStream)],
) -> Vec<(Option<io::Result<usize>>, Vec<u8>)> {
    let mut rooms = vec![[0; 16]; connections.len()];
    let mut round: Vec<_> = connections
        .iter()
        .zip(&mut rooms)
        .map(|((socket, _), room)| Receiving { socket, room, result: None })
        .collect();
    ring.receive(&mut round).unwrap();
    let results: Vec<_> = round.into_iter().map(|one| one.result).collect();
    let bytes =
        |result: &Option<io::Result<usize>>| result.as_ref().map_or(0, |read| *read.as_ref().unwrap_or(&0));
    results
        .into_iter()
        .zip(rooms)
        .map(|(result, room)| (bytes(&result), result, room))
        .map(|(read, result, room)| (result, room[..read].to_vec()))
        .collect()
}

#[test]
fn round_of_receives_has_the_result_of_each_plain_call() {
    let Some(mut ring) = ring(64) else { return };
    let mut connections = connections(4);
    connections[0].1.write_all(b"get a\r\n").unwrap();
    connections[1].1.write_all(&[b'x'; 20]).unwrap();
    connections[2].1.shutdown(std::net::Shutdown::Both).unwrap();
    let received = receive(&mut ring, &connections);
    let [(Some(Ok(7)), first), (Some(Ok(16)), second), (Some(Ok(0)), third), (Some(Err(nothing)), _)] =
        &received[..]
    else {
        panic!("{received:?}")
    };
    assert_eq!((&first[..], &second[..], &third[..]), (&b"get a\r\n"[..], &[b'x'; 16][..], &b""[..]));
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn round_of_sends_takes_what_fits_and_reports_closed_connections() {
    let Some(mut ring) = ring(64) else { return };
    let mut connections = connections(3);
    let large = vec![b'x'; 8 << 20];
    let closed = connections.pop().unwrap();
    drop(closed.1);
    let sockets = [&connections[0].0, &connections[1].0, &closed.0];
    let parts = vec![IoSlice::new(b"VALUE "), IoSlice::new(b"a")];
    let bytes = [Outgoing::Parts(parts), Outgoing::One(&large), Outgoing::One(b"END")];
    let mut round: Vec<_> = sockets
        .into_iter()
        .zip(bytes)
        .map(|(socket, bytes)| Sending { socket, bytes, result: None })
        .collect();
    ring.send(&mut round).unwrap();
    let results: Vec<_> = round.into_iter().map(|one| one.result).collect();
    let [Some(Ok(7)), Some(Ok(some)), Some(Err(broken))] = &results[..] else { panic!("{results:?}") };
    assert!((1..large.len()).contains(some), "{some}");
    assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    let mut answer = [0; 7];
    connections[0].1.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"VALUE a");
}

#[test]
fn round_longer_than_the_submission_queue_is_carried_out_in_parts() {
    let Some(mut ring) = ring(2) else { return };
    let mut connections = connections(7);
    for (number, (_, client)) in connections.iter_mut().enumerate() {
        client.write_all(&vec![b'0' + number as u8; number + 1]).unwrap();
    }
    for (number, (_, bytes)) in receive(&mut ring, &connections).into_iter().enumerate() {
        assert_eq!(bytes, vec![b'0' + number as u8; number + 1]);
    }
}

#[test]
fn operation_that_does_not_end_is_cancelled_and_left_to_the_plain_call() {
    let Some(mut ring) = ring(8) else { return };
    let mut connections = connections(2);
    connections[1].1.write_all(b"quit").unwrap();
    let mut rooms = [[0_u8; 16]; 2];
    // Without the flag that forbids it, a receive from a socket that may block waits for bytes.
    let [waiting, ending] = [0, 1].map(|at| {
        let (socket, room): (&OwnedFd, &mut [u8; 16]) = (&connections[at].0, &mut rooms[at]);
        rustix::io::ioctl_fionbio(socket, false).unwrap();
        opcode::Recv::new(Fd(socket.as_raw_fd()), room.as_mut_ptr(), 16).build()
    });
    let mut results = [(); 2].map(|()| Some(Ok(99)));
    // SAFETY: `rooms` lives longer than the call.
    unsafe { ring.run(&[waiting, ending], |at, result| results[at] = result) }.unwrap();
    assert!(matches!(results, [None, Some(Ok(4))]), "{results:?}");
    assert_eq!((&rooms[0][..4], &rooms[1][..4]), (&[0; 4][..], &b"quit"[..]));
    let again = receive(&mut ring, &connections[1..]);
    assert!(matches!(again[0].0, Some(Err(_))), "the ring goes on: {again:?}");
}

#[test]
fn ring_that_the_system_has_taken_away_carries_out_nothing_more() {
    let Some(mut ring) = ring(8) else { return };
    let mut connections = connections(2);
    connections.iter_mut().for_each(|(_, client)| client.write_all(b"get a\r\n").unwrap());
    let nothing = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: the descriptor of the ring stays open, but is that of another file.
    let replaced = unsafe { libc::dup2(nothing.as_raw_fd(), ring.ring.as_raw_fd()) };
    assert_eq!(replaced, ring.ring.as_raw_fd());
    let mut rooms = [[0_u8; 16]; 2];
    let mut round: Vec<_> = connections
        .iter()
        .zip(&mut rooms)
        .map(|((socket, _), room)| Receiving { socket, room, result: None })
        .collect();
    assert!(ring.receive(&mut round).is_err());
    assert!(round.iter().all(|one| one.result.is_none()));
    let mut plain = [0; 16];
    let read = rustix::io::read(&connections[0].0, &mut plain).unwrap();
    assert_eq!(&plain[..read], b"get a\r\n", "the bytes are still there for the plain call");
}
