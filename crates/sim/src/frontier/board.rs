//! The searches for the hardest conditions under which policies meet the SLO, and the next runs to
//! try.

use std::collections::{BTreeMap, BTreeSet};

use super::{Axis, Bracket, Search};
use crate::verdict::Verdict;

/// A run to try, under a condition made harder or milder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// Number of the policy that the run simulates.
    pub policy: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Condition that is changed; arbitrary if `step` is 0.
    pub axis: Axis,
    /// Number of steps harder than the base conditions (milder below 0).
    pub step: i32,
}

impl Probe {
    fn new(policy: usize, seed: u64, axis: Axis, step: i32) -> Self {
        // The base conditions are common to all axes and tried once.
        let axis = if step == 0 { Axis::Depth } else { axis };
        Self { policy, seed, axis, step }
    }
}

/// Next action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerAction {
    /// Run this and pass the verdict, or none if there is none, to [`Board::learn`].
    Try(Probe),
    /// All possible tries are in flight; call again after the next verdict.
    Wait,
    /// All searches are finished.
    Done,
}

/// Searches of every policy along every axis: with the first seed from the base conditions, then
/// with each other seed from the result of the first.
///
/// Workers call [`Board::take`] and [`Board::learn`], in any order. The tries do not depend on the
/// workers: any number of them finds the same results. Memory and the time of a call grow with
/// searches and seeds; a search makes at most 15 tries.
///
/// ```
/// use sherwood_sim::{Axis, Board, WorkerAction, Verdict};
/// let mut board = Board::new(1, &[1, 2]);
/// while let WorkerAction::Try(probe) = board.take() {
///     let kept = probe.step < if probe.axis == Axis::Load { 2 } else { 9 };
///     board.learn(probe, Some(if kept { Verdict::Kept } else { Verdict::Broken }));
/// }
/// let load = board.found(0, Axis::Load).expect("all is found");
/// assert_eq!((load.len(), load[1].kept, load[1].broken), (2, Some(1), Some(2)));
/// ```
#[derive(Clone, Debug)]
pub struct Board {
    seeds: Vec<u64>,
    axis_searches: Vec<AxisSearch>,
    verdicts: Verdicts,
    in_flight: BTreeSet<Probe>,
}

/// Verdicts by run tried; none where no verdict is possible.
type Verdicts = BTreeMap<Probe, Option<Verdict>>;

#[derive(Clone, Debug)]
struct AxisSearch {
    policy: usize,
    axis: Axis,
    /// A search for each seed; only the first seed's until that is finished.
    searches: Vec<Search>,
}

impl Board {
    /// Returns a board for `policies` policies and at least one seed.
    #[must_use]
    pub fn new(policies: usize, seeds: &[u64]) -> Self {
        let axis_search =
            |policy| Axis::ALL.map(|axis| AxisSearch { policy, axis, searches: vec![Search::default()] });
        Self {
            seeds: seeds.to_vec(),
            axis_searches: (0..policies).flat_map(axis_search).collect(),
            verdicts: BTreeMap::new(),
            in_flight: BTreeSet::new(),
        }
    }

    /// Returns the next action of a worker.
    pub fn take(&mut self) -> WorkerAction {
        let mut left = false;
        for axis_search in &self.axis_searches {
            for (search, &seed) in axis_search.searches.iter().zip(&self.seeds) {
                let Some(step) = search.next() else { continue };
                left = true;
                let probe = Probe::new(axis_search.policy, seed, axis_search.axis, step);
                if self.in_flight.insert(probe) {
                    return WorkerAction::Try(probe);
                }
            }
        }
        if left { WorkerAction::Wait } else { WorkerAction::Done }
    }

    /// Records the verdict of a try; none if no verdict is possible, because a trace ends before
    /// the run does.
    pub fn learn(&mut self, probe: Probe, verdict: Option<Verdict>) {
        self.in_flight.remove(&probe);
        self.verdicts.insert(probe, verdict);
        let Self { seeds, axis_searches, verdicts, .. } = self;
        for axis_search in axis_searches {
            axis_search.advance(seeds, verdicts);
        }
    }

    /// Results of a policy for one condition (`axis`), in the order of the seeds; none while the
    /// search is unfinished.
    #[must_use]
    pub fn found(&self, policy: usize, axis: Axis) -> Option<Vec<Bracket>> {
        let axis_search = self
            .axis_searches
            .iter()
            .find(|axis_search| (axis_search.policy, axis_search.axis) == (policy, axis))?;
        let over = axis_search.searches.len() == self.seeds.len()
            && axis_search.searches.iter().all(|one| one.next().is_none());
        over.then(|| axis_search.searches.iter().map(Search::bracket).collect())
    }

    /// Estimated number of remaining tries.
    #[must_use]
    pub fn left(&self) -> u64 {
        // A search that begins at another one's result takes two tries.
        let ahead = |axis_search: &AxisSearch| 2 * (self.seeds.len() - axis_search.searches.len()) as u64;
        let begun = |axis_search: &AxisSearch| {
            axis_search.searches.iter().map(|search| u64::from(search.left())).sum::<u64>()
        };
        self.axis_searches.iter().map(|axis_search| begun(axis_search) + ahead(axis_search)).sum()
    }
}

