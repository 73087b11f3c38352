//! Work that clients cause, and its bounds.
//!
//! A few bytes of input can cause much work: counting the bits of a value, or appending a byte to
//! it, touches all of the value. So a turn ends by its work, whatever its input and output, and the
//! client goes on in the next turn, after those of others; a command or a transaction, which cannot
//! be interrupted, is refused beyond a bound. Only what costs more than its bytes of input and
//! output is counted: those have bounds of their own.
//!
//! The unit is a byte that is read or written in order, about a quarter of a nanosecond. Other work
//! is counted by the bytes that could be touched in its time, measured on one core of 2020.

/// Work of a turn after which other clients have theirs: about a quarter of a millisecond, so that
/// a turn costs little beside its work.
pub(crate) const TURN_MAX: u64 = 1 << 20;
/// Most work of one command or transaction: about four milliseconds. Bounded by the bytes that a
/// transaction may have and answer, and by some ten thousand keys of an `MSET`, which bulk loads
/// use.
pub(crate) const COMMAND_MAX: u64 = 16 << 20;

/// Work of looking up a key whose memory is not in the processor's cache: 130 ns.
pub(crate) const KEY: u64 = 512;
/// Work of storing or removing the item of a key, with the eviction of another one: 260 ns.
pub(crate) const CHANGE: u64 = 2 * KEY;
/// Work of parsing an argument of a command and comparing it with some words: 30 ns.
pub(crate) const ARGUMENT: u64 = 128;
/// Work of reading all counters of a partition, of each shard and each of its lock's stripes: some
/// microseconds.
pub(crate) const COUNTERS: u64 = 32 << 10;
/// Work of flushing a partition, and telling its backend: some microseconds.
pub(crate) const FLUSH: u64 = 32 << 10;

/// Work per byte of a value that is made of the present one and stored: that is read, the new one
/// is written twice, and items of as many bytes are evicted.
const REBUILT: u64 = 4;
/// Pairs of bytes of which a unit compares so many to find a common subsequence: 64 take two to
/// four nanoseconds.
const PAIRS_A_UNIT: u64 = 4;

/// Work per byte of a number with decimals that is parsed, added and written, digit by digit.
const DIGIT: u64 = 32;

/// Returns the work of adding numbers of `bytes` digits.
pub(crate) const fn digits(bytes: usize) -> u64 {
    DIGIT * bytes as u64
}

/// Returns the work of storing a value of `bytes` that is made of the present one.
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
    /// Adds work that is done in any case.
    pub(crate) fn add(&mut self, units: u64) {
        self.0 = self.0.saturating_add(units);
    }

    /// Adds the work of a command that is about to be done.
    ///
    /// # Errors
    /// If that is more than a command may cause. Nothing is added.
    pub(crate) fn begin(&mut self, units: u64) -> Result<(), TooMuch> {
        if units > COMMAND_MAX {
            return Err(TooMuch);
        }
        self.add(units);
        Ok(())
    }

    /// Returns true if the turn ends before another command is executed.
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
