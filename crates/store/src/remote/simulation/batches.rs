//! A simulated run of a connection for changes in their order. The invariants are:
//!
//! - a change is received at most once, and a change reported as made was made;
//! - a refused change was not made, and without its marker no change of a batch is received;
//! - the server makes the changes of a connection in the order in which they were applied;
//! - the marker that is read is the one that the server has;
//! - every call ends, [`ended`](ChangeConnection::ended) resolves when the server closes an idle
//!   connection, and once the connection is dropped, none is left.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::super::simulated::{Draw, Network, Seen};
use super::server::{Mode, Server};
use super::world::{CALL_TIMEOUT, network, runtime, server, store};
use crate::{Applied, ChangeConnection, KeyChange, RESERVED_PREFIX};

/// Events that have to occur often enough for the invariants to be tested.
pub(super) const MUST_HAPPEN: &[&str] = &[
    "batch: answered",
    "batch: broken after some changes",
    "batch: broken before the first change",
    "batch: dropped",
    "batch: refused in part",
    "batch: unmarked",
    "client: wrote after the end",
    "connection: cut on the way to the client",
    "connection: cut on the way to the server",
    "connection: not opened",
    "marker: failed",
    "marker: none",
    "marker: read",
    "server: answered another type",
    "server: answered half",
    "server: answered late",
    "server: answered twice",
    "server: closed an idle connection",
];

/// Runs the simulation of one seed and returns the events that occurred.
///
/// # Panics
/// If an invariant does not hold.
pub(super) fn live(seed: u64, is_told: bool) -> Seen {
    runtime().block_on(run(seed, is_told))
}

async fn run(seed: u64, is_told: bool) -> Seen {
    let mut draw = Draw::new(seed);
    let server = server(&mut draw);
    let network = network(&server, &mut draw, is_told);
    let _entered = network.enter();
    let store = store(server.protocol, 1, &mut draw);
    let duplicate = store.as_duplicate().expect("it can be one");
    let mut world = World { server: &server, network: &network, numbers: 0 };
    for _ in 0..=draw.below(3) {
        let connected = timeout(CALL_TIMEOUT, duplicate.connect(0)).await.expect("it ends");
        let Ok(connection) = connected else {
            network.note("connection: not opened");
            continue;
        };
        world.use_connection(connection, &mut draw).await;
        // The server may still execute what was sent, before another connection is used.
        sleep(CALL_TIMEOUT).await;
    }
    assert!(server.received_most() <= 1, "a change was sent {} times", server.received_most());
    // The names are numbers in the order of the changes.
    let executed = server.executed();
    assert!(executed.is_sorted(), "out of order: {executed:?}");
    assert_eq!(network.open().0, 0, "connections are left");
    network.seen()
}

/// The server and network that a connection is checked against.
struct World<'a> {
    server: &'a Server,
    network: &'a Network,
    /// Number of markers and changes so far.
    numbers: usize,
}

impl World<'_> {
    /// Returns a name that is greater than each before it.
    fn name(&mut self) -> Bytes {
        self.numbers += 1;
        format!("{:06}", self.numbers).into()
    }

    async fn use_connection(&mut self, mut connection: Box<dyn ChangeConnection>, draw: &mut Draw) {
        for _ in 0..=draw.below(3) {
            self.read_marker(&mut *connection).await;
            if !self.apply(&mut *connection, draw).await {
                break;
            }
        }
        timeout(CALL_TIMEOUT, connection.ended()).await.expect("the server closes idle connections");
    }

    async fn read_marker(&self, connection: &mut dyn ChangeConnection) {
        match timeout(CALL_TIMEOUT, connection.marker()).await.expect("it ends") {
            Ok(marker) => {
                self.network.note(if marker.is_some() { "marker: read" } else { "marker: none" });
                let key = format!("{RESERVED_PREFIX}marker.0");
                assert_eq!(marker.as_deref(), self.server.value(&key).as_deref());
            }
            Err(error) => {
                self.network.note("marker: failed");
                // The server closes idle connections.
                assert!(self.server.mode != Mode::Healthy || error.cause().label() == "reset", "{error}");
            }
        }
    }

    /// Applies a batch; returns false if the connection has ended.
    async fn apply(&mut self, connection: &mut dyn ChangeConnection, draw: &mut Draw) -> bool {
        let marker = self.name();
        let count = draw.one_of(&[0, 1, 2, 5, 20, 100]);
        let names: Vec<Bytes> = (0..count).map(|_| self.name()).collect();
        // A write is named by its value, a removal by its key.
        let changes = names.iter().map(|name| match draw.chance(70) {
            true => KeyChange { key: draw.one_of(&["a", "b", "c"]).into(), value: Some(name.clone()) },
            false => KeyChange { key: name.clone(), value: None },
        });
        let changes = changes.collect();
        let is_dropped = draw.chance(10);
        let time = if is_dropped { draw.ms(8) } else { CALL_TIMEOUT };
        let applied = timeout(time, connection.apply(marker.clone(), changes)).await;
        assert!(is_dropped || applied.is_ok(), "a batch does not end");
        let Ok(applied) = applied else {
            self.network.note("batch: dropped");
            return false;
        };
        self.check(&marker, &names, &applied);
        if draw.chance(30) {
            sleep(Duration::from_millis(draw.below(90) as u64)).await;
        }
        !matches!(applied, Applied::Broken { .. })
    }

    /// Checks that the end of a batch agrees with what the server did.
    fn check(&self, marker: &[u8], names: &[Bytes], applied: &Applied) {
        let done = |name: &[u8]| self.server.done(name);
        match applied {
            Applied::Answered(refused) => {
                self.network.note(if refused.is_empty() {
                    "batch: answered"
                } else {
                    "batch: refused in part"
                });
                assert!(done(marker) == 1 && refused.is_sorted_by_key(|(at, _)| *at));
                for (at, name) in names.iter().enumerate() {
                    let is_refused = refused.iter().any(|(position, _)| *position == at);
                    assert_eq!(done(name), u32::from(!is_refused), "change {at} of {applied:?}");
                }
            }
            Applied::Unmarked(_) => {
                self.network.note("batch: unmarked");
                assert_eq!(done(marker), 0);
                assert!(names.iter().all(|name| self.server.received(name) == 0));
            }
            Applied::Broken { made, .. } => {
                let is_early = *made == 0;
                self.network.note(if is_early {
                    "batch: broken before the first change"
                } else {
                    "batch: broken after some changes"
                });
                assert!(names[..*made].iter().all(|name| done(name) == 1), "{applied:?}");
            }
        }
    }
}
