//! `[cluster]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Key;
use crate::spanned::Spanned;

/// The node's place in a [cluster](cluster.md): nodes that count requests together, tell each other
/// about writes and lend each other rates, by messages over NATS. All nodes state the same `name`
/// and `nodes`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCluster {
    /// Name of the cluster: 1 to 64 of `a-z`, `0-9` and `-`. Several clusters may use one NATS.
    #[schemars(extend("x-required" = true), regex(pattern = "^[a-z0-9-]{1,64}$"))]
    pub(crate) name: Key<String>,
    /// Name of this node, one of `nodes`; no two nodes may have the same. Flag: `--node`.
    #[schemars(extend("x-required" = true), regex(pattern = "^[a-z0-9-]{1,64}$"))]
    pub(crate) node: Key<String>,
    /// Names of all nodes, 1 to 64 distinct ones of the same characters.
    #[schemars(extend("x-required" = true, "minItems" = 1, "maxItems" = 64))]
    pub(crate) nodes: Key<Vec<Spanned<String>>>,
    /// Weights of nodes, 0.001 to 1,000: a node's part of the total of every
    /// `[[resource]]` is its weight by the sum of all.
    #[schemars(extend("x-default" = "1 each"))]
    pub(crate) weights: Key<BTreeMap<String, Spanned<f64>>>,
    /// Nodes that merge all requests and publish what they counted, of which the others follow the
    /// first that is alive.
    #[schemars(extend("x-default" = "every node merges"))]
    pub(crate) statistics: Key<Vec<Spanned<String>>>,
    /// Access to NATS.
    #[schemars(extend("x-required" = true))]
    pub(crate) bus: Key<RawBus>,
}

/// Access to the servers of NATS.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawBus {
    /// 1 to 16 URLs, `nats://` or `tls://` with host and port, tried in turn. One beyond loopback
    /// needs credentials or TLS.
    #[schemars(extend("x-required" = true, "minItems" = 1, "maxItems" = 16))]
    pub(crate) servers: Key<Vec<Spanned<String>>>,
    /// A credentials file of NATS, with a JWT and the seed of an nkey.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) credentials: Key<String>,
    /// The user that logs in, with `password_file`, instead of `credentials`.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) user: Key<String>,
    /// A file of one line with the password.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) password_file: Key<String>,
    /// A file of one line with a token, instead of `credentials` or `user`.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) token_file: Key<String>,
    /// TLS to the servers; `tls = {}` is TLS with all defaults.
    #[schemars(extend("x-default" = "TLS for `tls://` alone"))]
    pub(crate) tls: Key<RawBusTls>,
}

/// TLS to the servers of NATS.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawBusTls {
    /// PEM file of the authority that signs the servers' certificates.
    #[schemars(extend("x-default" = "those that the system trusts"))]
    pub(crate) ca: Key<String>,
    /// PEM file of a client certificate; with `key`.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) cert: Key<String>,
    /// PEM file of its key.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) key: Key<String>,
}
