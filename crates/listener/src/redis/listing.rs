//! Commands that iterate over the keys: `KEYS`, `SCAN`, `DBSIZE` and `RANDOMKEY`.
//!
//! A listener's keys are the keys of its partitions, each behind the prefix of its route. A
//! partition's key is left out if a longer prefix takes its full name, since clients cannot reach
//! it.

use sherwood_cache::Access;
use sherwood_wire::resp::{Args, reply};

use super::aside::Aside;
use super::failure::{Failure, SYNTAX};
use super::glob;
use super::session::{CommandResult, Session, arg, is, number};
use super::stored_names::own_name;
use super::through::rest_untold;
use crate::output::Output;
use crate::work::CHANGE;

/// Most slots of the cache's table that a command visits before other connections run. Chosen: a
/// fraction of a millisecond.
const PLACES: usize = 4096;
/// Maximum number of pattern matching steps before other connections run, unless a single table
/// slot takes more: a fraction of a millisecond.
const STEPS: usize = 128 * 1024;
/// Key length that is assumed for the cost of matching, in bytes: the cache engine's maximum;
/// prefixes are short in comparison.
const KEY_BYTES: usize = 250;
/// Table slots that `SCAN` visits between two checks of the number of keys found.
const PLACES_A_LOOK: usize = 32;
/// Table slots that `SCAN` visits per key of its `COUNT`, as in Redis: needed if the cache has many
/// partitions or empty slots.
const SCAN_PLACES_PER_KEY: usize = 10;
/// Maximum size of an answer to `KEYS`, in bytes.
pub(super) const KEYS_BYTES_MAX: usize = 4 << 20;
const TOO_MANY_KEYS: Failure = Failure::text("ERR KEYS would answer more than 4 MiB, use SCAN");

/// Work of visiting a slot of the table without a pattern: 30 ns.
const PLACE_WORK: u64 = 128;

/// Lowest bit of the route in a `SCAN` cursor; the engine's cursor is in the bits below.
const ROUTE_SHIFT: u32 = 48;

/// Maximum length of a key pattern, in bytes. Matching one key is not interrupted, so the product
/// of its length and the pattern's must be small.
const PATTERN_BYTES_MAX: usize = 1024;
const PATTERN_TOO_LONG: Failure = Failure::text("ERR pattern is too long, at most 1024 bytes are taken");

/// An iteration of a command over all keys of the listener, executed in portions.
#[derive(Debug)]
pub(super) struct Listing {
    purpose: Purpose,
    walk: Walk,
    count: usize,
    /// The keys found, encoded for the answer: at most [`KEYS_BYTES_MAX`] bytes and one key more.
    found: Vec<u8>,
    muted: bool,
}

/// The command that iterates over the keys.
#[derive(Debug)]
enum Purpose {
    /// `KEYS`, with the pattern that the keys have to match.
    Keys(Vec<u8>),
    /// `DBSIZE`, which counts the keys.
    Count,
    /// `FLUSHDB` of one of several databases, which removes the keys.
    Remove,
    /// `RANDOMKEY`, which starts at a random position and, if it finds no key, once more at the
    /// beginning.
    Any { again: bool },
}

/// Position of an iteration over a listener's routes and the keys of their partitions.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    route: usize,
    cursor: u64,
}

impl Walk {
    fn of(cursor: u64) -> Self {
        Self { route: (cursor >> ROUTE_SHIFT) as usize, cursor: cursor & ((1 << ROUTE_SHIFT) - 1) }
    }

    /// Visits the keys in `places` table slots of one route's partition, by their full names.
    /// Returns true if there may be more keys.
    fn step(&mut self, session: &Session<'_>, places: usize, mut visit: impl FnMut(&[u8])) -> bool {
        let (cache, routing) = (&session.shared.service.cache, session.routing());
        let Some((prefix, target)) = routing.route(self.route) else { return false };
        // Copied, since the cache has a shard locked meanwhile, and matching a pattern takes long.
        let (mut keys, mut ends) = (Vec::new(), Vec::new());
        let now = Access::at(session.moment.now);
        self.cursor = cache.scan(target.partition, self.cursor, &now, places, |key, _| {
            keys.extend_from_slice(key);
            ends.push(keys.len());
        });
        let (mut full, mut start) = (prefix.to_vec(), 0);
        for end in ends {
            let key = &keys[start..end];
            start = end;
            full.truncate(prefix.len());
            full.extend_from_slice(key);
            if routing.find(&full) != Some((target, key)) {
                continue;
            }
            if session.has_databases() {
                let database = session.client.database;
                let Some((_, name)) = own_name(key).filter(|(of, _)| *of == database) else { continue };
                full.truncate(prefix.len());
                full.extend_from_slice(name);
            }
            visit(&full);
        }
        if self.cursor == 0 {
            self.route += 1;
        }
        routing.route(self.route).is_some()
    }
}

