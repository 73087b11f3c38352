//! A search for the hardest step of one condition at which the SLO is met, as a state machine.

use super::STEPS_MAX;
use crate::verdict::Verdict;

/// Searches the hardest step at which the SLO is met.
///
/// Call [`Search::next`], try the step and pass the verdict to [`Search::learn`], until there is no
/// next step. The search strides from its start, doubling each stride, until it has both met and
/// violated steps; then it bisects. It ends with two adjacent steps, or at an end of the grid:
/// after 5 to 9 tries from far away, after two from the right start. It ends before steps without a
/// verdict.
///
/// ```
/// use sherwood_sim::{Search, Verdict};
/// let mut search = Search::from(0, 8);
/// let mut tried = Vec::new();
/// while let Some(step) = search.next() {
///     tried.push(step);
///     search.learn(step, Some(if step <= 11 { Verdict::Kept } else { Verdict::Broken }));
/// }
/// assert_eq!(tried, [0, 8, 24, 16, 12, 10, 11]);
/// assert_eq!((search.bracket().kept, search.bracket().broken), (Some(11), Some(12)));
/// ```
#[derive(Clone, Debug)]
pub struct Search {
    bracket: Bracket,
    begin: i32,
    stride: i32,
    /// Step at which the search ends if the SLO is met there.
    enough: i32,
}

/// Result of a search: the steps of a condition between which the SLO stops being met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bracket {
    /// Hardest step known to meet the SLO. None at the end of the search: not even the mildest step
    /// does.
    pub kept: Option<i32>,
    /// Mildest step known to violate the SLO. None at the end of the search: not even the hardest
    /// step tried does.
    pub broken: Option<i32>,
    /// Mildest step without a verdict; none if every step tried had one.
    pub unjudged: Option<i32>,
}

impl Bracket {
    /// Mildest step not known to meet the SLO: violated, or without a verdict.
    fn first_not_met(self) -> Option<i32> {
        match (self.broken, self.unjudged) {
            (Some(broken), Some(unjudged)) => Some(broken.min(unjudged)),
            (broken, unjudged) => broken.or(unjudged),
        }
    }

    /// True if no step between those that meet and violate the SLO remains to be tried.
    fn is_closed(self) -> bool {
        match (self.kept, self.first_not_met()) {
            (Some(kept), Some(first_not_met)) => first_not_met - kept <= 1,
            (Some(_), None) | (None, None) => false,
            (None, Some(first_not_met)) => first_not_met <= -STEPS_MAX,
        }
    }
}

/// First stride of a search without prior knowledge, in steps: makes conditions about half as hard
/// again, and three bisections divide it.
const STRIDE: i32 = 8;

impl Default for Search {
    /// Starts a search from the base conditions.
    fn default() -> Self {
        Self::from(0, STRIDE)
    }
}

impl Search {
    /// Returns a search that begins at step `begin` of the grid with `stride` (at least 1).
    #[must_use]
    pub fn from(begin: i32, stride: i32) -> Self {
        let begin = begin.clamp(-STEPS_MAX, STEPS_MAX);
        Self { bracket: Bracket::default(), begin, stride: stride.max(1), enough: STEPS_MAX }
    }

    /// Returns a search that begins at the result of another one, and ends after two tries if that
    /// is correct here too. If the SLO is met even where the other search found it violated, it
    /// ends without a violated step; the common range is then given by the other search.
    #[must_use]
    pub fn beside(found: Bracket) -> Self {
        let begin = found.kept.or(found.first_not_met()).unwrap_or(0);
        Self { enough: found.broken.unwrap_or(STEPS_MAX), ..Self::from(begin, 1) }
    }

    fn is_over(&self) -> bool {
        self.bracket.is_closed() || self.bracket.kept.is_some_and(|kept| kept >= self.enough)
    }

