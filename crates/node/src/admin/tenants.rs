//! `/v1/tenants`: shows the division among tenants, changes their terms and computes divisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sherwood_config::{ByteSize, TenancySetup, TermsError};
use sherwood_model::TenantId;
use sherwood_policy::tenants::{Share, TenantSeen, TenantTerms, described_curve, described_demand};
use sherwood_ports::http::{InPath, JsonBody, Problem};

use super::aside::aside;
use crate::control::{
    ChangeError, Control, ControlChange, DivisionView, SaidTrade, TenantLevels, TenantsView,
};
use crate::core::Core;

/// Accepted weights, as in the configuration.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.001..=1_000.0;
/// Most tenants, those of the node and those added to a what-if together.
const TENANTS_MAX: usize = 1_024;

pub(crate) async fn list(State(core): State<Arc<Core>>) -> Result<Json<TenantsView>, Problem> {
    aside(core, |core| Ok(Json(tenants(&core.control())?.view(&core.names)))).await?
}

/// Shows the latest trades, newest first.
pub(crate) async fn trades(State(core): State<Arc<Core>>) -> Result<Json<Vec<SaidTrade>>, Problem> {
    aside(core, |core| Ok(Json(tenants(&core.control())?.trades_view()))).await?
}

/// The terms of a tenant after a change.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TenantTerms")]
pub(crate) struct TermsView {
    min_bytes: u64,
    name: String,
    weight: f64,
}

/// A change of a tenant's terms; absent fields stay as they are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TenantChange")]
pub(crate) struct Change {
    weight: Option<f64>,
    /// A number of bytes, or a size such as `"64MiB"`.
    min_bytes: Option<ByteSize>,
}

pub(crate) async fn change(
    State(core): State<Arc<Core>>,
    InPath(name): InPath<String>,
    JsonBody(asked): JsonBody<Change>,
) -> Result<Json<TermsView>, Problem> {
    aside(core, move |core| set(core, &name, &asked)).await?
}

fn set(core: &Core, name: &str, asked: &Change) -> Result<Json<TermsView>, Problem> {
    let mut control = core.control();
    tenants(&control)?;
    let tenant = tenant_called(core, name)?;
    let Change { weight, min_bytes } = *asked;
    if weight.is_none() && min_bytes.is_none() {
        return Err(Problem::bad_request("nothing to change; give weight or min_bytes"));
    }
    weight.map_or(Ok(()), |weight| check_weight(name, weight))?;
    let terms = &[(tenant, weight, min_bytes.map(|ByteSize(bytes)| bytes))];
    let checked = control.check(&ControlChange { terms, ..ControlChange::default() });
    control.apply(checked.map_err(|error| refused_change(&error))?);
    let TenantTerms { weight, min, .. } = &tenants(&control)?.levels().between().terms()[tenant.index()];
    let data = json!({ "tenant": name, "weight": weight, "min_bytes": min.bytes });
    let said = format!("{name} has weight {weight} and at least {} bytes", min.bytes);
    core.events.say("tenants", said, data);
    Ok(Json(TermsView { min_bytes: min.bytes, name: name.to_owned(), weight: *weight }))
}

/// Other weights, and more tenants, under which a division is computed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhatIf {
    #[serde(default)]
    weights: BTreeMap<String, f64>,
    #[serde(default)]
    add: Vec<Added>,
}

/// A tenant that a what-if adds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddedTenant")]
struct Added {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    /// Units of each resource, by name, that an average request takes on a miss.
    demand_if_miss: BTreeMap<String, f64>,
    /// The part of the network that a hit saves.
    #[serde(default)]
    net_alpha: f64,
    #[serde(default)]
    mrc: Curve,
}

/// Miss ratios by size.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AddedCurve")]
struct Curve {
    ticks_bytes: Vec<u64>,
    miss_ratio: Vec<f64>,
}

fn one() -> f64 {
    1.0
}

/// Computes the division with other weights and more tenants by the present curves; nothing
/// changes.
pub(crate) async fn what_if(
    State(core): State<Arc<Core>>,
    JsonBody(asked): JsonBody<WhatIf>,
) -> Result<Json<DivisionView>, Problem> {
    aside(core, move |core| divide(core, asked)).await?
}

