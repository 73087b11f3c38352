//! Clients of several tenants at one Redis listener: none sees or changes the keys of another.

use sherwood_model::SplitMix64;

use super::*;
use crate::standing::{ResourceStanding, Standings, TenantStanding};

const TENANTS: u16 = 3;
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
const NO_AUTH: &str = "-NOAUTH Authentication required.";

/// Users `t0`, `t1` and `t2` of tenants 1, 2 and 3, with the password `password`, and `stranger`,
/// whose tenant has no routes.
struct Users;

impl Passwords for Users {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let tenant = match user {
            b"t0" => 1,
            b"t1" => 2,
            b"t2" => 3,
            b"stranger" => 9,
            _ => return None,
        };
        (password == b"password").then_some(TenantId(tenant))
    }
}

struct Quotas;

impl Standings for Quotas {
    fn standing(&self, tenant: TenantId) -> Option<TenantStanding> {
        let reads = ResourceStanding { name: "reads".to_owned(), budget_per_s: 40.0, used: 7.0, waiting: 2 };
        Some(TenantStanding {
            name: format!("tenant-{}", tenant.0),
            cache_bytes: 1000 * u64::from(tenant.0),
            normalized: Some(1.25),
            resources: vec![reads],
        })
    }
}

/// Returns the routes of a tenant: two backends, one behind a prefix.
fn routes(tenant: u16) -> Routing {
    let target = |backend: u16| Target {
        partition: PartitionId(2 * (tenant - 1) + backend),
        tenant: TenantId(tenant),
        read_through: false,
        write_through: false,
        shared: false,
    };
    let prefixes = [(String::new(), target(0)), ("b/".to_owned(), target(1))];
    Routing::by_prefix(TenantId(tenant), prefixes).unwrap()
}

fn listener() -> Listener {
    let partition = |index: u16| Partition::new(TenantId(1 + index / 2), BackendId(index % 2), 1 << 20);
    let partitions: Vec<_> = (0..2 * TENANTS).map(partition).collect();
    let options = Options { total_bytes: 64 << 20, item_bytes_max: ITEM_BYTES_MAX, ..Options::default() };
    Listener::serving(Service {
        cache: Arc::new(Cache::new(options, &partitions, SeededState::new(1)).unwrap()),
        routing: Routing::by_prefix(TenantId(99), []).unwrap(),
        users: UserRoutes::new((1..=TENANTS).map(routes)),
        network: None,
        backends: None,
        connection_limit: Arc::new(ConnectionLimit::new(9)),
        buffers: Arc::new(AtomicU64::new(0)),
        background: None,
        passwords: Some(Arc::new(Users)),
        standings: Some(Arc::new(Quotas)),
        times: Arc::default(),
        batches: None,
        hot_keys: None,
    })
}

fn logged_in(listener: &Listener, user: &str) -> InMemoryClient {
    let mut client = listener.client();
    assert_eq!(listener.ask(&mut client, &format!("AUTH {user} password")), "+OK");
    client
}

#[test]
fn same_key_of_two_tenants_has_two_values() {
    let listener = listener();
    let (mut one, mut two) = (logged_in(&listener, "t0"), logged_in(&listener, "t1"));
    listener.check(&mut one, &[("SET k one", "+OK"), ("SET b/k uno", "+OK")]);
    listener.check(
        &mut two,
        &[("GET k", "$-1"), ("DBSIZE", ":0"), ("KEYS *", "*0"), ("SET k two", "+OK"), ("FLUSHALL", "+OK")],
    );
    listener.check(&mut one, &[("MGET k b/k", "*2 $3 one $3 uno"), ("DBSIZE", ":2")]);
    listener.check(&mut two, &[("EXISTS k", ":0"), ("RANDOMKEY", "$-1"), ("SCAN 0", "*2 $1 0 *0")]);
}

