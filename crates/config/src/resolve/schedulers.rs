//! `[[scheduler]]`: the schedulers that the HTTP port serves.

use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_dispatch::{QueueChoice, TicketOptions};
use sherwood_model::Percent;

use super::backends::{NAMES, is_name};
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawScheduler};
use crate::scope::{Setting, at_most, bytes, given, in_range};
use crate::setup::SchedulerSetup;
use crate::units::{Span, quoted};

const SLOTS: Setting = Setting::new("[[scheduler]]", "slots", "1");
const TIMEOUT: Setting = Setting::new("[[scheduler]]", "timeout", "\"2s\"");
const TICKETS: Setting = Setting::new("[[scheduler]]", "tickets_max", "10000");

/// Maximum of schedulers: the name of each call is looked up in the list.
const SCHEDULERS_MAX: usize = 64;
const SLOTS_MAX: u64 = 65_536;
/// Default and maximum of tickets, of some 250 bytes each.
const TICKETS_DEFAULT: u64 = 10_000;
const TICKETS_MAX: u64 = 1_000_000;
const TIMEOUT_MIN: Span = Span(Duration::from_millis(1));
const TIMEOUT_MAX: Span = Span(Duration::from_secs(600));

/// Resolves the schedulers, which need the HTTP port.
pub(super) fn resolve(
    file: &[Spanned<RawScheduler>],
    has_admin: bool,
    problems: &mut Problems<'_>,
) -> Vec<SchedulerSetup> {
    if let (Some(first), false) = (file.first(), has_admin) {
        let message =
            "[[scheduler]] is served by the admin API, which is off: leave it on, or remove the table";
        problems.add(&bytes(first), message);
    }
    let mut seen: Vec<(String, Origin)> = Vec::new();
    let mut schedulers = Vec::new();
    for table in at_most(problems, "[[scheduler]]", file, SCHEDULERS_MAX) {
        let raw = table.get_ref();
        let (name, origin) = match given(&raw.name) {
            Some(name) => (name.value, name.origin),
            None => ("default".to_owned(), bytes(table)),
        };
        let shown = quoted(&name);
        if !is_name(&name) {
            let message =
                format!("[[scheduler]] name is \"{shown}\"; it must be {NAMES}: set name = \"catalog-1\"");
            problems.add(&origin, message);
        } else if let Some((_, first)) = seen.iter().find(|(other, _)| *other == name) {
            let first = problems.reference(first);
            let message =
                format!("[[scheduler]] name is \"{shown}\" as on {first}; names must be unique: rename one");
            problems.add(&origin, message);
        }
        seen.push((name.clone(), origin));
        schedulers.push(SchedulerSetup { name, options: options(raw, problems) });
    }
    schedulers
}

fn options(raw: &RawScheduler, problems: &mut Problems<'_>) -> TicketOptions {
    let RawScheduler { name: _, slots, timeout, tickets_max, alpha, beta } = raw;
    let default = TicketOptions::default();
    let timeouts = TIMEOUT_MIN..=TIMEOUT_MAX;
    let alpha = percent("alpha", alpha, Percent::ALPHA, problems);
    TicketOptions {
        order: QueueChoice::Edf { alpha },
        slots: in_range(problems, SLOTS, given(slots), default.slots.into(), 1..=SLOTS_MAX) as u32,
        tickets_max: in_range(problems, TICKETS, given(tickets_max), TICKETS_DEFAULT, 1..=TICKETS_MAX) as u32,
        timeout: in_range(problems, TIMEOUT, given(timeout), Span(default.timeout), timeouts).0,
        beta: percent("beta", beta, default.beta, problems),
    }
}

fn percent(name: &'static str, key: &Key<f64>, default: Percent, problems: &mut Problems<'_>) -> Percent {
    let Some(given) = given(key) else { return default };
    Percent::new(name, given.value).unwrap_or_else(|error| {
        problems.add(&given.origin, format!("[[scheduler]] {error}"));
        default
    })
}