impl Listing {
    fn new(purpose: Purpose, walk: Walk) -> Self {
        Self { purpose, walk, count: 0, found: Vec::new(), muted: false }
    }

    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Returns the memory of the pattern and of the keys found, bytes.
    pub(super) fn memory(&self) -> usize {
        let pattern = if let Purpose::Keys(pattern) = &self.purpose { pattern.capacity() } else { 0 };
        pattern + self.found.capacity()
    }

    /// Executes a portion of the iteration. Returns true after the last one, or if a removal is
    /// refused, when the answer is complete.
    pub(super) fn go_on(&mut self, session: &Session<'_>, out: &mut Output) -> bool {
        if matches!(self.purpose, Purpose::Remove) && session.refuses_rest(None) {
            if !self.muted {
                reply::error(out, &rest_untold().0);
            }
            return true;
        }
        let more = self.step(session, out);
        let enough = match &mut self.purpose {
            Purpose::Keys(_) => self.found.len() >= KEYS_BYTES_MAX,
            Purpose::Count | Purpose::Remove => false,
            Purpose::Any { again } => {
                if !more && *again {
                    (*again, self.walk) = (false, Walk::default());
                    return self.count > 0 && self.answer(session, out);
                }
                self.count > 0
            }
        };
        (enough || !more) && self.answer(session, out)
    }

    fn step(&mut self, session: &Session<'_>, out: &mut Output) -> bool {
        let Self { purpose, walk, count, found, .. } = self;
        let pattern = match purpose {
            Purpose::Keys(pattern) => Some(&pattern[..]),
            Purpose::Count | Purpose::Remove | Purpose::Any { .. } => None,
        };
        let places = places(pattern);
        out.work.add(work(places, pattern));
        let before = *count;
        let more = walk.step(session, places, |key| match purpose {
            Purpose::Keys(pattern) if glob::matches(pattern, key, false) => {
                *count += 1;
                if found.len() < KEYS_BYTES_MAX {
                    reply::bulk(found, key);
                }
            }
            Purpose::Keys(_) => {}
            Purpose::Count => *count += 1,
            Purpose::Remove => *count += usize::from(session.remove(&session.placed_here(key))),
            Purpose::Any { .. } => {
                if *count == 0 {
                    reply::bulk(found, key);
                }
                *count += 1;
            }
        });
        if let Purpose::Remove = purpose {
            out.work.add(CHANGE * (*count - before) as u64);
        }
        more
    }

    /// Appends the answer of the completed iteration from the keys found; always returns true.
    fn answer(&mut self, session: &Session<'_>, out: &mut Output) -> bool {
        let Self { purpose, count, found, muted, .. } = self;
        match purpose {
            _ if *muted => {}
            Purpose::Keys(_) if found.len() >= KEYS_BYTES_MAX => reply::error(out, &TOO_MANY_KEYS.0),
            Purpose::Keys(_) => {
                reply::array(out, *count);
                out.append(found);
            }
            Purpose::Count => reply::integer(out, *count as i64),
            Purpose::Remove => out.extend_from_slice(reply::OK),
            Purpose::Any { .. } if *count == 0 => reply::null(out, session.version()),
            Purpose::Any { .. } => out.append(found),
        }
        true
    }
}

/// Executes the Redis command `KEYS pattern`.
pub(super) fn keys(session: &mut Session<'_>, args: Args<'_>, _: &mut Output) -> CommandResult {
    let pattern = pattern(arg(args, 1))?.to_vec();
    session.client.aside = Some(Aside::Listing(Listing::new(Purpose::Keys(pattern), Walk::default())));
    Ok(())
}

/// Executes the Redis command `DBSIZE`.
pub(super) fn dbsize(session: &mut Session<'_>, _: Args<'_>, _: &mut Output) -> CommandResult {
    session.client.aside = Some(Aside::Listing(Listing::new(Purpose::Count, Walk::default())));
    Ok(())
}

