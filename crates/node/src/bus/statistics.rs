//! Statistics of nodes, as Protocol Buffers. Values beyond what a message can state are left out;
//! whatever arrives is made valid.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::{DecodeError, Message as _};
use sherwood_control::cluster::{NodeStatistics, PartitionSnapshot, RequestsSnapshot, Snapshot, Stamp};
use sherwood_control::{CacheReport, Report};
use sherwood_model::{
    BackendId, Band, CollectedRequests, FinishedRequest, LatencyBucket, RequestCount, TenantId,
};
use sherwood_policy::MissRatioCurve;

use super::generated as proto;

/// Position that stands for no name.
const NONE: u16 = u16::MAX;
/// Longest name of a backend in a snapshot; longer ones are left out.
const NAME_BYTES_MAX: usize = 128;
/// Unit of miss ratios.
const RATIO_PARTS: f64 = 65_535.0;

/// Returns a node's statistics as bytes.
pub(super) fn encode_batch(batch: &NodeStatistics) -> Vec<u8> {
    let NodeStatistics { stamp, backends, tenants, requests, report } = batch;
    let partition = |(name, cache): (&String, &CacheReport)| proto::PartitionReport {
        name: name.clone(),
        budget_bytes: cache.budget_bytes,
        hits: cache.hits,
        misses: cache.misses,
        curve: cache.curve.as_ref().map(encode_curve),
    };
    let message = proto::NodeStatistics {
        incarnation: stamp.incarnation,
        number: stamp.number,
        backends: backends.clone(),
        tenants: tenants.clone(),
        requests: requests.each().iter().map(|request| encode_request(*request)).collect(),
        counts: requests.counted().chunk_by(|a, b| sender(a) == sender(b)).map(encode_counts).collect(),
        partitions: report.partitions.iter().map(partition).collect(),
    };
    message.encode_to_vec()
}

/// Returns the statistics of `node` that these bytes state.
///
/// # Errors
/// If they are no such message.
pub(super) fn decode_batch(node: &str, bytes: &[u8]) -> Result<NodeStatistics, DecodeError> {
    let message = proto::NodeStatistics::decode(bytes)?;
    let requests = if message.counts.is_empty() {
        CollectedRequests::Each(message.requests.into_iter().map(decode_request).collect())
    } else {
        CollectedRequests::Counted(message.counts.iter().flat_map(decode_counts).collect())
    };
    let partition = |of: proto::PartitionReport| {
        let proto::PartitionReport { name, budget_bytes, hits, misses, curve } = of;
        (name, CacheReport { budget_bytes, hits, misses, curve: curve.map(decode_curve) })
    };
    Ok(NodeStatistics {
        stamp: Stamp { incarnation: message.incarnation, number: message.number },
        backends: message.backends,
        tenants: message.tenants,
        requests,
        report: Report {
            node: node.to_owned(),
            partitions: message.partitions.into_iter().map(partition).collect(),
            deadlines: BTreeMap::new(),
        },
    })
}

/// Tenant and blocking backend as positions.
fn sender(equal: &RequestCount) -> (u16, u16) {
    let backend = equal.request.blocking().map_or(NONE, |backend| backend.0);
    (equal.request.tenant.0, backend)
}

fn encode_request(request: FinishedRequest) -> u64 {
    let (tenant, backend) = sender(&RequestCount { request, times: 1 });
    u64::from(request.latency_us) | u64::from(tenant) << 32 | u64::from(backend) << 48
}

fn decode_request(bits: u64) -> FinishedRequest {
    request(bits as u32, (bits >> 32) as u16, (bits >> 48) as u16)
}

fn request(latency_us: u32, tenant: u16, backend: u16) -> FinishedRequest {
    let blocking = (backend != NONE).then_some(BackendId(backend));
    FinishedRequest::of_micros(latency_us, blocking).of(TenantId(tenant))
}

/// Returns the counts of one tenant and backend, in the order of latencies.
fn encode_counts(counts: &[RequestCount]) -> proto::RequestCounts {
    let (tenant, backend) = counts.first().map_or((NONE, NONE), sender);
    let mut before = 0;
    let bucket = |equal: &RequestCount| {
        let bucket = u32::from(LatencyBucket::of(equal.request.latency_us).index());
        bucket.saturating_sub(std::mem::replace(&mut before, bucket))
    };
    proto::RequestCounts {
        tenant: tenant.into(),
        backend: backend.into(),
        buckets: counts.iter().map(bucket).collect(),
        requests: counts.iter().map(|equal| equal.times).collect(),
    }
}

fn decode_counts(counts: &proto::RequestCounts) -> impl Iterator<Item = RequestCount> {
    let position = |position: u32| u16::try_from(position).unwrap_or(NONE);
    let (tenant, backend) = (position(counts.tenant), position(counts.backend));
    let mut index = 0_u32;
    counts.buckets.iter().zip(&counts.requests).filter_map(move |(more, &times)| {
        index = index.saturating_add(*more);
        let bucket = u16::try_from(index).ok().and_then(LatencyBucket::from_index)?;
        Some(RequestCount { request: request(bucket.middle_us(), tenant, backend), times })
    })
}

