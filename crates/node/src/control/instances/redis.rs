//! Commands for Redis and Valkey.
//!
//! `CONFIG SET maxmemory` takes effect at once: the excess is evicted in steps between commands.
//! Redis's own memory counts too, about a mebibyte.

use sherwood_config::InstanceKind;
use sherwood_wire::pipeline::Step;
use sherwood_wire::resp::client::{self, Progress, ReplyError};

use super::State;
use super::link::{Link, Malformed, Trouble, Unfit, line};

/// Smallest limit, bytes: below it, Redis has room only for its own memory.
const BYTES_MIN: u64 = InstanceKind::Redis.bytes_min();

/// Returns the `maxmemory` that Redis is given for a wanted size. A `maxmemory` of 0 would mean no
/// limit.
pub(super) const fn limit(bytes: u64) -> u64 {
    if bytes < BYTES_MIN { BYTES_MIN } else { bytes }
}

/// Authenticates at Redis.
pub(super) async fn greet(link: &mut Link, user: Option<&str>, password: &str) -> Result<(), Trouble> {
    let words = user.into_iter().chain([password]).map(str::as_bytes);
    let request: Vec<&[u8]> = std::iter::once(&b"AUTH"[..]).chain(words).collect();
    let remedy = "look at user and password_file, and at requirepass or the ACL of Redis";
    accepted(link, "authenticating", &request, remedy).await
}

/// Reads the memory limit, use and counters of Redis, and checks that it can be resized.
pub(super) async fn look(link: &mut Link) -> Result<State, Trouble> {
    let doing = "reading INFO";
    let mut state = State::default();
    // One section at a time: Redis before 7 accepts only one.
    for section in [&b"memory"[..], b"stats", b"keyspace"] {
        let said = ask(link, doing, &[b"INFO", section]).await?;
        if !said.starts_with(b"$") || said.starts_with(b"$-") {
            return Err(Trouble::refused(doing, &said, "is it Redis, and does it want a password?"));
        }
        if said.windows(NO_EVICTION.len()).any(|at| at == NO_EVICTION) {
            state.unfit = Some(Unfit::NoEviction);
        }
        for (name, value) in said.split(|byte| *byte == b'\n').filter_map(pair) {
            note(&mut state, name, value);
        }
    }
    Ok(state)
}

const NO_EVICTION: &[u8] = b"maxmemory_policy:noeviction";

fn note(state: &mut State, name: &str, value: &str) {
    if name.starts_with("db") {
        let keys = value.strip_prefix("keys=").and_then(|rest| rest.split(',').next()?.parse().ok());
        state.items += keys.unwrap_or(0_u64);
        return;
    }
    let Ok(value) = value.parse() else { return };
    match name {
        "maxmemory" => state.limit = value,
        "used_memory" => state.used = value,
        "keyspace_hits" => state.hits = value,
        "keyspace_misses" => state.misses = value,
        "evicted_keys" => state.evictions = value,
        "expired_keys" => state.expired = value,
        _ => {}
    }
}

/// Returns whether Redis uses more than its limit and is evicting. Up to a sixteenth more is
/// accepted: buffers of replicas and clients count as use, but not against `maxmemory`.
pub(super) fn gives(state: &State) -> bool {
    state.used > state.limit.saturating_add(state.limit / 16) && state.limit > 0
}

/// Sets the memory limit of Redis.
pub(super) async fn resize(link: &mut Link, bytes: u64) -> Result<(), Trouble> {
    let bytes = limit(bytes).to_string();
    let request: [&[u8]; 4] = [b"CONFIG", b"SET", b"maxmemory", bytes.as_bytes()];
    accepted(link, "setting maxmemory", &request, "the user must be allowed CONFIG SET").await
}

async fn accepted(
    link: &mut Link,
    doing: &'static str,
    request: &[&[u8]],
    remedy: &'static str,
) -> Result<(), Trouble> {
    let said = ask(link, doing, request).await?;
    if said == b"+OK\r\n" { Ok(()) } else { Err(Trouble::refused(doing, &said, remedy)) }
}

async fn ask(link: &mut Link, doing: &'static str, request: &[&[u8]]) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    client::request(&mut bytes, request);
    link.ask(doing, &bytes).await
}

/// Parses an answer of Redis, which is one piece.
pub(super) fn piece(input: &[u8]) -> Result<Step<()>, Malformed> {
    Ok(match client::parse(input) {
        Ok(Progress::Incomplete(need)) => Step::Incomplete(need),
        Ok(Progress::Reply(_, used)) => Step::Done(used, ()),
        Err(ReplyError::LineEnd) => return Err(Malformed::Length),
        Err(_) => line(input),
    })
}

fn pair(line: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(line).ok()?.trim_end().split_once(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_answer_is_parsed_as_a_reply_or_an_unknown_line() {
        assert_eq!(piece(b"+OK\r\n+OK\r\n"), Ok(Step::Done(5, ())));
        assert_eq!(piece(b"$7\r\n# a\r\nb\r\n"), Ok(Step::Incomplete(13)), "a byte is missing");
        assert_eq!(piece(b"$7\r\n# a\r\nb\r\n+"), Err(Malformed::Length), "it is of the next answer");
        assert_eq!(piece(b"$6\r\n# a\r\nb\r\n"), Ok(Step::Done(12, ())));
        assert_eq!(piece(b"$-1\r\n"), Ok(Step::Done(5, ())));
        for unknown in [&b"$99999999999999999999\r\n"[..], b"HTTP/1.1 400 Bad Request\r\n"] {
            assert_eq!(piece(unknown), Ok(Step::Done(unknown.len(), ())));
            assert_eq!(piece(&unknown[..9]), Ok(Step::Incomplete(10)));
        }
    }

    #[test]
    fn known_fields_of_redis_info_are_read_and_malformed_ones_are_ignored() {
        let mut state = State::default();
        for line in [
            "maxmemory:5",
            "used_memory:x",
            "evicted_keys:3",
            "db0:keys=4,expires=0",
            "db1:keys=2,x",
            "dbx",
            "",
        ] {
            if let Some((name, value)) = pair(line.as_bytes()) {
                note(&mut state, name, value);
            }
        }
        assert_eq!((state.limit, state.used, state.evictions, state.items), (5, 0, 3, 6));
    }
}
