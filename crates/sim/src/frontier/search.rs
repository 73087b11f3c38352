//! One search along an axis, as a machine that is told verdicts and says where to try next.

use super::STEPS_MAX;
use crate::verdict::Verdict;

/// Looks for the hardest step at which a promise is kept.
///
/// Ask for [`Search::next`], try it, tell [`Search::learn`] the verdict, until there is no next. The machine strides from where it
/// begins, each stride twice as long as the last, until it has been on both sides; then it bisects. It ends with two steps next
/// to each other, or at an end of the grid: in 5 to 9 tries from far away, in two where it begins right.
///
/// ```
/// use sherwood_sim::{Search, Verdict};
/// let mut search = Search::from(0, 8);
/// let mut tried = Vec::new();
/// while let Some(step) = search.next() {
///     tried.push(step);
///     search.learn(step, if step <= 11 { Verdict::Kept } else { Verdict::Broken });
/// }
/// assert_eq!(tried, [0, 8, 24, 16, 12, 10, 11]);
/// assert_eq!((search.bracket().kept, search.bracket().broken), (Some(11), Some(12)));
/// ```
#[derive(Clone, Debug)]
pub struct Search {
    bracket: Bracket,
    begin: i32,
    stride: i32,
}

/// What is known of a search, in steps of harder conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bracket {
    /// The hardest at which the promise is kept; none when none is known, at the end: not even at the mildest.
    pub kept: Option<i32>,
    /// The mildest at which it is broken; none when none is known, at the end: not even at the hardest.
    pub broken: Option<i32>,
}

impl Bracket {
    /// Whether nothing is left to be tried between.
    fn is_closed(self) -> bool {
        match (self.kept, self.broken) {
            (Some(kept), Some(broken)) => broken - kept <= 1,
            (Some(kept), None) => kept >= STEPS_MAX,
            (None, Some(broken)) => broken <= -STEPS_MAX,
            (None, None) => false,
        }
    }
}

/// The first stride of a search that knows nothing: half as much again, which three bisections divide.
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
        Self { bracket: Bracket::default(), begin: begin.clamp(-STEPS_MAX, STEPS_MAX), stride: stride.max(1) }
    }

    /// A search that begins where another one ended, and is over after two tries if that is right here too.
    #[must_use]
    pub fn beside(found: Bracket) -> Self {
        Self::from(found.kept.or(found.broken).unwrap_or(0), 1)
    }

    /// The step to try next; none at the end.
    #[must_use]
    pub fn next(&self) -> Option<i32> {
        if self.bracket.is_closed() {
            return None;
        }
        Some(match (self.bracket.kept, self.bracket.broken) {
            (None, None) => self.begin,
            (Some(kept), None) => (kept + self.stride).min(STEPS_MAX),
            (None, Some(broken)) => (broken - self.stride).max(-STEPS_MAX),
            (Some(kept), Some(broken)) => kept + (broken - kept) / 2,
        })
    }

    /// Takes the verdict on a step. One that is no news is ignored.
    pub fn learn(&mut self, step: i32, verdict: Verdict) {
        let Bracket { kept, broken } = &mut self.bracket;
        let strides = kept.is_some() != broken.is_some();
        match verdict {
            Verdict::Kept if kept.is_none_or(|kept| kept < step) => *kept = Some(step),
            Verdict::Broken if broken.is_none_or(|broken| step < broken) => *broken = Some(step),
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
        match (self.bracket.kept, self.bracket.broken) {
            _ if self.bracket.is_closed() => 0,
            (Some(kept), Some(broken)) => halvings(broken - kept),
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
            search.learn(step, if step <= hardest { Verdict::Kept } else { Verdict::Broken });
        }
        (search.bracket(), tried)
    }

    #[test]
    fn a_search_that_begins_right_confirms_both_sides() {
        let found = Bracket { kept: Some(5), broken: Some(6) };
        assert_eq!(search(Search::beside(found), 5), (found, vec![5, 6]));
        let (bracket, tried) = search(Search::beside(found), 3);
        assert_eq!((bracket.kept, tried), (Some(3), vec![5, 4, 2, 3]));
    }

    #[test]
    fn ends_of_the_grid_are_tried_and_said() {
        let always = search(Search::default(), i32::MAX);
        assert_eq!(always, (Bracket { kept: Some(56), broken: None }, vec![0, 8, 24, 56]));
        let never = search(Search::default(), i32::MIN);
        assert_eq!(never, (Bracket { kept: None, broken: Some(-56) }, vec![0, -8, -24, -56]));
        assert_eq!(search(Search::beside(always.0), i32::MAX), (always.0, vec![56]));
        assert_eq!(search(Search::beside(never.0), i32::MIN), (never.0, vec![-56]));
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
        fn whatever_it_is_told_it_ends(begin in -80..80_i32, verdicts: [bool; 20]) {
            let mut search = Search::from(begin, 8);
            for kept in verdicts {
                let Some(step) = search.next() else { break };
                search.learn(step, if kept { Verdict::Kept } else { Verdict::Broken });
            }
            prop_assert_eq!((search.next(), search.left()), (None, 0));
        }
    }
}
