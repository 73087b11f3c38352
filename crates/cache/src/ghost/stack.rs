//! Keys in the order of their last use, with the bytes used since.
//!
//! Each use takes the next slot of an array, so that a later slot is a later use, and empties the
//! key's old slot. The bytes used since then are the sum of the weights in later slots, which a
//! Fenwick tree (P. Fenwick, *A New Data Structure for Cumulative Frequency Tables*, 1994) computes
//! in O(log n). The tree covers blocks of 64 slots, and the rest of a block is summed directly,
//! which touches two cache lines of each array instead of a tree of the array's size.
//!
//! Before the slots are used up, a sweep compacts the occupied ones from the oldest on, one block
//! per use ([`Stack::sweep`]). Moving a million keys at once would delay all clients of the thread
//! by tens of milliseconds; a block takes one or two microseconds. The order is the same before and
//! after each block, so uses in between find a consistent stack. A sweep of n slots ends within
//! n/63 uses, long before the eighth of the slots that are left at its start is used up. Its cost
//! is amortised over the uses since the last sweep, at least a sixteenth of the number of slots.
//!
//! Other operations on all keys are done by sweeps, too: dropping keys that are too deep, halving
//! the sample, clearing it, and fading the counts of uses. If all keys are cleared during a sweep,
//! that sweep continues and another one follows for the keys already passed; restarting it would
//! let frequent clears prevent any sweep from ending.

use super::index::{self, Index};

/// The recency stack: sampled keys in the order of their last use.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// Hashes of the keys by slot, up to the last slot ever used; meaningless for empty slots.
    hashes: Vec<u64>,
    /// Weights and uses of the keys by slot, of the same length.
    slots: Vec<Held>,
    /// Fenwick tree of the weights of each block without unused slots, up to the last block that
    /// ever was one; indexed from 1.
    blocks: Vec<u64>,
    /// Slots of the keys, by hash.
    index: Index,
    /// The first slot that has not been used since the last sweep.
    next: usize,
    /// Sum of the weights of all keys, in bytes.
    total: u64,
    /// There are 2^scale slots, at most 2^scale_max.
    scale: u32,
    scale_max: u32,
    sweep: Option<Sweep>,
    /// Number of halvings of the counts of uses, and its value at the start of the last sweep.
    fadings: u32,
    swept_fadings: u32,
}

/// Weight and number of uses of the key in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Weight of the key in bytes; 0 if the slot is empty.
    bytes: u32,
    /// Number of times the key was used.
    uses: Fading,
}

/// A count, with the number of halvings at its last update, modulo 64, in the low bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fading(u32);

const FADINGS_BITS: u32 = 6;
const FADINGS_MASK: u32 = (1 << FADINGS_BITS) - 1;

impl Fading {
    fn new(count: u32, fadings: u32) -> Self {
        Self(count.min(u32::MAX >> FADINGS_BITS) << FADINGS_BITS | fadings & FADINGS_MASK)
    }

    fn count(self, fadings: u32) -> u32 {
        let since = fadings.wrapping_sub(self.0) & FADINGS_MASK;
        (self.0 >> FADINGS_BITS).checked_shr(since).unwrap_or(0)
    }
}

/// Position of a sweep. The slots from `to` to `from` are empty; earlier ones are swept, later ones
/// remain.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    from: usize,
    to: usize,
    /// Treatment of the keys below the slot `mark`.
    purpose: Purpose,
    mark: usize,
    /// Keys below this slot were swept before, and remain for the sweep that follows.
    behind: usize,
    /// Number of keys that this sweep and the following one have not reached yet.
    left: usize,
    /// The stack's `fadings` at the sweep's start.
    fadings: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Drops only keys beyond the depth limit.
    Tidy,
    /// Drops keys unless the upper half of their hash is below this: about half of them.
    Halve(u64),
    /// Drops all keys.
    Clear,
}

impl Sweep {
    fn is_to_come_to(&self, slot: usize) -> bool {
        slot < self.behind || (self.from..self.mark).contains(&slot)
    }

