//! From a key's hash to its record.
//!
//! A table that doubles is half empty just after, and moves all it holds while somebody waits. Here a shard's index is cut
//! into segments of some hundred to some thousand entries, and each is a sorted array with gaps: 16 bits of the hash, its tag, say both
//! where an entry belongs and how it compares, so a segment grows by an eighth at a time, in microseconds, without a
//! look at any record, and stays three quarters full. An entry takes 7.2 to 8 bytes.
//!
//! Ordered open addressing: O. Amble and D. E. Knuth, "Ordered hash tables", The Computer Journal 17(2), 1974.

use std::sync::Arc;

use super::pages::Handle;
use crate::memory::Supply;
use crate::prefetch;

/// All hashes with the same tag in a segment: the segment, then the tag.
pub(crate) type Range = u32;

const TAG_BITS: u32 = u16::BITS;
/// What stands where no entry is; larger than every tag.
const EMPTY: u16 = u16::MAX;
/// Fullest a segment gets: 27 of 32. Beyond, an insertion shifts dozens of entries.
const LOAD: (usize, usize) = (27, 32);
/// Segments that a walk goes by for the price of an entry, so that many empty ones are neither a long walk nor many.
const SEGMENTS_A_PLACE: usize = 32;
/// Places behind the last an entry can belong to, for what is pushed over.
const SPILL: usize = 16;
/// Tags that are compared at a time.
const WINDOW: usize = 8;
/// Smallest segment.
const PLACES_MIN: usize = 8;

/// Handles of a shard's records by the hash of their keys.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Box<[Segment]>,
    supply: Arc<Supply>,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    /// In order, with gaps.
    tags: Vec<u16>,
    handles: Vec<Handle>,
    /// Places an entry can belong to; the spill is behind.
    places: usize,
    entries: usize,
}

impl Index {
    /// An index of `segments`, a power of two.
    pub(super) fn new(segments: usize, supply: Arc<Supply>) -> Self {
        Self { segments: vec![Segment::default(); segments].into(), supply }
    }

    /// The handle with this hash for which `is` holds. O(1).
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(Handle) -> bool) -> Option<Handle> {
        let segment = &self.segments[self.segment(hash)];
        let at = segment.find(tag(hash), &mut is)?;
        Some(segment.handles[at])
    }

    /// Asks for the lines where [`Self::find`] will begin.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let segment = &self.segments[self.segment(hash)];
        let home = segment.home(tag(hash));
        prefetch::element(&segment.tags, home);
        prefetch::element(&segment.handles, home);
    }

    /// Adds a handle whose key is not there yet. Amortised O(1), at worst a segment's growth.
    pub(super) fn insert(&mut self, hash: u64, handle: Handle) {
        let segment = self.segment(hash);
        let segment = &mut self.segments[segment];
        let before = segment.bytes();
        segment.insert(tag(hash), handle);
        if segment.bytes() != before {
            self.supply.resized(before, segment.bytes());
        }
    }

    /// Removes a handle that is there. O(1).
    pub(super) fn remove(&mut self, hash: u64, handle: Handle) {
        let segment = self.segment(hash);
        let segment = &mut self.segments[segment];
        let before = segment.bytes();
        segment.remove(tag(hash), handle);
        if segment.bytes() != before {
            self.supply.resized(before, segment.bytes());
        }
    }

    /// Renames a handle whose record has moved. O(1).
    pub(super) fn rename(&mut self, hash: u64, from: Handle, to: Handle) {
        let segment = self.segment(hash);
        let segment = &mut self.segments[segment];
        let at = segment.find(tag(hash), &mut |other| other == from).expect("every record is in the index");
        segment.handles[at] = to;
    }

    /// Goes by at most `places_max` entries (but by all of a range; and 32 segments count as one), in the order of segments and tags
    /// from `from` on, and calls `see` with the handles. Returns how many it went by and where to go on, or none at the end.
    ///
    /// An entry is in the same range for as long as it is there, however its segment grows and wherever its record moves.
    pub(super) fn walk(
        &self,
        from: Range,
        places_max: usize,
        mut see: impl FnMut(Handle),
    ) -> (usize, Option<Range>) {
        let (mut seen, mut segments) = (0, 0_usize);
        let mut range = from;
        while let Some(segment) = self.segments.get((range >> TAG_BITS) as usize) {
            let mut last = None;
            for (tag, handle) in segment.from(range as u16) {
                range = range & !Range::from(u16::MAX) | Range::from(tag);
                if seen >= places_max && last != Some(tag) {
                    return (seen, Some(range));
                }
                see(handle);
                (seen, last) = (seen + 1, Some(tag));
            }
            segments += 1;
            seen += usize::from(segments.is_multiple_of(SEGMENTS_A_PLACE));
            range = ((range >> TAG_BITS) + 1) << TAG_BITS;
            if seen >= places_max {
                return (seen, (range < self.ranges()).then_some(range));
            }
        }
        (seen, None)
    }

    /// How many ranges there are.
    pub(super) fn ranges(&self) -> Range {
        (self.segments.len() as Range) << TAG_BITS
    }

    /// The bits above the tag's, below those that chose the shard.
    #[inline]
    fn segment(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.segments.len() - 1)
    }
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash as u16).min(EMPTY - 1)
}

/// The places in a window whose tags are such, a bit for each.
#[inline]
fn places(window: &[u16; WINDOW], are: impl Fn(u16) -> bool) -> u32 {
    window.iter().enumerate().fold(0, |places, (at, &tag)| places | u32::from(are(tag)) << at)
}

