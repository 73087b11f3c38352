//! Commands that go through the keys: `KEYS`, `SCAN`, `DBSIZE` and `RANDOMKEY`.
//!
//! A listener's keys are its routes' prefixes in front of their partitions' keys. What lies in a partition under a name that
//! a longer prefix takes cannot be reached from here, and is left out.

use sherwood_wire::resp::{Args, reply};

use super::aside::Aside;
use super::failure::{Failure, SYNTAX};
use super::glob;
use super::session::{Outcome, Session, arg, is, number};

/// Places that are looked at before others have their turn. Chosen: a fraction of a millisecond.
const PLACES: usize = 4096;
/// Places that are looked at between two looks at what was found.
const PLACES_A_LOOK: usize = 32;
/// Most places a `SCAN` looks at, whatever its `COUNT`.
const SCAN_PLACES_MAX: usize = 64 * 1024;
/// Places a `SCAN` looks at for each key that is wanted: Redis's factor, for a cache of many partitions or holes.
const SCAN_PLACES_PER_KEY: usize = 10;
/// Most bytes `KEYS` answers.
pub(super) const KEYS_BYTES_MAX: usize = 4 << 20;
const TOO_MANY_KEYS: Failure = Failure::text("ERR KEYS would answer more than 4 MiB, use SCAN");

/// Where in a `SCAN`'s cursor the route is; the engine's cursor is below.
const ROUTE_SHIFT: u32 = 48;

/// A walk through all keys, worked off in portions.
#[derive(Debug)]
pub(super) struct Listing {
    /// The pattern of `KEYS`; none for `DBSIZE`.
    pattern: Option<Vec<u8>>,
    walk: Walk,
    count: usize,
    /// The keys found, as they are answered, at most [`KEYS_BYTES_MAX`] and a key more.
    found: Vec<u8>,
    muted: bool,
}

/// Where a walk through the routes and their partitions is.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    route: usize,
    cursor: u64,
}

impl Walk {
    fn of(cursor: u64) -> Self {
        Self { route: (cursor >> ROUTE_SHIFT) as usize, cursor: cursor & ((1 << ROUTE_SHIFT) - 1) }
    }

    /// Visits keys of one route, by the names the client has for them. Says whether there may be more.
    fn step(&mut self, session: &Session<'_>, places: usize, mut visit: impl FnMut(&[u8])) -> bool {
        let service = &session.shared.service;
        let Some((prefix, target)) = service.routing.route(self.route) else { return false };
        let mut full = prefix.to_vec();
        self.cursor =
            service.cache.scan(target.partition, self.cursor, session.moment.now, places, |key, _| {
                full.truncate(prefix.len());
                full.extend_from_slice(key);
                if service.routing.find(&full) == Some((target, key)) {
                    visit(&full);
                }
            });
        if self.cursor == 0 {
            self.route += 1;
        }
        service.routing.route(self.route).is_some()
    }
}

impl Listing {
    fn new(pattern: Option<&[u8]>) -> Self {
        let pattern = pattern.map(<[u8]>::to_vec);
        Self { pattern, walk: Walk::default(), count: 0, found: Vec::new(), muted: false }
    }

    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Works off a portion. Says whether that was the last one, and has answered then.
    pub(super) fn go_on(&mut self, session: &Session<'_>, out: &mut Vec<u8>) -> bool {
        let Self { pattern, walk, count, found, muted } = self;
        let more = walk.step(session, PLACES, |key| match pattern {
            Some(pattern) if glob::matches(pattern, key, false) => {
                *count += 1;
                if found.len() < KEYS_BYTES_MAX {
                    reply::bulk(found, key);
                }
            }
            Some(_) => {}
            None => *count += 1,
        });
        let too_many = found.len() >= KEYS_BYTES_MAX;
        if more && !too_many {
            return false;
        }
        match pattern {
            _ if *muted => {}
            Some(_) if too_many => reply::error(out, &TOO_MANY_KEYS.0),
            Some(_) => {
                reply::array(out, *count);
                out.append(found);
            }
            None => reply::integer(out, *count as i64),
        }
        true
    }
}

/// `KEYS pattern`
pub(super) fn keys(session: &mut Session<'_>, args: Args<'_>, _: &mut Vec<u8>) -> Outcome {
    session.client.aside = Some(Aside::Listing(Listing::new(Some(arg(args, 1)))));
    Ok(())
}

/// `DBSIZE`
pub(super) fn dbsize(session: &mut Session<'_>, _: Args<'_>, _: &mut Vec<u8>) -> Outcome {
    session.client.aside = Some(Aside::Listing(Listing::new(None)));
    Ok(())
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
pub(super) fn scan(session: &mut Session<'_>, args: Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let cursor = std::str::from_utf8(arg(args, 1)).ok().and_then(|text| text.parse().ok());
    let mut walk = Walk::of(cursor.ok_or(Failure::text("ERR invalid cursor"))?);
    let ScanOptions { pattern, count, of_strings } = scan_options(args)?;
    let (mut keys, mut seen, mut found) = (Vec::new(), 0, 0);
    let mut places = SCAN_PLACES_MAX.min(count.saturating_mul(SCAN_PLACES_PER_KEY));
    let mut more = true;
    while more && places > 0 && seen < count && !session.is_full(&keys) {
        let look = places.min(PLACES_A_LOOK);
        places -= look;
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
    /// Whether strings are wanted, or a type of which there is none.
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
            word if is(word, "match") => options.pattern = Some(value),
            word if is(word, "type") => options.of_strings = is(value, "string"),
            _ => return Err(SYNTAX),
        }
        index += 2;
    }
    Ok(options)
}

/// `RANDOMKEY`
pub(super) fn randomkey(session: &mut Session<'_>, _: Args<'_>, out: &mut Vec<u8>) -> Outcome {
    let version = session.version();
    match random_key(session) {
        Some(key) => reply::bulk(out, &key),
        None => reply::null(out, version),
    }
    Ok(())
}

/// The first key from a place drawn at random on; from the beginning, when there is none to the end.
fn random_key(session: &Session<'_>) -> Option<Vec<u8>> {
    let service = &session.shared.service;
    let routes = service.routing.routes();
    let draw = session.hub.draw();
    let walks = [
        Walk { route: (draw >> 48) as usize % routes.max(1), cursor: service.cache.scan_from(draw) },
        Walk::default(),
    ];
    for mut walk in walks {
        let mut found = None;
        let mut more = true;
        while more && found.is_none() {
            more = walk.step(session, PLACES_A_LOOK, |key| {
                found.get_or_insert_with(|| key.to_vec());
            });
        }
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_names_a_route_and_a_place() {
        let walk = Walk::of(3 << ROUTE_SHIFT | 77);
        assert_eq!((walk.route, walk.cursor), (3, 77));
        assert_eq!(Walk::of(u64::MAX).route, 0xffff);
    }
}