#[test]
fn login_in_the_middle_of_a_pipeline_changes_the_tenant_of_the_commands_after_it() {
    let listener = listener();
    let mut client = logged_in(&listener, "t0");
    let lines = [
        "SET k one",
        "AUTH t1 password",
        "GET k",
        "SET k two",
        "AUTH t0 wrong",
        "GET k",
        "HELLO 3 AUTH nobody password",
        "AUTH t0 password",
        "GET k",
        "RESET",
        "GET k",
    ];
    let pipeline: Vec<u8> = lines.iter().flat_map(|line| request(line)).collect();
    let answers = String::from_utf8(listener.send(&mut client, &pipeline)).unwrap().replace("\r\n", " ");
    let expected = ["+OK", "+OK", "$-1", "+OK", WRONG, "$3 two", WRONG, "+OK", "$3 one", "+RESET", NO_AUTH];
    assert_eq!(answers.trim_end(), expected.join(" "));
}

#[test]
fn user_whose_tenant_has_no_routes_cannot_log_in() {
    let listener = listener();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("AUTH stranger password", WRONG),
            ("AUTH t0 passwords", WRONG),
            ("GET k", NO_AUTH),
            ("KEYS *", NO_AUTH),
        ],
    );
}

#[test]
fn clients_and_counts_that_a_tenant_sees_are_its_own() {
    let listener = listener();
    let (mut one, mut two) = (logged_in(&listener, "t0"), logged_in(&listener, "t1"));
    listener.check(&mut one, &[("SET k v", "+OK"), ("GET k", "$1 v"), ("CLIENT SETNAME secret", "+OK")]);
    let seen = listener.ask(&mut two, "CLIENT LIST");
    assert!(seen.contains("user=t1") && !seen.contains("secret") && !seen.contains("id=1 "), "{seen}");
    assert_eq!(listener.ask(&mut two, "CLIENT LIST ID 1"), "$0");
    let stats = |client: &mut InMemoryClient| listener.ask(client, "INFO stats");
    let (first, second) = (stats(&mut one), stats(&mut two));
    assert!(first.contains("keyspace_hits:1 ") && first.contains("total_commands_processed:4 "), "{first}");
    assert!(
        second.contains("keyspace_hits:0 ") && second.contains("total_commands_processed:3 "),
        "{second}"
    );
    listener.check(&mut two, &[("CONFIG RESETSTAT", "+OK")]);
    assert!(stats(&mut one).contains("keyspace_hits:1 "));
}

#[test]
fn info_shows_quotas_use_and_throughput_of_the_clients_tenant() {
    let listener = listener();
    let mut client = logged_in(&listener, "t1");
    let shown = listener.ask(&mut client, "INFO tenant");
    let expected = "# Tenant tenant:tenant-2 tenant_cache_bytes:2000 tenant_normalized_throughput:1.250 \
                    tenant_reads_budget_per_s:40.0 tenant_reads_used:7.0 tenant_reads_waiting:2";
    assert!(shown.ends_with(expected), "{shown}");
    assert!(listener.ask(&mut client, "INFO memory").contains("maxmemory:2000 "));
    assert_eq!(listener.ask(&mut client, "CONFIG GET maxmemory"), "*2 $9 maxmemory $4 2000");
}

/// Checks from many seeds that the answers to a pipeline of commands and logins do not depend on
/// how it is cut.
#[test]
fn answers_to_logins_in_a_pipeline_do_not_depend_on_how_it_is_split() {
    for seed in 0..200 {
        let mut draw = SplitMix64::new(seed);
        let mut pipeline = request("AUTH t0 password");
        for _ in 0..40 {
            let line = match draw.next_u64() % 4 {
                0 => format!("AUTH t{} password", draw.next_u64() % 3),
                1 => ["AUTH t0 wrong", "HELLO 2 AUTH t1 password", "RESET"][(draw.next_u64() % 3) as usize]
                    .to_owned(),
                _ => command(&mut draw, "value-").0,
            };
            pipeline.extend(request(&line));
        }
        let (whole, cut) = (listener(), listener());
        let (mut one, mut two) = (whole.client(), cut.client());
        let expected = whole.send(&mut one, &pipeline);
        let mut answers = Vec::new();
        let mut rest = &pipeline[..];
        while !rest.is_empty() && !two.is_closed() {
            let (piece, left) = rest.split_at(rest.len().min(1 + (draw.next_u64() % 300) as usize));
            answers.extend(cut.send(&mut two, piece));
            rest = left;
        }
        assert_eq!(String::from_utf8_lossy(&answers), String::from_utf8_lossy(&expected), "seed {seed}");
    }
}

