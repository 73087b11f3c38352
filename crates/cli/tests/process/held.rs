//! Tests that the memory which clients occupy in a node of 32 MiB is bounded, and takes no items
//! from the cache.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Server, TIMEOUT};

const MIB: u64 = 1 << 20;
/// Items of 1,000 bytes that a cache of 32 MiB has room for.
const ITEMS: usize = 20_000;
/// Bound of the memory of the node: the cache, the additional memory that the node needs, its
/// buffers, and the program itself.
const BYTES_MAX: u64 = (32 + 64 + 256 + 32) * MIB;

struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address("redis")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.write_all(request.as_bytes()).unwrap();
    }

    /// Reads an answer of one line.
    fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.line()
    }
}

/// Fills the cache of a new node, and returns a client of it that counts its items.
fn filled() -> (Server, Client) {
    let mut server = Server::start(&["--memory", "32MiB", "--redis", "127.0.0.1:0", "--admin", "off"]);
    server.ignore();
    let (mut client, value) = (Client::connect(&server), "x".repeat(1000));
    for first in (0..ITEMS).step_by(100) {
        (first..first + 100).for_each(|item| client.send(&["SET", &format!("item:{item}"), &value]));
        (0..100).for_each(|_| assert_eq!(client.line(), "+OK"));
    }
    assert_eq!(client.ask(&["DBSIZE"]), format!(":{ITEMS}"));
    (server, client)
}

/// Checks that the node still has its items, and that its memory is bounded, after it has measured
/// its memory several times. Writes meanwhile, since items are only evicted when others are stored.
fn check(server: &Server, client: &mut Client, case: &str) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(client.ask(&["SET", "item:0", "changed"]), "+OK");
    }
    let items: usize = client.ask(&["DBSIZE"])[1..].parse().unwrap();
    assert!(items >= ITEMS / 100 * 98, "{items} items are left {case}");
    let bytes = server.private_bytes();
    assert!(bytes <= BYTES_MAX, "{} MiB {case}", bytes / MIB);
}

#[test]
fn keys_watched_by_many_clients_do_not_evict_cached_items() {
    let (server, mut client) = filled();
    let names: Vec<String> = (0..1024).map(|key| format!("{key:0250}")).collect();
    let watch: Vec<&str> = std::iter::once("WATCH").chain(names.iter().map(String::as_str)).collect();
    let mut clients: Vec<Client> = (0..450).map(|_| Client::connect(&server)).collect();
    let watching =
        clients.iter_mut().filter_map(|client| Some(client.ask(&watch)).filter(|said| said == "+OK"));
    assert!((300..450).contains(&watching.count()), "the node keeps half of its buffers of keys");
    check(&server, &mut client, "while clients watch keys");
    drop(clients);
    check(&server, &mut client, "after they have gone");
}

#[test]
fn commands_queued_by_many_clients_do_not_evict_cached_items() {
    let (server, mut client) = filled();
    let value = "x".repeat(700_000);
    let mut clients: Vec<Client> = (0..40).map(|_| Client::connect(&server)).collect();
    let mut refused = 0;
    for client in &mut clients {
        assert_eq!(client.ask(&["MULTI"]), "+OK");
        for _ in 0..9 {
            refused += usize::from(client.ask(&["SET", "k", &value]).contains("raise buffers in [memory]"));
        }
    }
    assert!((10..40).contains(&refused), "{refused} transactions were refused");
    check(&server, &mut client, "while commands are queued");
    assert_eq!([client.ask(&["MULTI"]), client.ask(&["PING"])], ["+OK", "+QUEUED"]);
    assert_eq!([client.ask(&["EXEC"]), client.line()], ["*1", "+PONG"], "a small transaction is executed");
    let ends = clients.iter_mut().map(|client| client.ask(&["EXEC"]));
    assert_eq!(ends.filter(|end| end.starts_with("-EXECABORT")).count(), refused);
    drop(clients);
    check(&server, &mut client, "after they were executed");
}
