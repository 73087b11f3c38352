//! `[[backend]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Key, RawStore};
use crate::spanned::Spanned;
use crate::units::{ByteSize, Span};

/// A named service that answers queries. Without any there is one, `default`, without a store: a
/// plain cache. [Backends](backends.md) describes them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawBackend {
    /// Name in all interfaces, unique: 1 to 64 letters, digits, `.`, `_` or `-`.
    #[schemars(extend("x-required" = true), regex(pattern = "^[A-Za-z0-9._-]{1,64}$"))]
    pub(crate) name: Key<String>,
    /// Prefix of its keys where a listener routes [by prefix](configuration.md#prefixes), at most
    /// 200 bytes without blanks; no prefix may start with another, except the empty one.
    #[schemars(extend("x-default" = "not routed to"))]
    pub(crate) prefix: Key<String>,
    /// Time after which a query without an answer fails.
    #[schemars(extend("default" = "2s", "x-min" = "1ms", "x-max" = "10m"))]
    pub(crate) timeout: Key<Span>,
    /// [Lifetime](freshness.md) of a fetched value; one stated by the store applies where it is
    /// shorter.
    #[schemars(extend("x-default" = "until it is evicted", "x-min" = "1ms", "x-max" = "365d"))]
    pub(crate) ttl: Key<Span>,
    /// Lifetimes for keys with these prefixes, of which the longest applies; at most 64.
    #[schemars(extend("x-default" = "none", "maxItems" = 64))]
    pub(crate) ttl_rules: Key<Vec<Spanned<RawTtlRule>>>,
    /// The part by which a key's lifetime may be shortened, so that values fetched together do not
    /// expire together.
    #[schemars(extend("default" = 0.1), range(min = 0.0, max = 0.5))]
    pub(crate) ttl_jitter: Key<f64>,
    /// Time for which the absence of a key is remembered; 0s: not at all.
    #[schemars(extend("default" = "0s", "x-min" = "0s", "x-max" = "365d"))]
    pub(crate) negative_ttl: Key<Span>,
    /// The rules by which a [stale](freshness.md) value is served.
    pub(crate) stale: RawStale,
    /// [Writes](writes.md) to the replicas.
    pub(crate) writes: RawWrites,
    /// Invalidation between the [nodes of a cluster](cluster.md); `shared = {}` takes all defaults.
    #[schemars(extend("x-default" = "each node caches on its own"))]
    pub(crate) shared: Key<RawShared>,
    /// Number of equal replicas of each partition of the keys, of a [replicated
    /// store](replicated-stores.md): the first ones in `replicas` are those of the first partition.
    #[schemars(extend("x-default" = "not replicated by the node"), range(min = 1, max = 8))]
    pub(crate) duplicates: Key<u8>,
    /// With `duplicates`: number of partitions of the keys.
    #[schemars(extend("default" = 1), range(min = 1, max = 64))]
    pub(crate) partitions: Key<u16>,
    /// With `duplicates`: the earlier writes that a read reflects: those that every duplicate has
    /// (`"eventual"`), and those of its session, or what may precede what that has read, too.
    #[schemars(extend("default" = "read-your-writes", "enum" = ["read-your-writes", "eventual", "causal"]))]
    pub(crate) consistency: Key<String>,
    /// With `duplicates`: the number of them that must have a write before it is acknowledged.
    #[schemars(extend("default" = "all", "enum" = ["all", "majority", "first"]))]
    pub(crate) ack: Key<String>,
    /// With `duplicates`: the writes that are kept, for each partition, until all have them.
    pub(crate) log: RawLog,
    /// Rules and [bounds](configuration.md#what-a-backends-dispatcher-may-hold) of its dispatcher.
    pub(crate) dispatch: RawDispatch,
    /// The [ramp](guard-rails.md#starting-cold) for a cold cache: a limit on the keys fetched at a
    /// time, low at first. `ramp = {}` takes all defaults.
    #[schemars(extend("x-default" = "no ramp"))]
    pub(crate) ramp: Key<RawRamp>,
    /// [Deadline classes](engine.md#deadline-classes) of its partitions. `deadlines = {}` takes all
    /// defaults.
    #[schemars(extend("x-default" = "one class"))]
    pub(crate) deadlines: Key<RawDeadlineClasses>,
    /// The source of its values, one store.
    #[schemars(extend("x-default" = "none: look-aside only"))]
    pub(crate) store: Key<RawStore>,
    /// Several stores with the same data, instead of `store`; at most 64.
    #[schemars(extend("x-default" = "one `store`", "minItems" = 1, "maxItems" = 64))]
    pub(crate) replicas: Key<Vec<Spanned<RawStore>>>,
    /// Attributes of the client spans of [traces](opentelemetry.md) that are queries of the
    /// backend; 1 to 16 of 1 to 256 bytes each, all of which must be equal.
    #[schemars(extend("x-default" = "those that name the store's system", "minProperties" = 1, "maxProperties" = 16))]
    pub(crate) spans: Key<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTtlRule {
    /// Prefix of the keys, without the backend's prefix.
    #[schemars(extend("x-required" = true))]
    pub(crate) prefix: Key<String>,
    /// Lifetime of their values; 0s keeps nothing.
    #[schemars(extend("x-required" = true, "x-min" = "0s", "x-max" = "365d"))]
    pub(crate) ttl: Key<Span>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStale {
    /// Time for which a stale value is served while it is revalidated.
    #[schemars(extend("default" = "0s", "x-min" = "0s", "x-max" = "7d"))]
    pub(crate) while_revalidate: Key<Span>,
    /// Time for which a stale value is served when the backend fails.
    #[schemars(extend("default" = "0s", "x-min" = "0s", "x-max" = "7d"))]
    pub(crate) if_error: Key<Span>,
    /// Time for which a stale value is kept for queries with `stale_ok_ms`.
    #[schemars(extend("default" = "60s", "x-min" = "0s", "x-max" = "7d"))]
    pub(crate) keep: Key<Span>,
    /// Time after which a fetch counts as late for those queries.
    #[schemars(extend("x-default" = "half of the SLO's bound, or of `timeout` if less", "x-min" = "0s", "x-max" = "10m"))]
    pub(crate) after: Key<Span>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawWrites {
    /// The replicas that [are written to](writes.md#several-replicas): `"all"`, or `"first"`, from
    /// which the others replicate.
    #[schemars(extend("default" = "all", "enum" = ["all", "first"]))]
    pub(crate) to: Key<String>,
    /// Time after an acknowledged write for which a replica may still answer the previous value;
    /// required where `"first"` has other replicas.
    #[schemars(extend("default" = "0s", "x-min" = "0s", "x-max" = "1h"))]
    pub(crate) settle: Key<Span>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawShared {
    /// Time after an acknowledged write through any node within which every node stops answering
    /// with older values; at least `timeout`.
    #[schemars(extend("default" = "2s", "x-min" = "100ms", "x-max" = "10m"))]
    pub(crate) stale: Key<Span>,
    /// Use of values that a node cannot know to be current, such as those while the bus is down:
    /// they count as stale (`"bounded"`), or are served until their lifetime ends (`"ttl"`).
    #[schemars(extend("default" = "bounded", "enum" = ["bounded", "ttl"]))]
    pub(crate) without_bus: Key<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLog {
    /// Writes that are kept; more are refused while no older one may be dropped.
    #[schemars(extend("default" = 100_000), range(min = 1, max = 10_000_000))]
    pub(crate) entries: Key<u32>,
    /// Bytes of their keys and values.
    #[schemars(extend("default" = "64MiB", "x-min" = "1KiB", "x-max" = "64GiB"))]
    pub(crate) bytes: Key<ByteSize>,
    /// A directory of this backend alone, in which the writes are [kept on
    /// disk](replicated-stores.md#on-disk), too. They are in plain text, and only their owner may
    /// read them.
    #[schemars(extend("x-default" = "in memory only"))]
    pub(crate) path: Key<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDispatch {
    /// The order of a replica's queue: `"fifo"`, or the earliest [deadline](deadlines.md#rules)
    /// first with `"edf"`.
    #[schemars(extend("default" = "fifo", "enum" = ["fifo", "edf"]))]
    pub(crate) queue: Key<String>,
    /// The choice of a call's replica: the less loaded of two drawn at random, the replicas in
    /// turn, one drawn at random, of two drawn at random the one that is expected to meet the
    /// deadline (`"tickets"`), or the same of all; or by their latencies
    /// ([replication](replication.md)): the quickest that has a token (`"tokens"`), of two the one
    /// with the lower latency times load (`"peak-ewma"`), as C3 does, or as Prequal does.
    #[schemars(extend("default" = "power-of-two", "enum" = ["power-of-two", "round-robin", "random",
        "tickets", "tickets-all", "tokens", "peak-ewma", "c3", "prequal"]))]
    pub(crate) balance: Key<String>,
    /// The condition under which misses are admitted: within the bounds below (`"open"`), those
    /// expected to meet their deadline (`"deadline"`), or those expected to wait no longer than
    /// `target_delay` (`"delay"`).
    #[schemars(extend("default" = "open", "enum" = ["open", "deadline", "delay"]))]
    pub(crate) admit: Key<String>,
    /// Calls for the same keys: one at a time, `factor` at once (`"fixed"`), a second where the
    /// first takes long (`"hedge"`), `factor` that wait, of which the first that starts removes the
    /// others (`"tied"`), or up to `factor` where replicas are idle (`"idle"`); see
    /// [replication](replication.md).
    #[schemars(extend("default" = "one", "enum" = ["one", "fixed", "hedge", "tied", "idle"]))]
    pub(crate) copies: Key<String>,
    /// For `"fixed"`, `"tied"` and `"idle"`: the number of calls, each at another replica.
    #[schemars(extend("default" = 2), range(min = 1, max = 8))]
    pub(crate) factor: Key<u8>,
    /// For `"hedge"`: the time after which there is a second call.
    pub(crate) hedge: RawHedge,
    /// For all copies: the place of further calls in a replica's queue, behind all first ones or as
    /// if they were first.
    #[schemars(extend("default" = "behind", "enum" = ["behind", "equal"]))]
    pub(crate) extra: Key<String>,
    /// For all copies: the calls that are cancelled when another has answered: none, those that
    /// wait in a queue, or all.
    #[schemars(extend("default" = "queued", "enum" = ["never", "queued", "always"]))]
    pub(crate) cancel: Key<String>,
    /// For `"tokens"`: calls in flight at one replica, another name of `in_flight_calls_max`.
    #[schemars(extend("x-default" = "as `in_flight_calls_max`"), range(min = 1))]
    pub(crate) tokens: Key<u32>,
    /// For `"tokens"`: replicas that are compared, drawn at random; 0 for all.
    #[schemars(extend("default" = 0))]
    pub(crate) lookups: Key<u32>,
    /// For `"tokens"`, `"peak-ewma"`, `"c3"` and `"prequal"`: the time over which a latency is
    /// forgotten; 0s for never with `"tokens"`.
    #[schemars(extend("default" = "5s", "x-min" = "0s", "x-max" = "1h"))]
    pub(crate) age: Key<Span>,
    /// For `"edf"`: the percentile of latencies below which a call is hopeless.
    #[schemars(extend("default" = 15), range(min = 0.01, max = 99.99))]
    pub(crate) alpha: Key<f64>,
    /// For `"tickets"`, `"tickets-all"`, `"deadline"` and `"delay"`: the percentile of latencies
    /// that estimates take for a call.
    #[schemars(extend("default" = 88), range(min = 0.01, max = 99.99))]
    pub(crate) beta: Key<f64>,
    /// For `"deadline"`: the share of deadlines that may be missed, for which the node chooses
    /// `beta`.
    #[schemars(extend("x-default" = "`beta` stays"), range(min = 0.000_1, max = 0.999_9))]
    pub(crate) target: Key<f64>,
    /// For `"delay"`: the longest expected wait in a queue.
    #[schemars(extend("default" = "20ms", "x-min" = "1ms", "x-max" = "10m"))]
    pub(crate) target_delay: Key<Span>,
    /// Another name of `retry.ratio`, instead of it.
    #[schemars(extend("x-default" = "as `retry.ratio`"), range(min = 0.0, max = 1.0))]
    pub(crate) extra_ratio: Key<f64>,
    /// Another name of `retry.burst`, instead of it.
    #[schemars(extend("x-default" = "as `retry.burst`"), range(min = 0, max = 1_000_000))]
    pub(crate) extra_burst: Key<u32>,
    /// Keys of one call; more are sent as several calls.
    #[schemars(extend("default" = 100), range(min = 1))]
    pub(crate) batch_keys_max: Key<u32>,
    /// Calls in flight at one replica; at most 512 at all replicas of a backend with `tickets`.
    #[schemars(extend("default" = 16), range(min = 1))]
    pub(crate) in_flight_calls_max: Key<u32>,
    /// Calls that wait for one replica in addition to those; 0 to refuse instead.
    #[schemars(extend("default" = 256))]
    pub(crate) queued_calls_max: Key<u32>,
    /// Queries' keys that wait for an answer.
    #[schemars(extend("default" = 100_000), range(min = 1))]
    pub(crate) waiters_max: Key<u32>,
    /// Retries of failed calls.
    pub(crate) retry: RawRetry,
    /// Probes of a replica that is down.
    pub(crate) probe: RawProbe,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawHedge {
    /// The percentile of all replicas' latencies.
    #[schemars(extend("default" = 95), range(min = 0.01, max = 99.99))]
    pub(crate) percentile: Key<f64>,
    /// The least time, however quick the replicas are.
    #[schemars(extend("default" = "1ms", "x-min" = "100us", "x-max" = "10m"))]
    pub(crate) min: Key<Span>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRamp {
    /// Keys fetched at a time at the beginning.
    #[schemars(extend("default" = 10), range(min = 1))]
    pub(crate) start: Key<u32>,
    /// The largest factor of a change.
    #[schemars(extend("default" = 2), range(min = 1.01, max = 10.0))]
    pub(crate) grow: Key<f64>,
    /// The part of the timeout that a fetch may take, in addition to the unloaded latency.
    #[schemars(extend("default" = 0.5), range(min = 0.01, max = 0.9))]
    pub(crate) wait: Key<f64>,
    /// Time between two changes.
    #[schemars(extend("default" = "250ms", "x-min" = "10ms", "x-max" = "1m"))]
    pub(crate) interval: Key<Span>,
    /// Time without a refusal after which the cache counts as warm; at least the interval.
    #[schemars(extend("default" = "10s", "x-max" = "1h"))]
    pub(crate) settle: Key<Span>,
}

/// The table `deadlines` of a `[[backend]]`: the deadline classes of its partitions.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDeadlineClasses {
    /// Number of classes of equal width.
    #[schemars(extend("default" = 10), range(min = 1, max = 16))]
    pub(crate) classes: Key<u32>,
    /// Upper bound of the last class, which holds longer deadlines, too.
    #[schemars(extend("default" = "100ms", "x-min" = "1ms", "x-max" = "24h"))]
    pub(crate) upto: Key<Span>,
    /// The upper bounds of the classes, ascending, instead of those two; at most 16, of at most
    /// 24h.
    #[schemars(extend("x-default" = "by `classes` and `upto`", "minItems" = 1, "maxItems" = 16))]
    pub(crate) bounds: Key<Vec<Span>>,
    /// Addition to the multiplier of a class for each missed deadline, under `"paper"`.
    #[schemars(extend("default" = 0.01), range(min = 0.000_1, max = 1.0))]
    pub(crate) step: Key<f64>,
    /// The origin of the multipliers: each class's share of the missed deadlines, `"paper"`, or the
    /// share of its own misses that miss their deadline, `"measured"`.
    #[schemars(extend("default" = "paper", "enum" = ["paper", "measured"]))]
    pub(crate) cost: Key<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRetry {
    /// Retries of a failed call, each on another replica, or after a wait where the backend
    /// throttled it.
    #[schemars(extend("default" = 1))]
    pub(crate) per_call_max: Key<u32>,
    /// Retries for each call in the long run.
    #[schemars(extend("default" = 0.1), range(min = 0.0, max = 1.0))]
    pub(crate) ratio: Key<f64>,
    /// Retries that may come at once.
    #[schemars(extend("default" = 10), range(min = 0, max = 1_000_000))]
    pub(crate) burst: Key<u32>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawProbe {
    /// Failures in a row after which a replica is down.
    #[schemars(extend("default" = 5), range(min = 1))]
    pub(crate) failures_max: Key<u32>,
    /// Time from then to the first probe; doubles with each that fails.
    #[schemars(extend("default" = "100ms", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) interval_min: Key<Span>,
    /// Limit of the doubling; at least `interval_min`.
    #[schemars(extend("default" = "10s", "x-min" = "1ms", "x-max" = "1h"))]
    pub(crate) interval_max: Key<Span>,
}
