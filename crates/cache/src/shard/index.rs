//! Index from a key's hash to its record.
//!
//! A table that doubles is half empty afterwards, and moves all entries while a client waits. Here
//! a shard's index is divided into segments of some hundred to some thousand entries, and each is a
//! sorted sequence with gaps: 16 bits of the hash, the tag, determine both position and order of an
//! entry. A segment therefore grows by an eighth at a time, in microseconds, without reading a
//! record, and stays five sixths full. An entry takes 7.3 to 8.2 bytes.
//!
//! A search is dominated by memory latency, so the sequence is divided into cache lines of ten
//! entries each, with tags and handles side by side. An entry belongs to a line; if that is full,
//! its largest entries are stored in the next. A search reads one line, and one search in ten a
//! second one.
//!
//! Ordered open addressing: O. Amble and D. E. Knuth, "Ordered hash tables", The Computer Journal
//! 17(2), 1974.

use std::sync::Arc;

use super::pages::Handle;
use crate::lines;
use crate::memory::Supply;

/// All hashes with the same tag in a segment: the segment, then the tag.
pub(crate) type Range = u32;

const TAG_BITS: u32 = u16::BITS;
/// Tag of an empty entry; larger than every valid tag.
const EMPTY: u16 = u16::MAX;
/// Index entries per cache line.
const ENTRIES: usize = 10;
const LAST: usize = ENTRIES - 1;
/// Tags per line, including two unused ones that fill it up.
const LANES: usize = 12;
/// Largest load of a segment: 28 of 32. At higher loads an insertion shifts entries through four
/// lines or more.
const LOAD: (usize, usize) = (28, 32);
/// Part of an index segment by which it grows, as its reciprocal.
const GROWTH_DIVISOR: u32 = 8;
/// Segments that count as one entry of a walk, so that many empty ones neither make a walk long nor
/// need many calls.
const SEGMENTS_PER_ENTRY: usize = 32;

/// Handles of a shard's records by the hash of their keys.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Box<[Segment]>,
    supply: Arc<Supply>,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    /// Entries in order, with gaps at the ends of lines.
    lines: Box<[IndexLine]>,
    /// Lines that an entry can belong to; rarely more than one line follows, for shifted entries.
    homes: u32,
    entries: u32,
}

/// Entries in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct IndexLine {
    /// Tags of the entries, ascending. [`EMPTY`] after the last entry, and always beyond
    /// [`ENTRIES`].
    tags: [u16; LANES],
    handles: [Handle; ENTRIES],
}

const _: () = assert!(size_of::<IndexLine>() == 64);

impl Index {
    /// Returns an index of `segments` segments, a power of two.
    pub(super) fn new(segments: usize, supply: Arc<Supply>) -> Self {
        Self { segments: vec![Segment::default(); segments].into(), supply }
    }

    /// Returns a copy of the index, for a copy of the cache.
    pub(super) fn copy(&self, supply: &Arc<Supply>) -> Self {
        supply.resized(0, self.segments.iter().map(Segment::bytes).sum());
        Self { segments: self.segments.clone(), supply: Arc::clone(supply) }
    }

    /// The handles whose hashes match in segment and tag, which are few. O(1).
    #[inline]
    pub(super) fn find(&self, hash: u64) -> impl Iterator<Item = Handle> {
        self.segments[self.segment(hash)].find(tag(hash)).map(|(_, handle)| handle)
    }

