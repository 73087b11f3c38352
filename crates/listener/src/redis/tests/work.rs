//! The work of commands with many keys.

use super::*;
use crate::work::{COMMAND_MAX, TURN_MAX};

const MIB: usize = 1 << 20;

/// A listener of values of up to a MiB, with the values that the dear commands are about.
fn listener() -> Listener {
    let partition = Partition::new(TenantId(0), BackendId(0), 64 << 20);
    let options = Options { total_bytes: 64 << 20, item_bytes_max: MIB as u32, ..Options::default() };
    let cache = Arc::new(Cache::new(options, &[partition], SeededState::new(1)).unwrap());
    let mut listener = Listener::new(Arc::clone(&cache), Routing::single(target(0, false)), None);
    let options = &mut Arc::get_mut(&mut listener.shared).unwrap().options;
    (options.item_size_max, options.output_bytes_max) = (MIB as u32, 64 << 10);
    let access = Access::at(listener.now);
    let set = |key: &str, value: &[u8]| {
        cache.set(PartitionId(0), key.as_bytes(), NewItem::bytes(value), &access).unwrap();
    };
    set("big", &vec![b'b'; MIB - 4096]);
    set("long", &[b'9'; 4900]);
    set("left", &(0..2048).map(|at: usize| b'a' + (at * at % 7) as u8).collect::<Vec<_>>());
    set("right", &(0..2048).map(|at: usize| b'a' + (at * 3 % 5) as u8).collect::<Vec<_>>());
    (0..500).for_each(|key| set(&format!("{key:0240}"), b"v"));
    listener
}

/// Gives a client all its turns, and another client a command between them. Returns the answers,
/// and the work of each turn.
fn turns(listener: &Listener, client: &mut InMemoryClient, input: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let moment = Moment { now: listener.now, unix_secs: listener.unix_secs() };
    let (mut said, mut works) = (Vec::new(), Vec::new());
    let mut other = listener.client();
    client.receive(input);
    while client.has_turn() {
        said.append(&mut client.turn(moment, &mut |_| unreachable!("no backends")));
        works.push(client.work.units());
        listener.check(&mut other, &[("SET own 1", "+OK"), ("GET own", "$1 1")]);
        assert_eq!(other.work.units(), 0);
    }
    (said, works)
}

#[test]
fn command_with_many_keys_goes_on_in_later_turns_and_answers_their_number() {
    let listener = listener();
    let mut client = listener.client();
    let pairs: Vec<String> = (0..3000).map(|at| format!("k{at} v")).collect();
    let keys: Vec<String> = (0..6000).map(|at| format!("k{at}")).collect();
    listener.check(&mut client, &[(&format!("MSET {}", pairs.join(" ")), "+OK")]);
    for (name, answer) in [("EXISTS", ":3000"), ("TOUCH", ":3000"), ("DEL", ":3000"), ("UNLINK", ":0")] {
        let line = request(&format!("{name} {}", keys.join(" ")));
        let (said, works) = turns(&listener, &mut client, &line);
        assert_eq!(String::from_utf8_lossy(&said), format!("{answer}\r\n"), "{name}");
        assert!(works.len() >= 3 && works.iter().all(|&work| work <= 2 * TURN_MAX), "{name}: {works:?}");
    }
    let exists = format!("EXISTS {}", keys.join(" "));
    listener.check(&mut client, &[("CLIENT REPLY SKIP", ""), (&exists, ""), ("EXISTS k0", ":0")]);
}

#[test]
fn mset_beyond_the_bound_of_work_goes_on_until_a_key_is_refused() {
    let listener = listener();
    let mut client = listener.client();
    let pairs: Vec<String> = (0..30_000).map(|at| format!("k{at} {at}")).collect();
    let (said, works) = turns(&listener, &mut client, &request(&format!("MSET {}", pairs.join(" "))));
    assert_eq!(said, b"+OK\r\n");
    assert!(works.len() >= 3 && works.iter().all(|&work| work <= COMMAND_MAX), "{works:?}");
    listener.check(&mut client, &[("MGET k0 k29999", "*2 $1 0 $5 29999")]);

    let pairs: Vec<String> = (0..20_000).map(|at| format!("k{at} new")).collect();
    let refused = format!("MSET {} {} v k29999 new", pairs.join(" "), "k".repeat(251));
    let answer = listener.ask(&mut client, &refused);
    assert!(answer.starts_with("-ERR "), "{answer:.200}");
    listener.check(&mut client, &[("MGET k19999 k29999", "*2 $3 new $5 29999")]);
    listener.check(&mut client, &[("CLIENT REPLY SKIP", ""), (&refused, ""), ("GET k29999", "$5 29999")]);
}
