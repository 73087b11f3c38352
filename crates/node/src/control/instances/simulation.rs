//! Fault simulation of the connections to instances, on a simulated transport: connections end at
//! any byte or while they are idle, and the server sends half an answer, too long an answer or an
//! answer twice. Everything is derived from one seed. These properties always hold:
//!
//! - a poll that succeeds reports the instance's own limit, use and counters;
//! - the server receives a command at most once for each time that it was sent, and has carried it
//!   out if the answer says so;
//! - an idle connection that was closed is never reported as a fault of the instance;
//! - every command ends.
//!
//! `SEED=n cargo test -p sherwood-node --lib instances::simulation` replays a seed and writes its
//! events to the terminal.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_wire::resp::{Args, Event, Limits, Parsed, Parser, reply};

use super::link::{Link, Trouble};
use super::simulated::{Draw, End, Faults, Network, Seen, ServerEnd};
use super::{InstanceKind, State, memcached, redis};

const SEEDS: u64 = 10_000;
const MIB: u64 = 1 << 20;

/// Events that must occur often enough in the simulation for its properties to be tested.
const MUST_HAPPEN: [&str; 10] = [
    "client: wrote after the end",
    "connection: cut on the way to the client",
    "connection: cut on the way to the server",
    "instance: answered half",
    "instance: answered too long",
    "instance: answered twice",
    "instance: closed an idle connection",
    "poll: failed",
    "poll: met the end of an idle connection",
    "resize: done",
];
const OCCURRENCES_MIN: u64 = 100;

#[test]
fn poll_over_a_faulty_connection_returns_the_true_state_of_the_instance_or_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    if let Ok(seed) = env::var("SEED") {
        runtime.block_on(live(seed.parse().expect("SEED is a number"), true));
        return;
    }
    let mut total = Seen::new();
    for seed in 0..SEEDS {
        let told = std::panic::AssertUnwindSafe(|| runtime.block_on(live(seed, false)));
        let seen = std::panic::catch_unwind(told).unwrap_or_else(|panic| {
            eprintln!(
                "seed {seed} failed; SEED={seed} cargo test -p sherwood-node --lib instances::simulation"
            );
            std::panic::resume_unwind(panic)
        });
        seen.iter().for_each(|(what, count)| *total.entry(what).or_default() += count);
    }
    let count = |what: &str| total.get(what).copied().unwrap_or(0);
    let rare: Vec<_> = MUST_HAPPEN.iter().filter(|what| count(what) < OCCURRENCES_MIN).collect();
    assert!(rare.is_empty(), "events too rare to test the properties: {rare:?} in {total:?}");
}

/// A simulated instance, shared by all connections to it.
struct Server {
    kind: InstanceKind,
    /// True if the instance has no fault except that it closes idle connections.
    is_healthy: bool,
    limit: AtomicU64,
    /// Number of received commands that set the limit.
    resized: AtomicU64,
}

async fn live(seed: u64, is_told: bool) -> Seen {
    let mut draw = Draw::new(seed);
    let kind = draw.one_of(&[InstanceKind::Memcached, InstanceKind::Redis]);
    let is_healthy = draw.chance(40);
    let (limit, resized) = (AtomicU64::new(64 * MIB), AtomicU64::new(0));
    let server = Arc::new(Server { kind, is_healthy, limit, resized });
    let admit = Box::new(move |draw: &mut Draw| {
        let mut cut = |most| (!is_healthy && draw.chance(25)).then(|| 1 + draw.below(most));
        let (to_client, to_server) = (cut(400), cut(150));
        Some(Faults { to_client, to_server, end: draw.one_of(&[End::Closed, End::Reset]) })
    });
    let served = Arc::clone(&server);
    let serve = Box::new(move |end, draw| {
        let network = Network::of_this_thread().expect("it has entered one");
        tokio::spawn(Arc::clone(&served).serve(end, draw, network));
    });
    let network = Network::new(draw.split(), admit, serve, is_told, true);
    let _entered = network.enter();
    for _ in 0..4 {
        if let Err(trouble) = connection(&server, &network, &mut draw).await {
            let is_idle_end = matches!(trouble, Trouble::Closed { .. });
            network.note(if is_idle_end {
                "poll: met the end of an idle connection"
            } else {
                "poll: failed"
            });
            assert!(!matches!(trouble, Trouble::Late { .. }), "a command does not end");
            assert!(!server.is_healthy || is_idle_end, "{trouble}");
        }
    }
    network.seen()
}

