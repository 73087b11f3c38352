use proptest::prelude::*;
use sherwood_model::{BackendId, Band, FinishedRequest, RequestCollector, RequestCount, TenantId};
use sherwood_policy::MissRatioCurve;

use super::*;
use crate::CacheReport;

const WINDOW: Duration = Duration::from_secs(60);
const EVERYTHING: Band = Band { low: 0.0, high: 100.0 };
const TOTAL: u64 = 1_000;

/// A node of the tests: its statistics, its clock's lead, and its cache's counters.
struct TestNode {
    statistics: ClusterStatistics,
    lead: Duration,
    hits: u64,
}

fn names() -> KnownNames {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    KnownNames::new(of(&["orders", "users"]), of(&["default", "blue"]), of(&["orders", "users"]))
}

fn members(own: &str, statistics: &[&str]) -> Members {
    let nodes = ["a", "b", "c"].map(str::to_owned).to_vec();
    Members {
        own: own.to_owned(),
        nodes,
        statistics: statistics.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn wants() -> Wants {
    let needs = Needs { requests: true, bands: vec![EVERYTHING], quantile: Some(0.99), ..Needs::default() };
    Wants { needs, by_tenant: false }
}

fn cluster(statistics: &[&str]) -> [TestNode; 3] {
    let mut lead = 0;
    ["a", "b", "c"].map(|own| {
        lead += 700;
        TestNode {
            statistics: ClusterStatistics::new(members(own, statistics), names(), WINDOW, 1),
            lead: Duration::from_millis(lead),
            hits: 0,
        }
    })
}

fn requests(of: &[(u32, u16)]) -> CollectedRequests {
    let request = |&(latency_us, backend)| FinishedRequest::of_micros(latency_us, Some(BackendId(backend)));
    CollectedRequests::Each(of.iter().map(request).collect())
}

fn report(hits: u64) -> Report {
    let curve = MissRatioCurve::new([(100, 0.5), (200, 0.0)]);
    let cache = CacheReport { budget_bytes: 100, hits, misses: 2 * hits, curve: Some(curve) };
    Report { partitions: [("orders".to_owned(), cache)].into(), ..Report::default() }
}

/// A second of the cluster: each node publishes a request and its cache's counters, and what is
/// published arrives where `arrives` from one node to the other.
fn second(
    nodes: &mut [TestNode; 3],
    now: Instant,
    wants: &Wants,
    mut arrives: impl FnMut(usize, usize) -> bool,
) {
    for from in 0..3 {
        let at = now + nodes[from].lead;
        nodes[from].hits += 10;
        let report = report(nodes[from].hits);
        let message = nodes[from].statistics.publish(at, requests(&[(1_000, from as u16 % 2)]), report);
        let draft = nodes[from].statistics.begin_snapshot(at, wants, TOTAL);
        let snapshot = draft.map(SnapshotDraft::finish);
        let name = ["a", "b", "c"][from];
        for (to, node) in nodes.iter_mut().enumerate() {
            let at = now + node.lead;
            if from != to && arrives(from, to) {
                let _ = node.statistics.handle_batch(at, name, &message);
            }
            if let Some(snapshot) = snapshot.clone().filter(|_| from == to || arrives(from, to)) {
                let _ = node.statistics.handle_snapshot(at, name, snapshot);
            }
        }
    }
}

/// Blocking counts on which a node decides; none if it decides on its own requests.
fn counts(node: &TestNode, now: Instant, wants: &Wants) -> Option<Vec<u64>> {
    let known = node.statistics.requests(now + node.lead, wants)?;
    Some(known.observations(&wants.needs, 2)[0].blocking(EVERYTHING).to_vec())
}

fn source(node: &TestNode, now: Instant) -> Source {
    node.statistics.source(now + node.lead, &wants())
}

fn followed_node(node: &TestNode, now: Instant) -> Option<String> {
    match source(node, now) {
        Source::Snapshot { node, .. } => Some(node),
        Source::Own { .. } | Source::All { .. } => None,
    }
}

#[test]
fn nodes_without_statistics_nodes_decide_on_the_requests_of_all() {
    let mut nodes = cluster(&[]);
    for at in 1..=10 {
        second(&mut nodes, Instant::from_secs(at), &wants(), |_, _| true);
    }
    let now = Instant::from_secs(10);
    for node in &nodes {
        assert_eq!(counts(node, now, &wants()), Some(vec![20, 10]));
        let all = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(source(node, now), Source::All { nodes: all });
    }
    // A node whose statistics are lost counts only what it heard, and says so by its nodes.
    for at in 11..=15 {
        second(&mut nodes, Instant::from_secs(at), &wants(), |from, _| from != 2);
    }
    let now = Instant::from_secs(15);
    assert_eq!(source(&nodes[0], now), Source::All { nodes: vec!["a".to_owned(), "b".to_owned()] });
    assert_eq!(counts(&nodes[0], now, &wants()), Some(vec![25, 15]));
}

#[test]
fn node_that_publishes_nothing_decides_on_its_own_requests() {
    let mut nodes = cluster(&[]);
    let own = Source::Own { lacks: None };
    assert_eq!(source(&nodes[0], Instant::from_secs(1)), own);
    second(&mut nodes, Instant::from_secs(1), &wants(), |_, _| true);
    assert!(counts(&nodes[0], Instant::from_millis(5_999), &wants()).is_some());
    assert_eq!(counts(&nodes[0], Instant::from_millis(6_000), &wants()), None);
    assert_eq!(source(&nodes[0], Instant::from_millis(6_000)), own);
}

#[test]
fn nodes_follow_the_first_statistics_node_and_within_3_s_the_next_one() {
    let mut nodes = cluster(&["b", "a"]);
    second(&mut nodes, Instant::from_secs(1), &wants(), |_, _| true);
    // The snapshot of b was made before c published for the first time.
    let now = Instant::from_secs(2);
    second(&mut nodes, now, &wants(), |_, _| true);
    let known: Vec<_> = nodes.iter().map(|node| counts(node, now, &wants())).collect();
    assert!(nodes.iter().all(|node| followed_node(node, now) == Some("b".to_owned())));
    assert_eq!(
        known,
        [const { Some([3, 2]) }; 3].map(|of| of.map(|of| of.to_vec())),
        "all decide from one count"
    );
    // From now on b is silent.
    for at in 3..=9 {
        second(&mut nodes, Instant::from_secs(at), &wants(), |from, _| from != 1);
        let now = Instant::from_secs(at);
        let expected = if at < 5 { "b" } else { "a" };
        assert_eq!(followed_node(&nodes[0], now), Some(expected.to_owned()), "at {at} s");
        assert_eq!(followed_node(&nodes[2], now), Some(expected.to_owned()), "at {at} s");
    }
    second(&mut nodes, Instant::from_secs(10), &wants(), |_, _| true);
    assert_eq!(followed_node(&nodes[2], Instant::from_secs(10)), Some("b".to_owned()), "it is back");
}

#[test]
fn snapshot_without_a_recent_message_of_the_node_is_not_followed() {
    let mut nodes = cluster(&["a"]);
    let mut now = Instant::ZERO;
    for at in 1..=10 {
        now = Instant::from_secs(at);
        // From the sixth second on nothing of c arrives, but it hears a.
        second(&mut nodes, now, &wants(), |from, to| from != 2 || to != 0 || at <= 5);
        let expected = (2..=9).contains(&at);
        assert_eq!(followed_node(&nodes[2], now).is_some(), expected, "at {at} s");
    }
    assert_eq!(followed_node(&nodes[1], now), Some("a".to_owned()));
    // A node that has started anew has not published what the snapshot contains of it.
    let contained = nodes[0].statistics.snapshots[0].clone().expect("a publishes snapshots").1;
    let mut anew = ClusterStatistics::new(members("b", &["a"]), names(), WINDOW, 2);
    for _ in 0..10 {
        anew.publish(now, CollectedRequests::default(), Report::default());
    }
    anew.handle_snapshot(now, "a", contained).unwrap();
    assert_eq!(anew.source(now, &wants()), Source::Own { lacks: None });
    // A statistics node that was paused publishes before it has worked off what was sent to it.
    let later = now + Duration::from_secs(60);
    let paused = nodes[0].statistics.begin_snapshot(later + nodes[0].lead, &wants(), TOTAL).unwrap();
    let at = later + nodes[1].lead;
    nodes[1].statistics.handle_snapshot(at, "a", paused.finish()).unwrap();
    assert_eq!(followed_node(&nodes[1], later), None);
}

#[test]
fn node_whose_policy_needs_more_than_the_snapshot_has_decides_on_its_own() {
    let mut nodes = cluster(&["a"]);
    for at in 1..=3 {
        second(&mut nodes, Instant::from_secs(at), &wants(), |_, _| true);
    }
    let lack = |change: &dyn Fn(&mut Wants)| {
        let mut wants = wants();
        change(&mut wants);
        let now = Instant::from_secs(3) + nodes[1].lead;
        let source = nodes[1].statistics.source(now, &wants);
        assert_eq!(nodes[1].statistics.requests(now, &wants).is_none(), matches!(source, Source::Own { .. }));
        match source {
            Source::Own { lacks } => lacks.map(|(node, lack)| format!("{node}: {lack}")),
            _ => None,
        }
    };
    assert_eq!(lack(&|_| ()), None);
    let lacked = |change: &dyn Fn(&mut Wants), text: &str| assert_eq!(lack(change).as_deref(), Some(text));
    lacked(
        &|wants| wants.needs.bands.push(Band::TAIL),
        "a: blocking counts between the percentiles 98.5 and 99.5",
    );
    lacked(&|wants| wants.needs.quantile = Some(0.5), "a: the quantile 0.5 of latency");
    lacked(&|wants| wants.by_tenant = true, "a: requests of the tenant \"default\" alone");
    lacked(&|wants| wants.needs.miss_ratio_curves = true, "a: miss ratio curves");
    lacked(&|wants| wants.needs.shadow_ratio = Some(0.01), "a: hits of shadow queues of 0.01 of the cache");
    assert_eq!(lack(&|wants| wants.needs = Needs::default()), None, "a policy without needs");
}

#[test]
fn snapshot_has_the_requests_of_each_tenant_where_tenants_divide_the_cache() {
    let wants = Wants { by_tenant: true, ..wants() };
    let mut nodes = cluster(&["a"]);
    second(&mut nodes, Instant::from_secs(1), &wants, |_, _| true);
    let of = |latency, tenant| FinishedRequest::of_micros(latency, Some(BackendId(1))).of(TenantId(tenant));
    let now = Instant::from_secs(2);
    // One is of a tenant that node a does not have.
    let mut message = nodes[1].statistics.publish(
        now + nodes[1].lead,
        CollectedRequests::Each(vec![of(5, 0), of(7, 1), of(9, 1)]),
        Report::default(),
    );
    message.tenants.push("unknown".to_owned());
    let CollectedRequests::Each(each) = &mut message.requests else { unreachable!() };
    each.push(of(11, 2));
    nodes[0].statistics.handle_batch(now, "b", &message).unwrap();
    let snapshot = nodes[0].statistics.begin_snapshot(now, &wants, TOTAL).unwrap().finish();
    let tails: Vec<_> =
        snapshot.requests.iter().map(|of| (of.tenant.as_deref(), of.count, of.tail)).collect();
    let micros = |micros| Some(Duration::from_micros(micros));
    assert_eq!(tails[0], (None, 3 + 4, micros(1_000)));
    assert_eq!(tails[1..], [(Some("default"), 4, micros(1_000)), (Some("blue"), 2, micros(9))]);
    nodes[1].statistics.handle_snapshot(now + nodes[1].lead, "a", snapshot).unwrap();
    let known = nodes[1].statistics.requests(now + nodes[1].lead, &wants).expect("it follows a");
    assert_eq!(known.reach(), 10 * WINDOW, "there are few requests");
    let seen = known.observations(&wants.needs, 2);
    assert_eq!(seen.iter().map(|seen| seen.requests).collect::<Vec<_>>(), [4, 2]);
    assert_eq!(seen[1].blocking(EVERYTHING), [0, 2]);
}

#[test]
fn unknown_names_count_for_no_backend_and_no_partition() {
    let mut statistics = ClusterStatistics::new(members("a", &[]), names(), WINDOW, 1);
    let now = Instant::from_secs(1);
    statistics.publish(now, CollectedRequests::default(), Report::default());
    let message = NodeStatistics {
        stamp: Stamp { incarnation: 7, number: 1 },
        // The ids of the message are not those of the node.
        backends: vec!["gone".to_owned(), "orders".to_owned()],
        requests: requests(&[(1, 0), (2, 1), (3, 1), (4, 9)]),
        report: Report {
            partitions: [("gone".to_owned(), CacheReport::default())].into(),
            ..Report::default()
        },
        ..NodeStatistics::default()
    };
    statistics.handle_batch(now, "b", &message).unwrap();
    let known = statistics.requests(now, &wants()).unwrap().observations(&wants().needs, 2);
    assert_eq!((known[0].requests, known[0].blocking(EVERYTHING)), (4, &[2, 0][..]));
    assert_eq!(statistics.heard[1].as_ref().unwrap().report.partitions.len(), 0);
}

#[test]
fn messages_of_unknown_nodes_repeated_ones_and_impossible_ones_are_left_out() {
    let mut statistics = ClusterStatistics::new(members("a", &["a"]), names(), WINDOW, 1);
    let now = Instant::from_secs(1);
    let at = |incarnation, number| NodeStatistics {
        stamp: Stamp { incarnation, number },
        requests: requests(&[(1, 0)]),
        ..NodeStatistics::default()
    };
    assert_eq!(statistics.handle_batch(now, "x", &at(1, 1)), Err(Ignored::UnknownNode));
    assert_eq!(statistics.handle_batch(now, "b", &at(1, 5)), Ok(()));
    for earlier in [at(1, 5), at(1, 4)] {
        assert_eq!(statistics.handle_batch(now, "b", &earlier), Err(Ignored::NotNewer));
    }
    assert_eq!(statistics.handle_batch(now, "b", &at(2, 1)), Ok(()), "it has started anew");
    let times = messages::REQUESTS_MAX + 1;
    let equal = RequestCount { request: FinishedRequest::of_micros(1, None), times };
    let too_many = NodeStatistics { requests: CollectedRequests::Counted(vec![equal; 2]), ..at(2, 2) };
    assert_eq!(statistics.handle_batch(now, "b", &too_many), Err(Ignored::TooMany));
    let snapshot = |number| Snapshot { stamp: Stamp { incarnation: 1, number }, ..Snapshot::default() };
    assert_eq!(statistics.handle_snapshot(now, "x", snapshot(1)), Err(Ignored::UnknownNode));
    assert_eq!(statistics.handle_snapshot(now, "b", snapshot(1)), Err(Ignored::NotStatistics));
    assert_eq!(statistics.handle_snapshot(now, "a", snapshot(3)), Ok(()));
    assert_eq!(statistics.handle_snapshot(now, "a", snapshot(2)), Err(Ignored::NotNewer));
    let mut follower = ClusterStatistics::new(members("b", &["a"]), names(), WINDOW, 1);
    assert_eq!(follower.handle_batch(now, "c", &at(1, 1)), Err(Ignored::NotStatistics));
    assert_eq!(follower.begin_snapshot(now, &wants(), TOTAL).map(|_| ()), None);
}

#[test]
fn nodes_that_stay_are_known_after_a_change_of_nodes() {
    let mut nodes = cluster(&["b", "a"]);
    for at in 1..=3 {
        second(&mut nodes, Instant::from_secs(at), &wants(), |_, _| true);
    }
    let now = Instant::from_secs(3);
    assert_eq!(followed_node(&nodes[2], now), Some("b".to_owned()));
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    nodes[2].statistics.set_nodes(of(&["d", "c", "a"]), of(&["d", "a"]));
    assert_eq!(followed_node(&nodes[2], now), Some("a".to_owned()));
    let snapshot = Snapshot { stamp: Stamp { incarnation: 1, number: 99 }, ..Snapshot::default() };
    let refused = nodes[2].statistics.handle_snapshot(now, "b", snapshot);
    assert_eq!(refused, Err(Ignored::UnknownNode));
    nodes[0].statistics.set_nodes(of(&["c", "a"]), Vec::new());
    assert_eq!(source(&nodes[0], now), Source::All { nodes: of(&["c", "a"]) });
    assert_eq!(look_ups(&mut nodes[0], now, 0), (70, 15), "of all since the start");
    second(&mut nodes, Instant::from_secs(4), &wants(), |_, _| true);
    assert_eq!(look_ups(&mut nodes[0], Instant::from_secs(4), 0), (90, 30), "of two nodes");
}

/// Hits and shadow hits of the first partition on which a node decides.
fn look_ups(node: &mut TestNode, now: Instant, own: u64) -> (u64, u64) {
    let needs = Needs { shadow_ratio: Some(0.1), miss_ratio_curves: true, ..wants().needs };
    let own = Merged { hits: own, misses: own, shadow_hits: Some(0), curve: None };
    let wants = Wants { needs, ..wants() };
    let at = now + node.lead;
    let known = node.statistics.partitions(at, &wants, TOTAL, vec![own, Merged::default()]);
    (known[0].hits, known[0].shadow_hits.unwrap_or(0))
}

#[test]
fn look_ups_of_all_nodes_never_jump_when_a_node_or_the_source_changes() {
    let wants = Wants {
        needs: Needs { shadow_ratio: Some(0.1), miss_ratio_curves: true, ..wants().needs },
        ..wants()
    };
    let mut nodes = cluster(&[]);
    // Node b has run for long, and others hear it for the first time.
    nodes[1].hits = 1_000_000;
    second(&mut nodes, Instant::from_secs(1), &wants, |_, _| true);
    assert_eq!(look_ups(&mut nodes[0], Instant::from_secs(1), 10), (10, 15), "its own alone");
    second(&mut nodes, Instant::from_secs(2), &wants, |_, _| true);
    assert_eq!(look_ups(&mut nodes[0], Instant::from_secs(2), 20), (40, 45), "of three nodes");
    // Node b is not heard for long.
    for at in 3..=12 {
        second(&mut nodes, Instant::from_secs(at), &wants, |from, _| from != 1);
    }
    assert_eq!(look_ups(&mut nodes[0], Instant::from_secs(12), 120), (240, 300));
    second(&mut nodes, Instant::from_secs(13), &wants, |_, _| true);
    assert_eq!(look_ups(&mut nodes[0], Instant::from_secs(13), 130), (260, 30), "and then again");
    // Node a publishes no longer, and decides on its own.
    let later = Instant::from_secs(20);
    assert_eq!(look_ups(&mut nodes[0], later, 200).0, 330);
}

#[test]
fn look_ups_of_a_followed_node_that_starts_anew_do_not_jump() {
    let wants = Wants {
        needs: Needs { shadow_ratio: Some(0.1), miss_ratio_curves: true, ..wants().needs },
        ..wants()
    };
    let mut nodes = cluster(&["a"]);
    for at in 1..=4 {
        second(&mut nodes, Instant::from_secs(at), &wants, |_, _| true);
    }
    let now = Instant::from_secs(4);
    assert_eq!(look_ups(&mut nodes[1], now, 40).0, 0, "the node's first decision");
    second(&mut nodes, Instant::from_secs(5), &wants, |_, _| true);
    assert_eq!(look_ups(&mut nodes[1], Instant::from_secs(5), 50), (30, 45));
    nodes[0].statistics = ClusterStatistics::new(members("a", &["a"]), names(), WINDOW, 2);
    second(&mut nodes, Instant::from_secs(6), &wants, |_, _| true);
    second(&mut nodes, Instant::from_secs(7), &wants, |_, _| true);
    assert_eq!(look_ups(&mut nodes[1], Instant::from_secs(7), 70).0, 30);
    second(&mut nodes, Instant::from_secs(8), &wants, |_, _| true);
    assert_eq!(look_ups(&mut nodes[1], Instant::from_secs(8), 80).0, 60);
}

fn messages_of_nodes() -> impl Strategy<Value = Vec<(usize, Vec<(u32, u16)>)>> {
    let requests = prop::collection::vec((0_u32..100_000, 0_u16..3), 0..40);
    prop::collection::vec((0_usize..3, requests), 1..20)
}

proptest! {
    #[test]
    fn nodes_that_got_the_same_statistics_have_equal_counts(
        (messages, shuffled) in messages_of_nodes().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        one_by_one: bool,
    ) {
        let now = Instant::from_secs(100);
        let known = |messages: &[(usize, Vec<(u32, u16)>)]| {
            let mut statistics = ClusterStatistics::new(members("a", &[]), names(), WINDOW, 1);
            let mut numbers = [0; 3];
            // Another node is heard in any case, so that this one does not decide on its own.
            for (from, of) in messages.iter().chain([&(1, Vec::new())]) {
                numbers[*from] += 1;
                let mut collector = RequestCollector::default();
                for request in requests(of).each() {
                    collector.record(*request, if one_by_one { 1 } else { 2 });
                }
                let message = NodeStatistics {
                    stamp: Stamp { incarnation: 1, number: numbers[*from] },
                    ..names().named(collector.take().into())
                };
                statistics.handle_batch(now, ["a", "b", "c"][*from], &message).unwrap();
            }
            statistics.publish(now, CollectedRequests::default(), Report::default());
            let bands = vec![EVERYTHING, Band { low: 50.0, high: 90.0 }];
            let needs = Needs { bands, ..wants().needs };
            let seen = statistics.requests(now, &Wants { needs: needs.clone(), by_tenant: false });
            let seen = seen.expect("own statistics are young").observations(&needs, 2).remove(0);
            (seen.requests, seen.tail, seen.latency_range, seen.blocking)
        };
        prop_assert_eq!(known(&messages), known(&shuffled));
    }

    #[test]
    fn nodes_never_follow_old_statistics_whatever_is_lost(
        lost in prop::collection::vec(0.0..1.0_f64, 40 * 18), rate in 0.0..1.0_f64,
    ) {
        let mut nodes = cluster(&["a", "b"]);
        let mut draws = lost.into_iter();
        for at in 1..=40 {
            let now = Instant::from_secs(at);
            second(&mut nodes, now, &wants(), |_, _| draws.next().is_none_or(|draw| draw >= rate));
            for node in &nodes {
                let Some(name) = followed_node(node, now) else { continue };
                let position = ["a", "b"].iter().position(|of| *of == name).expect("one of the list");
                let (arrived, snapshot) = node.statistics.snapshots[position].as_ref().expect("it is followed");
                prop_assert!((now + node.lead).since(*arrived) < Duration::from_secs(3));
                // A node publishes its n-th statistics at n seconds; those of statistics nodes have
                // every second number.
                let own = &node.statistics.members.own;
                let newest = snapshot.nodes.iter().find(|(of, _)| of == own).expect("it is contained").1.number;
                let published = if own == "c" { newest } else { newest.div_ceil(2) };
                prop_assert!(at - published < 5, "at {} from {}", at, published);
            }
        }
    }
}