    /// Prefetches the line at which [`Self::find`] begins.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let segment = &self.segments[self.segment(hash)];
        lines::element(&segment.lines, segment.home(tag(hash)));
    }

    /// Inserts a handle whose key is not present. Amortised O(1), at worst a segment's growth.
    pub(super) fn insert(&mut self, hash: u64, handle: Handle) {
        self.change(hash, |segment, tag| segment.insert(tag, handle));
    }

    /// Removes a handle that is present. O(1).
    pub(super) fn remove(&mut self, hash: u64, handle: Handle) {
        self.change(hash, |segment, tag| segment.remove(tag, handle));
    }

    /// Replaces the handle of a record that has moved. O(1).
    pub(super) fn rename(&mut self, hash: u64, from: Handle, to: Handle) {
        let segment = self.segment(hash);
        let segment = &mut self.segments[segment];
        let (line, entry) = segment.position(tag(hash), from);
        segment.lines[line].handles[entry] = to;
    }

    /// Changes the segment of a hash.
    #[inline]
    fn change(&mut self, hash: u64, change: impl FnOnce(&mut Segment, u16)) {
        let segment = self.segment(hash);
        let segment = &mut self.segments[segment];
        let before = segment.bytes();
        change(segment, tag(hash));
        if segment.bytes() != before {
            self.supply.resized(before, segment.bytes());
        }
    }

    /// Visits at most `entries_max` entries (but always complete ranges; 32 segments count as one
    /// entry) in the order of segments and tags from `from` on, and calls `see` with the handles.
    /// Returns the number visited and the range to continue at, or none at the end.
    ///
    /// An entry stays in the same range, however its segment grows and wherever its record moves.
    pub(super) fn walk(
        &self,
        from: Range,
        entries_max: usize,
        mut see: impl FnMut(Handle),
    ) -> (usize, Option<Range>) {
        let (mut seen, mut segments) = (0, 0_usize);
        let mut range = from;
        while let Some(segment) = self.segments.get((range >> TAG_BITS) as usize) {
            let mut last = None;
            for (tag, handle) in segment.from(range as u16) {
                range = range & !Range::from(u16::MAX) | Range::from(tag);
                if seen >= entries_max && last != Some(tag) {
                    return (seen, Some(range));
                }
                see(handle);
                (seen, last) = (seen + 1, Some(tag));
            }
            segments += 1;
            seen += usize::from(segments.is_multiple_of(SEGMENTS_PER_ENTRY));
            range = ((range >> TAG_BITS) + 1) << TAG_BITS;
            if seen >= entries_max {
                return (seen, (range < self.ranges()).then_some(range));
            }
        }
        (seen, None)
    }

    /// Number of ranges of hashes, each a segment and a tag.
    pub(super) fn ranges(&self) -> Range {
        (self.segments.len() as Range) << TAG_BITS
    }

    /// Segment of a hash: the bits above the tag's and below the shard's.
    #[inline]
    fn segment(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.segments.len() - 1)
    }
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash as u16).min(EMPTY - 1)
}

impl IndexLine {
    const EMPTY: Self = Self { tags: [EMPTY; LANES], handles: [Handle::MAX; ENTRIES] };

    /// Bit mask of the entries with this tag. All are compared at once, since the position cannot
    /// be predicted.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn equal(&self, tag: u16) -> u32 {
        use std::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi64x, _mm_set1_epi16,
        };
        let word = |first: usize| {
            let tag = |at: usize| u64::from(self.tags[first + at]) << (TAG_BITS as usize * at);
            (tag(0) | tag(1) | tag(2) | tag(3)).cast_signed()
        };
        let (first, second, third) = (word(0), word(4), word(8));
        // SAFETY: the instructions exist on every processor of this architecture, and operate on
        // numbers only.
        let equal = unsafe {
            let wanted = _mm_set1_epi16(tag.cast_signed());
            let low = _mm_cmpeq_epi16(_mm_set_epi64x(second, first), wanted);
            // Padded with an invalid tag.
            let high = _mm_cmpeq_epi16(_mm_set_epi64x(-1, third), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(low, high))
        };
        equal.cast_unsigned()
    }

    /// Bit mask of the entries with this tag.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn equal(&self, tag: u16) -> u32 {
        (0..).zip(self.tags).map(|(at, other)| u32::from(other == tag) << at).sum()
    }

    /// Number of entries with this tag or a smaller one.
    #[inline]
    fn up_to(&self, tag: u16) -> usize {
        // All are compared at once, which takes no longer than comparing a few.
        self.tags.iter().map(|&other| usize::from(other <= tag)).sum()
    }

    /// Moves the entries from `from` on by one, the last of them out. All entries are written: with
    /// a fixed number that takes a few wide instructions and no call.
    #[inline]
    fn make_gap(&mut self, from: usize) {
        let Self { tags, handles } = *self;
        for at in 1..ENTRIES {
            self.tags[at] = if at > from { tags[at - 1] } else { tags[at] };
            self.handles[at] = if at > from { handles[at - 1] } else { handles[at] };
        }
    }

    /// Moves the entries after `to` back by one, overwriting it; the last one is then present
    /// twice.
    #[inline]
    fn close_gap(&mut self, to: usize) {
        let Self { tags, handles } = *self;
        for at in 0..LAST {
            self.tags[at] = if at >= to { tags[at + 1] } else { tags[at] };
            self.handles[at] = if at >= to { handles[at + 1] } else { handles[at] };
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.tags[LAST] != EMPTY
    }

    /// Inserts an entry after those with its tag; returns the entry that no longer fits, or an
    /// empty one.
    #[inline]
    fn insert(&mut self, entry: (u16, Handle)) -> (u16, Handle) {
        let out = (self.tags[LAST], self.handles[LAST]);
        let at = self.up_to(entry.0);
        self.make_gap(at);
        (self.tags[at], self.handles[at]) = entry;
        out
    }

    /// Like [`Self::insert`], for an entry not larger than any other here; without a call for the
    /// move.
    #[inline]
    fn insert_first(&mut self, entry: (u16, Handle)) -> (u16, Handle) {
        let out = (self.tags[LAST], self.handles[LAST]);
        self.tags.copy_within(..LAST, 1);
        self.handles.copy_within(..LAST, 1);
        (self.tags[0], self.handles[0]) = entry;
        out
    }

    /// Removes an entry and appends `next`, which is not smaller than any other here, or empty.
    #[inline]
    fn remove(&mut self, at: usize, next: (u16, Handle)) {
        self.close_gap(at);
        (self.tags[LAST], self.handles[LAST]) = next;
    }

    /// Like [`Self::remove`], for the first entry.
    #[inline]
    fn remove_first(&mut self, next: (u16, Handle)) {
        self.tags.copy_within(1..ENTRIES, 0);
        self.handles.copy_within(1.., 0);
        (self.tags[LAST], self.handles[LAST]) = next;
    }
}