/// Polls and resizes the instance over one connection, as the task of an instance does.
async fn connection(server: &Server, network: &Network, draw: &mut Draw) -> Result<(), Trouble> {
    let mut link = match server.kind {
        InstanceKind::Memcached => Link::open("simulated", memcached::piece).await?,
        InstanceKind::Redis => Link::open("simulated", redis::piece).await?,
    };
    for _ in 0..3 {
        let state = match server.kind {
            InstanceKind::Memcached => memcached::look(&mut link).await?,
            InstanceKind::Redis => redis::look(&mut link).await?,
        };
        let State { limit, used, items, hits, .. } = state;
        assert_eq!((limit, used, items, hits), (server.limit.load(Relaxed), limit + 1, 12_345, 67_890));
        let bytes = (16 + draw.below(64) as u64) * MIB;
        let before = server.resized.load(Relaxed);
        let resized = match server.kind {
            InstanceKind::Memcached => memcached::resize(&mut link, bytes).await,
            InstanceKind::Redis => redis::resize(&mut link, bytes).await,
        };
        let received = server.resized.load(Relaxed) - before;
        assert!(received <= 1, "the limit was set {received} times");
        resized?;
        network.note("resize: done");
        assert_eq!((received, server.limit.load(Relaxed)), (1, bytes));
        link.keep();
        network.pause(Duration::from_millis(draw.below(8) as u64)).await;
    }
    Ok(())
}

impl Server {
    async fn serve(self: Arc<Self>, mut end: ServerEnd, mut draw: Draw, network: Network) {
        let mut input = Vec::new();
        while end.read(&mut input).await {
            while let Some((answer, is_last)) = self.answer(&mut input) {
                match draw.below(100) {
                    0..4 if !self.is_healthy => {
                        network.note("instance: answered half");
                        end.write(&answer[..answer.len() / 2]);
                        return end.end(End::Closed, draw.ms(3)).await;
                    }
                    4..8 if !self.is_healthy && answer.starts_with(b"$") => {
                        // The missing byte of one that is too short would be waited for.
                        network.note("instance: answered too long");
                        let at = answer.len() - 3 - draw.below(9);
                        end.write(&[&answer[..at], b"x", &answer[at..]].concat());
                    }
                    8..12 if !self.is_healthy => {
                        network.note("instance: answered twice");
                        end.write_whole(&answer.repeat(2));
                    }
                    _ => end.write(&answer),
                }
                // A poll and a command are over.
                if is_last && draw.chance(30) {
                    network.pause(draw.ms(4)).await;
                    if end.is_idle() {
                        network.note("instance: closed an idle connection");
                        let how = draw.one_of(&[End::Closed, End::Reset]);
                        return end.end(how, draw.ms(8)).await;
                    }
                }
            }
        }
    }

    /// Carries out the first command of `input` and removes it. Returns the answer, and true if the
    /// command sets the limit.
    fn answer(&self, input: &mut Vec<u8>) -> Option<(Vec<u8>, bool)> {
        let (used, answer) = match self.kind {
            InstanceKind::Redis => {
                let mut parser =
                    Parser::new(Limits { argument_bytes_max: 1 << 10, request_bytes_max: 1 << 10 });
                let Parsed { consumed, event: Event::Request(args) } = parser.parse(input) else {
                    return None;
                };
                (consumed, self.redis(args))
            }
            InstanceKind::Memcached => {
                let used = 1 + input.iter().position(|&byte| byte == b'\n')?;
                (used, self.memcached(std::str::from_utf8(&input[..used]).expect("a command").trim_end()))
            }
        };
        input.drain(..used);
        let is_last = answer.starts_with(b"+OK") || answer.starts_with(b"OK");
        Some((answer, is_last))
    }

    fn set(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
        self.resized.fetch_add(1, Relaxed);
    }

    fn redis(&self, args: Args<'_>) -> Vec<u8> {
        let word = |at| std::str::from_utf8(args.get(at).expect("an argument")).expect("text");
        let limit = self.limit.load(Relaxed);
        let mut out = Vec::new();
        let text = match (word(0), word(1)) {
            ("CONFIG", "SET") => {
                self.set(word(3).parse().expect("a number"));
                return b"+OK\r\n".to_vec();
            }
            ("INFO", "memory") => format!("# Memory\r\nused_memory:{}\r\nmaxmemory:{limit}\r\n", limit + 1),
            ("INFO", "stats") => "# Stats\r\nkeyspace_hits:67890\r\nkeyspace_misses:7\r\n".to_owned(),
            ("INFO", "keyspace") => "# Keyspace\r\ndb0:keys=12345,expires=0,avg_ttl=0\r\n".to_owned(),
            other => panic!("the node sent {other:?}"),
        };
        reply::bulk(&mut out, text.as_bytes());
        out
    }

    fn memcached(&self, command: &str) -> Vec<u8> {
        let limit = self.limit.load(Relaxed);
        let list = match command {
            "stats" => {
                format!("STAT limit_maxbytes {limit}\r\nSTAT curr_items 12345\r\nSTAT get_hits 67890\r\n")
            }
            "stats slabs" => format!("STAT active_slabs 1\r\nSTAT total_malloced {}\r\n", limit + 1),
            "stats settings" => "STAT slab_reassign yes\r\n".to_owned(),
            set => {
                let mib: u64 =
                    set.strip_prefix("cache_memlimit ").expect("a command").parse().expect("a number");
                self.set(mib * MIB);
                return b"OK\r\n".to_vec();
            }
        };
        format!("{list}END\r\n").into_bytes()
    }
}