/// A command of a tenant whose values begin with `mark`, and true if the answer does not depend on
/// positions in the cache's table, which tenants share.
fn command(draw: &mut SplitMix64, mark: &str) -> (String, bool) {
    let mut below = |n: u64| draw.next_u64() % n;
    let prefix = ["", "b/", "t1/", "tenant-2:"][below(4) as usize];
    let (key, other) = (format!("{prefix}k{}", below(4)), format!("b/k{}", below(4)));
    let value = format!("{mark}{}", below(100));
    let cursor = below(8) << 48 | below(64);
    match below(30) {
        0..=5 => (format!("SET {key} {value}"), true),
        6..=8 => (format!("GET {key}"), true),
        9 => (format!("MGET {key} {other} k0"), true),
        10 => (format!("DEL {key} {other}"), true),
        11 => (format!("APPEND {key} {value}"), true),
        12 => (format!("GETSET {key} {value}"), true),
        13 => (format!("RENAME {key} {other}"), true),
        14 => (format!("COPY {key} {other} REPLACE"), true),
        15 => (format!("EXISTS {key} {other}"), true),
        16 => ("DBSIZE".to_owned(), true),
        17 => (format!("KEYS {}", ["*", "b/*", "t1/*", "k?"][below(4) as usize]), false),
        18 => (format!("SCAN {cursor} COUNT 100"), false),
        19 => ("RANDOMKEY".to_owned(), false),
        20 => (format!("GETDEL {key}"), true),
        21 => (format!("INCR {key}"), true),
        22 => (format!("MSETNX {key} {value} {other} {value}"), true),
        23 => (format!("EXPIRE {key} 100"), true),
        24 => (format!("TTL {key}"), true),
        25 => (format!("STRLEN {key}"), true),
        26 => ("INFO keyspace".to_owned(), true),
        27 => ("CLIENT LIST".to_owned(), false),
        28 => (format!("OBJECT ENCODING {key}"), true),
        _ => ("FLUSHALL".to_owned(), true),
    }
}

/// Checks from many seeds that the answers to a tenant are the same whatever other tenants do, on
/// other connections or on its own between two logins, and that no answer has another's value.
#[test]
fn answers_to_a_tenant_do_not_depend_on_the_commands_of_others() {
    for seed in 0..300 {
        let mut draw = SplitMix64::new(seed);
        let (alone, shared) = (listener(), listener());
        let mut reference = logged_in(&alone, "t0");
        let mut watched = logged_in(&shared, "t0");
        let mut others = [logged_in(&shared, "t1"), logged_in(&shared, "t2")];
        for step in 0..60 {
            let at = format!("seed {seed}, step {step}");
            if draw.next_u64().is_multiple_of(2) {
                let who = (draw.next_u64() % 2) as usize;
                let (line, _) = command(&mut draw, "theirs-");
                let answer = shared.ask(&mut others[who], &line);
                assert!(!answer.contains("mine-"), "{at}: {line} of another got {answer}");
                continue;
            }
            if draw.next_u64().is_multiple_of(8) {
                let (line, _) = command(&mut draw, "theirs-");
                let detour = ["AUTH t1 password", &line, "AUTH t1 wrong", "AUTH t0 password"].map(request);
                let answer = shared.send(&mut watched, &detour.concat());
                let answer = String::from_utf8_lossy(&answer);
                assert!(!answer.contains("mine-"), "{at}: {line} of another got {answer}");
            }
            let (line, comparable) = command(&mut draw, "mine-");
            let (expected, answer) = (alone.ask(&mut reference, &line), shared.ask(&mut watched, &line));
            assert!(!answer.contains("theirs-"), "{at}: {line} got {answer}");
            if comparable {
                assert_eq!(answer, expected, "{at}: {line}");
            }
        }
        let mut keys = [alone.ask(&mut reference, "KEYS *"), shared.ask(&mut watched, "KEYS *")]
            .map(|keys| keys.split(' ').map(str::to_owned).collect::<Vec<_>>());
        keys.iter_mut().for_each(|keys| keys.sort());
        assert_eq!(keys[0], keys[1], "seed {seed}");
    }
}