    /// True if the key of a slot is to be dropped when the sweep reaches it.
    fn forgets(&self, slot: usize, hash: u64) -> bool {
        match self.purpose {
            Purpose::Tidy => false,
            Purpose::Halve(threshold) => self.is_to_come_to(slot) && hash >> 32 >= threshold,
            Purpose::Clear => self.is_to_come_to(slot),
        }
    }

    /// Estimated number of keys that are still to be dropped.
    fn forgotten(&self) -> usize {
        match self.purpose {
            Purpose::Tidy => 0,
            Purpose::Halve(_) => self.left / 2,
            Purpose::Clear => self.left,
        }
    }
}

/// State of a sampled key before its present use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyState {
    /// Number of earlier uses.
    pub(super) uses: u32,
    /// Sum of the weights of the keys used since this key's last use, in bytes.
    pub(super) newer_bytes: u64,
    /// Weight of the key itself in bytes.
    pub(super) bytes: u32,
}

const BLOCK: usize = 64;
/// Least number of slots (log2): 128 slots in two blocks.
const SCALE_MIN: u32 = 7;
/// Largest number of slots that the index can address.
const SCALE_LIMIT: u32 = 31;

impl Stack {
    /// Returns an empty stack that grows up to `memory_bytes`, or has the smallest size if that is
    /// larger.
    pub(super) fn new(memory_bytes: usize) -> Self {
        let fitting = (SCALE_MIN..=SCALE_LIMIT).take_while(|&scale| bytes_of(scale) <= memory_bytes);
        let scale_max = fitting.last().unwrap_or(SCALE_MIN);
        // Reserved address space takes no memory until it is used, and growing then moves nothing.
        // Without a limit nothing is reserved.
        let reserved = if scale_max < SCALE_LIMIT { 1 << scale_max } else { 0 };
        let mut blocks = Vec::with_capacity(reserved / BLOCK + 1);
        blocks.push(0);
        Self {
            hashes: Vec::with_capacity(reserved),
            slots: Vec::with_capacity(reserved),
            blocks,
            index: Index::new(scale_max - 1),
            next: 0,
            total: 0,
            scale: SCALE_MIN,
            scale_max,
            sweep: None,
            fadings: 0,
            swept_fadings: 0,
        }
    }

    /// Number of keys; an estimate while half of them are being dropped.
    pub(super) fn len(&self) -> usize {
        self.index.len() - self.sweep.map_or(0, |sweep| sweep.forgotten())
    }

    /// True if [`Self::sweep`] has work to do.
    pub(super) fn is_due(&self) -> bool {
        self.sweep.is_some()
            || self.next >= (1 << self.scale) / 8 * 7
            || self.index.len() > keys_max(self.scale) / 16 * 13
            || self.fadings != self.swept_fadings
    }

    /// True if so many keys remain after a sweep that the next one would begin too soon.
    pub(super) fn is_crowded(&self) -> bool {
        self.len() > keys_max(self.scale) / 16 * 11
    }

    /// True if it holds less than a quarter of the keys that it may hold at most.
    pub(super) fn is_sparse(&self) -> bool {
        self.len() < keys_max(self.scale_max) / 4
    }

    /// Makes a key the most recent if it is present; returns its former state.
    pub(super) fn refresh(&mut self, hash: u64) -> Option<KeyState> {
        let Self { hashes, index, next, sweep, .. } = self;
        let slot = index.find_mut(hash, hashes)?;
        if sweep.is_some_and(|sweep| sweep.forgets(*slot as usize, hash)) {
            return None;
        }
        let old = std::mem::replace(slot, *next as u32) as usize;
        let Held { bytes, uses } = self.slots[old];
        let (uses, newer_bytes) = (uses.count(self.fadings), self.newer_bytes(old));
        self.vacate(old);
        self.fill(hash, bytes, uses.saturating_add(1));
        Some(KeyState { uses, newer_bytes, bytes })
    }

