//! What memcached is told and asked, in its text protocol.
//!
//! A size is whole mebibytes, eight at least. `cache_memlimit` alone frees nothing: memory lies in
//! pages of slab classes, and only pages that no class owns are given back. So while it holds more
//! than it may, pages are moved out of the classes, which evicts what is in them
//! (`slabs reassign -1 0`: any class, to the pool of free pages).

use sherwood_wire::memcached::client::{self, Progress, Reply};
use sherwood_wire::pipeline::Step;

use super::State;
use super::link::{Link, Trouble, Unfit, line};

const MIB: u64 = 1 << 20;

/// Least bytes `cache_memlimit` takes.
pub(super) const BYTES_MIN: u64 = 8 * MIB;

/// Pages asked back at one look. Each takes memcached some milliseconds; what it is still busy with
/// is asked for again.
const PAGES_AT_ONCE: u64 = 16;

/// The limit that stands for a size.
pub(super) const fn limit(bytes: u64) -> u64 {
    let whole = bytes / MIB * MIB;
    if whole < BYTES_MIN { BYTES_MIN } else { whole }
}

/// Authenticates as memcached's text protocol has it (`-Y`): by a store whose value is user and
/// password.
pub(super) async fn greet(link: &mut Link, user: &str, password: &str) -> Result<(), Trouble> {
    let doing = "authenticating";
    let secret = format!("{user} {password}");
    let request = format!("set auth 0 0 {}\r\n{secret}\r\n", secret.len());
    let said = link.ask(doing, request.as_bytes()).await?;
    let remedy = "look at user and password_file, and at the file that memcached was given with -Y";
    if said == b"STORED\r\n" { Ok(()) } else { Err(Trouble::refused(doing, &said, remedy)) }
}

const NO_REASSIGN: &[u8] = b"STAT slab_reassign no\r\n";

/// Reads size, use and counts, and whether it can be resized.
pub(super) async fn look(link: &mut Link) -> Result<State, Trouble> {
    let doing = "reading statistics";
    let remedy = "is it memcached, and does it want a password?";
    let mut state = State::default();
    let stats = link.ask(doing, b"stats\r\n").await?;
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
        return Err(Trouble::refused(doing, &stats, remedy));
    }
    // Pages, since a page is what is taken and given back, and what no other class can use.
    let slabs = link.ask(doing, b"stats slabs\r\n").await?;
    state.used = pairs(&slabs).find(|(name, _)| *name == "total_malloced").map_or(0, |(_, value)| value);
    // One that cannot move pages would take a smaller limit and hold on to all it has.
    let settings = link.ask("reading settings", b"stats settings\r\n").await?;
    let cannot = settings.windows(NO_REASSIGN.len()).any(|at| at == NO_REASSIGN);
    state.unfit = cannot.then_some(Unfit::NoReassign);
    Ok(state)
}

/// Tells it the size.
pub(super) async fn resize(link: &mut Link, bytes: u64) -> Result<(), Trouble> {
    let doing = "setting cache_memlimit";
    let request = format!("cache_memlimit {}\r\n", limit(bytes) / MIB);
    let said = link.ask(doing, request.as_bytes()).await?;
    let remedy = "memcached cannot be resized when it was started with -L";
    if said == b"OK\r\n" { Ok(()) } else { Err(Trouble::refused(doing, &said, remedy)) }
}

/// Takes pages out of the classes while there are too many; whether there are.
pub(super) async fn release(link: &mut Link, state: &State) -> Result<bool, Trouble> {
    let over = state.used.saturating_sub(state.limit);
    let doing = "taking pages back";
    for _ in 0..over.div_ceil(MIB).min(PAGES_AT_ONCE) {
        let said = link.ask(doing, b"slabs reassign -1 0\r\n").await?;
        match &said[..] {
            b"OK\r\n" => {}
            // It is moving the one before.
            said if said.starts_with(b"BUSY") => return Ok(true),
            // Each class has one page left, which it keeps.
            said if said.starts_with(b"NOSPARE") => return Ok(false),
            said => return Err(Trouble::refused(doing, said, "memcached must be able to move pages")),
        }
    }
    Ok(over > 0)
}

/// The next piece of an answer: one of several statistics, or a line that ends the answer.
pub(super) fn piece(input: &[u8]) -> Step<()> {
    match client::parse(input, 0) {
        Ok(Progress::Incomplete { need }) => Step::Incomplete(need),
        Ok(Progress::Reply { consumed, reply: Reply::Stat(..) }) => Step::Used(consumed),
        Ok(Progress::Reply { consumed, .. }) => Step::Done(consumed, ()),
        // Such as `BUSY` and `NOSPARE`.
        Err(_) => line(input),
    }
}

/// The numbers of a list, by name.
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
    fn statistics_are_read_up_to_their_end_and_other_answers_are_one_line() {
        let stats = b"STAT pid 1\r\nSTAT version 1.6\r\nSTAT get_hits 7\r\nEND\r\n";
        assert_eq!(piece(stats), Step::Used(12));
        assert_eq!(piece(&stats[..11]), Step::Incomplete(12));
        assert_eq!(piece(b"END\r\n"), Step::Done(5, ()));
        assert_eq!(piece(b"CLIENT_ERROR unauthenticated\r\n"), Step::Done(30, ()));
        assert_eq!(piece(b"BUSY currently processing reassign request\r\n"), Step::Done(44, ()));
        assert_eq!(pairs(stats).collect::<Vec<_>>(), [("pid", 1), ("get_hits", 7)]);
        assert_eq!(pairs(b"STAT\r\nSTAT x\r\n\xff \xff\r\nSTAT y 99999999999999999999\r\n").count(), 0);
    }
}
