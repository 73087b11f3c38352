//! Invalidations and flushes, driven as a node drives them. An invalidation removes a few items at
//! a time; a flush hides all items at once, now or later.

use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, ItemKind, NewItem};
use sherwood_path::{FetchKey, Invalidation};

use crate::events::{At, Event, TENANTS, Which, key, tags};
use crate::side::{NUMBERS, partition};
use crate::world::World;

/// An invalidation in progress.
#[derive(Debug)]
pub(crate) struct Walk {
    backend: At,
    which: Which,
    tenant: u8,
    cursor: u64,
    /// Version that was written last when the invalidation began.
    version: u64,
    /// The end of each replica's log of each number when the invalidation began.
    floors: Vec<Vec<usize>>,
}

impl World {
    pub(crate) fn begin_walk(&mut self, backend: At, which: Which) {
        self.tell(|| format!("backend {backend}: {which:?} is invalidated"));
        if let Which::One(number) = which {
            return self.invalidate_one(backend, number);
        }
        self.drive(backend, |machine, now, cache| match which {
            Which::All => machine.handle_invalidate(now, cache, Invalidation::All),
            Which::Beginning(odd) => machine.handle_invalidate(now, cache, Invalidation::Prefix(&[odd])),
            Which::Tag(_) => machine.handle_invalidate(now, cache, Invalidation::Tag),
            Which::One(_) => unreachable!("it is invalidated by name"),
        });
        let side = &self.sides[backend];
        let floors = (0..NUMBERS).map(|number| side.stores.ends(number)).collect();
        let version = self.version;
        self.walks.push(Walk { backend, which, tenant: 0, cursor: 0, version, floors });
        self.plan(Duration::ZERO, Event::Walk(self.walks.len() - 1));
    }

    /// Invalidates the keys of a number by name, which is one step.
    fn invalidate_one(&mut self, backend: At, number: u8) {
        for tenant in 0..TENANTS {
            self.change_cache(backend, number, tenant, None);
        }
        let (moment, side) = (self.moment(), &mut self.sides[backend]);
        let floors = side.stores.ends(number);
        side.stores.raise_floors(number, moment, &floors);
        side.foreign.retain(|(changed, _), _| *changed != number);
        self.count("number invalidated");
    }

    /// Flushes the partitions of a backend as of `after` from now. As in the cache, this replaces a
    /// flush to come.
    pub(crate) fn flush(&mut self, backend: At, after: Duration) {
        let at = self.now + after;
        self.tell(|| format!("backend {backend} is flushed in {after:?}"));
        for tenant in 0..TENANTS {
            let of = partition(backend, tenant);
            self.input(backend, |machine, now, cache| machine.handle_flush(now, cache, of, at));
            self.cache.flush(Some(of), at, self.now);
        }
        self.sides[backend].flush_at = Some(at);
        self.count(if after.is_zero() { "flushed at once" } else { "flushed for later" });
        self.note_due_flushes();
        self.carry_out_all(backend);
    }

    /// Forbids, for reads that begin from now on, what was stored before a flush that is due.
    pub(crate) fn note_due_flushes(&mut self) {
        let moment = self.moment();
        for side in &mut self.sides {
            if side.flush_at.take_if(|at| *at <= moment.now).is_some() {
                for number in 0..NUMBERS {
                    let ends = side.stores.ends(number);
                    side.stores.raise_floors(number, moment, &ends);
                }
                side.foreign.clear();
            }
        }
    }

    /// Stores or removes an item as a listener's client does, right after the invalidation.
    pub(crate) fn change_cache(&mut self, backend: At, number: u8, tenant: u8, value: Option<u64>) {
        let (key, of, access) = (key(number), partition(backend, tenant), Access::at(self.now));
        self.input(backend, |machine, now, cache| {
            machine.handle_invalidate(now, cache, Invalidation::Key(&FetchKey { partition: of, key }));
        });
        match value {
            Some(value) => {
                let value = value.to_le_bytes();
                let item = NewItem { tags: tags(number), ..NewItem::bytes(&value) };
                self.cache.set(of, &key, item, &access).expect("there is room for one");
            }
            None => {
                self.cache.remove(of, &key, &access);
            }
        }
    }

    /// Takes one step of an invalidation's walk through the cache. After the last one the
    /// invalidation is answered.
    pub(crate) fn walk_on(&mut self, walk: usize) {
        let Walk { backend, which, tenant, cursor, .. } = self.walks[walk];
        let flags = AccessFlags::SEE_STALE.with(AccessFlags::SEE_ABSENT);
        let (of, access) = (partition(backend, tenant), Access { flags, ..Access::at(self.now) });
        let mut found = Vec::new();
        let next = self.cache.scan(of, cursor, &access, 2, |key, item| {
            let is_meant = match which {
                Which::All | Which::One(_) | Which::Beginning(_) => which.means(key[1]),
                // An absent value has no known tags.
                Which::Tag(odd) => item.kind == ItemKind::Absent || item.tags.may_hold(&[odd]),
            };
            if is_meant {
                found.push(key.to_vec());
            }
        });
        for key in found {
            if self.cache.remove(of, &key, &access) {
                self.tell(|| format!("backend {backend}: {key:x?} is taken out"));
                self.count("item invalidated");
            }
        }
        self.walks[walk].cursor = next;
        if next == 0 {
            self.walks[walk].tenant += 1;
            if tenant + 1 == TENANTS {
                return self.end_walk(walk);
            }
        }
        let pause = self.draw_time(Duration::from_millis(3));
        self.plan(pause, Event::Walk(walk));
    }

    fn end_walk(&mut self, walk: usize) {
        let moment = self.moment();
        let Walk { backend, which, version, floors, .. } = &self.walks[walk];
        self.tell(|| format!("backend {backend}: the invalidation is answered"));
        let side = &mut self.sides[*backend];
        for number in (0..NUMBERS).filter(|number| which.means(*number)) {
            side.stores.raise_floors(number, moment, &floors[usize::from(number)]);
            for place in (0..TENANTS).map(|tenant| (number, tenant)) {
                if side.foreign.get(&place).is_some_and(|changed| changed <= version) {
                    side.foreign.remove(&place);
                }
            }
        }
    }
}
