//! Memcached commands of a write-through listener.

use std::sync::Arc;

use super::*;

/// A client of a listener whose keys with prefix `w/` are written through, and others are not.
fn write_through() -> (Client, Arc<Fake>) {
    let through = Target { read_through: true, write_through: true, ..target(0) };
    let routes = [("w/".to_owned(), through), (String::new(), target(1))];
    let fake = super::fake();
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&fake) as _);
    (Client::new(service(cache(2), Routing::by_prefix(TenantId(0), routes).unwrap(), backends)), fake)
}

#[test]
fn set_and_delete_are_answered_once_the_store_has_acknowledged_them() {
    let (mut client, fake) = write_through();
    client.check(&[
        ("set w/1 0 0 3\r\nabc\r\nset w/2 0 60 0\r\n\r\ndelete w/1\r\n", "STORED\r\nSTORED\r\nDELETED\r\n"),
        ("set w/3 0 0 1 noreply\r\nx\r\ndelete w/3 noreply\r\nversion\r\n", &version()),
        ("set other 5 0 1\r\ny\r\nget other\r\n", "STORED\r\nVALUE other 5 1\r\ny\r\nEND\r\n"),
    ]);
    let stored =
        ["store 0 1 abc", "store 0 2  for 60s", "delete 0 1", "store 0 3 x", "delete 0 3", "write 1 other"];
    assert_eq!(fake.log(), stored);
}

#[test]
fn write_that_the_store_does_not_acknowledge_is_answered_with_its_reason() {
    let (mut client, _) = write_through();
    client.check(&[
        ("set w/bad 0 0 1\r\nx\r\n", "SERVER_ERROR the store is down\r\n"),
        ("delete w/bad\r\nget w/1\r\n", "SERVER_ERROR the store is down\r\nVALUE w/1 0 3\r\n<1>\r\nEND\r\n"),
        ("set w/bad 0 0 1 noreply\r\nx\r\nmn\r\n", "MN\r\n"),
        // Quiet meta commands are silent if they succeed, so a failure is not.
        ("md w/bad q\r\nmn\r\n", "SERVER_ERROR the store is down\r\nMN\r\n"),
        ("set w/full 0 0 1\r\nx\r\n", "SERVER_ERROR rejected: try again in 2s\r\n"),
    ]);
}

#[test]
fn command_that_depends_on_the_present_value_is_refused() {
    let (mut client, fake) = write_through();
    for command in [
        "add w/1 0 0 1\r\nx\r\n",
        "replace w/1 0 0 1\r\nx\r\n",
        "append w/1 0 0 1\r\nx\r\n",
        "cas w/1 0 0 1 7\r\nx\r\n",
        "incr w/1 1\r\n",
        "decr w/1 1\r\n",
        "ms w/1 1 MA\r\nx\r\n",
        "ms w/1 1 C7\r\nx\r\n",
        "ma w/1\r\n",
        "md w/1 I\r\n",
    ] {
        let answer = client.send(command.as_bytes());
        assert!(answer.starts_with("SERVER_ERROR this command is refused"), "{command:?}: {answer}");
    }
    let answer = client.send(b"set w/1 5 0 1\r\nx\r\n");
    assert!(answer.starts_with("SERVER_ERROR client flags are refused"), "{answer}");
    client.check(&[("add w/1 0 0 1 noreply\r\nx\r\nincr w/1 1 noreply\r\nmn\r\n", "MN\r\n")]);
    assert_eq!(fake.log(), [""; 0]);
    client.check(&[("add other 0 0 1\r\n5\r\nincr other 1\r\n", "STORED\r\n6\r\n")]);
}

#[test]
fn plain_meta_commands_are_written_through_and_answer_their_flags() {
    let (mut client, fake) = write_through();
    client.check(&[
        ("ms w/1 2 T60 Oab k\r\nxy\r\nmd w/1 Ocd\r\n", "HD Oab kw/1\r\nHD Ocd\r\n"),
        ("ms w/2 1 q\r\nz\r\nmn\r\n", "MN\r\n"),
    ]);
    assert_eq!(fake.log(), ["store 0 1 xy for 60s", "delete 0 1", "store 0 2 z"]);
}

fn version() -> String {
    format!("VERSION {}\r\n", crate::VERSION)
}