impl Segment {
    /// The first line for entries with this tag; non-decreasing in the tag.
    #[inline]
    fn home(&self, tag: u16) -> usize {
        (usize::from(tag) * self.homes as usize) >> TAG_BITS
    }

    /// Line, position in the line and handle of each entry with this tag.
    #[inline]
    fn find(&self, tag: u16) -> Found<'_> {
        Found { lines: &self.lines, tag, next: self.home(tag), equal: 0, is_over: false }
    }

    /// Line, and position in the line, of a handle that is present.
    #[inline]
    fn position(&self, tag: u16, handle: Handle) -> (usize, usize) {
        let mut found = self.find(tag);
        found.find(|&(_, other)| other == handle).expect("every record is in the index").0
    }

    /// Entries with this tag and larger ones, in order.
    fn from(&self, tag: u16) -> impl Iterator<Item = (u16, Handle)> {
        let lines = self.lines.iter().skip(self.home(tag));
        let entries = lines.flat_map(|line| line.tags.into_iter().zip(line.handles));
        // Skips gaps between them, and smaller entries shifted in before them.
        entries.filter(move |(other, _)| (tag..EMPTY).contains(other))
    }

    fn insert(&mut self, tag: u16, handle: Handle) {
        if self.homes as usize * ENTRIES * LOAD.0 <= self.entries as usize * LOAD.1 {
            self.resize(self.homes + self.homes / GROWTH_DIVISOR + 1);
        }
        self.entries += 1;
        let mut at = self.home(tag);
        while self.lines.get(at).is_some_and(|line| line.tags[LAST] <= tag) {
            at += 1;
        }
        let mut pushed = self.line_mut(at).insert((tag, handle));
        // Larger entries are shifted up to the next gap, which is rarely beyond the end.
        while pushed.0 != EMPTY {
            at += 1;
            pushed = self.line_mut(at).insert_first(pushed);
        }
    }

    /// The line `at`, appended if it follows the last.
    #[inline]
    fn line_mut(&mut self, at: usize) -> &mut IndexLine {
        if at == self.lines.len() {
            self.lines = self.lines.iter().copied().chain([IndexLine::EMPTY]).collect();
        }
        &mut self.lines[at]
    }

    fn remove(&mut self, tag: u16, handle: Handle) {
        let (mut at, entry) = self.position(tag, handle);
        // Shifted entries move back, until one is in its own line.
        let mut next = self.pushed_over(at);
        self.lines[at].remove(entry, next);
        while next.0 != EMPTY {
            at += 1;
            next = self.pushed_over(at);
            self.lines[at].remove_first(next);
        }
        self.entries -= 1;
        if self.homes > 2 && self.entries < self.homes * ENTRIES as u32 / 2 {
            self.resize((self.entries * 4 / 3).div_ceil(ENTRIES as u32));
        }
    }

    /// The first entry of the next line, if it belongs to this one or one before it; else an empty
    /// one.
    #[inline]
    fn pushed_over(&self, at: usize) -> (u16, Handle) {
        match self.lines.get(at + 1) {
            Some(next)
                if self.lines[at].is_full() && next.tags[0] != EMPTY && self.home(next.tags[0]) <= at =>
            {
                (next.tags[0], next.handles[0])
            }
            _ => (EMPTY, Handle::MAX),
        }
    }

    /// Rebuilds the segment with this number of lines.
    fn resize(&mut self, homes: u32) {
        let old = std::mem::take(&mut self.lines);
        self.homes = homes;
        let mut lines = vec![IndexLine::EMPTY; homes as usize];
        let (mut at, mut used) = (0, 0);
        for line in &old {
            for (&tag, &handle) in line.tags.iter().zip(&line.handles) {
                if tag == EMPTY {
                    break;
                }
                let home = self.home(tag);
                if home > at {
                    (at, used) = (home, 0);
                } else if used == ENTRIES {
                    (at, used) = (at + 1, 0);
                }
                if at == lines.len() {
                    lines.reserve_exact(1);
                    lines.push(IndexLine::EMPTY);
                }
                (lines[at].tags[used], lines[at].handles[used]) = (tag, handle);
                used += 1;
            }
        }
        self.lines = lines.into();
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}

