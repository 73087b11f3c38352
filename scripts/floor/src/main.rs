//! A server that answers as a cache does, without being one: what 50 connections on one thread
//! cost at least.
//!
//! ```text
//! floor MODE ADDRESS [PROTOCOL]
//!     MODE      epoll   a receive and a send for each connection that is ready
//!               rounds  the receives of all connections that are ready are one io_uring
//!                       submission, and their sends another
//!     PROTOCOL  memcached (default) or redis
//! ```
//!
//! Every get is answered with the same value of 100 bytes, and every set is acknowledged but not
//! stored. Thus a request costs the system calls, the search for the ends of its lines, and a copy
//! of its answer. The difference to a cache's cost is what the cache could save without another
//! way to the network.

use std::io;

use crate::requests::Protocol;
use crate::server::{Next, RECEIVED_BYTES, Ready, Server};

mod requests;
mod rounds;
mod server;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mode, address, protocol) = match words[..] {
        [mode, address] | [mode, address, "memcached"] => (mode, address, Protocol::Memcached),
        [mode, address, "redis"] => (mode, address, Protocol::Redis),
        _ => panic!("usage: floor epoll|rounds ADDRESS [memcached|redis]"),
    };
    let server = Server::bind(address, protocol)?;
    match mode {
        "epoll" => by_epoll(server),
        "rounds" => rounds::serve(server),
        _ => panic!("{mode} is neither epoll nor rounds"),
    }
}

/// Serves one connection after the other.
fn by_epoll(mut server: Server) -> io::Result<()> {
    let (mut ready, mut received, mut answers) = (Vec::new(), vec![0; RECEIVED_BYTES], Vec::new());
    loop {
        server.wait(&mut ready)?;
        for Ready { fd, hung_up } in ready.drain(..) {
            while let Some(connection) = server.connection(fd) {
                match Next::after(&connection.serve(&mut received, &mut answers), hung_up) {
                    Next::Receive => continue,
                    Next::Wait => {}
                    Next::Close => server.close(fd),
                }
                break;
            }
        }
    }
}