    /// Returns the step to try next; none at the end of the search.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        if self.is_over() {
            return None;
        }
        Some(match (self.bracket.kept, self.bracket.first_not_met()) {
            (None, None) => self.begin,
            (Some(kept), None) => (kept + self.stride).min(STEPS_MAX),
            (None, Some(first_not_met)) => (first_not_met - self.stride).max(-STEPS_MAX),
            (Some(kept), Some(first_not_met)) => kept + (first_not_met - kept) / 2,
        })
    }

    /// Records the verdict on a step, or that there is none. Known results are ignored.
    pub fn learn(&mut self, step: i32, verdict: Option<Verdict>) {
        let strides = self.bracket.kept.is_some() != self.bracket.first_not_met().is_some();
        let Bracket { kept, broken, unjudged } = &mut self.bracket;
        let milder = |known: Option<i32>| known.is_none_or(|known| step < known);
        match verdict {
            Some(Verdict::Kept) if kept.is_none_or(|kept| kept < step) => *kept = Some(step),
            Some(Verdict::Broken) if milder(*broken) => *broken = Some(step),
            None if milder(*unjudged) => *unjudged = Some(step),
            _ => return,
        }
        if strides {
            self.stride = self.stride.saturating_mul(2);
        }
    }

    /// Returns the result so far.
    #[must_use]
    pub fn bracket(&self) -> Bracket {
        self.bracket
    }

    /// Returns the estimated number of remaining tries; exact while bisecting.
    #[must_use]
    pub fn left(&self) -> u32 {
        let halvings = |gap: i32| (gap.max(1) as u32).next_power_of_two().trailing_zeros();
        match (self.bracket.kept, self.bracket.first_not_met()) {
            _ if self.is_over() => 0,
            (Some(kept), Some(first_not_met)) => halvings(first_not_met - kept),
            (None, None) => 2 + halvings(self.stride),
            _ => 1 + halvings(self.stride),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a search in which steps up to `hardest` meet the SLO; returns the bracket and the
    /// tries.
    fn search(mut search: Search, hardest: i32) -> (Bracket, Vec<i32>) {
        let mut tried = Vec::new();
        while let Some(step) = search.next() {
            tried.push(step);
            search.learn(step, Some(if step <= hardest { Verdict::Kept } else { Verdict::Broken }));
        }
        (search.bracket(), tried)
    }

    #[test]
    fn frontier_search_from_the_right_start_tries_only_both_sides() {
        let found = Bracket { kept: Some(5), broken: Some(6), unjudged: None };
        assert_eq!(search(Search::beside(found), 5), (found, vec![5, 6]));
        let (bracket, tried) = search(Search::beside(found), 3);
        assert_eq!((bracket.kept, tried), (Some(3), vec![5, 4, 2, 3]));
        let (bracket, tried) = search(Search::beside(found), 20);
        assert_eq!(
            (bracket.kept, bracket.broken, tried),
            (Some(6), None, vec![5, 6]),
            "harder steps are not tried"
        );
    }

    #[test]
    fn frontier_search_stops_at_the_ends_of_the_grid() {
        let always = search(Search::default(), i32::MAX);
        assert_eq!(always, (Bracket { kept: Some(56), ..Bracket::default() }, vec![0, 8, 24, 56]));
        let never = search(Search::default(), i32::MIN);
        assert_eq!(never, (Bracket { broken: Some(-56), ..Bracket::default() }, vec![0, -8, -24, -56]));
        assert_eq!(search(Search::beside(always.0), i32::MAX), (always.0, vec![56]));
        assert_eq!(search(Search::beside(never.0), i32::MIN), (never.0, vec![-56]));
    }

    #[test]
    fn frontier_search_ends_before_steps_without_a_verdict() {
        let search = |judged: i32, hardest: i32| {
            let (mut search, mut tried) = (Search::default(), Vec::new());
            while let Some(step) = search.next() {
                tried.push(step);
                let verdict = if step <= hardest { Verdict::Kept } else { Verdict::Broken };
                search.learn(step, (step <= judged).then_some(verdict));
            }
            (search.bracket(), tried)
        };
        let found = |kept, broken, unjudged| Bracket { kept, broken, unjudged };
        assert_eq!(search(9, 30), (found(Some(9), None, Some(10)), vec![0, 8, 24, 16, 12, 10, 9]));
        assert_eq!(search(7, 5), (found(Some(5), Some(6), Some(8)), vec![0, 8, 4, 6, 5]));
        assert_eq!(
            search(-57, 0),
            (found(None, None, Some(-56)), vec![0, -8, -24, -56]),
            "not even the mildest"
        );
    }

    proptest! {
        #[test]
        fn result_of_a_frontier_search_encloses_the_hardest_step_met(hardest in -60..60_i32, begin in -80..80_i32, stride in -1..40_i32) {
            let (bracket, tried) = search(Search::from(begin, stride), hardest);
            prop_assert_eq!(bracket.kept, (hardest >= -STEPS_MAX).then_some(hardest.min(STEPS_MAX)));
            prop_assert_eq!(bracket.broken, (hardest < STEPS_MAX).then_some(hardest.max(-STEPS_MAX - 1) + 1));
            prop_assert!(tried.len() <= 15, "{:?}", tried);
            let mut distinct = tried.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), tried.len(), "a step is tried once: {:?}", tried);
        }

        #[test]
        fn frontier_search_ends_for_any_verdicts(begin in -80..80_i32, verdicts: [Option<bool>; 20]) {
            let mut search = Search::from(begin, 8);
            for kept in verdicts {
                let Some(step) = search.next() else { break };
                search.learn(step, kept.map(|kept| if kept { Verdict::Kept } else { Verdict::Broken }));
            }
            prop_assert_eq!((search.next(), search.left()), (None, 0));
        }
    }
}
