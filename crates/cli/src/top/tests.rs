//! Tests of the picture, drawn into memory.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;

use super::screen;
use super::seen::{
    Also, Backend, BackendKeys, BackendNow, ClassSlo, Cluster, Control, Event, Guard, History, HotKeys,
    Latency, Loan, Partition, Peer, Replica, Requests, Seen, Share, Shared, Slo, Statistics, Tenant,
};
use super::state::{List, Question, Sort, State, Wish};

const SECOND: Duration = Duration::from_secs(1);

/// A node that has run for half an hour, and answered so often so far.
fn seen(times: u64) -> Seen {
    let column = |values: [f64; 5]| values.map(Some).to_vec();
    let backend = |name: &str, blocking: f64, p99: f64| Backend {
        name: name.to_owned(),
        blocking: vec![None, Some(blocking)],
        query_p99_ms: vec![None, Some(p99)],
    };
    let partition = |name: &str, mib: u64, used: u64, hits: u64, misses: u64| Partition {
        name: name.to_owned(),
        backend: name.to_owned(),
        allocated_bytes: mib << 20,
        used_bytes: used << 20,
        hits: hits * times,
        misses: misses * times,
        latency_ms: None,
    };
    Seen {
        history: History {
            version: "0.1.0".to_owned(),
            now_ms: 1_800_000,
            started_ms: 0,
            cache_total_bytes: 512 << 20,
            requests: Requests {
                p50_ms: column([11.0, 12.0, 11.0, 13.0, 12.0]),
                p90_ms: column([40.0, 41.0, 60.0, 90.0, 80.0]),
                p99_ms: column([90.0, 95.0, 149.0, 310.0, 220.0]),
                per_s: column([900.0, 1_250.0, 1_000.0, 1_100.0, 1_234.0]),
            },
            backends: vec![backend("catalog", 12.0, 8.7), backend("prices", 41.0, 212.0)],
            tenants: vec![
                Tenant { name: "gold".to_owned(), normalized: vec![Some(1.31)] },
                Tenant { name: "silver".to_owned(), normalized: vec![Some(0.93)] },
            ],
            events: vec![
                event(1_700_000, "kept the budgets: no partition has a claim to more"),
                event(1_797_000, "moved 3.1 MiB: prices +3.1 MiB (blocked 77% of the slow requests)"),
            ],
        },
        partitions: vec![
            partition("catalog", 300, 290, 900, 100),
            partition("prices", 200, 180, 300, 300),
            partition("a \u{1b}[31mred\none", 12, 0, 0, 0),
        ],
        slo: Slo {
            percentile: 99.0,
            bound_ms: 150.0,
            current_ms: Some(220.0),
            violation_ratio: 0.073,
            classes: vec![ClassSlo {
                name: "page".to_owned(),
                percentile: 95.0,
                bound_ms: 100.0,
                current_ms: Some(80.0),
            }],
        },
        control: Control {
            policy: "robinhood".to_owned(),
            dry_run: true,
            between: None,
            guard: Some(Guard { frozen_s: None }),
        },
        backends: vec![backend_now(times)],
        hot_keys: Some(Ok(vec![HotKeys {
            partition: "catalog".to_owned(),
            keys: vec![share("product:7", 0.13, 0.0), share("\u{1b}[31mred", 0.08, 0.05)],
        }])),
        cluster: None,
    }
}

/// The place of node `a` in a cluster of four: one peer is well, one does not know this node, and
/// one was never heard.
fn cluster() -> Cluster {
    let peer = |node: &str, seen_s, trusted_s, answered, lacks_us| Peer {
        node: node.to_owned(),
        seen_s,
        trusted_s,
        answered,
        lacks_us,
    };
    let loan = |resource: &str, node: &str, units_per_s| Loan {
        resource: resource.to_owned(),
        node: node.to_owned(),
        units_per_s,
    };
    let shared = |backend: &str, trusted_s, writes_in_s, untrusted| Shared {
        backend: backend.to_owned(),
        trusted_s,
        writes_in_s,
        untrusted,
    };
    Cluster {
        node: "a".to_owned(),
        peers: vec![
            peer("b", Some(0.12), Some(1.72), true, false),
            peer("c\u{1b}[31m", Some(75.0), Some(-73.0), false, true),
            peer("d", None, None, false, false),
        ],
        shared: vec![
            shared("catalog", 1.72, Some(0.0), 0),
            shared("prices", -3.0, Some(0.4), 1_234),
            shared("stock", 1e12, None, 0),
        ],
        statistics: Statistics { from: Some("b".to_owned()), age_s: Some(0.41) },
        // Of two tenants.
        loans: vec![loan("db", "b", 100.0), loan("db", "b", 20.5), loan("disk", "b", 3.0)],
        lent: vec![loan("db", "c\u{1b}[31m", 8.0)],
    }
}

