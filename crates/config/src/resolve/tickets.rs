//! `tickets` of a backend's replicas: the schedulers that give turns to its calls.

use sherwood_dispatch::{AdmitChoice, BalanceChoice, CopiesChoice, Options};

use crate::problem::Problems;
use crate::raw::{RawBackend, RawStore, RawTickets, RawTicketsAccess};
use crate::scope::{bytes, given};
use crate::setup::SchedulerSource;
use crate::units::quoted;

/// Most calls in flight of a backend with tickets. All of them may wait on the connection to one
/// scheduler, which carries 1,024 requests at a time; the rest is for releases and cancellations.
const CALLS_MAX: u64 = 512;

/// Resolves the schedulers of all replicas, in their order; none if the backend has none.
pub(super) fn resolve(
    backend: &RawBackend,
    dispatch: &Options,
    problems: &mut Problems<'_>,
) -> Vec<SchedulerSource> {
    let replicas = backend.replicas.as_ref().map_or(&[][..], |replicas| replicas.get_ref());
    let stores: Vec<_> = backend.store.iter().chain(replicas).collect();
    let with: Vec<_> = stores.iter().filter_map(|store| store.get_ref().tickets.as_ref()).collect();
    let Some(first) = with.first() else { return Vec::new() };
    let origin = bytes(first);
    if with.len() < stores.len() {
        let message = format!(
            "[[backend]] replicas: {} of {} have tickets; all or none must have a scheduler: give each its own",
            with.len(),
            stores.len()
        );
        problems.add(&origin, message);
    }
    if dispatch.balance != BalanceChoice::Tickets {
        let message = "[[backend]] store.tickets has an effect with balance = \"tickets\" only; set \
                       dispatch.balance = \"tickets\", or remove it";
        problems.add(&origin, message);
    }
    if dispatch.copies != CopiesChoice::One {
        let message = "[[backend]] store.tickets: copies of a call would wait at several schedulers; set \
                       dispatch.copies = \"one\", or remove tickets";
        problems.add(&origin, message);
    }
    let calls = u64::from(dispatch.in_flight_calls_max) * stores.len() as u64;
    if calls > CALLS_MAX {
        let message = format!(
            "[[backend]] dispatch.in_flight_calls_max: {calls} calls of all replicas could wait at one scheduler; \
             a backend with tickets may have {CALLS_MAX} in flight: lower it"
        );
        problems.add(&origin, message);
    }
    match dispatch.admit {
        AdmitChoice::Open | AdmitChoice::Deadline { target: None } => {}
        AdmitChoice::Deadline { target: Some(_) } | AdmitChoice::Delay { .. } => {
            let message = "[[backend]] store.tickets: a scheduler elsewhere knows no target; use admit = \"open\" or \
                           admit = \"deadline\" without one, or remove tickets";
            problems.add(&origin, message);
        }
    }
    stores.iter().filter_map(|store| source(store.get_ref(), problems)).collect()
}

fn source(store: &RawStore, problems: &mut Problems<'_>) -> Option<SchedulerSource> {
    let tickets = given(&store.tickets)?;
    let RawTicketsAccess { url: text, token_file, tls } = match tickets.value {
        RawTickets::Url(url) => RawTicketsAccess { url, ..RawTicketsAccess::default() },
        RawTickets::Access(access) => access,
    };
    match text.parse() {
        Ok(url) => Some(SchedulerSource { url, token_file, tls }),
        Err(error) => {
            let message = format!(
                "[[backend]] store.tickets is \"{}\"; {error}: set tickets = \"http://127.0.0.1:8080\"",
                quoted(&text)
            );
            problems.add(&tickets.origin, message);
            None
        }
    }
}