/// Begins to remove all keys of the client's database.
pub(super) fn remove_all(session: &mut Session<'_>) {
    session.client.aside = Some(Aside::Listing(Listing::new(Purpose::Remove, Walk::default())));
}

/// Executes the Redis command `RANDOMKEY`.
pub(super) fn randomkey(session: &mut Session<'_>, _: Args<'_>, _: &mut Output) -> CommandResult {
    let draw = session.hub.draw();
    let route = (draw >> ROUTE_SHIFT) as usize % session.routing().routes().max(1);
    let walk = Walk { route, cursor: session.shared.service.cache.scan_from(draw) };
    session.client.aside = Some(Aside::Listing(Listing::new(Purpose::Any { again: true }, walk)));
    Ok(())
}

/// Returns the number of table slots to visit before other connections run, if keys are matched
/// with `pattern`.
fn places(pattern: Option<&[u8]>) -> usize {
    let steps = pattern.map_or(0, |pattern| glob::steps_max(pattern, KEY_BYTES));
    STEPS.checked_div(steps).unwrap_or(PLACES).clamp(1, PLACES)
}

/// Returns the work of visiting table slots whose keys are matched with `pattern`.
fn work(places: usize, pattern: Option<&[u8]>) -> u64 {
    let steps = pattern.map_or(0, |pattern| glob::steps_max(pattern, KEY_BYTES));
    places as u64 * (PLACE_WORK + glob::work(steps))
}

fn pattern(text: &[u8]) -> Result<&[u8], Failure> {
    if text.len() > PATTERN_BYTES_MAX { Err(PATTERN_TOO_LONG) } else { Ok(text) }
}

/// Executes the Redis command `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(super) fn scan(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let cursor = std::str::from_utf8(arg(args, 1)).ok().and_then(|text| text.parse().ok());
    let mut walk = Walk::of(cursor.ok_or(Failure::text("ERR invalid cursor"))?);
    let ScanOptions { pattern, count, of_strings } = scan_options(args)?;
    let (mut keys, mut seen, mut found) = (Vec::new(), 0, 0);
    let portion = places(pattern);
    let mut left = count.saturating_mul(SCAN_PLACES_PER_KEY);
    let mut more = true;
    let bytes_max = session.shared.options.output_bytes_max;
    while more && left > 0 && seen < count && keys.len() < bytes_max && !out.work.ends_turn() {
        let look = left.min(portion).min(PLACES_A_LOOK);
        left -= look;
        out.work.add(work(look, pattern));
        more = walk.step(session, look, |key| {
            seen += 1;
            if of_strings && pattern.is_none_or(|pattern| glob::matches(pattern, key, false)) {
                found += 1;
                reply::bulk(&mut keys, key);
            }
        });
    }
    let next = if more { (walk.route as u64) << ROUTE_SHIFT | walk.cursor } else { 0 };
    reply::array(out, 2);
    reply::bulk(out, next.to_string().as_bytes());
    reply::array(out, found);
    out.append(&mut keys);
    Ok(())
}

struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    /// True if `TYPE` of a `SCAN` is absent or `string`; keys of other types do not exist.
    of_strings: bool,
}

fn scan_options(args: Args<'_>) -> Result<ScanOptions<'_>, Failure> {
    let mut options = ScanOptions { pattern: None, count: 10, of_strings: true };
    let mut index = 2;
    while index < args.len() {
        let value = args.get(index + 1).ok_or(SYNTAX)?;
        match arg(args, index) {
            word if is(word, "count") => {
                options.count =
                    usize::try_from(number(value)?).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
            }
            word if is(word, "match") => options.pattern = Some(pattern(value)?),
            word if is(word, "type") => options.of_strings = is(value, "string"),
            _ => return Err(SYNTAX),
        }
        index += 2;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_with_an_expensive_pattern_visits_fewer_slots_per_portion() {
        let class = [b"*[".to_vec(), b"*b".repeat(500), b"]".to_vec()].concat();
        assert_eq!([None, Some(&b"user:1"[..]), Some(b"")].map(places), [PLACES; 3]);
        assert_eq!([Some(&b"user:*"[..]), Some(&class[..])].map(places), [512, 1]);
    }

    #[test]
    fn scan_cursor_holds_a_route_and_the_cursor_of_the_cache_engine() {
        let walk = Walk::of(3 << ROUTE_SHIFT | 77);
        assert_eq!((walk.route, walk.cursor), (3, 77));
        assert_eq!(Walk::of(u64::MAX).route, 0xffff);
    }
}
