use sherwood_wire::memcached::client::{self, Answer, Item, Key};
use sherwood_wire::memcached::{
    Command, Event, KEY_BYTES_MAX, KEYS_BYTES_MAX, Limits, Meta, MetaVerb, Parsed, Parser, Retrieval, Storage,
};

use crate::stream::{Step, expanded, same_however_cut};

/// Limits on a value's length in bytes: one that single words exceed, and one larger than a piece
/// of a key list.
const VALUE_BYTES_MAX: [u32; 2] = [40, 20_000];

/// Parses `input` as commands on a memcached connection, including meta commands.
///
/// # Panics
/// When the parser violates its contract.
pub fn memcached_server(input: &[u8]) {
    let stream = expanded(input);
    for value_bytes_max in VALUE_BYTES_MAX {
        let limits = Limits { value_bytes_max };
        same_however_cut(&stream, limits.buffer_bytes_max(), || {
            let mut parser = Parser::new(limits);
            move |bytes| step(parser.parse(bytes), limits)
        });
    }
}

fn step(Parsed { consumed, event }: Parsed<'_>, limits: Limits) -> Step<Event<'_>> {
    match event {
        Event::Incomplete { need } => return Step::Incomplete { consumed, need },
        Event::Command(command) => check(command, limits),
        Event::Refused { .. } => {}
    }
    Step::Said { consumed, what: event }
}

fn check(command: Command<'_>, limits: Limits) {
    match command {
        Command::Retrieval(Retrieval { keys, .. }) => keys.for_each(check_key),
        Command::Storage(Storage { key, value, .. }) => {
            check_key(key);
            assert!(value.len() <= limits.value_bytes_max as usize, "a value of {}", value.len());
        }
        Command::TooLarge { key, .. }
        | Command::Arithmetic { key, .. }
        | Command::Touch { key, .. }
        | Command::Delete { key, .. } => check_key(key),
        Command::Meta(meta) => check_meta(meta, limits),
        Command::FlushAll { .. }
        | Command::Stats(_)
        | Command::Version
        | Command::Verbosity { .. }
        | Command::MetaNoOp
        | Command::Quit => {}
    }
    if let Some(bytes) = written(command).filter(|bytes| bytes.len() <= KEYS_BYTES_MAX) {
        let Parsed { consumed, event } = Parser::new(limits).parse(&bytes);
        assert_eq!(consumed, bytes.len(), "{event:?} of {command:?}");
        assert!(
            matches!(event, Event::Command(again) if is_same(command, again)),
            "{command:?}, then {event:?}"
        );
    }
}

fn check_key(key: &[u8]) {
    assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "a key of {} bytes", key.len());
    assert!(!key.iter().any(|byte| b"\0\n ".contains(byte)), "a key with a byte that no key has: {key:?}");
}

fn check_meta(meta: Meta<'_>, limits: Limits) {
    let Meta { verb, key, flags } = meta;
    check_key(key.text());
    assert!((1..=KEY_BYTES_MAX).contains(&key.bytes(&mut [0; KEY_BYTES_MAX]).len()), "{key:?}");
    let words = flags.text().split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let letters: Vec<u8> = words.map(|word| word[0]).collect();
    assert_eq!(flags.count(), letters.len(), "flags that were checked are all there: {flags:?}");
    assert!(letters.iter().all(|&letter| flags.has(letter)), "{flags:?}");
    match verb {
        MetaVerb::Get => assert_eq!(Meta::get(key.text(), flags.text()), Ok(meta)),
        MetaVerb::Set { value, .. } => assert!(value.len() <= limits.value_bytes_max as usize),
        MetaVerb::TooLarge | MetaVerb::Delete | MetaVerb::Arithmetic(_) | MetaVerb::Debug => {}
    }
}

/// Formats the parsed command as a client writes it; none for commands that no client sends.
fn written(command: Command<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let answer = |noreply| if noreply { Answer::Unwanted } else { Answer::Expected };
    match command {
        Command::Retrieval(Retrieval { keys, cas, touch, last: true }) => {
            let keys = keys.map(|key| Key::new(key).ok()).collect::<Option<Vec<_>>>()?;
            match (touch, cas) {
                // The last part of a list may have no key, which no client sends.
                _ if keys.is_empty() => return None,
                (None, false) => client::get(&mut out, keys),
                (None, true) => client::gets(&mut out, keys),
                (Some(exptime), false) => client::gat(&mut out, exptime, keys),
                (Some(exptime), true) => client::gats(&mut out, exptime, keys),
            }
        }
        Command::Storage(Storage { verb, key, flags, exptime, value, noreply }) => {
            client::store(
                &mut out,
                verb,
                Key::new(key).ok()?,
                Item { value, flags, exptime },
                answer(noreply),
            );
        }
        Command::Arithmetic { key, delta, noreply } => {
            client::arithmetic(&mut out, Key::new(key).ok()?, delta, answer(noreply));
        }
        Command::Touch { key, exptime, noreply } => {
            client::touch(&mut out, Key::new(key).ok()?, exptime, answer(noreply));
        }
        Command::Delete { key, noreply } => client::delete(&mut out, Key::new(key).ok()?, answer(noreply)),
        Command::FlushAll { delay, noreply } => client::flush_all(&mut out, delay, answer(noreply)),
        Command::Version => client::version(&mut out),
        Command::Quit => client::quit(&mut out),
        _ => return None,
    }
    Some(out)
}

/// Returns true when two commands are equal, ignoring the number of spaces between keys.
fn is_same(one: Command<'_>, other: Command<'_>) -> bool {
    match (one, other) {
        (Command::Retrieval(one), Command::Retrieval(other)) => {
            one.keys.eq(other.keys) && Retrieval { keys: other.keys, ..one } == other
        }
        _ => one == other,
    }
}
