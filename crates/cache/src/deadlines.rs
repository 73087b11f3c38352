//! Deadline classes: how long the items of each class of deadlines stay in the cache.
//!
//! A partition may have several classes of deadlines, each with recency queues of its own. A class
//! has a multiplier, and an item of a class with twice the multiplier of another stays twice as
//! long without being used. The multipliers of a partition start at 1 and sum to the number of its
//! classes. They are learned from stores that fill a gap after a miss, which tell whether the
//! caller got the value too late.
//!
//! [`DeadlineCost::Paper`] is the deadline cache of MicroFuge (A. K. Singh, X. Cui, B. Cassell,
//! B. Wong and K. Daudjee, "MicroFuge: A Middleware Approach to Providing Performance Isolation in
//! Cloud Storage Systems", ICDCS 2014, section II-A): each missed deadline adds a step to the
//! multiplier of its class, and all are scaled back to their sum. At rest a class's multiplier is
//! its share of the missed deadlines. Added here: no multiplier falls below [`FLOOR`], so that a
//! class whose deadlines are never missed keeps some of its items.
//!
//! [`DeadlineCost::Measured`] makes a class's multiplier proportional to what one more miss costs:
//! the share of the class's recent fills whose deadline was missed. This is the state at rest of
//! GreedyDual (N. Young, "On-line caching as cache size varies", SODA 1991) with that cost. There
//! an item's priority is its cost plus an age, which rises to the priority of each victim; the
//! oldest items of all classes then have the same priority, so the time since their last use is in
//! proportion to their cost. The age rises with the load, and so does the speed at which all queues
//! turn here. Unlike the share of missed deadlines, the cost does not depend on how many requests a
//! class has: many requests of a class that rarely misses do not displace the few of one that
//! always does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use sherwood_model::PartitionId;

use crate::options::{DeadlineCost, DeadlineOptions, Partition};

/// Least multiplier of a class. Chosen: items of a class that never misses its deadlines stay at
/// least a tenth as long as the mean. Where a scheduler leaves few missed deadlines, most classes
/// are at the floor, and the popular items among them are most of the hits that are lost: in
/// MicroFuge's evaluation, simulated, 3.3 percentage points with a twentieth and 2.5 with a tenth.
pub(crate) const FLOOR: f64 = 0.1;
/// Fills of a partition after which measured costs are evaluated again.
const EVALUATION_FILLS: u64 = 64;
/// Fills of a partition after which the weight of all earlier ones is halved. Chosen: with ten
/// classes some thousand fills count for each, and a cost near 0.2 is known to about 0.01.
const WINDOW_FILLS: u64 = 8192;
/// Cost of a miss whose deadline is met: the load it adds. It makes the multipliers equal again
/// when no deadlines are missed. Chosen: a hundredth of a missed deadline.
const LOAD_COST: f64 = 0.01;
/// Imaginary fills of each class with the mean cost of all, so that a class with few fills is not
/// judged by them alone.
const PRIOR_FILLS: f64 = 30.0;

/// The deadline classes of all partitions, common to all shards. Multipliers are read without a
/// lock for each victim.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Largest number of classes of any partition, which is the number of queue sets of each.
    stride: usize,
    /// Multipliers by queue set, as bits; empty if no partition has several classes.
    multipliers: Box<[AtomicU64]>,
    /// Signals by partition; none for those with one class. Locked for a store with a class;
    /// nothing is locked under it.
    signals: Box<[Option<Mutex<Signals>>]>,
}

/// Signals of a partition's fills about its deadlines.
#[derive(Clone, Debug)]
struct Signals {
    step: f64,
    cost: DeadlineCost,
    multipliers: Multipliers,
    classes: Box<[ClassSignals]>,
    /// Fills since the last halving.
    fills: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClassSignals {
    /// Missed deadlines since the start.
    deadline_missed: u64,
    /// Recent fills, and those among them whose deadline was missed; older ones weigh less.
    fills: f64,
    missed: f64,
}

/// Multipliers of the classes of one partition: at least [`FLOOR`] each, in sum their number.
#[derive(Clone, Debug, PartialEq)]
struct Multipliers(Box<[f64]>);

impl Deadlines {
    pub(crate) fn new(partitions: &[Partition]) -> Self {
        let count = |partition: &Partition| usize::from(partition.deadlines.classes.count());
        let stride = partitions.iter().map(count).max().unwrap_or(1);
        if stride == 1 {
            return Self { stride, multipliers: Box::default(), signals: Box::default() };
        }
        let signals = |partition: &Partition| {
            let DeadlineOptions { classes, step, cost } = partition.deadlines;
            let signals = || Mutex::new(Signals::new(usize::from(classes.count()), step, cost));
            (classes.count() > 1).then(signals)
        };
        Self {
            stride,
            multipliers: (0..partitions.len() * stride).map(|_| AtomicU64::new(1f64.to_bits())).collect(),
            signals: partitions.iter().map(signals).collect(),
        }
    }

