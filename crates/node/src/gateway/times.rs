//! Times of a request's queries, for the histograms.

use sherwood_model::query_times::{Operation, QueryKind, QueryOutcome};
use sherwood_path::{Answer, Status};

use super::Stage;
use super::held::Held;
use crate::core::Core;

/// Records the times of a stage's keys: of those that the cache alone answers only if the request
/// is sampled, as at listeners. The keys of a sampled request count as reads of hot keys.
pub(super) fn record(core: &Core, Stage { request, begun_after, .. }: &Stage, is_sampled: bool) {
    let mut times = Vec::new();
    for (query, answers) in request.queries() {
        if is_sampled {
            query.keys.iter().for_each(|key| core.hot_keys.note(query.partition, key));
        }
        let has_store = core.backend(query.backend).is_some();
        let ends = answers.map(|(_, answer)| (outcome(&answer, has_store), answer.latency));
        // Keys end together, hits at the look-up and misses with their call.
        let ends: Vec<_> = ends.filter(|(outcome, _)| is_sampled || !is_sample(*outcome)).collect();
        times.extend(ends.chunk_by(|a, b| a == b).map(|equal| {
            let (outcome, latency) = equal[0];
            let kind = QueryKind::ended(query.partition, Operation::Get, outcome);
            (kind, latency.saturating_sub(*begun_after), equal.len() as u64)
        }));
    }
    if !times.is_empty() {
        core.request_times.record(times);
    }
}

/// Returns true if queries with this outcome are sampled.
fn is_sample(outcome: QueryOutcome) -> bool {
    matches!(outcome, QueryOutcome::Hit | QueryOutcome::Miss)
}

/// Returns the outcome of a key of a backend, which may have a store.
fn outcome(answer: &Answer<'_, Held>, has_store: bool) -> QueryOutcome {
    match answer.status {
        Status::Hit => QueryOutcome::Hit,
        Status::Stale => QueryOutcome::Stale,
        Status::Miss => QueryOutcome::Fetched,
        // The cache has recorded that there is no value.
        Status::NotFound if !answer.waited => QueryOutcome::Hit,
        Status::NotFound if !has_store => QueryOutcome::Miss,
        Status::NotFound => QueryOutcome::NotFound,
        Status::Rejected => QueryOutcome::Rejected,
        Status::Timeout => QueryOutcome::Timeout,
        Status::Error => QueryOutcome::Error,
    }
}
