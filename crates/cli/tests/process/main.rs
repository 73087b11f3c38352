//! Commands as processes: refusals, output, exit statuses and interaction.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use processes, sockets and the machine's clock"
)]

#[path = "../../../node/tests/backends/client.rs"]
#[allow(dead_code, reason = "some of it is for the tests of the node")]
mod client;
mod cluster;
mod containers;
mod deadlines;
mod faults;
mod first_hour;
mod held;
mod helm;
mod histories;
mod io;
mod killed;
mod load;
mod manager;
mod monitoring;
mod own;
mod package;
mod page;
mod pages;
mod prometheus;
mod record;
mod reload;
mod replay;
#[path = "../../../node/tests/backends/replicas.rs"]
mod replicas;
mod restart;
mod security;
mod serve;
#[path = "../../../store/tests/connectors/servers.rs"]
#[allow(dead_code, reason = "some of it is for the connectors' own tests")]
mod servers;
mod sim;
mod support;
mod tenants;
mod tickets;
mod top;
mod tour;
mod trace;
mod units;
#[path = "../../../listener/tests/common/wait.rs"]
mod wait;
