//! The writes of a run in the order of each key, and the values that reads may return.

use sherwood_path::WriteOutcome;

use crate::events::{KEYS, View};

/// A write.
struct Written {
    key: usize,
    /// The place among the writes of the key.
    place: u64,
    is_put: bool,
    /// Everything that precedes the write, and the write itself.
    sees: View,
    /// The outcome, and the step in which the client learnt it.
    end: Option<(WriteOutcome, u64)>,
}

/// All writes of a run, by their numbers, from 1 on.
#[derive(Default)]
pub(crate) struct History {
    writes: Vec<Written>,
    /// The numbers of each key's writes, in their order.
    orders: [Vec<u64>; KEYS],
    /// The last write of each key that is acknowledged.
    acknowledged: View,
}

impl History {
    /// Adds a write, which follows all others of its key. `before` is what precedes it. Returns its
    /// number.
    pub(crate) fn begin(&mut self, key: usize, is_put: bool, before: View) -> u64 {
        let place = self.orders[key].len() as u64 + 1;
        let mut sees = before;
        sees[key] = place;
        self.writes.push(Written { key, place, is_put, sees, end: None });
        let number = self.writes.len() as u64;
        self.orders[key].push(number);
        number
    }

    /// Notes the end of a write.
    pub(crate) fn end(&mut self, number: u64, outcome: WriteOutcome, step: u64) {
        let write = &mut self.writes[number as usize - 1];
        assert!(write.end.is_none(), "write {number} ended twice");
        write.end = Some((outcome, step));
        if outcome == WriteOutcome::Acknowledged {
            self.acknowledged[write.key] = self.acknowledged[write.key].max(write.place);
        }
    }

    pub(crate) fn key(&self, number: u64) -> usize {
        self.of(number).key
    }

    pub(crate) fn is_put(&self, number: u64) -> bool {
        self.of(number).is_put
    }

    pub(crate) fn is_acknowledged(&self, number: u64) -> bool {
        self.of(number).end.is_some_and(|(outcome, _)| outcome == WriteOutcome::Acknowledged)
    }

    /// The place of a write in the order of its key; 0 for no write.
    pub(crate) fn place(&self, number: u64) -> u64 {
        number.checked_sub(1).map_or(0, |index| self.writes[index as usize].place)
    }

    /// Everything that a reader of the value of a write has seen; nothing for no write.
    pub(crate) fn sees(&self, number: u64) -> View {
        number.checked_sub(1).map_or([0; KEYS], |index| self.writes[index as usize].sees)
    }

    /// The last acknowledged writes of all keys.
    pub(crate) fn acknowledged(&self) -> View {
        self.acknowledged
    }

    /// The number of the last write of a key; 0 for none.
    pub(crate) fn last(&self, key: usize) -> u64 {
        self.orders[key].last().copied().unwrap_or(0)
    }

    /// Returns the write that a read of a key has seen, 0 for none, or the reason why the read must
    /// not have returned `content`. The read began in the step `begun`, and must not see less than
    /// the write at the place `least`. Of the removals that explain an absence, the first counts.
    pub(crate) fn explain(
        &self,
        key: usize,
        content: Option<u64>,
        least: u64,
        begun: u64,
    ) -> Result<u64, String> {
        let order = &self.orders[key];
        let least = (1..=least).rev().find(|place| !self.is_void(order[*place as usize - 1], u64::MAX));
        let least = least.unwrap_or(0);
        if let Some(number) = content {
            let Some(write) = self.writes.get(number as usize - 1) else {
                return Err(format!("{number} was never written"));
            };
            return if write.key != key || !write.is_put {
                Err(format!("{number} was not written to key {key}"))
            } else if self.is_void(number, begun) {
                Err(format!("{number} was not done"))
            } else if write.place < least {
                Err(format!("{number} is at place {}, before {least}, of {order:?}", write.place))
            } else {
                Ok(number)
            };
        }
        if least == 0 {
            return Ok(0);
        }
        let may_be_seen = |number: &&u64| !self.of(**number).is_put && !self.is_void(**number, begun);
        let removal = order[least as usize - 1..].iter().find(may_be_seen);
        removal.copied().ok_or_else(|| format!("nothing was removed from place {least} on, of {order:?}"))
    }

    /// True if a write had ended as not done before a step.
    fn is_void(&self, number: u64, step: u64) -> bool {
        self.of(number).end.is_some_and(|(outcome, at)| outcome == WriteOutcome::NotDone && at < step)
    }

    fn of(&self, number: u64) -> &Written {
        &self.writes[number as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_may_return_what_it_must_reflect_or_a_later_value() {
        let mut history = History::default();
        let writes: Vec<u64> = (0..3).map(|_| history.begin(5, true, [0; KEYS])).collect();
        assert_eq!((history.last(5), history.key(writes[1]), history.last(0)), (writes[2], 5, 0));
        let may_be = |number: u64, least| history.explain(5, Some(number), least, 0).is_ok();
        assert_eq!([0, 1, 2, 3].map(|least| may_be(writes[1], least)), [true, true, true, false]);
        assert!(history.explain(4, Some(writes[1]), 0, 0).is_err(), "it is of another key");
        assert!(history.explain(5, Some(9), 0, 0).is_err(), "it was never written");
        assert_eq!(history.explain(5, None, 0, 0), Ok(0));
        assert!(history.explain(5, None, 1, 0).is_err(), "nothing was removed");
    }

    #[test]
    fn absence_is_explained_by_the_first_removal_that_may_be_seen() {
        let mut history = History::default();
        let kinds = [true, false, true, false];
        let writes = kinds.map(|is_put| history.begin(0, is_put, [0; KEYS]));
        assert!(!history.is_put(writes[1]) && history.explain(0, Some(writes[1]), 0, 0).is_err());
        let explained = [0, 2, 3, 4].map(|least| history.explain(0, None, least, 0));
        assert_eq!(explained, [Ok(0), Ok(writes[1]), Ok(writes[3]), Ok(writes[3])]);
    }

    #[test]
    fn write_that_is_not_done_is_seen_only_by_reads_that_began_before() {
        let mut history = History::default();
        let (done, not_done) = (history.begin(0, true, [0; KEYS]), history.begin(0, true, [0; KEYS]));
        history.end(done, WriteOutcome::Acknowledged, 3);
        history.end(not_done, WriteOutcome::NotDone, 4);
        assert!(history.is_acknowledged(done) && !history.is_acknowledged(not_done));
        assert_eq!(history.acknowledged()[0], history.place(done));
        let may_be = |begun| history.explain(0, Some(not_done), 0, begun).is_ok();
        assert_eq!([4, 5].map(may_be), [true, false]);
        assert_eq!(history.explain(0, Some(done), history.place(not_done), 5), Ok(done));
    }

    #[test]
    fn reader_of_a_value_has_seen_what_precedes_it() {
        let mut history = History::default();
        let first = history.begin(1, true, [0; KEYS]);
        let second = history.begin(2, true, history.sees(first));
        assert_eq!(history.sees(second)[..3], [0, 1, 1]);
        assert_eq!(history.sees(0), [0; KEYS]);
    }
}
