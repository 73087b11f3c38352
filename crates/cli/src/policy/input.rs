//! Input files of `sherwood policy allocate`.

use serde::Deserialize;
use sherwood_model::{BackendId, ResourceKind};
use sherwood_policy::tenants::{Share, TenantSeen, Tenants, baselines, described_curve, described_demand};

/// Most tenants of a decision.
const TENANTS_MAX: usize = 1_024;
/// Floor of the rates of a tenant that states none, as a part of its base. A token bucket with any
/// rate lets a first request start, so that demand is seen; more would be taken from the others.
const FLOOR_RATIO: f64 = 1e-6;
/// Excess of the sum of bases over a total that counts as rounding.
const ROUNDING: f64 = 1e-9;

/// The resources of an input file, in the order of their ids.
pub(super) const RESOURCES: [ResourceKind; 3] =
    [ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0)), ResourceKind::Network];
/// Their names in the file.
pub(super) const NAMES: [&str; 3] = ["db_rcu", "db_wcu", "net_bw"];

/// The file as written. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    params: Params,
    totals: Amounts,
    tenants: Vec<Tenant>,
}

#[derive(Debug, Deserialize)]
struct Params {
    cache_delta_bytes: u64,
    #[serde(default)]
    min_cache_size_bytes: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Amounts {
    cache_bytes: u64,
    db_rcu: f64,
    db_wcu: f64,
    net_bw: f64,
}

impl Amounts {
    fn rates(&self) -> [f64; 3] {
        [self.db_rcu, self.db_wcu, self.net_bw]
    }

    fn share(&self) -> Share {
        Share { bytes: self.cache_bytes, rates: self.rates().to_vec() }
    }
}

#[derive(Debug, Deserialize)]
struct Tenant {
    name: Option<String>,
    /// Share of the totals that the tenant may count on; by `weight` if absent.
    base: Option<Amounts>,
    weight: Option<f64>,
    /// The least that the tenant is given.
    min: Option<Amounts>,
    demand_if_miss: Demand,
    #[serde(default)]
    net_alpha: f64,
    #[serde(default)]
    mrc: Curve,
}

#[derive(Debug, Deserialize)]
struct Demand {
    db_rcu: f64,
    db_wcu: f64,
    net_bw: f64,
}

#[derive(Debug, Default, Deserialize)]
struct Curve {
    ticks_bytes: Vec<u64>,
    miss_ratio: Vec<f64>,
}

/// A checked input file.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) tenants: Tenants,
    pub(super) names: Vec<String>,
    pub(super) chunk_bytes: u64,
    /// Remarks about an input that is valid but unlikely to be meant.
    pub(super) notes: Vec<String>,
}

impl File {
    /// Checks the file.
    ///
    /// # Errors
    /// The first invalid value by its JSON path, with what is accepted.
    pub(super) fn check(self) -> Result<Input, String> {
        let Self { params, totals, tenants } = self;
        if !(1..=TENANTS_MAX).contains(&tenants.len()) {
            return Err(format!("tenants: {} are given; 1 to {TENANTS_MAX} are accepted", tenants.len()));
        }
        if params.cache_delta_bytes == 0 {
            return Err(
                "params.cache_delta_bytes is 0: give at least 1, such as a 64th of a base's cache".into()
            );
        }
        amounts("totals", &totals)?;
        let bases = bases(&totals, &tenants)?;
        let mut notes = Vec::new();
        let floors = u128::from(params.min_cache_size_bytes) * tenants.len() as u128;
        if floors > totals.cache_bytes.into() {
            notes.push(format!(
                "params.min_cache_size_bytes takes {floors} bytes for {} tenants and totals.cache_bytes is {}: \
                 each tenant's floor is its base instead",
                tenants.len(),
                totals.cache_bytes
            ));
        }
        let (mut seen, mut names) = (Vec::new(), Vec::new());
        for (index, (tenant, base)) in tenants.into_iter().zip(bases).enumerate() {
            let path = format!("tenants[{index}]");
            if tenant.mrc.ticks_bytes.is_empty() {
                notes.push(format!("{path}.mrc has no points: every read of this tenant counts as a miss"));
            }
            names.push(tenant.name.clone().unwrap_or_else(|| format!("tenant {index}")));
            seen.push(tenant.check(&path, base, params.min_cache_size_bytes)?);
        }
        let tenants = Tenants::new(RESOURCES.to_vec(), totals.share(), seen);
        Ok(Input { tenants, names, chunk_bytes: params.cache_delta_bytes, notes })
    }
}

