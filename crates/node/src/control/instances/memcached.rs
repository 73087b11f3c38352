//! Commands for memcached, in its text protocol.
//!
//! A limit is in whole mebibytes, at least eight. `cache_memlimit` alone frees nothing: memory is
//! in pages of slab classes, and only pages of the free pool are given back. While memcached holds
//! more than its limit, pages are therefore moved out of the classes to the pool (`slabs reassign
//! -1 0`), which evicts the items in them.

use sherwood_config::InstanceKind;
use sherwood_wire::memcached::client::{self, Progress, Reply, ReplyError};
use sherwood_wire::pipeline::Step;

use super::State;
use super::link::{Link, Malformed, Trouble, Unfit, line};

const MIB: u64 = 1 << 20;

/// Smallest limit that `cache_memlimit` takes, bytes.
const BYTES_MIN: u64 = InstanceKind::Memcached.bytes_min();

/// Pages requested back at one poll. Each takes memcached some milliseconds; those refused because
/// it is busy are requested again.
const PAGES_AT_ONCE: u64 = 16;

/// Returns the limit that memcached is given for a wanted size: whole mebibytes, at least eight.
pub(super) const fn limit(bytes: u64) -> u64 {
    let whole = bytes / MIB * MIB;
    if whole < BYTES_MIN { BYTES_MIN } else { whole }
}

/// Authenticates as memcached's text protocol requires (`-Y`): by a `set` whose value is user and
/// password.
pub(super) async fn greet(link: &mut Link, user: &str, password: &str) -> Result<(), Trouble> {
    let doing = "authenticating";
    let secret = format!("{user} {password}");
    let request = format!("set auth 0 0 {}\r\n{secret}\r\n", secret.len());
    let said = link.ask(doing, request.as_bytes()).await?;
    let remedy = "look at user and password_file, and at the file that memcached was given with -Y";
    if said == b"STORED\r\n" { Ok(()) } else { Err(Trouble::refused(doing, &said, remedy)) }
}

const REMEDY: &str = "is it memcached, and does it want a password?";

/// Reads a list of statistics. An error in place of the list is returned as a refusal.
async fn list(link: &mut Link, doing: &'static str, request: &[u8]) -> Result<Vec<u8>, Trouble> {
    let said = link.ask(doing, request).await?;
    if said.ends_with(b"END\r\n") { Ok(said) } else { Err(Trouble::refused(doing, &said, REMEDY)) }
}

const NO_REASSIGN: &[u8] = b"STAT slab_reassign no\r\n";

/// Reads memcached's memory limit, use and counters, and checks that it can be resized.
pub(super) async fn look(link: &mut Link) -> Result<State, Trouble> {
    let mut state = State::default();
    let stats = list(link, "reading statistics", b"stats\r\n").await?;
    for (name, value) in pairs(&stats) {
        match name {
            "limit_maxbytes" => state.limit = value,
            "curr_items" => state.items = value,
            "get_hits" => state.hits = value,
            "get_misses" => state.misses = value,
            "cmd_set" => state.stores = value,
            "evictions" => state.evictions = value,
            "reclaimed" => state.expired = value,
            _ => {}
        }
    }
    if state.limit == 0 {
        return Err(Trouble::refused("reading statistics", &stats, REMEDY));
    }
    // Use is counted in pages: memory is taken and given back in pages, and other classes cannot
    // use a page that one class owns.
    let slabs = list(link, "reading statistics", b"stats slabs\r\n").await?;
    state.used = pairs(&slabs).find(|(name, _)| *name == "total_malloced").map_or(0, |(_, value)| value);
    // An instance that cannot move pages would accept a smaller limit and keep all its memory.
    let settings = list(link, "reading settings", b"stats settings\r\n").await?;
    let cannot = settings.windows(NO_REASSIGN.len()).any(|at| at == NO_REASSIGN);
    state.unfit = cannot.then_some(Unfit::NoReassign);
    Ok(state)
}

/// Sets memcached's memory limit.
pub(super) async fn resize(link: &mut Link, bytes: u64) -> Result<(), Trouble> {
    let doing = "setting cache_memlimit";
    let request = format!("cache_memlimit {}\r\n", limit(bytes) / MIB);
    let said = link.ask(doing, request.as_bytes()).await?;
    let remedy = "memcached cannot be resized when it was started with -L";
    if said == b"OK\r\n" { Ok(()) } else { Err(Trouble::refused(doing, &said, remedy)) }
}

/// Moves pages to the free pool while use exceeds the limit. Returns whether there may be more
/// pages to move at the next poll.
pub(super) async fn release(link: &mut Link, state: &State) -> Result<bool, Trouble> {
    let over = state.used.saturating_sub(state.limit);
    let doing = "taking pages back";
    for _ in 0..over.div_ceil(MIB).min(PAGES_AT_ONCE) {
        let said = link.ask(doing, b"slabs reassign -1 0\r\n").await?;
        match &said[..] {
            b"OK\r\n" => {}
            // It is still moving the previous page.
            said if said.starts_with(b"BUSY") => return Ok(true),
            // Each class keeps its last page.
            said if said.starts_with(b"NOSPARE") => return Ok(false),
            said => return Err(Trouble::refused(doing, said, "memcached must be able to move pages")),
        }
    }
    Ok(over > 0)
}

/// Parses the next piece of an answer: one of several statistics, or the line that ends the answer.
pub(super) fn piece(input: &[u8]) -> Result<Step<()>, Malformed> {
    Ok(match client::parse(input, 0) {
        Ok(Progress::Incomplete { need }) => Step::Incomplete(need),
        Ok(Progress::Reply { consumed, reply: Reply::Stat(..) }) => Step::Used(consumed),
        Ok(Progress::Reply { consumed, .. }) => Step::Done(consumed, ()),
        Err(ReplyError::ValueEnd(_)) => return Err(Malformed::Length),
        // Such as `BUSY` and `NOSPARE`.
        Err(_) => line(input),
    })
}

/// The numbers of a list of statistics, by name.
fn pairs(list: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    list.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let ("STAT", name, value) = (words.next()?, words.next()?, words.next()?) else { return None };
        Some((name, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_statistics_end_with_end_and_other_answers_are_one_line() {
        let stats = b"STAT pid 1\r\nSTAT version 1.6\r\nSTAT get_hits 7\r\nEND\r\n";
        assert_eq!(piece(stats), Ok(Step::Used(12)));
        assert_eq!(piece(&stats[..11]), Ok(Step::Incomplete(12)));
        assert_eq!(piece(b"END\r\n"), Ok(Step::Done(5, ())));
        assert_eq!(piece(b"CLIENT_ERROR unauthenticated\r\n"), Ok(Step::Done(30, ())));
        assert_eq!(piece(b"BUSY currently processing reassign request\r\n"), Ok(Step::Done(44, ())));
        assert_eq!(pairs(stats).collect::<Vec<_>>(), [("pid", 1), ("get_hits", 7)]);
        assert_eq!(pairs(b"STAT\r\nSTAT x\r\n\xff \xff\r\nSTAT y 99999999999999999999\r\n").count(), 0);
    }
}
