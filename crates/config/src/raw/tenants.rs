//! `[[partition]]`, `[tenants]`, `[[tenant]]` and `[[resource]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::Key;
use super::text_or_table::{TextOrTable, text_or_table};
use crate::spanned::Spanned;
use crate::units::{ByteSize, Span};

/// The cache space of a tenant for a backend. Every backend has a
/// [partition](configuration.md#partitions), listed or not.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawPartition {
    /// The tenant that it belongs to.
    #[schemars(extend("default" = "default"))]
    pub(crate) tenant: Key<String>,
    /// The backend of its keys.
    #[schemars(extend("x-required" = true))]
    pub(crate) backend: Key<String>,
    /// Least size of its budget; all of them must fit into the total.
    #[schemars(extend("default" = 0))]
    pub(crate) min: Key<ByteSize>,
    /// Greatest size of its budget; all of them together must reach the total.
    #[schemars(extend("x-default" = "the total"))]
    pub(crate) max: Key<ByteSize>,
    /// Budget at the start.
    #[schemars(extend("x-default" = "an equal share of the remaining space"))]
    pub(crate) initial: Key<ByteSize>,
    /// Keeps its budget, and only reports decisions.
    #[schemars(extend("default" = false))]
    pub(crate) dry_run: Key<bool>,
    /// An [existing cache](existing-caches.md) that is resized instead. All partitions have one, or
    /// none.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) cache: Key<RawInstance>,
}

/// The table `cache` of a `[[partition]]`: an external cache to resize.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawInstance {
    /// Protocol of the cache.
    #[schemars(extend("x-required" = true, "enum" = ["memcached", "redis"]))]
    pub(crate) kind: Key<String>,
    /// Host and port.
    #[schemars(extend("x-required" = true))]
    pub(crate) address: Key<String>,
    /// The user that logs in.
    #[schemars(extend("x-default" = "none, or the default user of Redis"))]
    pub(crate) user: Key<String>,
    /// A file with the password, which other users cannot read.
    #[schemars(extend("x-default" = "no login"))]
    pub(crate) password_file: Key<String>,
}

/// The division of cache and resources among [tenants](tenants.md). It needs at least one
/// `[[tenant]]`; without these tables there is one tenant, and the policy of `[control]` divides
/// the cache alone.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTenants {
    /// The policy between tenants.
    #[schemars(extend("default" = "hare", "enum" = sherwood_policy::tenants::available()))]
    pub(crate) policy: Key<String>,
    /// Time from one division to the next.
    #[schemars(extend("default" = "20s", "x-min" = "1s", "x-max" = "1h"))]
    pub(crate) period: Key<Span>,
    /// Time over which demand and curves are observed; at least the period.
    #[schemars(extend("x-default" = "60s, or the period if that is longer", "x-max" = "1h"))]
    pub(crate) window: Key<Span>,
    /// Added to every miss ratio; about the error of a sampled curve.
    #[schemars(extend("default" = 0.01), range(min = 0.0, max = 0.5))]
    pub(crate) salt: Key<f64>,
    /// The least gain over the division in force with which a new one is applied.
    #[schemars(extend("default" = 0.01), range(min = 0.0, max = 1.0))]
    pub(crate) apply_over: Key<f64>,
    /// Lends idle units to tenants that wait.
    #[schemars(extend("default" = true))]
    pub(crate) lend: Key<bool>,
    /// Divides units that do not raise the least throughput, too.
    #[schemars(extend("default" = true))]
    pub(crate) conserving: Key<bool>,
    /// The fate of a request beyond its tenant's [rate](tenants.md#beyond-a-rate): to wait, or to
    /// be refused.
    #[schemars(extend("default" = "wait", "enum" = ["wait", "refuse"]))]
    pub(crate) over: Key<String>,
}

/// A tenant; at most 1,024.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTenant {
    /// Name, as of backends. Clients without a tenant belong to that called `default`; not
    /// `trades` or `what-if`, which are paths of the admin API.
    #[schemars(extend("x-required" = true), regex(pattern = "^[A-Za-z0-9._-]{1,64}$"))]
    pub(crate) name: Key<String>,
    /// Users in files of passwords whose clients are its own.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) users: Key<Vec<Spanned<String>>>,
    /// Prefix of its keys on listeners whose clients do not tell their tenant otherwise.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) prefix: Key<String>,
    /// Part of what no `base` states.
    #[schemars(extend("default" = 1), range(min = 0.001, max = 1_000.0))]
    pub(crate) weight: Key<f64>,
    /// Least bytes of cache, at most its baseline.
    #[schemars(extend("default" = 0))]
    pub(crate) min: Key<ByteSize>,
    /// Baseline: the shares of the cache (`cache`) and of resources, by name, 0 to 1.
    #[schemars(extend("x-default" = "by weight"))]
    pub(crate) base: Key<BTreeMap<String, Spanned<f64>>>,
}

/// A resource that is divided among tenants; at most 16.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawResource {
    /// Name in `base` and in reports, as of backends, and not `cache`.
    #[schemars(extend("x-required" = true), regex(pattern = "^[A-Za-z0-9._-]{1,64}$"))]
    pub(crate) name: Key<String>,
    /// Reads or writes of a backend, or traffic of the network.
    #[schemars(extend("x-required" = true, "enum" = ["reads", "writes", "network"]))]
    pub(crate) kind: Key<String>,
    /// The backend; required for reads and writes.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) backend: Key<String>,
    /// The units that a read or write takes: `"dynamodb"`, `"count"`, or `{ bytes = N }` for each
    /// started block.
    #[schemars(extend("default" = "dynamodb"))]
    pub(crate) unit: Key<RawUnit>,
    /// The traffic that counts: with clients and backends, or with clients.
    #[schemars(extend("default" = "both", "enum" = ["both", "client"]))]
    pub(crate) legs: Key<String>,
    /// Units per second of all tenants together, 1 to 10^12; for network bytes, or a size.
    #[schemars(extend("x-required" = true))]
    pub(crate) total: Key<RawTotal>,
}

/// The unit of a resource: by name, or a number of bytes.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum RawUnit {
    Name(#[schemars(extend("enum" = ["dynamodb", "count"]))] String),
    Bytes(RawUnitBytes),
}

impl<'de> Deserialize<'de> for RawUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let accepted = "\"dynamodb\", \"count\", or { bytes = 4096 }";
        Ok(match text_or_table(deserializer, accepted)? {
            TextOrTable::Text(text) => Self::Name(text),
            TextOrTable::Table(table) => Self::Bytes(table),
        })
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawUnitBytes {
    /// Length of a block.
    #[schemars(extend("x-min" = "1B", "x-max" = "1GiB"))]
    pub(crate) bytes: ByteSize,
}

/// The units per second of a resource; for bytes also written as a size.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected units per second, such as 3000, or bytes, such as \"50MiB\"")]
pub(crate) enum RawTotal {
    Units(f64),
    Bytes(ByteSize),
}
