//! `[[deadline]]`: deadlines of keys whose client states none.

use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_model::{BackendId, DEADLINE_MAX, TenantId};

use crate::meaning::BackendConfig;
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawDeadline};
use crate::scope::{Setting, at_most, bytes, given, in_range, unknown};
use crate::setup::DeadlineRule;
use crate::units::Span;

const BACKEND: Setting = Setting::new("[[deadline]]", "backend", "\"catalog\"");
const TENANT: Setting = Setting::new("[[deadline]]", "tenant", "\"default\"");
const WITHIN: Setting = Setting::new("[[deadline]]", "within", "\"50ms\"");

/// Maximum of rules: the list is scanned for each key without a deadline of its own.
const RULES_MAX: usize = 64;
const WITHIN_MIN: Span = Span(Duration::from_micros(1));

pub(super) fn resolve(
    file: &[Spanned<RawDeadline>],
    backends: &[BackendConfig],
    tenants: &[String],
    problems: &mut Problems<'_>,
) -> Vec<DeadlineRule> {
    let backends: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
    let tenants: Vec<&str> = tenants.iter().map(String::as_str).collect();
    let mut rules: Vec<(DeadlineRule, Origin)> = Vec::new();
    for table in at_most(problems, "[[deadline]]", file, RULES_MAX) {
        let RawDeadline { backend, prefix, tenant, within } = table.get_ref();
        let Some(within) = given(within) else {
            let message =
                "[[deadline]] has no within; it must say how long answers may take: set within = \"50ms\"";
            problems.add(&bytes(table), message);
            continue;
        };
        let rule = DeadlineRule {
            backend: position(backend, BACKEND, &backends, problems).map(BackendId::from_index),
            prefix: given(prefix).map_or(String::new(), |prefix| prefix.value),
            tenant: position(tenant, TENANT, &tenants, problems).map(TenantId::from_index),
            within: in_range(problems, WITHIN, Some(within), WITHIN_MIN, WITHIN_MIN..=Span(DEADLINE_MAX)).0,
        };
        let same = |(other, _): &&(DeadlineRule, Origin)| {
            DeadlineRule { within: other.within, ..rule.clone() } == *other
        };
        if let Some((_, first)) = rules.iter().find(same) {
            let first = problems.reference(first);
            let message = format!(
                "[[deadline]] is for the same keys as the one on {first}; keys have one deadline: remove one"
            );
            problems.add(&bytes(table), message);
            continue;
        }
        rules.push((rule, bytes(table)));
    }
    rules.into_iter().map(|(rule, _)| rule).collect()
}

/// Returns the position of a name among the known ones; none, with a problem, if it is unknown.
fn position(
    key: &Key<String>,
    setting: Setting,
    known: &[&str],
    problems: &mut Problems<'_>,
) -> Option<usize> {
    let name = given(key)?;
    let position = known.iter().position(|known| *known == name.value);
    if position.is_none() {
        unknown(problems, setting, &name, known);
    }
    position
}