    /// Returns a copy, for a copy of the cache.
    pub(crate) fn copy(&self) -> Self {
        let Self { stride, multipliers, signals } = self;
        let copy = |signals: &Mutex<Signals>| {
            Mutex::new(signals.lock().unwrap_or_else(PoisonError::into_inner).clone())
        };
        Self {
            stride: *stride,
            multipliers: multipliers.iter().map(|bits| AtomicU64::new(bits.load(Relaxed))).collect(),
            signals: signals.iter().map(|signals| signals.as_ref().map(copy)).collect(),
        }
    }

    /// Number of queue sets of each partition.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Multiplier of a queue set.
    #[inline]
    pub(crate) fn multiplier(&self, set: usize) -> f64 {
        self.multipliers.get(set).map_or(1.0, |bits| f64::from_bits(bits.load(Relaxed)))
    }

    /// Notes that a value of a class was stored after a miss, and if its caller's deadline was
    /// missed.
    pub(crate) fn note_fill(&self, partition: PartitionId, class: u8, missed: bool) {
        self.learn(partition, |signals| signals.note_fill(usize::from(class), missed));
    }

    /// Missed deadlines of a class since the start.
    pub(crate) fn deadline_missed(&self, partition: PartitionId, class: u8) -> u64 {
        let signals = self.signals.get(partition.index()).and_then(Option::as_ref);
        signals.map_or(0, |signals| {
            let signals = signals.lock().unwrap_or_else(PoisonError::into_inner);
            signals.classes[usize::from(class)].deadline_missed
        })
    }

    /// Publishes the multipliers of a partition if `change` returns true.
    fn learn(&self, partition: PartitionId, change: impl FnOnce(&mut Signals) -> bool) {
        let Some(signals) = self.signals.get(partition.index()).and_then(Option::as_ref) else { return };
        let mut signals = signals.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut signals) {
            let sets = &self.multipliers[partition.index() * self.stride..];
            for (bits, multiplier) in sets.iter().zip(&signals.multipliers.0) {
                bits.store(multiplier.to_bits(), Relaxed);
            }
        }
    }
}

impl Signals {
    fn new(classes: usize, step: f64, cost: DeadlineCost) -> Self {
        let multipliers = Multipliers(vec![1.0; classes].into());
        Self { step, cost, multipliers, classes: vec![ClassSignals::default(); classes].into(), fills: 0 }
    }

    /// Returns true if the multipliers have changed.
    fn note_fill(&mut self, class: usize, missed: bool) -> bool {
        let of_class = &mut self.classes[class];
        of_class.deadline_missed += u64::from(missed);
        match self.cost {
            DeadlineCost::Paper => {
                if missed {
                    self.multipliers.add(class, self.step);
                }
                missed
            }
            DeadlineCost::Measured => {
                of_class.fills += 1.0;
                of_class.missed += f64::from(u8::from(missed));
                self.fills += 1;
                let is_due = self.fills.is_multiple_of(EVALUATION_FILLS);
                if is_due {
                    self.multipliers = Multipliers::in_proportion(self.costs());
                }
                if self.fills == WINDOW_FILLS {
                    self.fills = 0;
                    self.classes.iter_mut().for_each(ClassSignals::fade);
                }
                is_due
            }
        }
    }

    /// Cost of a miss of each class: the estimated probability that it leads to a missed deadline,
    /// and its load.
    fn costs(&self) -> Vec<f64> {
        let sum = |of: fn(&ClassSignals) -> f64| self.classes.iter().map(of).sum::<f64>();
        let mean = sum(|class| class.missed) / sum(|class| class.fills).max(1.0);
        let missed = |class: &ClassSignals| (class.missed + PRIOR_FILLS * mean) / (class.fills + PRIOR_FILLS);
        self.classes.iter().map(|class| LOAD_COST + missed(class)).collect()
    }
}

impl ClassSignals {
    fn fade(&mut self) {
        self.fills /= 2.0;
        self.missed /= 2.0;
    }
}

impl Multipliers {
    /// Returns multipliers in proportion to these costs, which are above 0.
    fn in_proportion(costs: Vec<f64>) -> Self {
        let mut multipliers = Self(costs.into());
        multipliers.scale();
        multipliers
    }