    /// Makes a key the most recent, with this weight, inserting it if absent. A new key has been
    /// used once, by the get that preceded. A key for which the index has no room is dropped.
    pub(super) fn put(&mut self, hash: u64, bytes: u32) {
        let mut uses = 1;
        let Self { hashes, index, next, sweep, .. } = self;
        match index.find_mut(hash, hashes) {
            Some(slot) => {
                let old = *slot as usize;
                let forgotten = sweep.is_some_and(|sweep| sweep.forgets(old, hash));
                // A fill after a get of a known key, which is the most recent already.
                if old + 1 == *next && !forgotten {
                    return self.weigh(old, bytes);
                }
                *slot = *next as u32;
                if !forgotten {
                    uses = self.slots[old].uses.count(self.fadings);
                }
                self.vacate(old);
            }
            None => {
                if !index.insert(hash, *next as u32, hashes) {
                    return;
                }
            }
        }
        self.fill(hash, bytes, uses);
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some(slot) = self.index.remove(hash, &self.hashes) {
            self.vacate(slot as usize);
        }
    }

    /// Drops all keys. O(1): the work is left to sweeps.
    pub(super) fn clear(&mut self) {
        let under_way = self.sweep;
        let begun = self.begin(Purpose::Clear);
        if let Some(Sweep { from, to, fadings, .. }) = under_way {
            *begun = Sweep { from, to, behind: to, fadings, ..*begun };
        }
    }

    /// Drops the keys whose hash's upper half is not below `threshold`, which must be half of the
    /// former one; until a sweep has done so, estimates use the remaining half.
    pub(super) fn halve(&mut self, threshold: u64) {
        self.begin(Purpose::Halve(threshold));
    }

    /// Halves the recorded number of uses of each key.
    pub(super) fn fade(&mut self) {
        // Without sweeps, because no key is used, the counter must not wrap around.
        if self.fadings.wrapping_sub(self.swept_fadings) < FADINGS_MASK {
            self.fadings = self.fadings.wrapping_add(1);
        }
    }

    /// Doubles the number of slots up to the limit; returns true if it did.
    pub(super) fn grow(&mut self) -> bool {
        let grows = self.scale < self.scale_max;
        self.scale += u32::from(grows);
        grows
    }

    /// Continues the sweep by one block, or begins one. To be called between any two uses while
    /// [`Self::is_due`]. Drops keys that have `depth` bytes or more above them. Returns true when
    /// no sweep is left.
    pub(super) fn sweep(&mut self, depth: u64) -> bool {
        if self.sweep.is_none() {
            self.begin(Purpose::Tidy);
        }
        let Some(mut sweep) = self.sweep else { return false };
        self.sweep_block(&mut sweep, depth);
        self.sweep = Some(sweep);
        if sweep.from < self.next {
            return false;
        }
        self.end(&sweep);
        let follows = Sweep { from: 0, to: 0, mark: sweep.behind, behind: 0, fadings: self.fadings, ..sweep };
        self.sweep = (sweep.behind > 0).then_some(follows);
        self.sweep.is_none()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.hashes.len() * size_of::<u64>()
            + self.slots.len() * size_of::<Held>()
            + self.blocks.len() * size_of::<u64>()
            + self.index.memory_bytes()
    }

    fn begin(&mut self, purpose: Purpose) -> &mut Sweep {
        let (mark, left) = if purpose == Purpose::Tidy { (0, 0) } else { (self.next, self.index.len()) };
        let sweep = Sweep { from: 0, to: 0, purpose, mark, behind: 0, left, fadings: self.fadings };
        self.sweep.insert(sweep)
    }

