//! Metrics for Prometheus, read from the counters on request.

mod attempts;
mod cluster;
mod duplicates;
mod format;
mod listeners;
mod process;
mod protobuf;
mod query_times;
mod samples;
mod slos;
mod tenants;
mod traces;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use sherwood_config::SloScope;
use sherwood_dispatch::{AdmitChoice, Counters, ReplicaStats, TicketStats};
use sherwood_listener::BufferBytes;
use sherwood_model::{BackendId, DeadlineClass, PartitionId, SloStanding, TenantId};
use sherwood_policy::GuardStanding;
use sherwood_store::ConsumedUnits;

use crate::backend::BackendDriver;
use crate::core::Core;
use crate::deadlines::DeadlineOutcomes;
use crate::observe::telemetry::Rbc;

use query_times::TimesFamily;
use samples::{BackendStats, Labels, counters, family, gauges, one};

pub(crate) use format::Format;

/// Encodes all metrics of the node.
pub(crate) fn exposition(core: &Arc<Core>, format: Format) -> Vec<u8> {
    let mut registry = Registry::with_prefix(PREFIX);
    // Read once, so that all of a histogram's counts agree.
    let times = Arc::new(query_times::read(core));
    registry.register_collector(Box::new(Reading { core: Arc::clone(core), times: Arc::clone(&times) }));
    // The names of these are common to all programs.
    let mut shared = Registry::default();
    shared.register_collector(Box::new(process::Process));
    let mut open = String::new();
    text::encode_registry(&mut open, &shared).expect("strings take everything");
    text::encode(&mut open, &registry).expect("strings take everything");
    match format {
        Format::Text => format::classic(&open).into_bytes(),
        Format::OpenMetrics => open.into_bytes(),
        Format::Protobuf => protobuf::encode(&open, PREFIX, &*times),
    }
}

/// The prefix of all names of the node's metrics.
const PREFIX: &str = "sherwood";

struct Reading {
    core: Arc<Core>,
    times: Arc<[TimesFamily; 2]>,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reading")
    }
}

/// Encodes the metrics of the ramps, which limit the misses of cold caches.
fn ramps(encoder: &mut DescriptorEncoder<'_>, stats: &[BackendStats]) -> fmt::Result {
    let ramps: Vec<_> = stats
        .iter()
        .filter_map(|(name, stats)| Some((vec![("backend", name.clone())], stats.ramp?)))
        .collect();
    let window = ramps.iter().map(|(label, ramp)| (label.clone(), f64::from(ramp.keys)));
    gauges(encoder, "backend_ramp_keys", "Keys that the ramp lets be fetched at a time", window.collect())?;
    let warm = ramps.iter().map(|(label, ramp)| (label.clone(), f64::from(u8::from(ramp.warm))));
    gauges(encoder, "backend_ramp_warm", "1 when the ramp has ended", warm.collect())
}

/// Returns the name of the policy in force, and the number of decisions.
fn policy(core: &Core) -> (String, u64) {
    let control = core.control();
    (control.policy().to_owned(), control.decisions())
}

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        process::encode_node(&self.core, &mut encoder)?;
        process::encode_memory(&self.core, &mut encoder)?;
        self.requests(&mut encoder)?;
        self.partitions(&mut encoder)?;
        self.guard_rails(&mut encoder)?;
        self.backends(&mut encoder)?;
        listeners::encode(&self.core, &mut encoder)?;
        query_times::encode(&*self.times, &mut encoder)?;
        tenants::encode(&self.core, &mut encoder)?;
        traces::encode(&self.core, &mut encoder)?;
        cluster::encode(&self.core, &mut encoder)?;
        duplicates::encode(&self.core, &mut encoder)?;
        let (policy, decisions) = policy(&self.core);
        counters(&mut encoder, "decisions", "Decisions of the control loop", one(decisions))?;
        gauges(&mut encoder, "policy", "1 for the policy in force", vec![(vec![("policy", policy)], 1.0)])?;
        let Core { cache, buffers, .. } = &*self.core;
        let (held, most) = (one(buffers.bytes() as f64), one(buffers.bytes_max() as f64));
        gauges(&mut encoder, "buffers_bytes", "Held for clients: requests, answers and buffers", held)?;
        let (kept, kept_max) = (one(buffers.kept_bytes() as f64), one(buffers.kept_bytes_max() as f64));
        gauges(
            &mut encoder,
            "buffers_kept_bytes",
            "Held for watched keys, queued commands and writes in flight",
            kept,
        )?;
        let help = "What watched keys, queued commands and writes in flight may hold together";
        gauges(&mut encoder, "buffers_kept_max_bytes", help, kept_max)?;
        gauges(&mut encoder, "buffers_max_bytes", "What requests and answers may hold together", most)?;
        let refusals = one(buffers.refused());
        counters(
            &mut encoder,
            "buffers_refusals",
            "Values and requests refused for want of buffers",
            refusals,
        )?;
        let refused = self.core.refusals.counts().into_iter();
        let refused = refused.map(|(why, count)| (vec![("reason", why.to_owned())], count)).collect();
        counters(
            &mut encoder,
            "http_refused_requests",
            "Requests without the right to ask, by why",
            refused,
        )?;
        let handshakes = one(self.core.refusals.handshakes());
        let help = "Connections that spoke no TLS, had no certificate, or took too long";
        counters(&mut encoder, "http_failed_handshakes", help, handshakes)?;
        let ends = self.core.certificates.ends().into_iter();
        let ends = ends.map(|(port, end)| (vec![("port", port)], end as f64)).collect();
        let help = "Seconds since 1970 from which the certificate of a port is invalid";
        gauges(&mut encoder, "certificate_expiry_timestamp_seconds", help, ends)?;
        let ceiling = one(cache.ceiling() as f64);
        gauges(
            &mut encoder,
            "cache_ceiling_bytes",
            "What all partitions may hold together at the moment",
            ceiling,
        )
    }
}