impl Tenant {
    fn check(self, path: &str, base: Share, floor_bytes: u64) -> Result<TenantSeen, String> {
        let Demand { db_rcu, db_wcu, net_bw } = self.demand_if_miss;
        for (name, units) in NAMES.into_iter().zip([db_rcu, db_wcu, net_bw]) {
            not_negative(&format!("{path}.demand_if_miss.{name}"), units)?;
        }
        if !(0.0..=1.0).contains(&self.net_alpha) {
            return Err(format!("{path}.net_alpha is {}: 0 to 1 is accepted", self.net_alpha));
        }
        let Curve { ticks_bytes, miss_ratio } = self.mrc;
        let miss_ratio =
            described_curve(&ticks_bytes, &miss_ratio).map_err(|error| format!("{path}.{error}"))?;
        let floor = match self.min {
            Some(min) => {
                amounts(&format!("{path}.min"), &min)?;
                Share { bytes: min.cache_bytes.max(floor_bytes), rates: min.rates().to_vec() }
            }
            None => Share {
                bytes: floor_bytes,
                rates: base.rates.iter().map(|rate| rate * FLOOR_RATIO).collect(),
            },
        };
        let units = RESOURCES.into_iter().zip([db_rcu, db_wcu, net_bw]);
        let demand = units.map(|(kind, units)| described_demand(kind, units, self.net_alpha, &miss_ratio));
        let demand = demand.collect();
        Ok(TenantSeen { base, floor, miss_ratio, demand })
    }
}

/// Returns the base of each tenant, by its weight where none is given.
fn bases(totals: &Amounts, tenants: &[Tenant]) -> Result<Vec<Share>, String> {
    let mut weights = Vec::with_capacity(tenants.len());
    for (index, tenant) in tenants.iter().enumerate() {
        let weight = tenant.weight.unwrap_or(1.0);
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(format!("tenants[{index}].weight is {weight}: give a number above 0"));
        }
        weights.push(weight);
    }
    let mut own = Vec::with_capacity(tenants.len());
    for (index, tenant) in tenants.iter().enumerate() {
        if let Some(base) = &tenant.base {
            amounts(&format!("tenants[{index}].base"), base)?;
        }
        own.push(tenant.base.as_ref().map(Amounts::share));
    }
    let bases = baselines(&totals.share(), weights.into_iter().zip(own.iter().map(Option::as_ref)));
    let within = |name: &str, sum: f64, total: f64| {
        if sum <= total * (1.0 + ROUNDING) {
            Ok(())
        } else {
            Err(format!(
                "totals.{name} is {total} and the tenants' bases sum to {sum}: raise it or lower them"
            ))
        }
    };
    let bytes: u128 = bases.iter().map(|base| u128::from(base.bytes)).sum();
    within("cache_bytes", bytes as f64, totals.cache_bytes as f64)?;
    for (i, (name, total)) in NAMES.into_iter().zip(totals.rates()).enumerate() {
        within(name, bases.iter().map(|base| base.rates[i]).sum(), total)?;
    }
    Ok(bases)
}

fn amounts(path: &str, amounts: &Amounts) -> Result<(), String> {
    let mut named = NAMES.into_iter().zip(amounts.rates());
    named.try_for_each(|(name, rate)| not_negative(&format!("{path}.{name}"), rate))
}

fn not_negative(path: &str, value: f64) -> Result<(), String> {
    if value >= 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(format!("{path} is {value}: a number of at least 0 is accepted"))
    }
}
