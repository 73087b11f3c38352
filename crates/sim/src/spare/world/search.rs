//! The search for the number of copies of a page and of a query, before a run.

use sherwood_control::{Replication, ReplicationSeen, Seen};
use sherwood_model::{BackendId, Instant};
use sherwood_policy::replication::{
    Outcome, ReplicationOptions, ReplicationPolicy, ReplicationState, Replicator, TierOptions,
};

use super::{Event, NODE, Spare, World};
use crate::spare::policy::{CORES, Policy, Search};
use crate::spare::setup::{Copies, Setup, SetupError};
use crate::spare::{PAGES, TIERS};
use crate::world::Node;

/// Added to the seed for a search, so that its pages and neighbours are not those of the run.
const SEARCH: u64 = 1_000_000;
/// Most windows of a search. There are nine choices of at most three copies in two tiers.
const WINDOWS_MAX: u32 = 32;

/// Searches for the copies of a run: the node's control loop measures a choice in each window, as
/// it does live.
fn search(setup: &Setup, policy: &Policy) -> Result<Copies, SetupError> {
    let mut setup = setup.clone();
    setup.seed = setup.seed.wrapping_add(SEARCH);
    setup.knobs.measure = setup.knobs.window * WINDOWS_MAX;
    let begin = setup.measured_from();
    let mut world = World::with(&setup, Some(Copies::default()))?;
    world.replicate(replicator(&setup, policy), policy.searched().to_vec(), begin);
    let mut until = begin;
    while until < world.end() && world.is_searching() {
        until += setup.knobs.window;
        world.run(until)?;
    }
    if world.is_searching() {
        let window_s = setup.knobs.window.as_secs_f64();
        return Err(SetupError::Search { windows: WINDOWS_MAX, window_s });
    }
    Ok(world.copies())
}

fn replicator(setup: &Setup, policy: &Policy) -> Replicator {
    let tier = |tier: &BackendId| TierOptions { name: name(*tier).to_owned(), cores: CORES, factor: 1 };
    Replicator::new(ReplicationOptions {
        policy: match policy.search {
            Search::Greedy => ReplicationPolicy::Spare,
            Search::None | Search::Front | Search::Exhaustive => ReplicationPolicy::Exhaustive,
        },
        tiers: policy.searched().iter().map(tier).collect(),
        target: setup.knobs.target,
        window: setup.knobs.window,
        ..ReplicationOptions::default()
    })
}

fn name(tier: BackendId) -> &'static str {
    if tier == PAGES { "pages" } else { "queries" }
}

impl World {
    /// Processes all events before `until` and then checks that all counters balance. If `until` is
    /// the end of the run, events at the end are included.
    ///
    /// # Errors
    /// If they do not balance, which is a bug, or if a search for copies does not end.
    pub fn advance(&mut self, until: Instant) -> Result<(), SetupError> {
        let Spare { setup, policy, copies_found, .. } = &self.family;
        if copies_found.is_none() {
            *self = Self::with(setup, Some(search(setup, policy)?))?;
        }
        Ok(self.run(until)?)
    }

    /// Has the node's control loop search for the number of copies from `begin` on.
    fn replicate(&mut self, replicator: Replicator, tiers: Vec<BackendId>, begin: Instant) {
        let control = &mut self.nodes[usize::from(NODE)].control;
        *control = control.clone().with_replication(Replication::new(replicator, tiers, begin));
        self.schedule(begin, Event::Window);
    }

    /// Passes what was seen in a measuring window to the control loop, and puts its choice in
    /// force.
    pub(super) fn end_window(&mut self) {
        let now = self.now;
        let Node { control, machines, .. } = &mut self.nodes[usize::from(NODE)];
        let (Some(lever), Some(since)) = (control.replication(), control.needs(now).replication) else {
            return;
        };
        let window = lever.replicator().options().window;
        let seen = |tier: &BackendId| {
            let window = machines[tier.index()].tier_window(now, since)?;
            Some(ReplicationSeen { backend: *tier, tier: (&window).into() })
        };
        let seen = lever.backends().iter().filter_map(seen).collect();
        let acts = self.decide(usize::from(NODE), Seen { replication: Some(seen), ..Seen::default() });
        self.carry_out(usize::from(NODE), acts);
        self.schedule(now + window, Event::Window);
    }

    fn replicator(&self) -> Option<Outcome> {
        self.nodes[usize::from(NODE)].control.replication().map(|lever| lever.replicator().outcome())
    }

    fn is_searching(&self) -> bool {
        self.replicator().is_some_and(|outcome| outcome.state == ReplicationState::Searching)
    }

    /// Returns the choice in force.
    fn copies(&self) -> Copies {
        let Some(outcome) = self.replicator() else { return Copies::default() };
        let factor = |tier: BackendId| outcome.factors.get(tier.index()).copied().unwrap_or(1);
        Copies { factors: TIERS.map(factor), tries: outcome.tries }
    }
}
