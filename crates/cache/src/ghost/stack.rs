//! Keys in the order of their last use, and the bytes above each.
//!
//! Each use takes the next slot of an array, so that a later slot is a later use, and leaves its key's old slot empty.
//! The bytes used since then are the weights in the slots behind it: a sum over a range, which a Fenwick tree (P. Fenwick,
//! *A New Data Structure for Cumulative Frequency Tables*, 1994) answers in O(log n). The tree here is over blocks of 64
//! slots, and the rest of a block is added up one by one: two cache lines of each array instead of a tree of the array's
//! size. When the slots are used up the occupied ones move together; that is paid by the uses since the last time, of which
//! there were at least an eighth as many as there are slots.

use hashbrown::HashTable;

/// The recency stack.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// By slot; what an empty one holds means nothing.
    hashes: Vec<u64>,
    /// By slot.
    slots: Vec<Held>,
    /// Fenwick tree of the weights of each block that has no unused slot.
    blocks: Vec<u64>,
    /// Slots of the keys, by hash.
    index: HashTable<u32>,
    /// The first slot that was not used yet.
    next: usize,
    /// All weights together.
    total: u64,
    /// There are 2^scale slots, at most 2^scale_max.
    scale: u32,
    scale_max: u32,
}

/// What is known of a slot's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Its weight; 0 where the slot is empty.
    bytes: u32,
    /// How often it was refreshed; halved by [`Stack::fade`].
    uses: u32,
}

/// A key that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// How often it was used before.
    pub(super) uses: u32,
    /// Weights of the keys used since.
    pub(super) newer_bytes: u64,
    /// Its own weight.
    pub(super) bytes: u32,
}

const BLOCK: usize = 64;
/// 128 slots, of two blocks.
const SCALE_MIN: u32 = 7;
/// As many as the index can number.
const SCALE_LIMIT: u32 = 31;

