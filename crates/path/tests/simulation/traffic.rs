//! The requests, writes and faults of a world, drawn from its seed.

use std::time::Duration;

use sherwood_model::{BackendId, Demand, RequestId, TenantId};
use sherwood_path::{Query, Staleness};

use crate::events::{At, Event, Key, TENANTS, Which, key};
use crate::side::{BACKENDS, HEALTHY, NUMBERS, partition, timeout};
use crate::world::World;

const REQUESTS: usize = 40;
const LISTENED: usize = 20;
const WRITES: usize = 40;
const CHANGES: usize = 6;
const LENGTH_MS: u64 = 500;
/// Spacing of times at which many events coincide.
const GRID_MS: u64 = 20;

impl World {
    pub(crate) fn plan_inputs(&mut self) {
        for _ in 0..REQUESTS {
            let tenant = self.draw(TENANTS.into()) as u8;
            let queries = (0..self.draw(4)).map(|_| self.draw_query(tenant)).collect();
            self.plan_sometime(Event::Arrive(queries));
        }
        for _ in 0..LISTENED {
            let (backend, number) = (self.draw_backend(), self.draw_number());
            let tenant = self.draw(TENANTS.into()) as u8;
            self.plan_sometime(Event::Listen { backend, number, tenant });
        }
        for _ in 0..WRITES {
            let (backend, number) = (self.draw_backend(), self.draw_number());
            let tenant = self.draw(TENANTS.into()) as u8;
            let delete = self.once_in(5);
            self.plan_sometime(Event::Write { backend, number, tenant, delete });
        }
        for _ in 0..5 {
            let backend = self.draw(BACKENDS as u64 - 1) as At + 1;
            let replica = self.draw(self.sides[backend].stores.replicas.len() as u64) as usize;
            self.plan_sometime(Event::Flip(backend, replica));
        }
        for _ in 0..12 {
            let (backend, number) = (self.draw_backend(), self.draw_number());
            self.plan_sometime(Event::Foreign { backend, number });
        }
        for _ in 0..CHANGES {
            let (backend, number) = (self.draw_backend(), self.draw_number());
            let (tenant, delete) = (self.draw(TENANTS.into()) as u8, self.once_in(2));
            self.plan_sometime(Event::Change { backend, number, tenant, delete });
        }
        if self.once_in(3) {
            let warm = self.once_in(2);
            self.plan_sometime(Event::Restart { warm });
        }
        for backend in 0..BACKENDS {
            self.plan(Duration::ZERO, Event::Rates(backend));
            self.plan_sometime(Event::Rates(backend));
        }
        for _ in 0..6 {
            let backend = self.draw_backend();
            let odd = self.draw(2) as u8;
            let one = Which::One(self.draw_number());
            let which = [Which::All, one, Which::Beginning(odd), Which::Tag(odd)][self.draw(4) as usize];
            self.plan_sometime(Event::Invalidate { backend, which });
        }
        for _ in 0..self.draw(3) {
            let backend = self.draw_backend();
            let after = self.draw_time(Duration::from_millis(100));
            let after = if self.once_in(2) { Duration::ZERO } else { after };
            self.plan_sometime(Event::Flush { backend, after });
        }
    }

    fn draw_backend(&mut self) -> At {
        self.draw(BACKENDS as u64) as At
    }

    fn draw_number(&mut self) -> u8 {
        self.draw(NUMBERS.into()) as u8
    }

    fn draw_query(&mut self, tenant: u8) -> Query<Key> {
        let backend = self.draw_backend();
        let keys = (0..self.draw(6)).map(|_| key(self.draw_number())).collect();
        let best_effort = self.once_in(5);
        // Half of the queries take no stale value when the backend is late.
        let when_late = Duration::from_millis(self.draw(2) * self.draw(100));
        let late_after = self.draw_time(timeout(backend) / 2);
        let staleness = self.sides[backend].rules().staleness(when_late, late_after);
        let query = query(backend, tenant, keys);
        let request = RequestId::new(self.draw(4));
        let demand = Demand { best_effort, request, ..query.demand };
        Query { demand, staleness, ..query }
    }

    fn plan_sometime(&mut self, event: Event) {
        // Half of the events are on a coarse grid, so that the clock often stands still.
        let at = self.draw(LENGTH_MS);
        let at = if self.once_in(2) { at / GRID_MS * GRID_MS } else { at };
        self.plan(Duration::from_millis(at), event);
    }

    /// Checks that every backend answers requests of one key at a time, so far apart that they
    /// meet neither a bound nor a ramp.
    pub(crate) fn assert_all_backends_are_used_again(&mut self) {
        self.forget();
        self.cache.flush(None, self.now, self.now);
        for backend in HEALTHY..BACKENDS {
            for number in 0..NUMBERS {
                let alone = query(backend, 0, vec![key(number)]);
                self.plan(Duration::from_secs(2), Event::Arrive(vec![alone]));
                self.run();
            }
        }
        let seen = self.seen();
        let answered = ["key: Miss", "key: NotFound"].map(|end| seen.get(end).copied().unwrap_or_default());
        assert_eq!(answered.iter().sum::<u64>(), u64::from(NUMBERS) * BACKENDS as u64, "{seen:?}");
    }
}

/// Returns the demand of a tenant without a deadline.
pub(crate) fn demand(tenant: u8) -> Demand {
    Demand { tenant: TenantId(tenant.into()), ..Demand::default() }
}

fn query(backend: At, tenant: u8, keys: Vec<Key>) -> Query<Key> {
    Query {
        backend: BackendId::from_index(backend),
        partition: partition(backend, tenant),
        keys,
        demand: demand(tenant),
        timeout: timeout(backend),
        staleness: Staleness::default(),
        shared: None,
    }
}
