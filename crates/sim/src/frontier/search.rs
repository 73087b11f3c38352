//! One search along an axis, as a machine that is told verdicts and says where to try next.

use super::STEPS_MAX;
use crate::verdict::Verdict;

/// Looks for the hardest step at which a promise is kept.
///
/// Ask for [`Search::next`], try it, tell [`Search::learn`] the verdict, until there is no next.
/// The machine strides from where it begins, each stride twice as long as the last, until it has
/// been on both sides; then it bisects. It ends with two steps next to each other, or at an end of
/// the grid: in 5 to 9 tries from far away, in two where it begins right. Steps of which no verdict
/// can be had are no place to go on from, so it ends before them.
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
    /// Where the promise is kept at this step, nothing harder is asked.
    enough: i32,
}

/// What is known of a search, in steps of harder conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bracket {
    /// The hardest at which the promise is kept; none when none is known, at the end: not even at
    /// the mildest.
    pub kept: Option<i32>,
    /// The mildest at which it is broken; none when none is known, at the end: not even at the
    /// hardest that was asked.
    pub broken: Option<i32>,
    /// The mildest of which no verdict can be had; none when each that was tried had one.
    pub unjudged: Option<i32>,
}

impl Bracket {
    /// The mildest at which the promise is not known to be kept: broken, or without a verdict.
    fn beyond(self) -> Option<i32> {
        match (self.broken, self.unjudged) {
            (Some(broken), Some(unjudged)) => Some(broken.min(unjudged)),
            (broken, unjudged) => broken.or(unjudged),
        }
    }

    /// Whether nothing is left to be tried between.
    fn is_closed(self) -> bool {
        match (self.kept, self.beyond()) {
            (Some(kept), Some(beyond)) => beyond - kept <= 1,
            (Some(_), None) | (None, None) => false,
            (None, Some(beyond)) => beyond <= -STEPS_MAX,
        }
    }
}

/// The first stride of a search that knows nothing: half as much again, which three bisections
/// divide.
const STRIDE: i32 = 8;

impl Default for Search {
    /// From the conditions as they are.
    fn default() -> Self {
        Self::from(0, STRIDE)
    }
}

impl Search {
    /// A search that begins at a step of the grid, and strides by `stride` (at least 1) first.
    #[must_use]
    pub fn from(begin: i32, stride: i32) -> Self {
        let begin = begin.clamp(-STEPS_MAX, STEPS_MAX);
        Self { bracket: Bracket::default(), begin, stride: stride.max(1), enough: STEPS_MAX }
    }

    /// A search that begins where another one ended, and is over after two tries if that is right
    /// here too. Where the promise is kept even where the other one broke it, it ends without
    /// having been on both sides: what is kept by both is the other one's to say.
    #[must_use]
    pub fn beside(found: Bracket) -> Self {
        let begin = found.kept.or(found.beyond()).unwrap_or(0);
        Self { enough: found.broken.unwrap_or(STEPS_MAX), ..Self::from(begin, 1) }
    }

    fn is_over(&self) -> bool {
        self.bracket.is_closed() || self.bracket.kept.is_some_and(|kept| kept >= self.enough)
    }

    /// The step to try next; none at the end.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        if self.is_over() {
            return None;
        }
        Some(match (self.bracket.kept, self.bracket.beyond()) {
            (None, None) => self.begin,
            (Some(kept), None) => (kept + self.stride).min(STEPS_MAX),
            (None, Some(beyond)) => (beyond - self.stride).max(-STEPS_MAX),
            (Some(kept), Some(beyond)) => kept + (beyond - kept) / 2,
        })
    }

    /// Takes the verdict on a step, or that none can be had. What is no news is ignored.
    pub fn learn(&mut self, step: i32, verdict: Option<Verdict>) {
        let strides = self.bracket.kept.is_some() != self.bracket.beyond().is_some();
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

    /// What is known.
    #[must_use]
    pub fn bracket(&self) -> Bracket {
        self.bracket
    }

    /// Tries that are left, about: exactly while it bisects.
    #[must_use]
    pub fn left(&self) -> u32 {
        let halvings = |gap: i32| (gap.max(1) as u32).next_power_of_two().trailing_zeros();
        match (self.bracket.kept, self.bracket.beyond()) {
            _ if self.is_over() => 0,
            (Some(kept), Some(beyond)) => halvings(beyond - kept),
            (None, None) => 2 + halvings(self.stride),
            _ => 1 + halvings(self.stride),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches where everything up to `hardest` is kept; the bracket and the tries.
    fn search(mut search: Search, hardest: i32) -> (Bracket, Vec<i32>) {
        let mut tried = Vec::new();
        while let Some(step) = search.next() {
            tried.push(step);
            search.learn(step, Some(if step <= hardest { Verdict::Kept } else { Verdict::Broken }));
        }
        (search.bracket(), tried)
    }

    #[test]
    fn a_search_that_begins_right_confirms_both_sides() {
        let found = Bracket { kept: Some(5), broken: Some(6), unjudged: None };
        assert_eq!(search(Search::beside(found), 5), (found, vec![5, 6]));
        let (bracket, tried) = search(Search::beside(found), 3);
        assert_eq!((bracket.kept, tried), (Some(3), vec![5, 4, 2, 3]));
        let (bracket, tried) = search(Search::beside(found), 20);
        assert_eq!((bracket.kept, bracket.broken, tried), (Some(6), None, vec![5, 6]), "harder is not asked");
    }

    #[test]
    fn ends_of_the_grid_are_tried_and_said() {
        let always = search(Search::default(), i32::MAX);
        assert_eq!(always, (Bracket { kept: Some(56), ..Bracket::default() }, vec![0, 8, 24, 56]));
        let never = search(Search::default(), i32::MIN);
        assert_eq!(never, (Bracket { broken: Some(-56), ..Bracket::default() }, vec![0, -8, -24, -56]));
        assert_eq!(search(Search::beside(always.0), i32::MAX), (always.0, vec![56]));
        assert_eq!(search(Search::beside(never.0), i32::MIN), (never.0, vec![-56]));
    }

    #[test]
    fn a_search_ends_before_what_cannot_be_judged() {
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
        fn the_bracket_is_around_the_limit(hardest in -60..60_i32, begin in -80..80_i32, stride in -1..40_i32) {
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
        fn whatever_it_is_told_it_ends(begin in -80..80_i32, verdicts: [Option<bool>; 20]) {
            let mut search = Search::from(begin, 8);
            for kept in verdicts {
                let Some(step) = search.next() else { break };
                search.learn(step, kept.map(|kept| if kept { Verdict::Kept } else { Verdict::Broken }));
            }
            prop_assert_eq!((search.next(), search.left()), (None, 0));
        }
    }
}