impl Reading {
    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let core = &self.core;
        let (finished, keys, dropped) = core.telemetry.totals();
        let (slo, standing) = core.telemetry.slo();
        counters(
            encoder,
            "requests",
            "Requests run here or reported, dropped reports excluded",
            one(finished),
        )?;
        counters(encoder, "keys", "Keys that the gateway was asked for, failed ones included", one(keys))?;
        counters(
            encoder,
            "reports_dropped",
            "Reports not counted, being older than the window",
            one(dropped),
        )?;
        let classes = core.classes.counts().into_iter().map(|(class, count)| (vec![("class", class)], count));
        counters(encoder, "class_requests", "Requests by the class they named", classes.collect())?;
        counters(encoder, "slo_observations", "Observations of the SLO", one(standing.observations))?;
        counters(encoder, "slo_violations", "Observations above the bound", one(standing.violations))?;
        gauges(encoder, "slo_bound_seconds", "The SLO's bound", one(slo.bound.as_secs_f64()))?;
        let current = standing.current.map(|seen| (Vec::new(), seen.as_secs_f64())).into_iter().collect();
        gauges(
            encoder,
            "request_latency_slo_seconds",
            "The SLO's percentile at the last observation",
            current,
        )?;
        slos::encode_percentiles(core, encoder)?;
        self.slos(encoder)?;
        slos::encode_requests(&self.core, encoder)?;
        self.deadlines(encoder)?;
        let band = core.control().band();
        let Rbc { reach, counts } = core.telemetry.rbc(core.clock.now(), band);
        let reach = one(reach.as_secs_f64());
        gauges(encoder, "request_blocking_reach_seconds", "How far back the blocking counts reach", reach)?;
        let rbc = counts.into_iter().enumerate().map(|(i, count)| (self.backend_label(i), count as f64));
        gauges(
            encoder,
            "request_blocking_requests",
            "Requests of the band that the backend blocked",
            rbc.collect(),
        )
    }

    /// Encodes the deadlines met and missed, by backend, tenant and class of the deadline.
    fn deadlines(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let names = &self.core.names;
        let counts = self.core.deadlines.all();
        let each = |value: fn(&DeadlineOutcomes) -> u64| {
            let sample = |((backend, tenant, class), kept): &(
                (BackendId, TenantId, DeadlineClass),
                DeadlineOutcomes,
            )| {
                let labels = vec![
                    ("backend", names.backend(*backend).to_owned()),
                    ("tenant", names.tenant(*tenant).to_owned()),
                    ("class", class.0.to_string()),
                ];
                (labels, value(kept))
            };
            counts.iter().map(sample).collect()
        };
        counters(encoder, "deadline_met", "Keys answered by their deadline", each(|kept| kept.met))?;
        counters(
            encoder,
            "deadline_missed",
            "Keys with a deadline answered later or not at all, rejected ones excluded",
            each(|kept| kept.missed),
        )
    }

    /// Encodes the SLOs of classes and tenants like the global one.
    fn slos(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let core = &self.core;
        let standings: Vec<_> = core.telemetry.slos().standings().collect();
        let labels = |to: &SloScope| {
            let kind = if matches!(to, SloScope::Class(_)) { "class" } else { "tenant" };
            vec![(kind, core.names.slo_scope(to).to_owned())]
        };
        let each = |value: fn(&SloStanding) -> u64| {
            standings.iter().map(|(to, _, standing)| (labels(to), value(standing))).collect()
        };
        counters(
            encoder,
            "promise_observations",
            "Observations of promises to classes and tenants",
            each(|s| s.observations),
        )?;
        counters(encoder, "promise_violations", "Those above their bound", each(|s| s.violations))?;
        let bounds = standings.iter().map(|(to, slo, _)| (labels(to), slo.bound.as_secs_f64()));
        gauges(encoder, "promise_bound_seconds", "The promise's bound", bounds.collect())?;
        let seen = standings.iter().filter_map(|(to, _, standing)| {
            standing.current.map(|current| (labels(to), current.as_secs_f64()))
        });
        gauges(
            encoder,
            "promise_latency_seconds",
            "The promise's percentile at the last observation",
            seen.collect(),
        )
    }

    /// Encodes the guard, which rolls back harmful allocations, and the operator's limits of
    /// partitions.
    fn guard_rails(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (guard, pins) = {
            let control = self.core.control();
            (control.guard(), control.pins().to_vec())
        };
        if let Some(GuardStanding { trips, frozen_until, worse_since, .. }) = guard {
            let flag = |on: bool| one(f64::from(u8::from(on)));
            counters(
                encoder,
                "guard_trips",
                "Times the guard went back to an earlier allocation",
                one(trips),
            )?;
            gauges(
                encoder,
                "guard_frozen",
                "1 while nothing moves after that",
                flag(frozen_until.is_some()),
            )?;
            let suspects = flag(worse_since.is_some());
            gauges(encoder, "guard_suspects", "1 while moves look harmful", suspects)?;
        }
        let names = self.core.names.partitions();
        let label = |index: usize| vec![("partition", names[index].name.clone())];
        let min = pins.iter().enumerate().map(|(i, pin)| (label(i), pin.min_bytes as f64));
        gauges(encoder, "partition_min_bytes", "Least bytes it may have", min.collect())?;
        let max = pins.iter().enumerate().filter_map(|(i, pin)| Some((label(i), pin.max_bytes? as f64)));
        gauges(
            encoder,
            "partition_max_bytes",
            "Most bytes it may have, where that is not all",
            max.collect(),
        )?;
        let dry = pins.iter().enumerate().map(|(i, pin)| (label(i), f64::from(u8::from(pin.dry_run))));
        gauges(encoder, "partition_dry_run", "1 while decisions about it are only said", dry.collect())
    }

    fn partitions(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let core = &self.core;
        let names = core.names.partitions();
        let usages: Vec<_> = (0..names.len())
            .map(|i| (names[i].name.clone(), core.usage(PartitionId::from_index(i))))
            .collect();
        let each = |value: fn(&sherwood_cache::Usage) -> u64| -> Vec<(Labels, u64)> {
            usages.iter().map(|(name, usage)| (vec![("partition", name.clone())], value(usage))).collect()
        };
        let level = |value| each(value).into_iter().map(|(labels, bytes)| (labels, bytes as f64)).collect();
        gauges(encoder, "partition_allocated_bytes", "Budget of the partition", level(|u| u.budget_bytes))?;
        gauges(encoder, "partition_used_bytes", "Charged bytes of its items", level(|u| u.used_bytes))?;
        gauges(encoder, "partition_items", "Items it holds", level(|u| u.items))?;
        counters(encoder, "partition_hits", "Look-ups that ended in the cache", each(|u| u.hits))?;
        counters(encoder, "partition_misses", "Look-ups that did not", each(|u| u.misses))?;
        counters(encoder, "partition_stores", "Values stored", each(|u| u.stores))?;
        counters(
            encoder,
            "partition_evictions",
            "Live items dropped for want of space",
            each(|u| u.evictions),
        )?;
        counters(
            encoder,
            "partition_expired",
            "Items dropped because their time had come",
            each(|u| u.expired),
        )?;
        let reached = core.instances.iter().zip(names).map(|(instance, partition)| {
            let reached = f64::from(u8::from(instance.trouble().is_none()));
            (vec![("partition", partition.name.clone())], reached)
        });
        gauges(
            encoder,
            "instance_reached",
            "1 while the cache that is resized answers and can be resized",
            reached.collect(),
        )
    }

    fn backends(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let core = &self.core;
        let stats: Vec<BackendStats> =
            core.backends.iter().flatten().map(|backend| (backend.name.clone(), backend.stats())).collect();
        let each = |value: fn(&sherwood_dispatch::Counters) -> u64| -> Vec<(Labels, u64)> {
            stats
                .iter()
                .map(|(name, stats)| (vec![("backend", name.clone())], value(&stats.counters)))
                .collect()
        };
        counters(encoder, "backend_keys", "Keys asked for after a miss", each(|c| c.asked))?;
        counters(encoder, "backend_joined_keys", "Keys that joined a fetch under way", each(|c| c.joined))?;
        counters(encoder, "backend_calls", "Calls to replicas, retries included", each(|c| c.calls))?;
        counters(encoder, "backend_retries", "Calls made again", each(|c| c.retries))?;
        counters(encoder, "backend_timeouts", "Keys given up after the time-out", each(|c| c.timed_out))?;
        counters(encoder, "backend_failures", "Keys whose call failed", each(|c| c.failed))?;
        counters(
            encoder,
            "backend_refusals",
            "Keys refused at a bound or with no replica up",
            each(|c| c.refused),
        )?;
        let stale =
            core.backends.iter().flatten().map(|backend| {
                (vec![("backend", backend.name.clone())], backend.stale_answers.load(Relaxed))
            });
        counters(
            encoder,
            "backend_stale_answers",
            "Keys answered with a value no longer fresh",
            stale.collect(),
        )?;
        self.stores(encoder)?;
        counters(encoder, "backend_ramp_refusals", "Keys that the ramp refused", each(|c| c.ramped))?;
        ramps(encoder, &stats)?;
        attempts::encode(core, &stats, encoder)?;
        self.queues(encoder, &stats)?;
        self.rejections(encoder)?;
        let now = core.clock.now();
        let p99 = (0..core.names.backends().len()).filter_map(|i| {
            let p99 = core.telemetry.query_sketch(now, BackendId::from_index(i)).quantile(0.99)?;
            Some((self.backend_label(i), p99.as_secs_f64()))
        });
        gauges(
            encoder,
            "query_p99_seconds",
            "P99 of query latency, hits and misses, in the RBC window",
            p99.collect(),
        )
    }

    /// Encodes the metrics of the replicas' queues, and of schedulers' tickets where they replace
    /// queues.
    fn queues(&self, encoder: &mut DescriptorEncoder<'_>, stats: &[BackendStats]) -> fmt::Result {
        let core = &self.core;
        let replicas: Vec<(Labels, &ReplicaStats)> = stats
            .iter()
            .flat_map(|(name, stats)| {
                stats.replicas.iter().map(move |replica| {
                    let labels = vec![("backend", name.clone()), ("replica", replica.replica.0.to_string())];
                    (labels, replica)
                })
            })
            .collect();
        let up = replicas.iter().map(|(labels, replica)| (labels.clone(), f64::from(u8::from(replica.up))));
        gauges(encoder, "replica_up", "Whether the replica gets calls", up.collect())?;
        let tickets: Vec<(Labels, TicketStats)> = core
            .schedulers
            .iter()
            .map(|scheduler| (vec![("scheduler", scheduler.name.clone())], scheduler.stats()))
            .collect();
        let waiting = replicas.iter().map(|(labels, replica)| (labels.clone(), replica.queued_calls.into()));
        let waiting =
            waiting.chain(tickets.iter().map(|(labels, stats)| (labels.clone(), stats.waiting.into())));
        gauges(encoder, "queue_waiting", "Calls that wait for the replica", waiting.collect())?;
        let deferred = replicas.iter().map(|(labels, replica)| (labels.clone(), replica.deferred_calls));
        let deferred = deferred.chain(tickets.iter().map(|(labels, stats)| (labels.clone(), stats.deferred)));
        counters(
            encoder,
            "queue_deferred",
            "Calls put back because they could not meet their deadline",
            deferred.collect(),
        )?;
        let dropped = replicas.iter().map(|(labels, replica)| (labels.clone(), replica.dropped_latencies));
        let dropped =
            dropped.chain(tickets.iter().map(|(labels, stats)| (labels.clone(), stats.dropped_latencies)));
        let help = "Latencies that no estimate is made of, since no call takes so long";
        counters(encoder, "queue_latencies_dropped", help, dropped.collect())?;
        let held = |stats: &TicketStats| f64::from(stats.waiting) + f64::from(stats.started);
        let held = tickets.iter().map(|(labels, stats)| (labels.clone(), held(stats)));
        gauges(encoder, "tickets_held", "Tickets that the scheduler has given out", held.collect())?;
        let expired = tickets.iter().map(|(labels, stats)| (labels.clone(), stats.lapsed));
        let help =
            "Tickets that ended with their lease: their clients vanished, or waited for the whole of it";
        counters(encoder, "tickets_expired", help, expired.collect())?;
        let clients = core.backends.iter().flatten().filter_map(|backend| {
            let schedulers = backend.schedulers.as_ref()?;
            Some((vec![("backend", backend.name.clone())], schedulers.failed_open()))
        });
        let help = "Calls made without a ticket, their schedulers not having given a turn in time";
        counters(encoder, "tickets_failed_open", help, clients.collect())
    }

    /// Encodes the keys that were refused at once, and the percentile that estimates use.
    fn rejections(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let backends = || self.core.backends.iter().flatten();
        let mut rejected = RejectedKeys::default();
        backends().for_each(|backend| rejected.add(backend.admit, &backend.stats().counters));
        let RejectedKeys { deadline, delay, ramp, rate, bound } = rejected;
        let reasons =
            [("deadline", deadline), ("delay", delay), ("ramp", ramp), ("rate", rate), ("bound", bound)];
        let samples = reasons.map(|(reason, count)| (vec![("reason", reason.to_owned())], count));
        counters(encoder, "rejected", "Keys refused at once, by why", samples.to_vec())?;
        let beta = backends()
            .filter(|backend| backend.uses_estimates)
            .map(|backend| (vec![("backend", backend.name.clone())], backend.stats().beta.percent()));
        gauges(
            encoder,
            "admission_beta",
            "Percentile of latencies that estimates take for each call",
            beta.collect(),
        )
    }

    /// Encodes the outcomes of writes, and the failures of stores.
    fn stores(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let backends = || self.core.backends.iter().flatten();
        let label = |backend: &BackendDriver, label: &'static str, word: &str| -> Labels {
            vec![("backend", backend.name.clone()), (label, word.to_owned())]
        };
        let written = backends().flat_map(|backend| {
            let counts = backend.written.counts().into_iter();
            counts.map(move |(outcome, count)| (label(backend, "outcome", outcome), count))
        });
        counters(encoder, "backend_writes", "Writes through the node, by their outcome", written.collect())?;
        let errors = backends().flat_map(|backend| {
            let counts = backend.errors.counts().into_iter();
            counts.map(move |(cause, count)| (label(backend, "cause", cause), count))
        });
        counters(
            encoder,
            "backend_errors",
            "Failed calls, writes and probes of the backend's stores, by cause",
            errors.collect(),
        )?;
        let consumed = backends().flat_map(|backend| {
            backend.consumed_units().flat_map(move |(replica, ConsumedUnits { reads, writes })| {
                [("reads", reads), ("writes", writes)].map(|(kind, units)| {
                    let mut labels = label(backend, "replica", &replica.0.to_string());
                    labels.push(("kind", kind.to_owned()));
                    (labels, ConstCounter::new(units))
                })
            })
        });
        let help = "Units of capacity consumed, as the store reports them";
        family(encoder, "store_consumed_units", help, consumed)
    }

    fn backend_label(&self, index: usize) -> Labels {
        vec![("backend", self.core.names.backends()[index].clone())]
    }
}

/// Keys that were refused at once, by the reason, of all backends.
#[derive(Default)]
struct RejectedKeys {
    deadline: u64,
    delay: u64,
    ramp: u64,
    rate: u64,
    bound: u64,
}

impl RejectedKeys {
    /// Adds those of a backend with this admission rule.
    fn add(&mut self, admit: AdmitChoice, counters: &Counters) {
        let Counters { refused, ramped, rejected, over_rate, .. } = *counters;
        match admit {
            AdmitChoice::Delay { .. } => self.delay += rejected,
            AdmitChoice::Deadline { .. } | AdmitChoice::Open => self.deadline += rejected,
        }
        self.ramp += ramped;
        self.rate += over_rate;
        self.bound += refused - ramped - rejected - over_rate;
    }
}
