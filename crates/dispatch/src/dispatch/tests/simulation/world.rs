//! The simulated clock and the scheduled events.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_model::Instant;

use super::backend::{Backend, Echo, KEYS};
use super::draws::Draws;
use crate::Stats;

const FETCHES: u64 = 50;
const WRITES: u64 = 20;
const FLIPS: u64 = 6;
const LENGTH: Duration = Duration::from_millis(1_200);
const JUMP_MAX: Duration = Duration::from_millis(300);
const STEPS_MAX: usize = 20_000;

#[derive(Debug)]
enum Event {
    Fetch(Vec<u64>),
    Write(u64),
    /// A replica dies, or a dead one returns.
    Flip(usize),
    Echo(Echo),
}

#[derive(Debug)]
pub(super) struct World {
    now: Instant,
    draws: Draws,
    /// The simulated backends; number 0 is healthy.
    backends: Vec<Backend>,
    /// Events by time, then in the order in which they were scheduled.
    events: BTreeMap<(Instant, u64), (usize, Event)>,
    planned: u64,
}

impl World {
    pub(super) fn new(draws: &mut Draws, faulty: usize) -> Self {
        let mut backends = vec![Backend::healthy(draws)];
        backends.extend((0..faulty).map(|_| Backend::faulty(draws)));
        let now = Instant::from_secs(1);
        let mut world = Self { now, draws: draws.clone(), backends, events: BTreeMap::new(), planned: 0 };
        for index in 0..world.backends.len() {
            world.plan_inputs(index);
        }
        world
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = Stats> {
        self.backends.iter().map(|backend| backend.dispatch.stats())
    }

    /// Returns how many waiters were refused because of their tenants' rates.
    pub(super) fn refused_by_rates(&self) -> u64 {
        self.backends.iter().map(Backend::refused_by_rates).sum()
    }

    pub(super) fn heal(&mut self) {
        self.backends.iter_mut().for_each(Backend::heal);
    }

    /// Carries out all scheduled events, except probes of replicas that stay dead.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    pub(super) fn assert_at_rest(&self) {
        self.backends.iter().for_each(Backend::assert_at_rest);
    }

    pub(super) fn assert_every_replica_is_used(&mut self) {
        for backend in &mut self.backends {
            backend.assert_every_replica_is_used(self.now, &mut self.draws);
        }
    }

    fn plan_inputs(&mut self, backend: usize) {
        for _ in 0..FETCHES {
            let keys = self.draws.within(0..=8);
            let keys = (0..keys).map(|_| self.draws.within(0..=KEYS - 1)).collect();
            self.plan_sometime(backend, Event::Fetch(keys));
        }
        for _ in 0..WRITES {
            let key = self.draws.within(0..=KEYS - 1);
            self.plan_sometime(backend, Event::Write(key));
        }
        if !self.backends[backend].healthy {
            for _ in 0..FLIPS {
                let replica = self.draws.within(0..=self.backends[backend].alive.len() as u64 - 1);
                self.plan_sometime(backend, Event::Flip(replica as usize));
            }
        }
    }

    fn plan_sometime(&mut self, backend: usize, event: Event) {
        // On a coarse grid, so that the clock often stands still.
        let grid = Duration::from_millis(20);
        let after = grid * (self.draws.up_to(LENGTH).as_millis() / grid.as_millis()) as u32;
        self.plan(after, backend, event);
    }

    fn plan(&mut self, after: Duration, backend: usize, event: Event) {
        self.planned += 1;
        self.events.insert((self.now + after, self.planned), (backend, event));
    }

    /// Takes the next event or wake-up. Returns false if only probes of dead replicas are left.
    fn step(&mut self) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let wake = self.backends.iter().filter_map(|backend| backend.dispatch.next_timeout()).min();
        if self.only_probes_of_the_dead_remain() {
            return false;
        }
        let Some(next) = event.into_iter().chain(wake).min() else { return false };
        self.now = self.now.max(next);
        if self.draws.chance(2) {
            self.now += self.draws.up_to(JUMP_MAX);
        }
        // A driver may handle its sockets or its timers first.
        if event.is_some_and(|at| at <= self.now)
            && (wake.is_none_or(|at| at > self.now) || self.draws.chance(50))
        {
            let (_, (backend, event)) = self.events.pop_first().expect("an event is due");
            self.happen(backend, event);
        } else {
            for index in 0..self.backends.len() {
                if self.backends[index].dispatch.next_timeout().is_some_and(|at| at <= self.now) {
                    let echoes = self.backends[index].wake(self.now, &mut self.draws);
                    self.plan_all(index, echoes);
                }
            }
        }
        true
    }

    fn only_probes_of_the_dead_remain(&self) -> bool {
        let is_probe = |event: &Event| matches!(event, Event::Echo(Echo::Probe { .. }));
        let only_probes = self.events.values().all(|(_, event)| is_probe(event));
        only_probes
            && self.backends.iter().all(|backend| {
                let stats = backend.dispatch.stats();
                // Keys without a call wait for their tenant's rate, or for a retry.
                stats.calls == 0
                    && stats.keys == 0
                    && stats.replicas.iter().all(|r| r.up || !backend.alive[r.replica.index()])
            })
    }

    fn happen(&mut self, index: usize, event: Event) {
        let backend = &mut self.backends[index];
        let echoes = match event {
            Event::Fetch(keys) => backend.fetch(self.now, keys, &mut self.draws),
            Event::Echo(echo) => backend.echo(self.now, echo, &mut self.draws),
            Event::Write(key) => {
                backend.write(key);
                Vec::new()
            }
            Event::Flip(replica) => {
                backend.alive[replica] = !backend.alive[replica];
                Vec::new()
            }
        };
        self.plan_all(index, echoes);
    }

    fn plan_all(&mut self, backend: usize, echoes: Vec<(Duration, Echo)>) {
        for (after, echo) in echoes {
            self.plan(after, backend, Event::Echo(echo));
        }
    }
}