    fn sweep_block(&mut self, sweep: &mut Sweep, depth: u64) {
        let block = sweep.from / BLOCK;
        let to_block = sweep.to / BLOCK;
        let (mut out, mut into) = (0, [0_u64; 2]);
        for slot in sweep.from..self.next.min(sweep.from + BLOCK) {
            let Held { bytes, uses } = std::mem::take(&mut self.slots[slot]);
            if bytes == 0 {
                continue;
            }
            out += u64::from(bytes);
            let hash = self.hashes[slot];
            // All older keys are dropped, so all remaining ones are above it.
            let is_too_deep =
                sweep.purpose == Purpose::Tidy && sweep.to == 0 && self.total - u64::from(bytes) >= depth;
            if is_too_deep || sweep.forgets(slot, hash) {
                self.index.remove_slot(hash, slot as u32);
                self.total -= u64::from(bytes);
            } else {
                self.hashes[sweep.to] = hash;
                self.slots[sweep.to] =
                    Held { bytes, uses: Fading::new(uses.count(self.fadings), self.fadings) };
                if sweep.to < slot {
                    self.index.renumber(hash, slot as u32, sweep.to as u32);
                }
                into[sweep.to / BLOCK - to_block] += u64::from(bytes);
                sweep.to += 1;
            }
            sweep.left -= usize::from(slot < sweep.mark);
        }
        sweep.from = self.next.min(sweep.from + BLOCK);
        self.add(block, 0_u64.wrapping_sub(out));
        self.add(to_block, into[0]);
        self.add(to_block + 1, into[1]);
    }

    /// Ends a sweep: the slots after the last swept one are unused again.
    fn end(&mut self, sweep: &Sweep) {
        let block = sweep.to / BLOCK;
        let within = block_sum(&self.slots[block * BLOCK..sweep.to]);
        self.add(block, 0_u64.wrapping_sub(within));
        self.next = sweep.to;
        self.swept_fadings = sweep.fadings;
    }

    /// Weights above a slot, of keys that will remain.
    fn newer_bytes(&self, slot: usize) -> u64 {
        let newer = self.above(slot);
        match self.sweep {
            Some(Sweep { purpose: Purpose::Halve(_), from, mark, .. }) if slot < mark => {
                // Half of the weights that the sweep has not reached yet.
                let ahead = self.above(slot.max(from.saturating_sub(1))).saturating_sub(self.above(mark - 1));
                newer - ahead / 2
            }
            _ => newer,
        }
    }

    fn above(&self, slot: usize) -> u64 {
        let block = slot / BLOCK;
        let within = block_sum(&self.slots[block * BLOCK..=slot]);
        self.total - self.before(block) - within
    }

    /// Sum of the weights in all blocks before this one.
    fn before(&self, block: usize) -> u64 {
        let (mut sum, mut node) = (0_u64, block);
        while node > 0 {
            sum = sum.wrapping_add(self.blocks[node]);
            node &= node - 1;
        }
        sum
    }

    /// Occupies the next slot. Its block is added to the tree once it is full.
    fn fill(&mut self, hash: u64, bytes: u32, uses: u32) {
        let held = Held { bytes, uses: Fading::new(uses, self.fadings) };
        if self.next == self.slots.len() {
            self.hashes.push(hash);
            self.slots.push(held);
        } else {
            (self.hashes[self.next], self.slots[self.next]) = (hash, held);
        }
        self.total += u64::from(bytes);
        self.next += 1;
        if self.next.is_multiple_of(BLOCK) {
            let sum = block_sum(&self.slots[self.next - BLOCK..self.next]);
            self.enter(self.next / BLOCK - 1, sum);
        }
    }

    /// Adds a block's sum to the tree, which gets a new node if the block was never in it.
    fn enter(&mut self, block: usize, sum: u64) {
        let node = block + 1;
        if node < self.blocks.len() {
            return self.add(block, sum);
        }
        let first = node & (node - 1);
        self.blocks.push(self.before(block).wrapping_sub(self.before(first)).wrapping_add(sum));
    }

    fn vacate(&mut self, slot: usize) {
        self.weigh(slot, 0);
        if let Some(sweep) = &mut self.sweep {
            sweep.left -= usize::from(sweep.is_to_come_to(slot));
        }
    }

    /// Changes the weight of a slot's key; 0 empties the slot.
    fn weigh(&mut self, slot: usize, bytes: u32) {
        let old = std::mem::replace(&mut self.slots[slot].bytes, bytes);
        let more = u64::from(bytes).wrapping_sub(u64::from(old));
        self.total = self.total.wrapping_add(more);
        self.add(slot / BLOCK, more);
    }

