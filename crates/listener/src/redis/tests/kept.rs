//! Tests of the memory that the listener keeps for Redis clients between commands: it is counted,
//! taken from a budget, returned, and refused over the budget.

use sherwood_model::SplitMix64;

use super::*;
use crate::account::BufferBytes;
use crate::conversation::{Advance, Conversation, Conversations, NextStep};
use crate::kept::OWN_BYTES;
use crate::output::Output;
use crate::tests::Bounded;

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";
const REFUSED: &str =
    "-ERR the node keeps as many watched keys, queued commands and writes in flight as it may, ";
const KIB: u64 = 1 << 10;

/// Creates a listener with a budget of `kept_max` bytes for kept memory, with the backends `known`
/// if given, and write-through if `through`.
fn bounded(kept_max: u64, known: Option<Arc<dyn Backends>>, through: bool) -> (Listener, Arc<Bounded>) {
    let target = Target { write_through: through, ..target(0, known.is_some()) };
    let mut listener = Listener::new(cache(1), Routing::single(target), known);
    let budget = Arc::new(Bounded::new(kept_max));
    let service = &mut Arc::get_mut(&mut listener.shared).expect("no client yet").service;
    service.buffers = Arc::clone(&budget) as Arc<dyn BufferBytes>;
    (listener, budget)
}

fn backends() -> Option<Arc<dyn Backends>> {
    Some(known())
}