impl AxisSearch {
    /// Advances the searches as far as verdicts are known.
    fn advance(&mut self, seeds: &[u64], verdicts: &Verdicts) {
        self.follow(seeds, verdicts);
        if let [first] = &self.searches[..]
            && first.next().is_none()
        {
            let beside = Search::beside(first.bracket());
            self.searches.resize(seeds.len(), beside);
            self.follow(seeds, verdicts);
        }
    }

    fn follow(&mut self, seeds: &[u64], verdicts: &Verdicts) {
        for (search, &seed) in self.searches.iter_mut().zip(seeds) {
            while let Some(step) = search.next()
                && let Some(&verdict) = verdicts.get(&Probe::new(self.policy, seed, self.axis, step))
            {
                search.learn(step, verdict);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a board with this many workers, which finish in an order drawn from `draws`; returns
    /// the runs tried.
    fn play(board: &mut Board, workers: usize, mut draws: u64, kept: impl Fn(&Probe) -> bool) -> Vec<Probe> {
        let (mut tried, mut busy) = (Vec::new(), Vec::new());
        loop {
            match board.take() {
                WorkerAction::Try(probe) => {
                    tried.push(probe);
                    busy.push(probe);
                }
                WorkerAction::Wait => assert!(!busy.is_empty(), "no worker is busy"),
                WorkerAction::Done => return tried,
            }
            if busy.len() == workers || board.nothing_to_take() {
                let probe = busy.swap_remove((draws % busy.len() as u64) as usize);
                draws = draws.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                board.learn(probe, Some(if kept(&probe) { Verdict::Kept } else { Verdict::Broken }));
            }
        }
    }

    impl Board {
        fn nothing_to_take(&self) -> bool {
            self.clone().take() == WorkerAction::Wait
        }
    }

    #[test]
    fn frontier_search_tries_base_conditions_once() {
        let mut board = Board::new(1, &[1]);
        let tried = play(&mut board, 3, 1, |probe| probe.step < 1);
        assert_eq!(tried.iter().filter(|probe| probe.step == 0).count(), 1);
        assert_eq!(tried.len(), 1 + 3 * 4, "8, 4, 2, 1 along each axis");
    }

    #[test]
    fn run_without_a_verdict_ends_only_its_search() {
        let mut board = Board::new(1, &[1, 2]);
        while let WorkerAction::Try(probe) = board.take() {
            let ended = probe.axis == Axis::Load && probe.step > 3;
            let kept = if probe.step < 9 { Verdict::Kept } else { Verdict::Broken };
            board.learn(probe, (!ended).then_some(kept));
        }
        let found = |axis| board.found(0, axis).expect("it is over");
        let of = |bracket: &Bracket| (bracket.kept, bracket.broken, bracket.unjudged);
        assert_eq!(found(Axis::Load).iter().map(of).collect::<Vec<_>>(), [(Some(3), None, Some(4)); 2]);
        assert_eq!(found(Axis::Depth).iter().map(of).collect::<Vec<_>>(), [(Some(8), Some(9), None); 2]);
        assert_eq!(board.found(1, Axis::Depth), None, "there is no such policy");
    }

    #[test]
    fn frontier_search_takes_two_tries_for_each_further_seed_that_agrees() {
        let mut board = Board::new(1, &[1, 2, 3]);
        assert_eq!(board.left(), 3 * (5 + 4));
        let tried = play(&mut board, 1, 1, |probe| probe.step < 9);
        let of = |seed| tried.iter().filter(|probe| probe.seed == seed).count();
        assert_eq!((of(2), of(3), board.left()), (6, 6, 0));
    }

    proptest! {
        #[test]
        fn frontier_tries_and_results_are_independent_of_the_number_of_workers(
            limits in prop::collection::vec(-60..60_i32, 2 * 3 * 3), workers in 2..7_usize, draws: u64,
        ) {
            let seeds = [1, 2, 3];
            let kept = |probe: &Probe| {
                let index = |axis: Axis| (probe.policy * 3 + axis as usize) * 3 + probe.seed as usize - 1;
                // All axes have the same result at the base conditions.
                let limit = if probe.step == 0 { limits[index(Axis::Depth)] } else { limits[index(probe.axis)] };
                probe.step <= limit
            };
            let (mut one, mut several) = (Board::new(2, &seeds), Board::new(2, &seeds));
            let (mut first, mut second) = (play(&mut one, 1, draws, kept), play(&mut several, workers, draws, kept));
            first.sort_unstable();
            second.sort_unstable();
            prop_assert_eq!(first, second);
            for (policy, axis) in (0..2).flat_map(|policy| Axis::ALL.map(|axis| (policy, axis))) {
                let found = one.found(policy, axis).expect("it is over");
                prop_assert_eq!(&found, &several.found(policy, axis).expect("it is over"));
                prop_assert_eq!(found.len(), 3);
            }
        }
    }
}