fn encode_curve(curve: &MissRatioCurve) -> proto::MissRatios {
    let parts = |ratio: f64| (ratio * RATIO_PARTS).round() as u32;
    let each = curve.points().windows(2);
    let (bytes, falls) =
        each.map(|two| (two[1].0 - two[0].0, parts(two[0].1).saturating_sub(parts(two[1].1)))).unzip();
    proto::MissRatios { bytes, falls }
}

fn decode_curve(curve: proto::MissRatios) -> MissRatioCurve {
    let (mut size, mut ratio) = (0_u64, RATIO_PARTS);
    let points = curve.bytes.into_iter().zip(curve.falls).map(move |(bytes, fall)| {
        (size, ratio) = (size.saturating_add(bytes), ratio - f64::from(fall));
        (size, ratio / RATIO_PARTS)
    });
    MissRatioCurve::new(points)
}

/// Returns a snapshot as bytes.
pub(super) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let Snapshot { stamp, nodes, requests, has_curves, shadow_ratio, partitions } = snapshot;
    let mut backends = Positions::default();
    let node = |(node, stamp): &(String, Stamp)| proto::MergedNode {
        node: node.clone(),
        incarnation: stamp.incarnation,
        number: stamp.number,
    };
    let partition = |(name, of): (&String, &PartitionSnapshot)| proto::MergedPartition {
        name: name.clone(),
        hits: of.hits,
        misses: of.misses,
        shadow_hits: of.shadow_hits,
        curve: of.curve.as_ref().map(encode_curve),
    };
    let message = proto::Snapshot {
        incarnation: stamp.incarnation,
        number: stamp.number,
        nodes: nodes.iter().map(node).collect(),
        requests: requests.iter().map(|of| encode_requests(of, &mut backends)).collect(),
        backends: backends.names,
        has_curves: *has_curves,
        shadow_ratio: *shadow_ratio,
        partitions: partitions.iter().map(partition).collect(),
    };
    message.encode_to_vec()
}

/// Returns the snapshot that these bytes state.
///
/// # Errors
/// If they are no such message.
pub(super) fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, DecodeError> {
    let message = proto::Snapshot::decode(bytes)?;
    let node = |of: proto::MergedNode| (of.node, Stamp { incarnation: of.incarnation, number: of.number });
    let partition = |of: proto::MergedPartition| {
        let proto::MergedPartition { name, hits, misses, shadow_hits, curve } = of;
        (name, PartitionSnapshot { hits, misses, shadow_hits, curve: curve.map(decode_curve) })
    };
    let backends = message.backends;
    Ok(Snapshot {
        stamp: Stamp { incarnation: message.incarnation, number: message.number },
        nodes: message.nodes.into_iter().map(node).collect(),
        requests: message.requests.into_iter().map(|of| decode_requests(of, &backends)).collect(),
        has_curves: message.has_curves,
        shadow_ratio: message.shadow_ratio,
        partitions: message.partitions.into_iter().map(partition).collect(),
    })
}

fn encode_requests(of: &RequestsSnapshot, backends: &mut Positions) -> proto::MergedRequests {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let RequestsSnapshot { tenant, count, reach, latency_range, quantile, tail, blocking } = of;
    let blocking = blocking.iter().map(|(band, counts)| proto::BlockingCounts {
        low: band.low,
        high: band.high,
        backends: counts.keys().map(|name| backends.of(name)).collect(),
        requests: counts.values().copied().collect(),
    });
    proto::MergedRequests {
        tenant: tenant.clone(),
        requests: *count,
        reach_us: micros(*reach),
        shortest_us: latency_range.map(|(shortest, _)| micros(shortest)),
        longest_us: latency_range.map(|(_, longest)| micros(longest)),
        quantile: *quantile,
        tail_us: tail.map(micros),
        blocking: blocking.collect(),
    }
}

fn decode_requests(of: proto::MergedRequests, backends: &[String]) -> RequestsSnapshot {
    let blocking = |of: proto::BlockingCounts| {
        // Each position once, and short names: a message may repeat a long one very often.
        let each: BTreeMap<u32, u64> = of.backends.into_iter().zip(of.requests).collect();
        let name = |at: u32| backends.get(at as usize).filter(|name| name.len() <= NAME_BYTES_MAX);
        let named = each.into_iter().filter_map(|(at, count)| Some((name(at)?.clone(), count)));
        (Band { low: of.low, high: of.high }, named.collect())
    };
    RequestsSnapshot {
        tenant: of.tenant,
        count: of.requests,
        reach: Duration::from_micros(of.reach_us),
        latency_range: of
            .shortest_us
            .map(Duration::from_micros)
            .zip(of.longest_us.map(Duration::from_micros)),
        quantile: of.quantile,
        tail: of.tail_us.map(Duration::from_micros),
        blocking: of.blocking.into_iter().map(blocking).collect(),
    }
}

/// Names of a message, each once.
#[derive(Default)]
struct Positions {
    names: Vec<String>,
    known: BTreeMap<String, u32>,
}

