//! `[slo]`, `[[deadline]]`, `[[scheduler]]`, `[control]`, `[replication]` and `[stores]`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Key;
use crate::spanned::Spanned;
use crate::units::{ByteSize, Span};

/// The SLO: this percentile of request latency over the window is at most the bound.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSlo {
    /// The percentile of request latency, in percent.
    #[schemars(extend("default" = 99), range(min = 1.0, max = 99.99))]
    pub(crate) percentile: Key<f64>,
    /// Upper bound of that percentile.
    #[schemars(extend("default" = "150ms", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) bound: Key<Span>,
    /// The time over which it is computed.
    #[schemars(extend("default" = "60s", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) window: Key<Span>,
    /// Time from one observation to the next, at most the window.
    #[schemars(extend("default" = "5s", "x-min" = "1ms"))]
    pub(crate) observe: Key<Span>,
    /// SLOs of classes of requests, `[[slo.class]]`; at most 32.
    pub(crate) class: Vec<Spanned<RawScopedSlo>>,
    /// SLOs of tenants' requests, `[[slo.tenant]]`; at most 32.
    pub(crate) tenant: Vec<Spanned<RawScopedSlo>>,
}

/// An SLO of a class of requests or of a tenant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawScopedSlo {
    /// The class, as requests name it, 1 to 64 bytes; or the tenant.
    #[schemars(extend("x-required" = true))]
    pub(crate) name: Key<String>,
    /// The percentile of request latency, in percent.
    #[schemars(extend("x-default" = "as in `[slo]`"), range(min = 1.0, max = 99.99))]
    pub(crate) percentile: Key<f64>,
    /// Upper bound of that percentile.
    #[schemars(extend("x-default" = "as in `[slo]`", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) bound: Key<Span>,
}

/// [Deadlines](deadlines.md) of keys whose client states none; at most 64. A key has that of the
/// longest `prefix`, and of equal ones that for a tenant, then that for a backend.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDeadline {
    /// The backend of the keys.
    #[schemars(extend("x-default" = "all backends"))]
    pub(crate) backend: Key<String>,
    /// Prefix of the keys within their backend.
    #[schemars(extend("x-default" = "all keys"))]
    pub(crate) prefix: Key<String>,
    /// The tenant that asks for them.
    #[schemars(extend("x-default" = "all tenants"))]
    pub(crate) tenant: Key<String>,
    /// Time by which the answer is wanted.
    #[schemars(extend("x-required" = true, "x-min" = "1us", "x-max" = "24h"))]
    pub(crate) within: Key<Span>,
}

/// A scheduler that the node serves on the admin port, by which clients on several nodes take turns
/// at a storage server: [tickets](tickets.md). At most 64.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawScheduler {
    /// Name in the clients' URLs, as of backends, unique.
    #[schemars(extend("default" = "default"), regex(pattern = "^[A-Za-z0-9._-]{1,64}$"))]
    pub(crate) name: Key<String>,
    /// Calls that the storage server works on at a time.
    #[schemars(extend("default" = 1), range(min = 1, max = 65_536))]
    pub(crate) slots: Key<u64>,
    /// Lease of a ticket, and the rank of calls without a deadline; not less than the timeout of
    /// the clients' backend.
    #[schemars(extend("default" = "2s", "x-min" = "1ms", "x-max" = "10m"))]
    pub(crate) timeout: Key<Span>,
    /// Tickets held at a time, of some 250 bytes each; more are refused.
    #[schemars(extend("default" = 10_000), range(min = 1, max = 1_000_000))]
    pub(crate) tickets_max: Key<u64>,
    /// The percentile of latencies below which a call is hopeless.
    #[schemars(extend("default" = 15), range(min = 0.01, max = 99.99))]
    pub(crate) alpha: Key<f64>,
    /// The percentile of latencies that estimates take for a call.
    #[schemars(extend("default" = 88), range(min = 0.01, max = 99.99))]
    pub(crate) beta: Key<f64>,
}

