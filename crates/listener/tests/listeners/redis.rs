//! The Redis listener on real sockets: pipelines, malformed requests and fetched values.

use std::sync::Arc;

use bytes::Bytes;

use crate::fake::{FakeBackends, now};
use crate::support::{Server, options};
use crate::wait::eventually;

#[test]
fn redis_pipeline_is_answered_in_order_and_quit_closes() {
    let server = Server::redis(options());
    let mut client = server.connect();
    client.send(b"SET a 1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\nGET none\r\nQUIT\r\n");
    assert_eq!(client.rest(), "+OK\r\n$1\r\n1\r\n$-1\r\n+OK\r\n");
}

#[test]
fn malformed_redis_request_is_answered_before_the_connection_closes() {
    let server = Server::redis(options());
    let mut client = server.connect();
    client.send(b"*1\r\n$-1\r\nmore that nobody reads");
    assert_eq!(client.rest(), "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn fetched_values_of_a_client_that_suppresses_replies_are_not_kept() {
    let value = Arc::new(b"value".to_vec());
    // They do not fill the cache.
    let backends = FakeBackends::new(Arc::clone(&value), |value, _, keys, _| {
        let value = || Bytes::from_owner(Reference(Arc::clone(value)));
        now(keys.iter().map(|_| Ok(Some(value().into()))).collect())
    });
    let server = Server::redis_read_through(options(), backends.shared());
    let mut client = server.connect();
    client.send(b"CLIENT REPLY OFF\r\n");
    client.send(b"MGET a b c\r\n".repeat(20).as_slice());
    client.check("CLIENT REPLY ON\r\n", "+OK\r\n");
    // The client is still connected, and one reference is the test's, one the backends'.
    eventually("the values are dropped", || Arc::strong_count(&value) == 2);
}

/// A counted reference to the value that the backends return. The count shows whether a fetched
/// value is still held.
struct Reference(Arc<Vec<u8>>);

impl AsRef<[u8]> for Reference {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
