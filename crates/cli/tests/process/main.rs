//! Commands as processes: refusals, output, exit statuses and interaction.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver use processes, sockets and the machine's clock"
)]

mod cluster;
mod containers;
mod deadlines;
mod faults;
mod first_hour;
mod held;
mod helm;
mod histories;
mod io;
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
mod restart;
mod security;
mod serve;
mod sim;
mod support;
mod tenants;
mod tickets;
mod top;
mod tour;
mod trace;
mod units;