impl Stack {
    /// An empty one that grows up to `memory_bytes`, if the smallest one fits into them.
    pub(super) fn new(memory_bytes: usize) -> Self {
        let fitting = (SCALE_MIN..=SCALE_LIMIT).take_while(|&scale| bytes_of(scale) <= memory_bytes);
        let mut stack = Self {
            hashes: Vec::new(),
            slots: Vec::new(),
            blocks: Vec::new(),
            index: HashTable::new(),
            next: 0,
            total: 0,
            scale: SCALE_MIN,
            scale_max: fitting.last().unwrap_or(SCALE_MIN),
        };
        stack.allocate();
        stack
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether it must be compacted before the next use.
    pub(super) fn is_full(&self) -> bool {
        self.next == self.hashes.len() || self.len() == keys_max(self.scale)
    }

    /// Whether so many keys remain after compaction that the next one would come too soon.
    pub(super) fn is_crowded(&self) -> bool {
        self.len() > keys_max(self.scale) / 4 * 3
    }

    /// Whether it holds less than a quarter of the keys it may come to hold.
    pub(super) fn is_sparse(&self) -> bool {
        self.len() < keys_max(self.scale_max) / 4
    }

    /// Makes a key the most recent, if it is there.
    pub(super) fn refresh(&mut self, hash: u64) -> Option<Seen> {
        let hashes = &self.hashes;
        let place = self.index.find_mut(spread(hash), |&slot| hashes[slot as usize] == hash)?;
        let old = std::mem::replace(place, self.next as u32) as usize;
        let Held { bytes, uses } = self.slots[old];
        let newer_bytes = self.newer_bytes(old);
        self.weigh(old, 0);
        self.fill(hash, Held { bytes, uses: uses.saturating_add(1) });
        Some(Seen { uses, newer_bytes, bytes })
    }

    /// Makes a key the most recent, with this weight, whether it is there or not. A new one has been used once: by the get
    /// that brought it.
    pub(super) fn put(&mut self, hash: u64, bytes: u32) {
        let mut uses = 1;
        let Self { hashes, index, next, .. } = self;
        let found = index.find_mut(spread(hash), |&slot| hashes[slot as usize] == hash);
        match found {
            // The fill after a get of a key that was known: it is the most recent already.
            Some(&mut newest) if newest as usize + 1 == *next => {
                return self.weigh(newest as usize, bytes);
            }
            Some(place) => {
                let old = std::mem::replace(place, *next as u32) as usize;
                uses = self.slots[old].uses;
                self.weigh(old, 0);
            }
            None => {
                index.insert_unique(spread(hash), *next as u32, |&slot| spread(hashes[slot as usize]));
            }
        }
        self.fill(hash, Held { bytes, uses });
    }

    pub(super) fn remove(&mut self, hash: u64) {
        let hashes = &self.hashes;
        if let Ok(found) = self.index.find_entry(spread(hash), |&slot| hashes[slot as usize] == hash) {
            let (slot, _) = found.remove();
            self.weigh(slot as usize, 0);
        }
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.slots.fill(Held::default());
        (self.next, self.total) = (0, 0);
        self.blocks.fill(0);
    }

    /// Moves the occupied slots together, without the keys that `keep` is against and those that have `depth` bytes or more
    /// above them.
    pub(super) fn compact(&mut self, depth: u64, keep: impl Fn(u64) -> bool) {
        let first = self.first_within(depth);
        let (used, mut to) = (self.next, 0);
        self.index.clear();
        self.total = 0;
        for from in 0..used {
            let (hash, held) = (self.hashes[from], std::mem::take(&mut self.slots[from]));
            if held.bytes == 0 || from < first || !keep(hash) {
                continue;
            }
            (self.hashes[to], self.slots[to]) = (hash, held);
            let hashes = &self.hashes;
            self.index.insert_unique(spread(hash), to as u32, |&slot| spread(hashes[slot as usize]));
            self.total += u64::from(held.bytes);
            to += 1;
        }
        self.next = to;
        self.rebuild_blocks();
    }

    /// Halves how often each key was used.
    pub(super) fn fade(&mut self) {
        self.slots[..self.next].iter_mut().for_each(|held| held.uses /= 2);
    }

    /// Doubles the slots, if they may be as many; says whether it did.
    pub(super) fn grow(&mut self) -> bool {
        if self.scale == self.scale_max {
            return false;
        }
        self.scale += 1;
        self.allocate();
        self.rebuild_blocks();
        true
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
            + self.slots.capacity() * size_of::<Held>()
            + self.blocks.capacity() * size_of::<u64>()
            + self.index.allocation_size()
    }

    /// The oldest slot with less than `depth` bytes above it.
    fn first_within(&self, depth: u64) -> usize {
        if self.total < depth {
            return 0;
        }
        let mut above = 0;
        for slot in (0..self.next).rev() {
            if above >= depth {
                return slot + 1;
            }
            above += u64::from(self.slots[slot].bytes);
        }
        0
    }

    fn newer_bytes(&self, slot: usize) -> u64 {
        let block = slot / BLOCK;
        let within = block_sum(&self.slots[block * BLOCK..=slot]);
        let (mut older, mut node) = (0, block);
        while node > 0 {
            older += self.blocks[node];
            node &= node - 1;
        }
        self.total - older - within
    }

    /// Occupies the next slot. Its block enters the tree as a whole, once no slot of it is left.
    fn fill(&mut self, hash: u64, held: Held) {
        (self.hashes[self.next], self.slots[self.next]) = (hash, held);
        self.total += u64::from(held.bytes);
        self.next += 1;
        if self.next.is_multiple_of(BLOCK) {
            self.add(self.next / BLOCK - 1, block_sum(&self.slots[self.next - BLOCK..self.next]));
        }
    }

    /// Gives the key of a slot another weight; 0 empties the slot.
    fn weigh(&mut self, slot: usize, bytes: u32) {
        let old = std::mem::replace(&mut self.slots[slot].bytes, bytes);
        let more = u64::from(bytes).wrapping_sub(u64::from(old));
        self.total = self.total.wrapping_add(more);
        if slot / BLOCK < self.next / BLOCK {
            self.add(slot / BLOCK, more);
        }
    }

    /// Adds to a block's sum, modulo 2^64.
    fn add(&mut self, block: usize, bytes: u64) {
        let mut node = block + 1;
        while node < self.blocks.len() {
            self.blocks[node] = self.blocks[node].wrapping_add(bytes);
            node += node & node.wrapping_neg();
        }
    }

    fn rebuild_blocks(&mut self) {
        self.blocks.fill(0);
        for (block, slots) in self.slots[..self.next].chunks_exact(BLOCK).enumerate() {
            self.blocks[block + 1] = block_sum(slots);
        }
        for node in 1..self.blocks.len() {
            let parent = node + (node & node.wrapping_neg());
            if parent < self.blocks.len() {
                self.blocks[parent] += self.blocks[node];
            }
        }
    }

    fn allocate(&mut self) {
        let slots = 1 << self.scale;
        self.hashes.reserve_exact(slots - self.hashes.len());
        self.hashes.resize(slots, 0);
        self.slots.reserve_exact(slots - self.slots.len());
        self.slots.resize(slots, Held::default());
        let blocks = slots / BLOCK + 1;
        self.blocks.reserve_exact(blocks - self.blocks.len());
        self.blocks.resize(blocks, 0);
        let hashes = &self.hashes;
        let more = keys_max(self.scale) - self.index.len();
        self.index.reserve(more, |&slot| spread(hashes[slot as usize]));
    }
}

fn block_sum(slots: &[Held]) -> u64 {
    slots.iter().map(|held| u64::from(held.bytes)).sum()
}

/// The index takes its bucket from the low bits and a tag from the high ones, which are all alike in a sample.
fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

/// Keys that 2^scale slots are for: half as many, and as many as an index of that many buckets takes without growing.
const fn keys_max(scale: u32) -> usize {
    (1 << scale) / 2 / 8 * 7
}

/// What 2^scale slots take: a hash and what is held each, their blocks, and an index of half as many buckets with a tag each (and
/// a group of tags at its end).
const fn bytes_of(scale: u32) -> usize {
    let slots = 1 << scale;
    slots * (size_of::<u64>() + size_of::<Held>())
        + (slots / BLOCK + 1) * size_of::<u64>()
        + slots / 2 * (size_of::<u32>() + 1)
        + 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys with their weights, oldest first.
    #[derive(Debug, Default)]
    struct Plain(Vec<(u64, u32, u32)>);

    impl Plain {
        fn take(&mut self, hash: u64) -> Option<Seen> {
            let at = self.0.iter().position(|&(known, ..)| known == hash)?;
            let newer_bytes = self.0[at + 1..].iter().map(|&(_, bytes, _)| u64::from(bytes)).sum();
            let (_, bytes, uses) = self.0.remove(at);
            Some(Seen { uses, newer_bytes, bytes })
        }
    }

    fn keys(stack: &Stack) -> Vec<(u64, u32, u32)> {
        let slots = stack.hashes.iter().zip(&stack.slots).filter(|(_, held)| held.bytes > 0);
        slots.map(|(&hash, held)| (hash, held.bytes, held.uses)).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Refresh(u64),
        Put(u64, u32),
        Remove(u64),
        Compact,
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = 0_u64..90;
        let step = prop_oneof![
            8 => key.clone().prop_map(Step::Refresh),
            8 => (key.clone(), 1_u32..1000).prop_map(|(key, bytes)| Step::Put(key, bytes)),
            2 => key.prop_map(Step::Remove),
            1 => Just(Step::Compact),
            1 => (0..20).prop_map(|draw| if draw == 0 { Step::Clear } else { Step::Compact }),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list(steps in steps()) {
            let (mut stack, mut plain) = (Stack::new(1 << 16), Plain::default());
            for step in steps {
                match step {
                    Step::Refresh(hash) => {
                        let expected = plain.take(hash);
                        plain.0.extend(expected.map(|seen| (hash, seen.bytes, seen.uses + 1)));
                        prop_assert_eq!(stack.refresh(hash), expected);
                    }
                    Step::Put(hash, bytes) => {
                        let uses = plain.take(hash).map_or(1, |seen| seen.uses);
                        plain.0.push((hash, bytes, uses));
                        stack.put(hash, bytes);
                    }
                    Step::Remove(hash) => {
                        plain.take(hash);
                        stack.remove(hash);
                    }
                    Step::Compact => stack.compact(u64::MAX, |_| true),
                    Step::Clear => {
                        plain.0.clear();
                        stack.clear();
                    }
                }
                if stack.is_full() {
                    stack.compact(u64::MAX, |_| true);
                    if stack.is_crowded() {
                        prop_assert!(stack.grow());
                    }
                }
                prop_assert_eq!(stack.len(), plain.0.len());
            }
            prop_assert_eq!(keys(&stack), plain.0);
        }

        #[test]
        fn compaction_drops_what_is_too_deep_or_unwanted(
            weights in prop::collection::vec(1_u32..100, 1..50),
            depth in 0_u64..3000,
        ) {
            let mut stack = Stack::new(0);
            (0..).zip(&weights).for_each(|(hash, &bytes)| stack.put(hash, bytes));
            stack.compact(depth, |hash| hash % 3 != 0);
            let above = |at: usize| weights[at + 1..].iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
            let kept = (0..weights.len()).filter(|&at| at % 3 != 0 && above(at) < depth);
            prop_assert_eq!(keys(&stack), kept.map(|at| (at as u64, weights[at], 1)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn memory_stays_within_what_was_given() {
        for memory_bytes in [3_000, 10_000, 100_000, 3_000_000] {
            let mut stack = Stack::new(memory_bytes);
            while stack.grow() {}
            for hash in 0..keys_max(stack.scale) as u64 {
                stack.put(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1);
            }
            assert!(stack.is_full() && stack.memory_bytes() <= memory_bytes, "{memory_bytes}: {stack:?}");
        }
    }
}