/// Iterator over the index entries that match in segment and tag.
struct Found<'a> {
    lines: &'a [IndexLine],
    tag: u16,
    /// The line to search next.
    next: usize,
    /// Remaining matches in the line before `next`, as a bit mask.
    equal: u32,
    /// True if no match can be in `next` or later lines.
    is_over: bool,
}

impl Iterator for Found<'_> {
    type Item = ((usize, usize), Handle);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        while self.equal == 0 {
            if self.is_over {
                return None;
            }
            let line = self.lines.get(self.next)?;
            self.equal = line.equal(self.tag);
            // Entries are in order, and an empty one compares as larger than any tag.
            self.is_over = line.tags[LAST] > self.tag;
            self.next += 1;
        }
        let (line, entry) = (self.next - 1, self.equal.trailing_zeros() as usize);
        self.equal &= self.equal - 1;
        Some(((line, entry), self.lines[line].handles[entry]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Heap;

    proptest! {
        #[test]
        fn index_of_a_shard_agrees_with_a_map(
            // Few tags, so that runs of equal and neighbouring tags form.
            ops in prop::collection::vec((any::<bool>(), prop_oneof![0..40u64, any::<u64>(), 65_500..65_536u64]), 1..800),
        ) {
            let supply = Supply::new(Arc::new(Heap));
            let mut index = Index::new(2, Arc::clone(&supply));
            let mut truth = BTreeMap::new();
            for (number, (insert, hash)) in ops.into_iter().enumerate() {
                let handle = number as Handle;
                if insert {
                    index.insert(hash, handle);
                    truth.insert(handle, hash);
                } else if let Some((handle, hash)) = truth.pop_first() {
                    index.remove(hash, handle);
                    prop_assert_eq!(found(&index, hash, handle), None);
                }
                for (&handle, &hash) in &truth {
                    prop_assert_eq!(found(&index, hash, handle), Some(handle));
                }
            }
            for entries_max in [1, 7, usize::MAX] {
                prop_assert_eq!(walked(&index, entries_max), truth.keys().copied().collect::<Vec<_>>());
            }
            let bytes: usize = index.segments.iter().map(Segment::bytes).sum();
            prop_assert_eq!(supply.held(), bytes as u64);
            let entries: usize = index.segments.iter().map(|segment| segment.entries as usize).sum();
            prop_assert_eq!(entries, truth.len());
        }
    }

    fn found(index: &Index, hash: u64, handle: Handle) -> Option<Handle> {
        index.find(hash).find(|&other| other == handle)
    }

    /// All handles, in order, visited by walks of this many entries.
    fn walked(index: &Index, entries_max: usize) -> Vec<Handle> {
        let (mut handles, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            (_, next) = index.walk(from, entries_max, |handle| handles.push(handle));
            assert!(next.is_none_or(|next| next > from));
        }
        handles.sort_unstable();
        handles
    }

    #[test]
    fn grown_index_segment_takes_eight_bytes_per_entry() {
        let supply = Supply::new(Arc::new(Heap));
        let mut index = Index::new(1, Arc::clone(&supply));
        for number in 1..=4000_u64 {
            index.insert(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 13, number as Handle);
            assert!(
                number < 1000 || supply.held() <= 82 * number / 10 + 200,
                "{} bytes for {number}",
                supply.held()
            );
        }
    }
}
