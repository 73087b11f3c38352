//! A node in front of five real servers (MariaDB, PostgreSQL, Redis, memcached and an HTTP
//! service), each killed and restarted in turn under reads and writes.
//!
//! Checked throughout:
//!
//! - a server that is down fails only its own queries and writes;
//! - a read that began after a write was acknowledged returns neither an older value, nor one that
//!   was never written, nor one whose write the node reported as not done;
//! - an absent key was removed or lost. Only memcached, which has no durable data, may lose a key,
//!   and only if it was killed after the key's last acknowledged write began. Even then no older
//!   value returns, from the cache or elsewhere.
//!
//! No phase depends on time: it ends when enough results of the kind it tests have arrived, within
//! a bound of requests ([`load::Load::until`]). The servers are Debian's packages, started by the
//! same code as in the connectors' tests.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use sockets, threads, processes and the machine's clock"
)]

mod client;
#[path = "../../../store/tests/connectors/databases.rs"]
#[allow(dead_code, reason = "some of it is for the connectors' own tests")]
mod databases;
mod fleet;
mod ledger;
mod load;
mod managed;
mod replicas;
mod replicated;
#[path = "../../../store/tests/connectors/servers.rs"]
#[allow(dead_code, reason = "some of it is for the connectors' own tests")]
mod servers;
mod service;
#[path = "../../../listener/tests/common/wait.rs"]
mod wait;

use std::thread;

use client::Client;
use fleet::{BACKENDS, Fleet, NAMES};
use load::{Counts, Load, READERS, Tally, WRITERS};
use wait::eventually;

/// Results of each kind that a phase needs from each running backend.
const ENOUGH: u64 = 50;

#[test]
fn killed_server_under_load_fails_only_its_own_queries() {
    let mut fleet = Fleet::start();
    let node = fleet.node();
    let address = node.admin().expect("it has a gateway");
    let mut client = Client::connect(address);
    one_request_asks_all_and_the_next_one_none(&mut client, "first");

    let load = Load::new(address);
    load.prepare();
    thread::scope(|scope| {
        let load = &load;
        // Ends the readers and writers even if the test fails.
        let _ending = Ending(load);
        (0..READERS).for_each(|number| drop(scope.spawn(move || load.reader(number))));
        (0..WRITERS).for_each(|number| drop(scope.spawn(move || load.writer(number))));
        load.until("all are well", |came| came.iter().all(is_well));
        for backend in 0..BACKENDS {
            let others = |came: &Tally| {
                (0..BACKENDS).filter(|&other| other != backend).all(|other| is_well(&came[other]))
            };
            load.ledger.falls(backend);
            fleet.kill(backend);
            load.until(&format!("{} is missed, and the others go on", NAMES[backend]), |came| {
                came[backend].failures >= ENOUGH && came[backend].failed_writes > 0 && others(came)
            });
            fleet.restart(backend);
            eventually("its queries and writes come back", || answers(&mut client, NAMES[backend]));
            load.ledger.is_back(backend);
            load.until(&format!("{} is back", NAMES[backend]), |came| came.iter().all(is_well));
        }
    });
    one_request_asks_all_and_the_next_one_none(&mut client, "last");
    node.stop();
}

/// Ends the readers and writers when it is dropped, even by a panic of the test.
struct Ending<'a>(&'a Load);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn is_well(came: &Counts) -> bool {
    came.hits >= ENOUGH && came.misses >= ENOUGH && came.writes >= ENOUGH
}

/// Checks that all keys are fetched by the first request and are cache hits in the second; no other
/// test uses `key`.
fn one_request_asks_all_and_the_next_one_none(client: &mut Client, key: &str) {
    let keys = || vec![key.to_owned()];
    for backend in NAMES {
        let written = client.write(backend, key, backend);
        assert_eq!(written.status, 204, "{written:?}");
        client.invalidate(backend, &keys());
    }
    for expected in ["miss", "hit"] {
        let results = client.read(NAMES.map(|backend| (backend, keys())));
        assert_eq!(results.len(), BACKENDS);
        for (result, backend) in results.iter().zip(NAMES) {
            assert_eq!(
                (&result["status"], &result["value"]),
                (&expected.into(), &backend.into()),
                "{result}"
            );
        }
    }
}

/// Returns whether a backend accepts a write and answers a fetch, tried with a key that no other
/// client uses.
fn answers(client: &mut Client, backend: &str) -> bool {
    let (key, keys) = ("probe", ["probe".to_owned()]);
    let is_written = client.write(backend, key, backend).status == 204;
    client.invalidate(backend, &keys);
    let results = client.read([(backend, keys.to_vec())]);
    is_written && results[0]["status"] == "miss"
}
