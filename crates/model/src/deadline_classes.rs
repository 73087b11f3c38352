//! Ranges of deadlines that are told apart.

use std::time::Duration;

use thiserror::Error;

/// A class of deadlines, numbered from 0, the default and most urgent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadlineClass(pub u8);

/// Largest number of deadline classes.
const CLASSES_MAX: usize = 16;

/// A division of all deadlines, as the time that a caller can wait, into 1 to 16 classes.
///
/// Each class has an upper bound, which belongs to the next class. The last class also holds all
/// longer deadlines, and whatever has no deadline.
///
/// ```
/// use std::time::Duration;
/// use sherwood_model::{DeadlineClass, DeadlineClasses};
///
/// let ms = Duration::from_millis;
/// let classes = DeadlineClasses::of_equal_width(10, ms(100))?;
/// assert_eq!(classes.of(ms(9)), DeadlineClass(0));
/// assert_eq!(classes.of(ms(10)), DeadlineClass(1));
/// assert_eq!(classes.of(ms(5_000)), DeadlineClass(9));
/// assert_eq!(classes.upto(DeadlineClass(1)), Some(ms(20)));
/// # Ok::<(), sherwood_model::DeadlineClassesError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineClasses {
    /// Upper bounds of the classes in nanoseconds, ascending; unused if there is only one class.
    bounds: [u64; CLASSES_MAX],
    /// Number of classes.
    count: u8,
}

/// Reason why deadlines could not be divided into classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeadlineClassesError {
    /// The number of classes is out of range.
    #[error("{classes} deadline classes were asked for: there may be 1 to {CLASSES_MAX}")]
    Count {
        /// The number of classes given.
        classes: usize,
    },
    /// An upper bound is not above the one before, or the first is 0.
    #[error(
        "the deadline class up to {bound:?} follows one up to {before:?}: \
         upper bounds must be above 0 and ascend"
    )]
    Order {
        /// The bound refused.
        bound: Duration,
        /// The bound before it; 0 for the first.
        before: Duration,
    },
}

impl DeadlineClasses {
    /// Deadlines are not told apart.
    pub const ONE: Self = Self { bounds: [u64::MAX; CLASSES_MAX], count: 1 };

    /// Returns `classes` classes of equal width, the last of which begins below `upto` and holds
    /// all longer deadlines, too.
    ///
    /// # Errors
    /// If there are no classes or more than 16, or if `upto` is too short to be divided.
    pub fn of_equal_width(classes: u8, upto: Duration) -> Result<Self, DeadlineClassesError> {
        let part = |number: u8| {
            Duration::from_nanos((u128::from(nanos(upto)) * u128::from(number) / u128::from(classes)) as u64)
        };
        Self::with_bounds(&(1..=classes).map(part).collect::<Vec<_>>())
    }

    /// Returns classes with these upper bounds, the last of which holds all longer deadlines, too.
    /// A single bound makes one class, which is [`Self::ONE`].
    ///
    /// # Errors
    /// If there are no bounds or more than 16, or if they do not ascend from above 0.
    pub fn with_bounds(given: &[Duration]) -> Result<Self, DeadlineClassesError> {
        if !(1..=CLASSES_MAX).contains(&given.len()) {
            return Err(DeadlineClassesError::Count { classes: given.len() });
        }
        let mut before = Duration::ZERO;
        for &bound in given {
            if bound <= before {
                return Err(DeadlineClassesError::Order { bound, before });
            }
            before = bound;
        }
        if given.len() == 1 {
            return Ok(Self::ONE);
        }
        let mut classes = Self { count: given.len() as u8, ..Self::ONE };
        for (kept, &bound) in classes.bounds.iter_mut().zip(given) {
            *kept = nanos(bound);
        }
        Ok(classes)
    }