fn backend_now(times: u64) -> BackendNow {
    let replica = |up, in_flight| Replica { up, in_flight, waiting: 1 };
    BackendNow {
        name: "prices".to_owned(),
        keys: BackendKeys { asked: 300 * times, failed: 2 * times, timed_out: times, ..Default::default() },
        replica_states: vec![replica(true, 4), replica(false, 0)],
    }
}

fn share(key: &str, share_ratio: f64, error_ratio: f64) -> Share {
    Share { key: key.to_owned(), encoding: "utf8".to_owned(), share_ratio, error_ratio }
}

fn event(unix_ms: u64, message: &str) -> Event {
    Event { unix_ms, message: message.to_owned() }
}

/// The state after two answers, a second apart.
fn state() -> State {
    let mut state = State::new("http://127.0.0.1:8080".to_owned());
    state.update(Ok(seen(1)), Duration::ZERO);
    state.update(Ok(seen(2)), SECOND);
    state
}

fn drawn(state: &State, columns: u16, rows: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    screen::render(buffer.area, &mut buffer, state);
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..rows).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn press(state: &mut State, code: KeyCode) -> Wish {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn node_is_shown_with_latencies_partitions_and_decisions() {
    insta::assert_snapshot!(drawn(&state(), 80, 24));
}

#[test]
fn small_terminal_shows_the_slo_and_the_first_partitions() {
    insta::assert_snapshot!(drawn(&state(), 60, 8));
}

#[test]
fn terminal_of_any_size_can_be_drawn() {
    let mut help = state();
    press(&mut help, KeyCode::Char('?'));
    let nodes = with_nodes(Ok(Some(cluster())));
    for (columns, rows) in [(1, 1), (2, 3), (20, 2), (7, 40), (300, 5), (300, 90)] {
        drawn(&state(), columns, rows);
        drawn(&help, columns, rows);
        drawn(&nodes, columns, rows);
        drawn(&State::default(), columns, rows);
    }
}

#[test]
fn one_look_as_text_has_every_partition_and_no_keys() {
    let text = screen::text(&state(), 100);
    for part in ["P99 220 ms, bound 150 ms: VIOLATED", "violated 7.3% of the time", "catalog", "prices"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("quits"), "{text}");
}

#[test]
fn control_characters_in_names_are_shown_and_not_interpreted() {
    let text = screen::text(&state(), 100);
    assert!(text.contains("a \\u{1b}[31mred\\none"), "{text}");
}

#[test]
fn ratios_and_rates_are_of_the_time_between_two_answers() {
    let mut state = state();
    press(&mut state, KeyCode::Char('n'));
    let row = &state.rows[1];
    assert_eq!((row.name.as_str(), row.hit_ratio, row.misses_per_s), ("catalog", Some(0.9), Some(100.0)));
    // The counts of a node that was restarted begin anew.
    state.update(Ok(seen(1)), SECOND);
    assert_eq!((state.rows[1].hit_ratio, state.rows[1].misses_per_s), (Some(0.9), None));
}

#[test]
fn keys_sort_the_partitions_and_turn_to_other_lists() {
    let mut state = state();
    let first = |state: &State| state.rows[0].name.clone();
    assert_eq!((state.sort, first(&state).as_str()), (Sort::Blocking, "prices"));
    for (key, name) in [('s', "catalog"), ('m', "prices"), ('l', "prices")] {
        press(&mut state, KeyCode::Char(key));
        assert_eq!(first(&state), name, "{key}");
    }
    press(&mut state, KeyCode::Tab);
    let backends = drawn(&state, 90, 24);
    let row = backends.lines().find(|line| line.starts_with("prices")).expect("a row");
    let figures: Vec<_> = row.split_whitespace().skip(1).collect();
    assert_eq!(figures, ["1", "of", "2", "4", "2", "300", "3.0", "0.0", "0.0"], "{backends}");
    press(&mut state, KeyCode::Tab);
    let keys = drawn(&state, 80, 24);
    assert!(
        keys.contains("product:7")
            && keys.contains(" 13%")
            && keys.contains("3% to 8%")
            && keys.contains("\\u{1b}[31mred"),
        "{keys}"
    );
    press(&mut state, KeyCode::Tab);
    let tenants = drawn(&state, 80, 24);
    assert!(
        state.list == List::Tenants && tenants.contains("silver") && tenants.contains("0.93"),
        "{tenants}"
    );
    press(&mut state, KeyCode::Tab);
    assert!(state.list == List::Nodes && drawn(&state, 80, 24).contains("asking"));
    press(&mut state, KeyCode::Tab);
    let events = drawn(&state, 80, 24);
    assert!(events.contains("3 s ago  moved 3.1 MiB"), "{events}");
    press(&mut state, KeyCode::Down);
    let events = drawn(&state, 80, 24);
    assert!(!events.contains("3 s ago") && events.contains("100 s ago  kept"), "{events}");
    press(&mut state, KeyCode::PageDown);
    assert_eq!(state.offset, 1, "the last event stays");
}

#[test]
fn node_that_does_not_answer_is_away_until_it_does() {
    let mut state = state();
    state.update(Err("asking http://127.0.0.1:8080: Connection refused".to_owned()), SECOND);
    let away = drawn(&state, 80, 24);
    assert!(away.contains("away: asking") && away.contains("catalog"), "{away}");
    state.update(Ok(seen(3)), SECOND);
    assert!(!drawn(&state, 80, 24).contains("away"));
}

#[test]
fn escape_closes_the_help_before_it_quits() {
    let mut state = state();
    press(&mut state, KeyCode::Char('?'));
    assert!(drawn(&state, 80, 24).contains("sort partitions by blocking"));
    assert_eq!(press(&mut state, KeyCode::Esc), Wish::Redraw);
    assert!(!drawn(&state, 80, 24).contains("sort partitions by blocking"));
    assert_eq!(press(&mut state, KeyCode::Char('p')), Wish::Redraw);
    assert!(drawn(&state, 80, 24).contains("PAUSED"));
    assert_eq!(press(&mut state, KeyCode::Esc), Wish::Quit);
}

#[test]
fn partition_shows_the_latency_of_its_own_reads_and_else_that_of_its_backend() {
    let mut state = state();
    let mut own = seen(3);
    own.partitions[0].latency_ms = Some(Latency { p99: 1.5 });
    state.update(Ok(own), SECOND);
    press(&mut state, KeyCode::Char('n'));
    let shown: Vec<_> = state.rows.iter().map(|row| row.query_p99_ms).collect();
    assert_eq!(shown, [None, Some(1.5), Some(212.0)]);
}

#[test]
fn list_of_keys_says_why_a_node_does_not_tell_them() {
    let mut state = state();
    let why = "GET /v1/hot-keys: this token may not see clients' keys";
    state.update(Ok(Seen { hot_keys: Some(Err(why.to_owned())), ..seen(3) }), SECOND);
    [KeyCode::Tab; 2].into_iter().for_each(|key| _ = press(&mut state, key));
    let keys = drawn(&state, 80, 24);
    assert!(state.list == List::Keys && keys.contains(why), "{keys}");
}

/// The state while it shows the nodes, as the node tells of them.
fn with_nodes(told: Result<Option<Cluster>, String>) -> State {
    let mut state = state();
    [KeyCode::Tab; 4].into_iter().for_each(|key| _ = press(&mut state, key));
    state.update(Ok(Seen { hot_keys: None, cluster: Some(told), ..seen(3) }), SECOND);
    state
}

#[test]
fn nodes_are_listed_with_what_is_wrong_with_each() {
    insta::assert_snapshot!(drawn(&with_nodes(Ok(Some(cluster()))), 100, 28));
}

#[test]
fn nodes_and_shared_backends_scroll_as_one_list() {
    let mut state = with_nodes(Ok(Some(cluster())));
    [KeyCode::Down; 4].into_iter().for_each(|key| _ = press(&mut state, key));
    let nodes = drawn(&state, 100, 28);
    let list = nodes.lines().skip_while(|line| !line.starts_with("node a:")).take(4);
    let starts: Vec<_> = list.map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    assert_eq!(starts, ["node", "shared", "prices", "stock"], "{nodes}");
    press(&mut state, KeyCode::PageDown);
    assert!(state.offset == 5 && drawn(&state, 100, 28).contains("stock"));
}

#[test]
fn list_of_nodes_says_whose_requests_decisions_use() {
    let said = |from: Option<&str>, age_s| {
        let statistics = Statistics { from: from.map(str::to_owned), age_s };
        let nodes = drawn(&with_nodes(Ok(Some(Cluster { statistics, ..cluster() }))), 100, 28);
        let line = nodes.lines().find_map(|line| line.strip_prefix("node a: decisions use "));
        line.expect("a line").to_owned()
    };
    assert_eq!(said(Some("a"), None), "the requests of all nodes that are heard");
    assert_eq!(
        said(Some("b\n"), Some(0.41)),
        "the requests of all nodes, as node b\\n counts them, 0.4 s ago"
    );
    assert_eq!(said(None, None), "this node's requests alone");
}

#[test]
fn node_without_a_cluster_is_alone_and_a_refusal_is_said() {
    assert!(drawn(&with_nodes(Ok(None)), 80, 24).contains("this node is alone"));
    let refused = drawn(&with_nodes(Err("asking: \u{1b}[2J".to_owned())), 80, 24);
    assert!(refused.contains("asking: \\u{1b}[2J"), "{refused}");
}

#[test]
fn what_one_list_shows_is_asked_for_while_it_is_shown() {
    let mut state = state();
    let asked: Vec<_> = std::iter::repeat_with(|| {
        press(&mut state, KeyCode::Tab);
        state.question()
    })
    .take(6)
    .map(|Question { also, .. }| also)
    .collect();
    assert_eq!(asked, [None, Some(Also::Keys), None, Some(Also::Cluster), None, None]);
}
