//! The kinds of query that have a histogram, bounded in number.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::{CLASSIC_BOUNDS_NS, Operation, QueryKind, QueryOutcome, QueryTime};
use crate::PartitionId;

/// Largest number of Prometheus' time series that classic histograms of all kinds make together.
const TIME_SERIES_MAX: usize = 4096;
/// Time series of a classic histogram: its buckets, its sum and its count.
const PER_HISTOGRAM: usize = CLASSIC_BOUNDS_NS.len() + 1 + 2;
/// Largest number of kinds of query with a histogram: 186, as classic histograms 4,092 time series.
pub const KINDS_MAX: usize = TIME_SERIES_MAX / PER_HISTOGRAM;
/// Kinds without a partition, for which there is always room.
const WITHOUT_PARTITION: usize = Operation::ALL.len() * (1 + QueryOutcome::ALL.len());
/// Kinds that have a partition.
const WITH_PARTITION_MAX: usize = KINDS_MAX - WITHOUT_PARTITION;
/// Places of the table: a power of two, of which at least a half is always free.
pub(super) const PLACES: usize = 512;
const _: () = assert!(PLACES.is_power_of_two() && PLACES >= 2 * KINDS_MAX);

/// The table of the kinds of query that have a histogram, at most [`KINDS_MAX`], shared by all
/// recorders.
///
/// Kinds get a histogram as they occur. Once there are 138 with a partition, further ones are
/// recorded together, without the partition. A look-up of a known kind writes no memory, so
/// threads may share the table.
#[derive(Debug)]
pub(super) struct Kinds {
    /// A table with open addressing: the code of a kind, or 0.
    codes: [AtomicU32; PLACES],
    /// Number of kinds that have a partition, or are being added.
    with_partition: AtomicUsize,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { codes: [const { AtomicU32::new(0) }; PLACES], with_partition: AtomicUsize::new(0) }
    }
}

impl Kinds {
    /// Returns the place of the histogram that queries of `kind` are recorded in.
    pub(super) fn place(&self, kind: QueryKind) -> usize {
        if let Some(place) = self.find(kind) {
            return place;
        }
        let one_more = |kinds| (kinds < WITH_PARTITION_MAX).then_some(kinds + 1);
        if kind.partition.is_none() {
            self.add(kind).0
        } else if self.with_partition.fetch_update(Relaxed, Relaxed, one_more).is_ok() {
            let (place, is_new) = self.add(kind);
            if !is_new {
                self.with_partition.fetch_sub(1, Relaxed);
            }
            place
        } else {
            self.place(QueryKind { partition: None, ..kind })
        }
    }

    fn find(&self, kind: QueryKind) -> Option<usize> {
        let code = code(kind);
        let codes = probes(code).map(|place| (place, self.codes[place].load(Relaxed)));
        let (place, found) = codes.into_iter().find(|(_, found)| *found == code || *found == 0)?;
        (found == code).then_some(place)
    }

    /// Returns the place of `kind`, and true if it was added, false if another thread was faster.
    fn add(&self, kind: QueryKind) -> (usize, bool) {
        let code = code(kind);
        for place in probes(code) {
            match self.codes[place].compare_exchange(0, code, Relaxed, Relaxed) {
                Ok(_) => return (place, true),
                Err(found) if found == code => return (place, false),
                Err(_) => {}
            }
        }
        unreachable!("half of the table is free")
    }

    /// Returns the kinds that have a histogram, with their places.
    pub(super) fn each(&self) -> impl Iterator<Item = (usize, QueryKind)> {
        let kinds = self.codes.iter().map(|code| kind(code.load(Relaxed)));
        kinds.enumerate().filter_map(|(place, kind)| Some((place, kind?)))
    }
}

/// Returns all places, in the order in which a kind with this code is searched.
fn probes(code: u32) -> impl Iterator<Item = usize> {
    let first = (code.wrapping_mul(0x9E37_79B1) >> (u32::BITS - PLACES.ilog2())) as usize;
    (0..PLACES).map(move |step| (first + step) % PLACES)
}

/// Bits of a code for the operation and the time.
const LOW_BITS: u32 = 8;

/// Returns the number of a kind, which is never 0.
fn code(QueryKind { partition, operation, time }: QueryKind) -> u32 {
    let partition = partition.map_or(0, |partition| u32::from(partition.0) + 1);
    let time = match time {
        QueryTime::Queued => 1,
        QueryTime::Ended(outcome) => 2 + outcome as u32,
    };
    partition << LOW_BITS | (operation as u32) << 4 | time
}

/// Returns the kind with this code; none for 0.
fn kind(code: u32) -> Option<QueryKind> {
    let time = match code & 0xF {
        0 => return None,
        1 => QueryTime::Queued,
        outcome => QueryTime::Ended(QueryOutcome::ALL[outcome as usize - 2]),
    };
    let partition = (code >> LOW_BITS).checked_sub(1).map(|index| PartitionId::from_index(index as usize));
    Some(QueryKind { partition, operation: Operation::ALL[(code >> 4 & 0xF) as usize], time })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds_of(partition: Option<PartitionId>) -> impl Iterator<Item = QueryKind> {
        let times = [QueryTime::Queued].into_iter().chain(QueryOutcome::ALL.map(QueryTime::Ended));
        times.flat_map(move |time| Operation::ALL.map(|operation| QueryKind { partition, operation, time }))
    }

    #[test]
    fn code_of_each_kind_is_its_own() {
        for partition in [None, Some(PartitionId(0)), Some(PartitionId(u16::MAX))] {
            for of in kinds_of(partition) {
                assert_eq!(kind(code(of)), Some(of));
            }
        }
        assert_eq!(kind(0), None);
    }

    #[test]
    fn kinds_over_the_bound_are_recorded_without_their_partition() {
        let kinds = Kinds::default();
        let all: Vec<_> = (0..9).flat_map(|index| kinds_of(Some(PartitionId(index)))).collect();
        let places: Vec<_> = all.iter().map(|kind| kinds.place(*kind)).collect();
        let known: Vec<_> = kinds.each().collect();
        assert_eq!(known.len(), KINDS_MAX, "all without a partition occurred, too");
        for (at, (kind, place)) in all.iter().zip(&places).enumerate() {
            let expected =
                if at < WITH_PARTITION_MAX { *kind } else { QueryKind { partition: None, ..*kind } };
            assert!(known.contains(&(*place, expected)), "{kind:?}");
            assert_eq!(kinds.place(*kind), *place, "it stays");
        }
    }

    #[test]
    fn threads_that_add_the_same_kinds_agree_on_their_places() {
        let kinds = Kinds::default();
        let all: Vec<_> = (0..9).flat_map(|index| kinds_of(Some(PartitionId(index)))).collect();
        std::thread::scope(|scope| {
            let add = || all.iter().for_each(|kind| _ = kinds.place(*kind));
            (0..3).for_each(|_| _ = scope.spawn(add));
        });
        let mut known: Vec<_> = kinds.each().map(|(_, kind)| kind).collect();
        assert!(known.len() <= KINDS_MAX);
        known.sort_unstable();
        assert!(known.windows(2).all(|pair| pair[0] != pair[1]), "each once");
        assert!(all[..WITH_PARTITION_MAX / 2].iter().all(|kind| known.binary_search(kind).is_ok()));
    }
}