    /// Number of classes, 1 to 16.
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// The class of a caller that can wait this long. O(log classes).
    #[must_use]
    pub fn of(&self, within: Duration) -> DeadlineClass {
        // The last class has no upper bound.
        let bounds = &self.bounds[..usize::from(self.count) - 1];
        DeadlineClass(bounds.partition_point(|&bound| bound <= nanos(within)) as u8)
    }

    /// The class of the longest deadlines, and of what has none.
    #[must_use]
    pub const fn last(&self) -> DeadlineClass {
        DeadlineClass(self.count - 1)
    }

    /// Upper bound of a class as it was given; the last class holds longer deadlines, too. None if
    /// there is only one class, or no such class.
    #[must_use]
    pub fn upto(&self, class: DeadlineClass) -> Option<Duration> {
        (self.count > 1 && class <= self.last())
            .then(|| Duration::from_nanos(self.bounds[usize::from(class.0)]))
    }
}

/// Nanoseconds of a deadline; those above 584 years count as such.
fn nanos(deadline: Duration) -> u64 {
    u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for DeadlineClasses {
    fn default() -> Self {
        Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn deadline_at_a_bound_is_in_the_class_above_it() {
        let classes = DeadlineClasses::with_bounds(&[ms(10), ms(30), ms(100)]).expect("bounds ascend");
        let of = [0, 9, 10, 29, 30, 99, 100, 86_400_000].map(|within| classes.of(ms(within)).0);
        assert_eq!(of, [0, 0, 1, 1, 2, 2, 2, 2]);
        let upto = [0, 1, 2, 3].map(|class| classes.upto(DeadlineClass(class)));
        assert_eq!(upto, [Some(ms(10)), Some(ms(30)), Some(ms(100)), None]);
    }

    #[test]
    fn single_class_holds_every_deadline_and_has_no_bound() {
        let one = DeadlineClasses::with_bounds(&[ms(10)]).expect("one bound");
        assert_eq!((one, one.count()), (DeadlineClasses::ONE, 1));
        assert_eq!([ms(0), ms(10), Duration::MAX].map(|within| one.of(within).0), [0; 3]);
        assert_eq!(one.upto(DeadlineClass(0)), None);
    }

    #[test]
    fn number_and_order_of_classes_are_checked() {
        let count = |classes| Err(DeadlineClassesError::Count { classes });
        assert_eq!(DeadlineClasses::of_equal_width(0, ms(100)), count(0));
        assert_eq!(DeadlineClasses::of_equal_width(17, ms(100)), count(17));
        assert_eq!(DeadlineClasses::with_bounds(&[]), count(0));
        let order = |bound, before| Err(DeadlineClassesError::Order { bound, before });
        assert_eq!(DeadlineClasses::with_bounds(&[ms(0)]), order(ms(0), ms(0)));
        assert_eq!(DeadlineClasses::with_bounds(&[ms(20), ms(20)]), order(ms(20), ms(20)));
        assert_eq!(DeadlineClasses::of_equal_width(2, Duration::ZERO), order(ms(0), ms(0)));
    }

    proptest! {
        #[test]
        fn deadline_is_within_the_equal_part_of_its_class(
            classes in 2..=16u8, upto_us in 1_000..10_000_000u64, within_us in 0..20_000_000u64,
        ) {
            let (upto, within) = (Duration::from_micros(upto_us), Duration::from_micros(within_us));
            let divided = DeadlineClasses::of_equal_width(classes, upto).expect("wide enough");
            let class = divided.of(within);
            let bound = |class: u8| divided.upto(DeadlineClass(class)).expect("a class");
            prop_assert_eq!(bound(classes - 1), upto);
            prop_assert!(class.0 == 0 || bound(class.0 - 1) <= within);
            prop_assert!(class == divided.last() || within < bound(class.0));
            let exact = upto.as_nanos() * (u128::from(class.0) + 1) / u128::from(classes);
            prop_assert_eq!(bound(class.0).as_nanos(), exact);
        }
    }
}