/// Returns the names of `keys` keys of the maximum length, separated by spaces.
fn names(keys: usize) -> String {
    (0..keys).map(|key| format!("{key:0250}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn memory_of_watched_keys_is_counted_and_watch_is_refused_over_the_budget() {
    let (listener, budget) = bounded(900 * KIB, None, false);
    let watch = format!("WATCH {}", names(1024));
    let mut clients: Vec<InMemoryClient> = Vec::new();
    let refused = loop {
        let mut client = listener.client();
        let answer = listener.ask(&mut client, &watch);
        clients.push(client);
        if answer != "+OK" {
            break answer;
        }
    };
    assert!(refused.starts_with(REFUSED) && refused.contains("900KiB of all clients"), "{refused}");
    assert_eq!(clients.len(), 3, "each takes 1,024 keys of 250 bytes and what their list takes");
    let each = budget.kept() / 2;
    assert!((1024 * (250 + 40)..400 * KIB).contains(&each), "{each}");
    let mut last = clients.pop().expect("it was refused");
    listener.check(&mut last, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", ABORTED)]);
    listener.check(
        &mut last,
        &[("WATCH a b c", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")],
    );
    for end in ["UNWATCH", "RESET"] {
        let before = budget.kept();
        listener.ask(&mut clients[0], end);
        assert!(end == "RESET" || budget.kept() < before);
        clients.swap(0, 1);
    }
    assert_eq!(budget.kept(), 0);
}

#[test]
fn refused_watch_aborts_the_next_exec_unless_unwatch_comes_first() {
    let (listener, _) = bounded(0, None, false);
    let mut client = listener.client();
    let (watch, empty) = (format!("WATCH {}", names(20)), [("MULTI", "+OK"), ("EXEC", "*0")]);
    let refused = |client: &mut _| assert!(listener.ask(client, &watch).starts_with(REFUSED));
    refused(&mut client);
    listener.check(
        &mut client,
        &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC", ABORTED), ("EXISTS a", ":0")],
    );
    listener.check(&mut client, &empty);
    refused(&mut client);
    listener.check(&mut client, &[("UNWATCH", "+OK")]);
    listener.check(&mut client, &empty);
    let many = format!("WATCH {}", vec!["k"; 1025].join(" "));
    assert!(listener.ask(&mut client, &many).starts_with("-ERR a client can watch at most 1024 keys"));
    listener.check(&mut client, &[("MULTI", "+OK"), ("EXEC", ABORTED)]);
    let long = format!("WATCH {}", vec!["k".repeat(990); 1000].join(" "));
    assert!(listener.ask(&mut client, &long).starts_with("-ERR a client can watch at most 1024 keys"));
}

#[test]
fn memory_of_queued_commands_is_counted_and_queueing_is_refused_over_the_budget() {
    let (listener, budget) = bounded(64 * KIB, None, false);
    let (mut client, mut other) = (listener.client(), listener.client());
    let set = format!("SET k {}", "x".repeat(1000));
    listener.check(&mut client, &[("MULTI", "+OK")]);
    let answers: Vec<String> = (0..100).map(|_| listener.ask(&mut client, &set)).collect();
    let queued =
        answers.iter().position(|answer| answer.starts_with(REFUSED)).expect("it exceeds the budget");
    assert!((32..=68).contains(&queued), "{queued} KiB in buffers that double");
    assert!(answers[queued + 1..].iter().all(|answer| answer == "+QUEUED"), "as after any error");
    assert_eq!(budget.kept(), 0, "a refused transaction is not kept");
    listener
        .check(&mut other, &[("MULTI", "+OK"), (&set, "+QUEUED"), (&set, "+QUEUED"), ("EXEC", "*2 +OK +OK")]);
    listener.check(&mut client, &[("EXEC", ABORTED)]);
}

#[test]
fn every_way_to_end_a_transaction_returns_its_memory_to_the_budget() {
    let (listener, budget) = bounded(64 * KIB, None, false);
    let set = format!("SET k {}", "x".repeat(1000));
    for end in ["EXEC", "DISCARD", "RESET", "QUIT", "NOSUCH", "disconnect"] {
        let mut client = listener.client();
        listener.ask(&mut client, &format!("WATCH {}", names(30)));
        listener.check(&mut client, &[("MULTI", "+OK")]);
        for _ in 0..10 {
            listener.check(&mut client, &[(&set, "+QUEUED")]);
        }
        let least = (10 * 1000 + 30 * 250 - OWN_BYTES) as u64;
        assert!((least..64 * KIB).contains(&budget.kept()), "{} before {end}", budget.kept());
        if end != "disconnect" {
            listener.ask(&mut client, end);
        }
        drop(client);
        assert_eq!(budget.kept(), 0, "after {end}");
    }
}

#[test]
fn small_transaction_is_executed_without_any_shared_budget() {
    let (listener, budget) = bounded(0, None, false);
    for _ in 0..3 {
        listener.check(
            &mut listener.client(),
            &[("WATCH a b", "+OK"), ("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("SET b 1", "+QUEUED")],
        );
    }
    assert_eq!(budget.kept(), 0);
    let mut client = listener.client();
    let table = [("WATCH a", "+OK"), ("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("EXEC", "*1 :1")];
    listener.check(&mut client, &table);
}

#[test]
fn memory_of_keys_fetched_for_a_transaction_is_counted_and_refused_over_the_budget() {
    let (listener, budget) = bounded(32 * KIB, backends(), false);
    let mut client = listener.client();
    let read = |keys: usize| {
        format!("MGET {}", (0..keys).map(|key| format!("k{key}")).collect::<Vec<_>>().join(" "))
    };
    listener.check(&mut client, &[("MULTI", "+OK"), (&read(50), "+QUEUED")]);
    assert!(listener.ask(&mut client, "EXEC").starts_with("*1 *50 "));
    listener.check(&mut client, &[("MULTI", "+OK"), (&read(500), "+QUEUED")]);
    let answer = listener.ask(&mut client, "EXEC");
    let aborted = format!("-EXECABORT Transaction discarded because of: {}", &REFUSED[1..]);
    assert!(answer.starts_with(&aborted), "{answer}");
    assert_eq!(budget.kept(), 0);
    let watch = format!("WATCH {}", &read(300)["MGET ".len()..]);
    assert!(listener.ask(&mut client, &watch).starts_with(REFUSED), "its keys would be fetched");
    listener.check(&mut client, &[("MULTI", "+OK"), ("EXEC", ABORTED)]);
}

#[test]
fn transaction_that_would_fetch_too_many_keys_is_refused() {
    let (listener, budget) = bounded(1 << 30, backends(), false);
    let mut client = listener.client();
    listener.check(&mut client, &[("MULTI", "+OK")]);
    let mget = |part: usize| {
        let keys: Vec<String> = (0..5000).map(|key| format!("k{part}.{key}")).collect();
        format!("MGET {}", keys.join(" "))
    };
    listener.check(&mut client, &[(&mget(0), "+QUEUED"), (&mget(1), "+QUEUED")]);
    let refused = listener.ask(&mut client, &mget(2));
    assert!(refused.starts_with("-ERR a transaction changes at most 13,000 keys, or reads"), "{refused}");
    let answer = listener.ask(&mut client, "EXEC");
    assert!(answer.starts_with("-EXECABORT"), "{answer:.200}");
    assert_eq!(budget.kept(), 0);
}

#[test]
fn write_through_of_many_keys_is_refused_over_the_budget_and_returns_its_memory() {
    let (listener, budget) = bounded(64 * KIB, backends(), true);
    let mut client = listener.client();
    let keys = |keys: usize| (0..keys).map(|key| format!("k{key}")).collect::<Vec<_>>().join(" ");
    let pairs = |keys: usize| (0..keys).map(|key| format!("k{key} v")).collect::<Vec<_>>().join(" ");
    listener.check(
        &mut client,
        &[(&format!("MSET {}", pairs(50)), "+OK"), (&format!("DEL {}", keys(50)), ":50")],
    );
    assert_eq!(budget.kept(), 0);
    for command in [format!("MSET {}", pairs(500)), format!("DEL {}", keys(500))] {
        let answer = listener.ask(&mut client, &command);
        assert!(answer.starts_with(REFUSED), "{answer}");
    }
    listener.check(&mut client, &[("SET k 1", "+OK")]);
}

/// Clients send random transaction commands. After each command, the budget is not exceeded and a
/// small transaction is executed; at the end, all of the budget is returned.
#[test]
fn random_commands_keep_memory_within_the_budget_and_return_all_of_it() {
    let mut refused = 0;
    for seed in 0..50 {
        let (listener, budget) = bounded(32 * KIB, None, false);
        let mut random = SplitMix64::new(seed);
        let mut draw = |bound: usize| random.next_u64() as usize % bound;
        let mut clients = [(); 4].map(|()| listener.client());
        for step in 0..200 {
            let client = &mut clients[draw(4)];
            let line = match draw(12) {
                0..=2 => format!("WATCH {}", names(1 + draw(60))),
                3 | 4 => "MULTI".to_owned(),
                5..=9 => format!("SET k {}", "x".repeat(draw(1000) + 1)),
                10 => ["EXEC", "DISCARD", "UNWATCH", "RESET"][draw(4)].to_owned(),
                _ => {
                    *client = listener.client();
                    continue;
                }
            };
            refused += usize::from(listener.ask(client, &line).starts_with(REFUSED));
            assert!(budget.kept() <= 32 * KIB, "{} bytes, seed {seed}, step {step}", budget.kept());
            let small = [("WATCH a", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")];
            listener.check(&mut listener.client(), &small);
        }
        drop(clients);
        assert_eq!(budget.kept(), 0, "seed {seed}");
    }
    assert!(refused > 0, "the budget is used up");
}

/// Advances the conversation of a Redis client over `input` until it needs more input. Returns the
/// bytes that it kept after each step.
fn kept_by_steps(listener: &Listener, input: &[u8]) -> Vec<usize> {
    let mut client = listener.redis.open(&listener.shared, 0);
    let moment = Moment { now: listener.now, unix_secs: listener.unix_secs() };
    let (mut kept, mut input) = (Vec::new(), input);
    loop {
        let mut output = Output::default();
        let Advance { consumed, next } = client.advance(moment, input.into(), &mut output);
        input = &input[consumed..];
        kept.push(client.kept_bytes());
        if let NextStep::Need(_) = next {
            return kept;
        }
    }
}

#[test]
fn memory_of_a_command_executed_in_portions_is_counted_until_it_ends() {
    let cache = cache(1);
    let listener = Listener::new(Arc::clone(&cache), Routing::single(target(0, false)), None);
    cache.apply(&sherwood_model::CachePlan::Shared).unwrap();
    for key in 0..15_000 {
        let (name, value) = (format!("k{key:0200}"), NewItem::bytes(&[b'x'; 100]));
        cache.set(PartitionId(0), name.as_bytes(), value, &Access::at(listener.now)).unwrap();
    }
    let names: Vec<String> = (0..500).map(|key| format!("k{key:0200}")).collect();
    let kept = kept_by_steps(&listener, &request(&format!("MGET {}", names.join(" "))));
    let (last, before) = kept.split_last().expect("a step");
    assert!(before.len() > 2 && before.iter().all(|bytes| *bytes > 400 * 200), "{kept:?}");
    let arguments = 1000 * size_of::<u64>();
    assert!(*last < 2 * arguments, "{last} bytes are left of the request");
    let kept = kept_by_steps(&listener, &request("KEYS *"));
    assert!(kept.iter().any(|bytes| *bytes > 200 * 200), "{kept:?}");
    assert!(*kept.last().expect("a step") < 1000, "{kept:?}");
}
