//! The Redis listener on real sockets.

use crate::support::{Server, options};

#[test]
fn a_pipeline_is_answered_in_order_and_quit_closes() {
    let server = Server::redis(options());
    let mut client = server.connect();
    client.send(b"SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nGET none\r\nQUIT\r\n");
    assert_eq!(client.rest(), "+OK\r\n$1\r\n1\r\n$-1\r\n+OK\r\n");
}

#[test]
fn bytes_that_are_no_request_are_answered_before_the_end() {
    let server = Server::redis(options());
    let mut client = server.connect();
    client.send(b"*1\r\n$-1\r\nmore that nobody reads");
    assert_eq!(client.rest(), "-ERR Protocol error: invalid bulk length\r\n");
}