impl Segment {
    /// Where entries with this tag begin to lie; grows with the tag.
    #[inline]
    fn home(&self, tag: u16) -> usize {
        (usize::from(tag) * self.places) >> 16
    }

    #[inline]
    fn find(&self, tag: u16, is: &mut impl FnMut(Handle) -> bool) -> Option<usize> {
        let mut at = self.home(tag);
        // What will be asked for next, so that its line comes together with that of the tags.
        prefetch::element(&self.handles, at);
        // Several at a time, since where a search ends cannot be predicted and a wrong guess costs more than all of them. The
        // spill is longer, so that almost every search is over before what is left is too short.
        while let Some(window) = self.tags.get(at..).and_then(<[u16]>::first_chunk::<WINDOW>) {
            let mut equal = places(window, |other| other == tag);
            while equal != 0 {
                let place = at + equal.trailing_zeros() as usize;
                if is(self.handles[place]) {
                    return Some(place);
                }
                equal &= equal - 1;
            }
            // They are in order, and an empty place compares as larger than any tag.
            if places(window, |other| other > tag) != 0 {
                return None;
            }
            at += WINDOW;
        }
        let rest = self.tags.get(at..)?.iter().take_while(|&&other| other <= tag).enumerate();
        rest.filter(|&(_, &other)| other == tag).map(|(rest, _)| at + rest).find(|&at| is(self.handles[at]))
    }

    /// Entries with this tag and larger ones, in order.
    fn from(&self, tag: u16) -> impl Iterator<Item = (u16, Handle)> {
        let home = self.home(tag).min(self.tags.len());
        let entries = self.tags[home..].iter().zip(&self.handles[home..]);
        // Between them lie gaps, and before them smaller ones that were pushed over.
        entries.map(|(&tag, &handle)| (tag, handle)).filter(move |(other, _)| (tag..EMPTY).contains(other))
    }

    fn insert(&mut self, tag: u16, handle: Handle) {
        if self.places * LOAD.0 <= self.entries * LOAD.1 {
            self.resize((self.places + self.places / 8 + 4).max(PLACES_MIN));
        }
        let home = self.home(tag);
        let mut at = home;
        while at < self.tags.len() && self.tags[at] <= tag {
            at += 1;
        }
        // What is larger makes way, up to the next gap; rarely that is behind the end.
        let mut gap = at;
        while gap < self.tags.len() && self.tags[gap] != EMPTY {
            gap += 1;
        }
        if gap == self.tags.len() {
            self.tags.push(EMPTY);
            self.handles.push(Handle::MAX);
        }
        self.tags.copy_within(at..gap, at + 1);
        self.handles.copy_within(at..gap, at + 1);
        (self.tags[at], self.handles[at]) = (tag, handle);
        self.entries += 1;
    }

    fn remove(&mut self, tag: u16, handle: Handle) {
        let at = self.find(tag, &mut |other| other == handle).expect("every record is in the index");
        // What was pushed over moves back, until something is where it belongs.
        let mut end = at + 1;
        while end < self.tags.len() && self.tags[end] != EMPTY && self.home(self.tags[end]) < end {
            end += 1;
        }
        self.tags.copy_within(at + 1..end, at);
        self.handles.copy_within(at + 1..end, at);
        self.tags[end - 1] = EMPTY;
        self.entries -= 1;
        if self.places > 2 * PLACES_MIN && self.entries < self.places / 2 {
            self.resize(self.entries * 4 / 3);
        }
    }

    /// Lays everything out anew with `places`.
    fn resize(&mut self, places: usize) {
        let old_tags = std::mem::take(&mut self.tags);
        let old_handles = std::mem::take(&mut self.handles);
        let places = places.max(PLACES_MIN);
        self.places = places;
        self.tags = Vec::with_capacity(places + SPILL);
        self.handles = Vec::with_capacity(places + SPILL);
        for (tag, handle) in old_tags.into_iter().zip(old_handles) {
            if tag != EMPTY {
                let at = self.home(tag).max(self.tags.len());
                self.tags.resize(at, EMPTY);
                self.handles.resize(at, Handle::MAX);
                self.tags.push(tag);
                self.handles.push(handle);
            }
        }
        let end = self.tags.len().max(places + SPILL);
        self.tags.resize(end, EMPTY);
        self.handles.resize(end, Handle::MAX);
    }

    fn bytes(&self) -> usize {
        self.tags.capacity() * size_of::<u16>() + self.handles.capacity() * size_of::<Handle>()
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
        fn it_finds_what_was_put_in_and_not_taken_out(
            // Few tags, so that runs of equal and of neighbouring ones form.
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
                    prop_assert_eq!(index.find(hash, |other| other == handle), None);
                }
                for (&handle, &hash) in &truth {
                    prop_assert_eq!(index.find(hash, |other| other == handle), Some(handle));
                }
            }
            for places_max in [1, 7, usize::MAX] {
                prop_assert_eq!(walked(&index, places_max), truth.keys().copied().collect::<Vec<_>>());
            }
            let bytes: usize = index.segments.iter().map(Segment::bytes).sum();
            prop_assert_eq!(supply.held(), bytes as u64);
            let entries: usize = index.segments.iter().map(|segment| segment.entries).sum();
            prop_assert_eq!(entries, truth.len());
        }
    }

    /// All handles, in order, seen by so many places a walk.
    fn walked(index: &Index, places_max: usize) -> Vec<Handle> {
        let (mut handles, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            (_, next) = index.walk(from, places_max, |handle| handles.push(handle));
            assert!(next.is_none_or(|next| next > from));
        }
        handles.sort_unstable();
        handles
    }

    #[test]
    fn a_grown_segment_takes_eight_bytes_an_entry() {
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
