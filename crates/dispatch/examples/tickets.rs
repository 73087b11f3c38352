//! Measures the time that a scheduler takes for a ticket, while 10 to 100,000 others wait.
//!
//! A ticket is given out with a deadline, and the one whose turn has come is released, so that as
//! many wait afterwards as before. Prints the shortest mean of several rounds, which is the least
//! disturbed one.
//!
//! ```sh
//! cargo run --release -p sherwood-dispatch --example tickets
//! ```
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement reads the machine's clock"
)]

use std::error::Error;
use std::time::{Duration, Instant as Clock};

use sherwood_dispatch::{TicketAction, TicketOptions, TicketRequest, Tickets};
use sherwood_model::Instant;

const ROUNDS: u32 = 20;
const TICKETS: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    for waiting in [10, 1_000, 100_000] {
        println!("{waiting:>7} waiting: {:>6.0} ns for each ticket", measure(waiting)?);
    }
    Ok(())
}

fn measure(waiting: u32) -> Result<f64, Box<dyn Error>> {
    let options = TicketOptions {
        tickets_max: waiting + 2,
        timeout: Duration::from_secs(600),
        ..TicketOptions::default()
    };
    let mut tickets = Tickets::new(options, 0x5eed)?;
    let mut now = Instant::from_secs(1);
    let mut seed = 1_u64;
    let mut request = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let within = Some(Duration::from_micros(200_000_000 + (seed >> 40)));
        TicketRequest { within, ..TicketRequest::default() }
    };
    let mut started = tickets.get_and_wait(now, &request())?.id;
    for _ in 0..waiting {
        tickets.get_and_wait(now, &request())?;
    }
    while tickets.poll_action().is_some() {}
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Clock::now();
        for _ in 0..TICKETS {
            now += Duration::from_nanos(500);
            tickets.get_and_wait(now, &request())?;
            tickets.release(now, started, Some(Duration::from_micros(500)))?;
            while let Some(action) = tickets.poll_action() {
                if let TicketAction::Turn(id) = action {
                    started = id;
                }
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(TICKETS));
    }
    Ok(best)
}
