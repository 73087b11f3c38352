//! `[[slo.class]]` and `[[slo.tenant]]`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_model::{Slo, TenantId};

use crate::problem::{Origin, Problems};
use crate::raw::{RawScopedSlo, RawSlo};
use crate::scope::{Given, Setting, at_most, bytes, given, in_range, unknown};
use crate::setup::{SloScope, SloSetup};
use crate::units::{Span, quoted};

/// Maximum of SLOs per class, and of SLOs per tenant.
const SLOS_MAX: usize = 32;

/// Maximum length of a class's name, bytes: the gateway's limit.
const CLASS_BYTES_MAX: usize = 64;

/// Keys of one kind of SLO: per class or per tenant.
struct SloKind<'a> {
    table: &'static str,
    percentile: Setting,
    bound: Setting,
    /// Resolves a name to its scope; none, with a problem, if it is unknown.
    to: &'a dyn Fn(&Given<String>, &mut Problems<'_>) -> Option<SloScope>,
}

/// Resolves the SLOs of classes, then of tenants. Window and observation interval are those of the
/// global SLO.
pub(super) fn resolve(
    file: &RawSlo,
    slo: &Slo,
    tenants: &[String],
    problems: &mut Problems<'_>,
) -> Vec<SloSetup> {
    let to_tenant = |name: &Given<String>, problems: &mut Problems<'_>| {
        let index = tenants.iter().position(|tenant| *tenant == name.value);
        if index.is_none() {
            let known: Vec<&str> = tenants.iter().map(String::as_str).collect();
            unknown(problems, Setting::new("[[slo.tenant]]", "name", "\"default\""), name, &known);
        }
        Some(SloScope::Tenant(TenantId::from_index(index?)))
    };
    let class = SloKind {
        table: "[[slo.class]]",
        percentile: Setting::new("[[slo.class]]", "percentile", "99.0"),
        bound: Setting::new("[[slo.class]]", "bound", "\"150ms\""),
        to: &to_class,
    };
    let tenant = SloKind {
        table: "[[slo.tenant]]",
        percentile: Setting::new("[[slo.tenant]]", "percentile", "99.0"),
        bound: Setting::new("[[slo.tenant]]", "bound", "\"150ms\""),
        to: &to_tenant,
    };
    let mut slos = kind(&file.class, slo, &class, problems);
    slos.extend(kind(&file.tenant, slo, &tenant, problems));
    slos
}

fn to_class(name: &Given<String>, problems: &mut Problems<'_>) -> Option<SloScope> {
    let fits = (1..=CLASS_BYTES_MAX).contains(&name.value.len());
    if !fits {
        let shown = quoted(&name.value);
        let message = format!(
            "[[slo.class]] name is \"{shown}\"; it must have 1 to {CLASS_BYTES_MAX} bytes: set name = \"page\""
        );
        problems.add(&name.origin, message);
    }
    fits.then(|| SloScope::Class(name.value.clone()))
}

fn kind(
    tables: &[Spanned<RawScopedSlo>],
    slo: &Slo,
    kind: &SloKind<'_>,
    problems: &mut Problems<'_>,
) -> Vec<SloSetup> {
    let mut first: BTreeMap<String, Origin> = BTreeMap::new();
    let mut slos = Vec::new();
    for table in at_most(problems, kind.table, tables, SLOS_MAX) {
        let RawScopedSlo { name, percentile, bound } = table.get_ref();
        let Some(name) = given(name) else {
            let message = format!("{} has no name; it must have one: set name = \"page\"", kind.table);
            problems.add(&bytes(table), message);
            continue;
        };
        if let Some(first) = first.get(&name.value) {
            let (shown, first) = (quoted(&name.value), problems.reference(first));
            let message =
                format!("{} \"{shown}\" is there on {first} already; list each once: remove one", kind.table);
            problems.add(&name.origin, message);
            continue;
        }
        first.insert(name.value.clone(), name.origin.clone());
        let bounds = Span(Duration::from_millis(1))..=Span(Duration::from_secs(3_600));
        let percentile = in_range(problems, kind.percentile, given(percentile), slo.percentile, 1.0..=99.99);
        let bound = in_range(problems, kind.bound, given(bound), Span(slo.bound), bounds).0;
        let slo = Slo { percentile, bound, ..*slo };
        slos.extend((kind.to)(&name, problems).map(|to| SloSetup { to, slo }));
    }
    slos
}