/// The control loop.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawControl {
    /// The [policy](policies.md) that sizes partitions. Flag: `--policy`.
    #[schemars(extend("default" = "robinhood", "enum" = sherwood_policy::available_without_options()))]
    pub(crate) policy: Key<String>,
    /// Time from one decision to the next.
    #[schemars(extend("default" = "5s", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) delta: Key<Span>,
    /// Age of the oldest request that counts towards blocking counts.
    #[schemars(extend("default" = "60s", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) rbc_window: Key<Span>,
    /// Percentiles between which blocking backends are counted, two from 0 to 100, the lower first.
    #[schemars(extend("default" = [98.5, 99.5], "minItems" = 2, "maxItems" = 2))]
    pub(crate) band: Key<Vec<f64>>,
    /// Share of every partition that a decision redistributes; for cliffhanger and the policies
    /// that use curves, the largest share of the total that it moves.
    #[schemars(extend("default" = 0.01), range(min = 0.0, max = 0.5))]
    pub(crate) tax: Key<f64>,
    /// Decides and reports, but moves nothing; refused with `[[tenant]]`.
    #[schemars(extend("default" = false))]
    pub(crate) dry_run: Key<bool>,
    /// The guard, which [rolls back](guard-rails.md#rollback) moves that have done harm.
    pub(crate) guard: RawGuard,
    /// The learning phase of policy `tao`.
    pub(crate) tao: RawTao,
    /// Policy `cliffhanger`.
    pub(crate) cliffhanger: RawCliffhanger,
    /// Policy `fair`.
    pub(crate) fair: RawFair,
    /// Policy `lama`.
    pub(crate) lama: RawLama,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawGuard {
    /// Switches it on or off; with `[[tenant]]`, `true` is refused.
    #[schemars(extend("x-default" = "true; with `[[tenant]]` false"))]
    pub(crate) enabled: Key<bool>,
    /// Required increase of the SLO's percentile over the last good allocation.
    #[schemars(extend("default" = 0.25), range(min = 0.01, max = 100.0))]
    pub(crate) worse: Key<f64>,
    /// Required increase of the misses of partitions that lost bytes.
    #[schemars(extend("default" = 0.1), range(min = 0.01, max = 100.0))]
    pub(crate) miss_rise: Key<f64>,
    /// Share of the slow requests that they must block.
    #[schemars(extend("default" = 0.5), range(min = 0.01, max = 1.0))]
    pub(crate) blame: Key<f64>,
    /// Time without moves after a rollback.
    #[schemars(extend("default" = "10m", "x-min" = "1ms", "x-max" = "1d"))]
    pub(crate) freeze: Key<Span>,
    /// Time for which a good allocation is remembered.
    #[schemars(extend("default" = "30m", "x-min" = "1ms", "x-max" = "1d"))]
    pub(crate) memory: Key<Span>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTao {
    /// Time for which robinhood decides first.
    #[schemars(extend("default" = "36m", "x-min" = "1ms", "x-max" = "7d"))]
    pub(crate) learn: Key<Span>,
    /// The sizes that are frozen: their mean over that time, or those at the end of it.
    #[schemars(extend("default" = "mean", "enum" = ["mean", "snapshot"]))]
    pub(crate) mode: Key<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCliffhanger {
    /// Size of every shadow queue as a share of `[memory] total`.
    #[schemars(extend("default" = 0.01), range(min = 0.000_1, max = 0.5))]
    pub(crate) shadow: Key<f64>,
    /// Bytes that a hit there is worth.
    #[schemars(extend("default" = "4KiB", "x-min" = "1B", "x-max" = "1GiB"))]
    pub(crate) credit: Key<ByteSize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawFair {
    /// The input by which miss ratios are levelled: hits and misses, or miss ratio curves.
    #[schemars(extend("default" = "feedback", "enum" = ["feedback", "waterfill"]))]
    pub(crate) mode: Key<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLama {
    /// The cost that is minimised: the slowest backend's P99 of queries, the time in misses, or,
    /// without curves, by giving space to partitions with slow queries.
    #[schemars(extend("default" = "minmax", "enum" = ["minmax", "sum", "threshold"]))]
    pub(crate) mode: Key<String>,
    /// The unit of division as a share of the divided space.
    #[schemars(extend("default" = 0.005), range(min = 0.001, max = 0.1))]
    pub(crate) grid: Key<f64>,
}

/// The number of [copies](replication.md#several-tiers) of calls in the tiers of an application,
/// chosen while it runs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawReplication {
    /// The choice of the numbers of copies: one (`"none"`), by sPARE's search, as given, or by a
    /// search through all.
    #[schemars(extend("default" = "none", "enum" = ["none", "spare", "fixed", "exhaustive"]))]
    pub(crate) policy: Key<String>,
    /// Names of backends with `copies = "fixed"`, the one that users call first; 1 to 4.
    #[schemars(extend("x-required" = true))]
    pub(crate) tiers: Key<Vec<String>>,
    /// Cores of each server, by tier; 1 to 1,024.
    #[schemars(extend("x-default" = "2 in each tier"))]
    pub(crate) cores: Key<Vec<u32>>,
    /// For `"fixed"`: the copies of each call, by tier; 1 to 8.
    #[schemars(extend("x-default" = "1 in each tier"))]
    pub(crate) factors: Key<Vec<u32>>,
    /// The latency of the first tier that is minimised.
    #[schemars(extend("default" = "p99", "enum" = ["mean", "p95", "p99"]))]
    pub(crate) target: Key<String>,
    /// Largest accepted probability that copies of one request meet at a server of a later tier.
    #[schemars(extend("default" = 0.5), range(min = 0.0, max = 1.0))]
    pub(crate) collision_max: Key<f64>,
    /// Length of a measurement of one choice.
    #[schemars(extend("default" = "60s", "x-min" = "1s", "x-max" = "1h"))]
    pub(crate) window: Key<Span>,
    /// Most copies that a search tries in a tier.
    #[schemars(extend("default" = 3), range(min = 1, max = 8))]
    pub(crate) factor_max: Key<u8>,
}

/// The manager of [replicated stores](replicated-stores.md#the-manager), which are the backends
/// with `duplicates`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStores {
    /// The choice of how duplicates are asked: as configured (`"none"`), the same with predicted
    /// and measured service levels (`"fixed"`), or by the SLO.
    #[schemars(extend("default" = "none", "enum" = ["none", "fixed", "slo"]))]
    pub(crate) manager: Key<String>,
    /// Lets `"slo"` change partitions and duplicates as well, among those that
    /// [the store can have](replicated-stores.md#the-manager); data moves then.
    #[schemars(extend("default" = false))]
    pub(crate) layouts: Key<bool>,
    /// Expected accesses of a store, for the choice among layouts.
    #[schemars(extend("x-default" = "the present rate goes on"))]
    pub(crate) forecast: Key<RawForecast>,
    /// Nodes that a store may use, at most its replicas, for the highest service level. Without it
    /// the plan is the cheapest that meets the SLO.
    #[schemars(range(min = 1, max = 512))]
    pub(crate) nodes: Key<u32>,
    /// Price of a node in use.
    #[schemars(extend("default" = 1.0), range(min = 0.0, max = 1_000_000.0))]
    pub(crate) node_cost: Key<f64>,
    /// Price of a node that is not used.
    #[schemars(extend("default" = 0.0), range(min = 0.0, max = 1_000_000.0))]
    pub(crate) idle_cost: Key<f64>,
    /// Decides and reports, but changes nothing.
    #[schemars(extend("default" = false))]
    pub(crate) dry_run: Key<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawForecast {
    /// Accesses a second by day.
    #[schemars(extend("x-required" = true), range(min = 0.0, max = 1_000_000_000.0))]
    pub(crate) day: Key<f64>,
    /// Accesses a second at night.
    #[schemars(extend("x-required" = true), range(min = 0.0, max = 1_000_000_000.0))]
    pub(crate) night: Key<f64>,
}
