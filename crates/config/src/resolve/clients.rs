//! `tenant` of a `[[listener]]`.

use crate::spanned::Spanned;
use sherwood_model::TenantId;

use super::tenants::Resolved;
use crate::problem::{Origin, Problems};
use crate::raw::RawListener;
use crate::scope::{Given, Setting, bytes, given, unknown};

const TENANT: Setting = Setting::new("[[listener]]", "tenant", "\"gold\"");

/// Resolves the tenant of a listener; none, with a problem, if its clients can belong to no tenant.
pub(super) fn tenant(
    table: &Spanned<RawListener>,
    bind: &Given<String>,
    tenants: Option<&Resolved>,
    problems: &mut Problems<'_>,
) -> Option<TenantId> {
    let raw = table.get_ref();
    match (given(&raw.tenant), tenants) {
        (None, None) => None,
        (Some(name), None) => {
            let message = "[[listener]] has a tenant, and there is no [[tenant]]: add [[tenant]] with its name, or remove tenant";
            problems.add(&name.origin, message);
            None
        }
        (Some(name), Some(tenants)) => {
            let known: Vec<&str> = tenants.setup.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            let index = known.iter().position(|known| *known == name.value);
            if index.is_none() {
                unknown(problems, TENANT, &name, &known);
            }
            index.map(TenantId::from_index)
        }
        (None, Some(tenants)) => {
            if raw.auth_file.is_none() && tenants.default_tenant().is_none() && !tenants.have_prefixes() {
                let origin =
                    if matches!(bind.origin, Origin::Flag(_)) { bind.origin.clone() } else { bytes(table) };
                let message = "the clients of a listener belong to no tenant; it must have a tenant or an auth_file, or a [[tenant]] a \
                               prefix or the name \"default\": set tenant = \"gold\" in [[listener]]";
                problems.add(&origin, message);
            }
            None
        }
    }
}