    /// Adds to a block's sum, modulo 2^64, if the block is in the tree.
    fn add(&mut self, block: usize, bytes: u64) {
        if block >= self.next / BLOCK || bytes == 0 {
            return;
        }
        let mut node = block + 1;
        while node < self.blocks.len() {
            self.blocks[node] = self.blocks[node].wrapping_add(bytes);
            node += node & node.wrapping_neg();
        }
    }
}

fn block_sum(slots: &[Held]) -> u64 {
    slots.iter().map(|held| u64::from(held.bytes)).sum()
}

/// Number of keys for 2^scale slots: the capacity of an index with half as many buckets.
const fn keys_max(scale: u32) -> usize {
    index::keys_max(1 << (scale - 1))
}

/// Memory of 2^scale slots: hash and data of each, their blocks, and an index with half as many
/// buckets.
const fn bytes_of(scale: u32) -> usize {
    let slots = 1 << scale;
    slots * (size_of::<u64>() + size_of::<Held>())
        + (slots / BLOCK + 1) * size_of::<u64>()
        + Index::bytes_at_most(scale - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sherwood_model::SplitMix64;

    use super::*;

    /// Reference implementation of the stack: keys with weights and uses, oldest first.
    #[derive(Debug, Default)]
    struct Plain(Vec<(u64, u32, u32)>);

    impl Plain {
        fn take(&mut self, hash: u64) -> Option<KeyState> {
            let at = self.0.iter().position(|&(known, ..)| known == hash)?;
            let newer_bytes = self.0[at + 1..].iter().map(|&(_, bytes, _)| u64::from(bytes)).sum();
            let (_, bytes, uses) = self.0.remove(at);
            Some(KeyState { uses, newer_bytes, bytes })
        }
    }

    /// The keys that remain, oldest first.
    fn keys(stack: &Stack) -> Vec<(u64, u32, u32)> {
        let slots = stack.hashes.iter().zip(&stack.slots).take(stack.next).enumerate();
        let forgotten = |slot, hash| stack.sweep.is_some_and(|sweep| sweep.forgets(slot, hash));
        let slots = slots.filter(|&(slot, (&hash, held))| held.bytes > 0 && !forgotten(slot, hash));
        slots.map(|(_, (&hash, held))| (hash, held.bytes, held.uses.count(stack.fadings))).collect()
    }

    /// Runs sweeps until none has work left.
    fn tidy(stack: &mut Stack, depth: u64) {
        while !stack.sweep(depth) {}
    }

    #[derive(Clone, Debug)]
    enum Step {
        Refresh(u64),
        Put(u64, u32),
        Remove(u64),
        Sweep,
        Fade,
        Clear,
    }

    fn steps(clears: u32) -> impl Strategy<Value = Vec<Step>> {
        let key = 0_u64..400;
        let step = prop_oneof![
            80 => key.clone().prop_map(Step::Refresh),
            80 => (key.clone(), 1_u32..1000).prop_map(|(key, bytes)| Step::Put(key, bytes)),
            20 => key.prop_map(Step::Remove),
            10 => Just(Step::Sweep),
            2 => Just(Step::Fade),
            clears => Just(Step::Clear),
        ];
        prop::collection::vec(step, 0..2000)
    }

    proptest! {
        #[test]
        fn recency_stack_agrees_with_a_plain_list_at_any_stage_of_a_sweep(
            steps in prop_oneof![Just(1), Just(60)].prop_flat_map(steps)
        ) {
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
                    Step::Sweep => drop(stack.sweep(u64::MAX)),
                    Step::Fade => {
                        plain.0.iter_mut().for_each(|(.., uses)| *uses /= 2);
                        stack.fade();
                    }
                    Step::Clear => {
                        plain.0.clear();
                        stack.clear();
                    }
                }
                if stack.is_due() && stack.sweep(u64::MAX) && stack.is_crowded() {
                    prop_assert!(stack.grow());
                }
                prop_assert_eq!(stack.len(), plain.0.len());
            }
            prop_assert_eq!(&keys(&stack), &plain.0);
            tidy(&mut stack, u64::MAX);
            prop_assert_eq!(keys(&stack), plain.0);
        }

        #[test]
        fn sweep_drops_keys_beyond_the_depth_limit(
            weights in prop::collection::vec(1_u32..100, 1..50),
            depth in 0_u64..3000,
        ) {
            let mut stack = Stack::new(0);
            (0..).zip(&weights).for_each(|(hash, &bytes)| stack.put(hash, bytes));
            tidy(&mut stack, depth);
            let above = |at: usize| weights[at + 1..].iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
            let kept = (0..weights.len()).filter(|&at| above(at) < depth);
            prop_assert_eq!(keys(&stack), kept.map(|at| (at as u64, weights[at], 1)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn half_of_the_unswept_weight_counts_while_the_sample_is_halved() {
        const KEYS: u64 = 10_000;
        const BYTES: u32 = 16;
        let mut stack = Stack::new(usize::MAX);
        // Every second key is to be dropped.
        let hash_of = |key: u64| ((key % 2) << 32) | key;
        for key in 0..KEYS {
            stack.put(hash_of(key), BYTES);
            while stack.is_due() {
                if stack.sweep(u64::MAX) && stack.is_crowded() {
                    stack.grow();
                }
            }
        }
        stack.halve(1);
        let mut used = Vec::new();
        loop {
            let remaining = KEYS / 2 + used.len() as u64 / 2;
            // A key to be dropped, one used before, and the old keys in an order independent of
            // their age.
            assert_eq!(stack.refresh(hash_of(KEYS - 1)), None);
            let key = used.len() as u64 * 26 % KEYS;
            let newer = (KEYS - key) / 2 + used.iter().filter(|&&used| used < key).count() as u64;
            let seen = stack.refresh(hash_of(key)).unwrap();
            let off = seen.newer_bytes.abs_diff(newer * u64::from(BYTES)) / u64::from(BYTES);
            assert!(off <= 2, "key {key}: {} bytes above it, not those of {newer}", seen.newer_bytes);
            assert!((stack.len() as u64).abs_diff(KEYS / 2) <= 64 + remaining - KEYS / 2, "{}", stack.len());
            used.push(key);
            if stack.sweep(u64::MAX) {
                break;
            }
        }
        assert!(used.len() > 100);
        assert_eq!(stack.len() as u64, KEYS / 2);
    }

    #[test]
    fn counter_of_halvings_does_not_wrap_without_sweeps() {
        let mut stack = Stack::new(0);
        stack.put(1, 1);
        (0..1000).for_each(|_| stack.fade());
        assert_eq!(stack.refresh(1).unwrap().uses, 0);
    }

    #[test]
    fn sweeps_of_the_recency_stack_end_under_frequent_clears() {
        let mut stack = Stack::new(100_000);
        let mut hash = SplitMix64::new(1);
        for round in 0..20_000 {
            // A few uses, or more than half of the capacity.
            let uses = if round % 1_000 == 999 { keys_max(stack.scale_max) / 2 } else { round % 5 };
            for _ in 0..uses {
                stack.put(hash.next_u64(), 1);
                if stack.is_due() && stack.sweep(u64::MAX) && stack.is_crowded() {
                    stack.grow();
                }
            }
            assert_eq!(stack.len(), uses);
            assert!(stack.next <= 1 << stack.scale_max, "round {round}: {} slots", stack.next);
            stack.clear();
        }
        assert!(stack.memory_bytes() <= 100_000);
    }

    #[test]
    fn recency_stack_stays_within_its_memory_limit() {
        for memory_bytes in [3_000, 10_000, 100_000, 3_000_000] {
            let mut stack = Stack::new(memory_bytes);
            let reserved = stack.hashes.capacity();
            while stack.grow() {}
            for hash in 0..1 << stack.scale {
                stack.put(SplitMix64::new(hash).next_u64(), 1);
            }
            assert!(stack.memory_bytes() <= memory_bytes, "{memory_bytes}: {}", stack.memory_bytes());
            assert_eq!(
                (stack.next, stack.hashes.capacity()),
                (stack.index.len(), reserved),
                "as many as fit"
            );
            assert!(stack.next > keys_max(stack.scale) / 10 * 9);
        }
    }
}
