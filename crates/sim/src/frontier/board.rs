//! All searches of a frontier, and what is to be tried next by whoever has time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Axis, Bracket, Search};
use crate::verdict::Verdict;

/// One run that is to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probe {
    /// Number of the policy.
    pub policy: usize,
    /// Seed of the run.
    pub seed: u64,
    /// The condition that is made harder or milder; some axis where `step` is 0 and none is.
    pub axis: Axis,
    /// How many steps harder than it is.
    pub step: i32,
}

impl Probe {
    fn new(policy: usize, seed: u64, axis: Axis, step: i32) -> Self {
        // The conditions as they are lie on all axes, and are tried once.
        let axis = if step == 0 { Axis::Depth } else { axis };
        Self { policy, seed, axis, step }
    }
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try this, and tell [`Board::learn`] the verdict, or that there is none.
    Try(Probe),
    /// Everything that can be tried now is under way; ask again after the next verdict.
    Wait,
    /// All is found.
    Done,
}

/// Searches of every policy along every axis: with the first seed from the conditions as they are,
/// then with each other seed from where the first one ended.
///
/// Workers ask for [`Board::take`] and answer with [`Board::learn`], in any order. What is asked
/// for does not depend on the workers: two that differ in number find the same. Memory and the time
/// of a question grow with searches and seeds; a search has 15 tries at most.
///
/// ```
/// use sherwood_sim::{Axis, Board, Next, Verdict};
/// let mut board = Board::new(1, &[1, 2]);
/// while let Next::Try(probe) = board.take() {
///     let kept = probe.step < if probe.axis == Axis::Load { 2 } else { 9 };
///     board.learn(probe, Some(if kept { Verdict::Kept } else { Verdict::Broken }));
/// }
/// let load = board.found(0, Axis::Load).expect("all is found");
/// assert_eq!((load.len(), load[1].kept, load[1].broken), (2, Some(1), Some(2)));
/// ```
#[derive(Clone, Debug)]
pub struct Board {
    seeds: Vec<u64>,
    lines: Vec<Line>,
    verdicts: Verdicts,
    under_way: BTreeSet<Probe>,
}

/// What was tried; none where no verdict can be had.
type Verdicts = BTreeMap<Probe, Option<Verdict>>;

#[derive(Clone, Debug)]
struct Line {
    policy: usize,
    axis: Axis,
    /// One for each seed; the first one alone until it is over.
    searches: Vec<Search>,
}

impl Board {
    /// A board for so many policies, and at least one seed.
    #[must_use]
    pub fn new(policies: usize, seeds: &[u64]) -> Self {
        let line = |policy| Axis::ALL.map(|axis| Line { policy, axis, searches: vec![Search::default()] });
        Self {
            seeds: seeds.to_vec(),
            lines: (0..policies).flat_map(line).collect(),
            verdicts: BTreeMap::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// What to do next.
    pub fn take(&mut self) -> Next {
        let mut left = false;
        for line in &self.lines {
            for (search, &seed) in line.searches.iter().zip(&self.seeds) {
                let Some(step) = search.next() else { continue };
                left = true;
                let probe = Probe::new(line.policy, seed, line.axis, step);
                if self.under_way.insert(probe) {
                    return Next::Try(probe);
                }
            }
        }
        if left { Next::Wait } else { Next::Done }
    }

    /// Takes the verdict on what was tried; none where none can be had, because a trace ends before
    /// the run does.
    pub fn learn(&mut self, probe: Probe, verdict: Option<Verdict>) {
        self.under_way.remove(&probe);
        self.verdicts.insert(probe, verdict);
        let Self { seeds, lines, verdicts, .. } = self;
        for line in lines {
            line.advance(seeds, verdicts);
        }
    }

    /// What was found for a policy along an axis, in the order of the seeds; none while it is
    /// searched.
    #[must_use]
    pub fn found(&self, policy: usize, axis: Axis) -> Option<Vec<Bracket>> {
        let line = self.lines.iter().find(|line| (line.policy, line.axis) == (policy, axis))?;
        let over =
            line.searches.len() == self.seeds.len() && line.searches.iter().all(|one| one.next().is_none());
        over.then(|| line.searches.iter().map(Search::bracket).collect())
    }

    /// Tries that are left, about.
    #[must_use]
    pub fn left(&self) -> u64 {
        // A search that begins where another ended takes two tries.
        let ahead = |line: &Line| 2 * (self.seeds.len() - line.searches.len()) as u64;
        let begun = |line: &Line| line.searches.iter().map(|search| u64::from(search.left())).sum::<u64>();
        self.lines.iter().map(|line| begun(line) + ahead(line)).sum()
    }
}

impl Line {
    /// Goes as far as the verdicts reach.
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

    /// Plays a board with so many workers, who finish in an order drawn from `draws`; what was
    /// tried.
    fn play(board: &mut Board, workers: usize, mut draws: u64, kept: impl Fn(&Probe) -> bool) -> Vec<Probe> {
        let (mut tried, mut busy) = (Vec::new(), Vec::new());
        loop {
            match board.take() {
                Next::Try(probe) => {
                    tried.push(probe);
                    busy.push(probe);
                }
                Next::Wait => assert!(!busy.is_empty(), "nobody is left to wait for"),
                Next::Done => return tried,
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
            self.clone().take() == Next::Wait
        }
    }

    #[test]
    fn the_conditions_as_they_are_are_tried_once() {
        let mut board = Board::new(1, &[1]);
        let tried = play(&mut board, 3, 1, |probe| probe.step < 1);
        assert_eq!(tried.iter().filter(|probe| probe.step == 0).count(), 1);
        assert_eq!(tried.len(), 1 + 3 * 4, "8, 4, 2, 1 along each axis");
    }

    #[test]
    fn what_has_no_verdict_ends_its_search_and_no_other() {
        let mut board = Board::new(1, &[1, 2]);
        while let Next::Try(probe) = board.take() {
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
    fn seeds_that_agree_cost_two_tries_each() {
        let mut board = Board::new(1, &[1, 2, 3]);
        assert_eq!(board.left(), 3 * (5 + 4));
        let tried = play(&mut board, 1, 1, |probe| probe.step < 9);
        let of = |seed| tried.iter().filter(|probe| probe.seed == seed).count();
        assert_eq!((of(2), of(3), board.left()), (6, 6, 0));
    }

    proptest! {
        #[test]
        fn any_number_of_workers_finds_the_same_with_the_same_tries(
            limits in prop::collection::vec(-60..60_i32, 2 * 3 * 3), workers in 2..7_usize, draws: u64,
        ) {
            let seeds = [1, 2, 3];
            let kept = |probe: &Probe| {
                let index = |axis: Axis| (probe.policy * 3 + axis as usize) * 3 + probe.seed as usize - 1;
                // Where nothing is changed all axes agree.
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