impl Positions {
    fn of(&mut self, name: &str) -> u32 {
        if let Some(&position) = self.known.get(name) {
            return position;
        }
        let position = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), position);
        position
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sherwood_model::RequestCollector;

    use super::*;

    fn report(curve: Option<MissRatioCurve>) -> Report {
        let cache = CacheReport { budget_bytes: 1 << 40, hits: 7, misses: u64::MAX, curve };
        Report {
            node: "a".to_owned(),
            partitions: [("orders".to_owned(), cache)].into(),
            ..Report::default()
        }
    }

    fn batch(requests: CollectedRequests, curve: Option<MissRatioCurve>) -> NodeStatistics {
        NodeStatistics {
            stamp: Stamp { incarnation: 77, number: 3 },
            backends: vec!["orders".to_owned(), "users".to_owned()],
            tenants: vec!["default".to_owned()],
            requests,
            report: report(curve),
        }
    }

    /// A curve whose ratios are whole 65,535ths.
    fn curve() -> MissRatioCurve {
        MissRatioCurve::new([(1 << 20, 40_000.0 / RATIO_PARTS), (1 << 50, 0.0)])
    }

    #[test]
    fn statistics_of_a_node_are_received_as_they_were_sent() {
        let blocked = |latency, backend| FinishedRequest::of_micros(latency, backend);
        let each = vec![
            blocked(u32::MAX, Some(BackendId(1))),
            blocked(0, None).of(TenantId(u16::MAX)),
            blocked(5, Some(BackendId(0))),
        ];
        let sent = batch(CollectedRequests::Each(each), Some(curve()));
        assert_eq!(decode_batch("a", &encode_batch(&sent)), Ok(sent));
    }

    #[test]
    fn snapshot_is_received_as_it_was_sent() {
        let band = Band { low: 98.5, high: 99.5 };
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 9)).collect();
        let all = RequestsSnapshot {
            tenant: None,
            count: 1_000,
            reach: Duration::from_secs(60),
            latency_range: Some((Duration::from_micros(1), Duration::from_secs(4_000))),
            quantile: Some(0.99),
            tail: Some(Duration::from_millis(150)),
            blocking: vec![
                (band, named(&["orders", "users"])),
                (Band { low: 0.0, high: 1.5 }, named(&["users"])),
            ],
        };
        let blue = RequestsSnapshot { tenant: Some("blue".to_owned()), ..RequestsSnapshot::default() };
        let of = PartitionSnapshot { hits: 1, misses: 2, shadow_hits: 3, curve: Some(curve()) };
        let sent = Snapshot {
            stamp: Stamp { incarnation: 5, number: 6 },
            nodes: vec![("a".to_owned(), Stamp { incarnation: 7, number: 8 })],
            requests: vec![all, blue],
            has_curves: true,
            shadow_ratio: Some(0.01),
            partitions: [("orders".to_owned(), of)].into(),
        };
        assert_eq!(decode_snapshot(&encode_snapshot(&sent)), Ok(sent));
    }

    #[test]
    fn statistics_of_a_thousand_requests_take_less_than_ten_kilobytes() {
        let request = |i: u32| FinishedRequest::of_micros(i * 977, Some(BackendId((i % 2) as u16)));
        let requests = CollectedRequests::Each((0..1_000).map(request).collect());
        let cache = CacheReport { budget_bytes: 1 << 34, hits: 1 << 40, misses: 1 << 40, curve: None };
        let partitions = (0..20).map(|at| (format!("recommendations-{at}"), cache.clone())).collect();
        let report = Report { partitions, ..Report::default() };
        let bytes = encode_batch(&NodeStatistics { report, ..batch(requests, None) }).len();
        assert!((8_000..10_000).contains(&bytes), "{bytes}");
    }

    proptest! {
        #[test]
        fn counted_requests_are_received_as_they_were_sent_within_64_kib(
            requests in prop::collection::vec((any::<u32>(), 0_u16..40, 0_u16..40, 1_u64..1 << 30), 1..9_000),
        ) {
            let mut collector = RequestCollector::default();
            for &(latency, tenant, backend, times) in &requests {
                collector.record(request(latency, tenant, backend), times);
            }
            let sent = batch(collector.into(), None);
            let bytes = encode_batch(&sent);
            prop_assert!(bytes.len() <= (64 << 10) + 100, "{} bytes", bytes.len());
            prop_assert_eq!(decode_batch("a", &bytes), Ok(sent));
        }

        #[test]
        fn bytes_of_a_message_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (decode_batch("a", &bytes), decode_snapshot(&bytes));
            let numbers: Vec<u64> = bytes.iter().map(|&byte| u64::MAX >> (byte % 64)).collect();
            let small: Vec<u32> = bytes.iter().map(|&byte| u32::MAX >> (byte % 32)).collect();
            let curve = decode_curve(proto::MissRatios { bytes: numbers.clone(), falls: small.clone() });
            prop_assert!(curve.least() >= 0.0);
            let counts = proto::RequestCounts {
                tenant: u32::MAX,
                backend: 70_000,
                buckets: small,
                requests: numbers,
            };
            prop_assert!(decode_counts(&counts).all(|of| of.request.blocking().is_none()));
        }
    }
}