    /// Adds `step` to a class's multiplier and scales all back to their sum.
    fn add(&mut self, class: usize, step: f64) {
        self.0[class] += step;
        self.scale();
    }

    /// Scales the multipliers to sum to their number. Those below the floor are raised to it, and
    /// the parts of the others above the floor are scaled instead.
    fn scale(&mut self) {
        let count = self.0.len() as f64;
        let scale = count / self.0.iter().sum::<f64>();
        self.0.iter_mut().for_each(|multiplier| *multiplier *= scale);
        if self.0.iter().all(|&multiplier| multiplier >= FLOOR) {
            return;
        }
        let above = |multiplier: f64| (multiplier - FLOOR).max(0.0);
        let scale = count * (1.0 - FLOOR) / self.0.iter().map(|&multiplier| above(multiplier)).sum::<f64>();
        self.0.iter_mut().for_each(|multiplier| *multiplier = FLOOR + above(*multiplier) * scale);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signals(classes: usize, cost: DeadlineCost) -> Signals {
        Signals::new(classes, DeadlineOptions::ONE.step, cost)
    }

    #[test]
    fn missed_deadline_raises_its_class_and_scales_all_back() {
        let mut signals = signals(10, DeadlineCost::Paper);
        assert!(signals.note_fill(3, true));
        let expected = |class| if class == 3 { 1.01 * 10.0 / 10.01 } else { 10.0 / 10.01 };
        for (class, multiplier) in signals.multipliers.0.iter().enumerate() {
            assert!((multiplier - expected(class)).abs() < 1e-12, "class {class}: {multiplier}");
        }
        assert!(!signals.note_fill(3, false), "a deadline that was met changes nothing");
        assert_eq!(signals.classes[3].deadline_missed, 1);
    }

    #[test]
    fn multipliers_at_rest_are_shares_of_missed_deadlines() {
        let mut signals = signals(3, DeadlineCost::Paper);
        for number in 0..20_000 {
            signals.note_fill(usize::from(number % 4 == 0), true);
        }
        let expected = [3.0 * 0.75, 3.0 * 0.25, 0.0];
        for (multiplier, expected) in signals.multipliers.0.iter().zip(expected) {
            assert!((multiplier - expected).abs() < 2.0 * FLOOR, "{:?}", signals.multipliers);
        }
        assert_eq!(signals.multipliers.0[2], FLOOR, "a class without missed deadlines keeps the least");
    }

    #[test]
    fn measured_cost_does_not_depend_on_a_class_rate() {
        let mut signals = signals(2, DeadlineCost::Measured);
        // Nine of ten fills are of class 0, of which a fifth is too late; of class 1 four fifths.
        for number in 0..200_000 {
            let class = usize::from(number % 10 == 0);
            let late = (number / 10) % 5 < if class == 0 { 1 } else { 4 };
            signals.note_fill(class, late);
        }
        let [often, rarely] = signals.multipliers.0[..] else { panic!("two classes") };
        assert!((rarely / often - 4.0).abs() < 0.3, "{:?}", signals.multipliers);
    }

    #[test]
    fn measured_cost_forgets_and_returns_to_equal_multipliers() {
        let mut signals = signals(2, DeadlineCost::Measured);
        let fill = |signals: &mut Signals, late| {
            (0..WINDOW_FILLS).for_each(|number| {
                signals.note_fill((number % 2) as usize, late && number % 2 == 1);
            })
        };
        fill(&mut signals, true);
        assert!(signals.multipliers.0[1] > 1.8);
        (0..20).for_each(|_| fill(&mut signals, false));
        assert!((signals.multipliers.0[1] - 1.0).abs() < 1e-3, "{:?}", signals.multipliers);
    }

    proptest! {
        #[test]
        fn multipliers_sum_to_their_number_and_keep_the_floor(
            classes in 2..=16usize, step in 0.001..=1f64, measured: bool,
            fills in prop::collection::vec((0..16usize, any::<bool>()), 1..2000),
        ) {
            let cost = if measured { DeadlineCost::Measured } else { DeadlineCost::Paper };
            let mut signals = Signals::new(classes, step, cost);
            for (class, missed) in fills {
                signals.note_fill(class % classes, missed);
                let Multipliers(multipliers) = &signals.multipliers;
                let sum: f64 = multipliers.iter().sum();
                prop_assert!((sum - classes as f64).abs() < 1e-9, "{sum} for {classes}");
                prop_assert!(multipliers.iter().all(|&one| one >= FLOOR - 1e-12), "{multipliers:?}");
            }
        }
    }
}
