//! Work that clients cause, and its bounds.
//!
//! A few bytes of input can cause much work: counting the bits of a value, or appending a byte to
//! it, touches all of the value. So a client's scheduling turn ends when it has done enough work,
//! however few bytes it has read and written, and the client goes on after the turns of other
//! clients. A command or a transaction cannot be interrupted, and is refused if its work would
//! exceed a bound. Only work beyond reading input and writing output is counted, since their bytes
//! have bounds of their own.
//!
//! The unit of work is the time to read or write one byte of a long sequence: about a quarter of a
//! nanosecond. Other work is converted to this unit by its time, measured on one core of 2020.

/// Work after which a client's turn ends: about a quarter of a millisecond, so that switching
/// between clients costs little in comparison.
pub(crate) const TURN_MAX: u64 = 1 << 20;
/// Maximum work of one command or transaction: about four milliseconds. Chosen: as many units as a
/// transaction may have bytes of arguments and answers, which also suffices for some ten thousand
/// keys of an `MSET` in a bulk load.
pub(crate) const COMMAND_MAX: u64 = 16 << 20;

/// Work of looking up a key whose memory is not in the processor's cache: 130 ns.
pub(crate) const KEY: u64 = 512;
/// Work of storing or removing the item of a key, with the eviction of another one: 260 ns.
pub(crate) const CHANGE: u64 = 2 * KEY;
/// Work of parsing an argument of a command and comparing it with some words: 30 ns.
pub(crate) const ARGUMENT: u64 = 128;
/// Work of reading all counters of a partition, which each shard keeps per stripe of its lock: some
/// microseconds.
pub(crate) const COUNTERS: u64 = 32 << 10;
/// Work of flushing a partition, and of notifying its backend: some microseconds.
pub(crate) const FLUSH: u64 = 32 << 10;

/// Work per byte of a value that is derived from the present one, as by `APPEND`: the present value
/// is read, the new one is written twice, and items of as many bytes are evicted.
const REBUILT: u64 = 4;
/// Number of pairs of bytes that one unit of work compares to find a common subsequence: 64 pairs
/// take two to four nanoseconds.
const PAIRS_A_UNIT: u64 = 4;

/// Work per byte of a number with decimals that is parsed, added and written, digit by digit.
const DIGIT: u64 = 32;

/// Returns the work of adding numbers of `bytes` digits.
pub(crate) const fn digits(bytes: usize) -> u64 {
    DIGIT * bytes as u64
}

/// Returns the work of storing a value of `bytes` that is derived from the present one.
pub(crate) const fn rebuilt(bytes: usize) -> u64 {
    REBUILT.saturating_mul(bytes as u64)
}

/// Returns the work of comparing each byte of a value of `a` bytes with each of one of `b`.
pub(crate) const fn pairs(a: usize, b: usize) -> u64 {
    let compared = (a as u64).saturating_mul(b as u64) / PAIRS_A_UNIT;
    compared.saturating_add(rebuilt(a.saturating_add(b)))
}

/// The work of a turn so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work(u64);

/// The refusal of a command or transaction beyond [`COMMAND_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMuch;

impl Work {
    /// Adds work that cannot be refused.
    pub(crate) fn add(&mut self, units: u64) {
        self.0 = self.0.saturating_add(units);
    }

    /// Adds the work of a command that is about to be done.
    ///
    /// # Errors
    /// If `units` is more than one command may cause; nothing is added then.
    pub(crate) fn begin(&mut self, units: u64) -> Result<(), TooMuch> {
        if units > COMMAND_MAX {
            return Err(TooMuch);
        }
        self.add(units);
        Ok(())
    }

    /// Returns true if the turn has to end before another command is executed.
    pub(crate) fn ends_turn(self) -> bool {
        self.0 >= TURN_MAX
    }

    /// Returns the units of work.
    pub(crate) fn units(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduling_turn_ends_once_its_total_work_reaches_the_bound() {
        let mut work = Work::default();
        assert!(!work.ends_turn());
        work.add(TURN_MAX - 1);
        assert!(!work.ends_turn());
        assert_eq!(work.begin(1), Ok(()));
        assert!(work.ends_turn());
        assert_eq!(work.units(), TURN_MAX);
    }

    #[test]
    fn command_over_the_work_bound_is_refused_and_adds_no_work() {
        let mut work = Work::default();
        assert_eq!(work.begin(COMMAND_MAX + 1), Err(TooMuch));
        assert_eq!(work.begin(u64::MAX), Err(TooMuch));
        assert_eq!(work, Work::default());
        assert_eq!(work.begin(COMMAND_MAX), Ok(()));
        work.add(u64::MAX);
        assert_eq!(work.units(), u64::MAX);
    }

    #[test]
    fn work_of_comparing_two_values_does_not_overflow() {
        assert_eq!(pairs(2048, 2048), (2048 * 2048) / 4 + 4 * 4096);
        assert!(pairs(usize::MAX, usize::MAX) > COMMAND_MAX);
    }
}
