//! `shared` of a `[[backend]]`: invalidation between the nodes of a cluster.

use std::time::Duration;

use sherwood_path::{SharedTerms, WithoutBus};

use crate::problem::{Origin, Problems};
use crate::raw::{RawBackend, RawShared};
use crate::scope::{Setting, bytes, given, in_range, one_of};
use crate::units::Span;

const STALE: Setting = Setting::new("[[backend]]", "shared.stale", "\"2s\"");
const WITHOUT_BUS: Setting = Setting::new("[[backend]]", "shared.without_bus", "\"bounded\"");

/// Least bound. Chosen: a node sends a heartbeat every eighth of it.
const STALE_MIN: Span = Span(Duration::from_millis(100));
/// Greatest bound: that of the timeout, which it must not be below.
const STALE_MAX: Span = Span(Duration::from_secs(600));

const WORDS: [(&str, WithoutBus); 2] = [("bounded", WithoutBus::Bounded), ("ttl", WithoutBus::Ttl)];

/// Resolves the terms of a backend with this `timeout`; none if it is not shared.
pub(super) fn resolve(
    backend: &RawBackend,
    timeout: Duration,
    has_cluster: bool,
    problems: &mut Problems<'_>,
) -> Option<SharedTerms> {
    let table = backend.shared.as_ref()?;
    let RawShared { stale, without_bus } = table.get_ref();
    if !has_cluster {
        let message = "[[backend]] shared is for the nodes of a cluster, and this node is in none: add [cluster], or \
                       remove shared";
        problems.add(&bytes(table), message);
    }
    let default = SharedTerms::default();
    let place = given(stale).map_or_else(|| bytes(table), |stale| stale.origin);
    let stale = in_range(problems, STALE, given(stale), Span(default.stale), STALE_MIN..=STALE_MAX);
    check_timeout(stale, Span(timeout), &place, problems);
    let without_bus = one_of(problems, WITHOUT_BUS, given(without_bus), &WORDS);
    Some(SharedTerms { stale: stale.0, without_bus })
}

/// Refuses a bound below the timeout: a value may come from a fetch that began a timeout before.
fn check_timeout(stale: Span, timeout: Span, place: &Origin, problems: &mut Problems<'_>) {
    if stale >= timeout {
        return;
    }
    let message = format!(
        "[[backend]] shared.stale is {stale} and timeout is {timeout}; shared.stale must be at least the timeout, since a \
         read may wait for a fetch that began up to a timeout before it: set shared.stale = \"{timeout}\", or lower timeout"
    );
    problems.add(place, message);
}
