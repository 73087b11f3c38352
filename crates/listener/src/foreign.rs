//! Clients that speak another protocol than their listener: an answer, and a line in the log.

use std::io;

use sherwood_wire::foreign::{FirstBytes, Foreign};

use super::address::Address;
use super::conversation::NextStep;
use super::counters::{Count, Counters};
use super::shared::Shared;
use crate::clock::Moment;

/// Answers a client whose first bytes are those of another protocol than `protocol`, the
/// listener's. Returns the connection's next step if they are.
#[cold]
pub(super) fn refuse(
    shared: &Shared,
    counters: &Counters,
    protocol: &'static str,
    moment: Moment,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Option<NextStep> {
    let foreign = match FirstBytes::of(input) {
        FirstBytes::Own => return None,
        FirstBytes::Need(need) => return Some(NextStep::Need(need)),
        FirstBytes::Foreign(foreign) => foreign,
    };
    counters.increment(Count::ProtocolErrors);
    let (name, remedy) = (foreign.name(), remedy(foreign));
    foreign.refuse(&format!("this port speaks {protocol}, not {name}: {remedy}"), out);
    if let Some(others) = shared.foreign_clients.note(moment.now) {
        let bind = &shared.options.bind;
        tracing::warn!(
            others,
            "a client of the {protocol} listener on {bind} speaks {name} and was refused: {remedy}"
        );
    }
    Some(NextStep::HangUp)
}

/// Logs that a client of a TLS listener did not complete its handshake, and `others` before it.
#[cold]
pub(super) fn tell_of_handshake(bind: &Address, protocol: &str, others: u64, error: &io::Error) {
    tracing::warn!(
        others,
        %error,
        "a client of the {protocol} listener on {bind} failed in its TLS handshake: turn TLS on in the client, and give it the \
         authority of the listener's certificate and, if [[listener]] tls.client_ca is set, a certificate"
    );
}

fn remedy(foreign: Foreign) -> &'static str {
    match foreign {
        Foreign::MemcachedBinary { .. } => "a listener with protocol = \"memcached\" speaks it",
        Foreign::Tls => {
            "turn TLS off in the client, or give this [[listener]] a certificate: tls = { cert = \"cert.pem\", key = \"key.pem\" }"
        }
        Foreign::Http => "the gateway and the admin API are on the port of [admin] bind",
    }
}