fn divide(core: &Core, asked: WhatIf) -> Result<Json<DivisionView>, Problem> {
    let control = core.control();
    let levels = tenants(&control)?;
    let setup = core.tenancy.as_deref().ok_or_else(no_tenants)?;
    let WhatIf { weights, add } = asked;
    let count = core.names.tenants().len() + add.len();
    if count > TENANTS_MAX {
        let error = format!("there would be {count} tenants; at most {TENANTS_MAX} are accepted");
        return Err(Problem::unprocessable(error));
    }
    let weight = |(name, weight): (&String, &f64)| {
        check_weight(name, *weight)?;
        Ok((tenant_called(core, name)?, *weight))
    };
    let weights: Vec<_> = weights.iter().map(weight).collect::<Result<_, Problem>>()?;
    let checked = |(index, added): (usize, Added)| {
        let path = format!("add[{index}]");
        check_weight(&added.name, added.weight)?;
        added.check(&path, setup).map_err(|error| Problem::unprocessable(error).with("path", path))
    };
    let added: Vec<_> = add.into_iter().enumerate().map(checked).collect::<Result<_, Problem>>()?;
    let (terms, division) = levels.what_if(&weights, added).map_err(|error| refused_change(&error))?;
    Ok(Json(levels.division_view(&terms, &division)))
}

impl Added {
    /// Checks the values, and returns the tenant's terms and demand; its baseline follows later.
    fn check(self, path: &str, setup: &TenancySetup) -> Result<(TenantTerms, TenantSeen), String> {
        let Self { name, weight, demand_if_miss, net_alpha, mrc } = self;
        let is_resource = |name: &&String| setup.resources.iter().any(|resource| resource.name == **name);
        if let Some(unknown) = demand_if_miss.keys().find(|name| !is_resource(name)) {
            let known: Vec<_> = setup.resources.iter().map(|resource| resource.name.as_str()).collect();
            let known = known.join(", ");
            return Err(format!(
                "{path}.demand_if_miss has {unknown:?}, which is no resource; there are: {known}"
            ));
        }
        if let Some((name, units)) = demand_if_miss.iter().find(|(_, units)| units.is_nan() || **units < 0.0)
        {
            return Err(format!(
                "{path}.demand_if_miss.{name} is {units}: a number of at least 0 is accepted"
            ));
        }
        if !(0.0..=1.0).contains(&net_alpha) {
            return Err(format!("{path}.net_alpha is {net_alpha}: 0 to 1 is accepted"));
        }
        let miss_ratio =
            described_curve(&mrc.ticks_bytes, &mrc.miss_ratio).map_err(|error| format!("{path}.{error}"))?;
        let demand = setup.resources.iter().map(|resource| {
            let units = demand_if_miss.get(&resource.name).copied().unwrap_or(0.0);
            described_demand(resource.kind, units, net_alpha, &miss_ratio)
        });
        let demand = demand.collect();
        let terms = TenantTerms { name, weight, base: None, min: Share::default() };
        Ok((terms, TenantSeen { base: Share::default(), floor: Share::default(), miss_ratio, demand }))
    }
}

/// Returns the level between tenants, or the reply of a node without one.
fn tenants(control: &Control) -> Result<TenantLevels<'_>, Problem> {
    control.tenants().ok_or_else(no_tenants)
}

fn no_tenants() -> Problem {
    let error = "this node has no [[tenant]]; declare tenants in its configuration, and restart it";
    Problem::new(StatusCode::CONFLICT, error)
}

fn tenant_called(core: &Core, name: &str) -> Result<TenantId, Problem> {
    core.names.tenant_id(name).ok_or_else(|| Problem::not_found("tenant", name, core.names.tenants()))
}

fn check_weight(tenant: &str, weight: f64) -> Result<(), Problem> {
    if WEIGHTS.contains(&weight) {
        return Ok(());
    }
    let (min, max) = (WEIGHTS.start(), WEIGHTS.end());
    Err(Problem::unprocessable(format!("weight {weight} of `{tenant}`: {min} to {max} is accepted")))
}

fn refused_change(error: &ChangeError) -> Problem {
    match error {
        ChangeError::Terms(error) => refused(error),
        _ => Problem::unprocessable(error),
    }
}

/// The reply to terms that cannot be set.
fn refused(error: &TermsError) -> Problem {
    match error {
        TermsError::Stated { .. } => Problem::new(StatusCode::CONFLICT, error),
        TermsError::MinOverBase { base_bytes, .. } => {
            Problem::unprocessable(error).with("base_bytes", *base_bytes)
        }
    }
}
