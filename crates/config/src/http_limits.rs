//! Upper bounds of the memory of a connection to an HTTP port.

/// Largest head of a request, bytes; also the bound of the read buffer and of the write buffer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Upper bound of a connection's read and write buffers, which are not part of the shared budget
/// (`[memory] buffers`), bytes.
pub const CONNECTION_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;
/// Maximum number of requests in flight on an HTTP/2 connection. On one connection, a node waits
/// for the scheduling turns of all its calls to one replica.
pub const STREAMS_MAX: u32 = 1_024;
/// Bytes that a client may send on an HTTP/2 connection before the node reads them. A message has
/// some 50 bytes.
pub const WINDOW_BYTES: u32 = 64 << 10;
/// Largest head of a request on HTTP/2, bytes. The heads of all requests in flight are held in
/// memory.
pub const STREAM_HEAD_BYTES_MAX: u32 = 4 << 10;
/// Upper bound of the buffers and the request heads of an HTTP/2 connection, bytes.
pub const HTTP2_CONNECTION_BYTES_MAX: usize =
    (STREAMS_MAX * STREAM_HEAD_BYTES_MAX + 2 * WINDOW_BYTES) as usize;
/// Maximum of TLS buffers per connection, bytes: a handshake's messages being assembled, a record
/// in each direction, and encrypted data not yet sent. rustls enforces these limits.
pub const TLS_CONNECTION_BYTES_MAX: usize = 2 * (64 << 10) + 2 * (17 << 10);
