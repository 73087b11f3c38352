//! Storage of a shard's records.
//!
//! Pages of 64 KiB are divided into slots of one size. Only the index and the neighbours in a queue
//! refer to a record, by its handle (page and offset), so it can be moved, which allows memory to
//! follow the budget. When many slots are free, the emptiest page of a size class is emptied by
//! moving its records one by one into free slots of other pages, and its block is released for
//! another class or another process.

use std::sync::Arc;

use super::record::{self, edit};
use super::sizes::{CLASSES, Class, PAGE_BYTES, class_bytes, class_of};
use super::slot::Slot;
use crate::lines;
use crate::memory::{Block, Supply};

/// Position of a record: its page, and its offset in steps of 8 bytes.
pub(crate) type Handle = u32;

/// No record: the end of a queue.
pub(crate) const NO_HANDLE: Handle = Handle::MAX;

/// Bits of a handle for the offset.
const OFFSET_BITS: u32 = (PAGE_BYTES / 8).ilog2();
/// Largest number of pages of a shard: 32 GiB.
const PAGES_MAX: usize = (1 << (32 - OFFSET_BITS)) - 1;
/// No free slot: the end of a page's free list.
const NO_SLOT: u16 = u16::MAX;
/// Part of all slots that may be free before pages are emptied. Chosen: a thirty-second costs no
/// more than the rounding to size classes, and freeing a page then costs moving at most 31 pages'
/// worth of records.
const FREE_DIVISOR: u64 = 32;
/// Bytes after a header that are prefetched with it: most keys.
const KEY_BYTES: usize = 24;
/// Largest number of bytes prefetched of a record; the rest is read sequentially, which the
/// processor prefetches itself.
const RECORD_BYTES_MAX: usize = 256;
/// Number of open pages examined to find an empty one.
const LOOKS: usize = 64;

/// A shard's pages.
#[derive(Debug)]
pub(crate) struct Pages {
    supply: Arc<Supply>,
    pages: Vec<Page>,
    /// Numbers of pages without a block.
    vacant: Vec<u32>,
    classes: Box<[OfClass]>,
    /// Blocks without a page, to be released in the background, since a memory may return each by a
    /// system call.
    emptied: Vec<Block>,
    /// Bytes of free slots.
    free_bytes: u64,
    slot_bytes: u64,
    evacuation: Option<Evacuation>,
}

#[derive(Debug)]
struct Page {
    block: Option<Block>,
    slot_bytes: u16,
    class: Class,
    /// Number of records in the page.
    live: u16,
    /// Slots of the page ever used; later ones hold nothing and were never written.
    used: u16,
    /// First free slot of the page below `used`.
    free: u16,
    /// Position of the page in its class's list of open pages, if it is there.
    open_at: u32,
}

/// The pages of a size class.
#[derive(Clone, Debug, Default)]
struct OfClass {
    /// Pages with a free slot, in no order. New records go to the last one.
    open: Vec<u32>,
    /// Free slots in open pages.
    free: u32,
    /// Position at which the next search for an empty page begins.
    look: u32,
}

/// A page that is being emptied; it is not in the list of open pages meanwhile.
#[derive(Clone, Copy, Debug)]
struct Evacuation {
    page: u32,
    /// Slots below this are free, or will be before the lock is released.
    slot: u16,
}

/// Threshold of free slots for emptying pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slack {
    /// Two pages' worth of slots of a class, and more than a thirty-second of all classes: emptying
    /// a page is worthwhile, and room is left for the next few records.
    Plenty,
    /// A page's worth of slots of a class, enough for all records of its emptiest page. Used when
    /// memory is exhausted.
    Any,
}

/// Position of a walk over all pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    page: u32,
    slot: u16,
}

impl Pages {
    pub(super) fn new(supply: Arc<Supply>) -> Self {
        Self {
            supply,
            pages: Vec::new(),
            vacant: Vec::new(),
            classes: vec![OfClass::default(); CLASSES].into(),
            emptied: Vec::new(),
            free_bytes: 0,
            slot_bytes: 0,
            evacuation: None,
        }
    }

    /// Returns a copy of the pages, for a copy of the cache: every record keeps its handle.
    pub(super) fn copy(&mut self, supply: &Arc<Supply>) -> Self {
        let page = |page: &mut Page| {
            let Page { ref mut block, slot_bytes, class, live, used, free, open_at } = *page;
            let block = block.as_mut().map(|block| block.copy(supply));
            Page { block, slot_bytes, class, live, used, free, open_at }
        };
        Self {
            supply: Arc::clone(supply),
            pages: self.pages.iter_mut().map(page).collect(),
            vacant: self.vacant.clone(),
            classes: self.classes.clone(),
            emptied: self.emptied.iter_mut().map(|block| block.copy(supply)).collect(),
            free_bytes: self.free_bytes,
            slot_bytes: self.slot_bytes,
            evacuation: self.evacuation,
        }
    }

    /// Allocates a slot for a record of `bytes`. O(1) except for a new page's block.
    pub(super) fn allocate(&mut self, bytes: usize) -> Handle {
        let class = class_of(bytes);
        if self.classes[usize::from(class)].free == 0 {
            self.open_page(class);
        }
        self.take(class)
    }

    /// Takes a free slot of `class`, which has one.
    fn take(&mut self, class: Class) -> Handle {
        let of_class = &mut self.classes[usize::from(class)];
        let number = of_class.open[of_class.open.len() - 1];
        let page = &mut self.pages[number as usize];
        let slot = page.take();
        of_class.free -= 1;
        self.free_bytes -= u64::from(page.slot_bytes);
        if page.live == page.slots() {
            of_class.open.pop();
        } else if page.free != NO_SLOT {
            lines::start(page.slot(usize::from(page.free) * usize::from(page.slot_bytes)).head);
        }
        handle(number, usize::from(slot) * usize::from(page.slot_bytes))
    }

    /// Frees a slot. O(1).
    pub(super) fn free(&mut self, at: Handle) {
        let number = page_of(at);
        let page = &mut self.pages[number as usize];
        let class = usize::from(page.class);
        let was_full = page.live == page.slots();
        page.free(offset_of(at));
        self.free_bytes += u64::from(page.slot_bytes);
        let is_evacuated = self.evacuation.is_some_and(|evacuation| evacuation.page == number);
        if !is_evacuated {
            self.classes[class].free += 1;
            if was_full {
                self.open(number);
            }
        }
        if self.pages[number as usize].live == 0 {
            self.close_page(number);
        }
    }

    /// A slot for reading.
    #[inline(always)]
    pub(super) fn slot(&self, at: Handle) -> Slot<'_> {
        self.pages[page_of(at) as usize].slot(offset_of(at))
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self, at: Handle) -> &mut [u8] {
        let page = &mut self.pages[page_of(at) as usize];
        let start = offset_of(at);
        let end = start + usize::from(page.slot_bytes);
        &mut page.block_mut()[start..end]
    }

    /// Prefetches a record's header and key.
    #[inline]
    pub(super) fn prefetch(&self, at: Handle) {
        let slot = self.slot(at);
        lines::start(slot.head);
        lines::element(slot.rest, KEY_BYTES.min(slot.rest.len()).saturating_sub(1));
    }

    /// Prefetches a record's header.
    #[inline]
    pub(super) fn prefetch_header(&self, at: Handle) {
        lines::start(self.slot(at).head);
    }

    /// Prefetches a record and the beginning of its value.
    #[inline]
    pub(super) fn prefetch_all(&self, at: Handle) {
        let slot = self.slot(at);
        lines::start(slot.head);
        lines::bytes(slot.rest, RECORD_BYTES_MAX);
    }

    /// Bytes of two different slots, the second for writing.
    pub(super) fn pair(&mut self, from: Handle, to: Handle) -> (&[u8], &mut [u8]) {
        let (from_page, to_page) = (page_of(from) as usize, page_of(to) as usize);
        let (from, to) = (offset_of(from), offset_of(to));
        if from_page == to_page {
            let size = usize::from(self.pages[from_page].slot_bytes);
            let block = self.pages[from_page].block_mut();
            let [from, to] =
                block.get_disjoint_mut([from..from + size, to..to + size]).expect("slots do not overlap");
            return (from, to);
        }
        let [from_page, to_page] =
            self.pages.get_disjoint_mut([from_page, to_page]).expect("two different pages");
        let (from_size, to_size) = (usize::from(from_page.slot_bytes), usize::from(to_page.slot_bytes));
        (&from_page.block_mut()[from..from + from_size], &mut to_page.block_mut()[to..to + to_size])
    }

    /// Size of the slot at `at`, in bytes.
    pub(super) fn slot_bytes(&self, at: Handle) -> usize {
        usize::from(self.pages[page_of(at) as usize].slot_bytes)
    }

    /// True if the slot of an evicted item can be reused for a record of `bytes`: it has the right
    /// size and its page is not being emptied.
    pub(super) fn suits(&self, at: Handle, bytes: usize) -> bool {
        let number = page_of(at);
        self.pages[number as usize].class == class_of(bytes)
            && self.evacuation.is_none_or(|evacuation| evacuation.page != number)
    }

    /// Visits at most `slots_max` slots from `from` on and calls `see` with the records in them.
    /// Returns the number of slots visited and the position to continue at, or none at the end.
    pub(crate) fn walk(
        &self,
        from: Cursor,
        slots_max: usize,
        mut see: impl FnMut(Handle),
    ) -> (usize, Option<Cursor>) {
        let mut seen = 0;
        let mut cursor = from;
        while let Some(page) = self.pages.get(cursor.page as usize) {
            while cursor.slot < page.used {
                if seen == slots_max {
                    return (seen, Some(cursor));
                }
                let start = usize::from(cursor.slot) * usize::from(page.slot_bytes);
                if record::is_occupied(&page.slot(start)) {
                    see(handle(cursor.page, start));
                }
                seen += 1;
                cursor.slot += 1;
            }
            // A page counts as a slot, so that a walk over many vacant pages is bounded.
            seen += 1;
            cursor = Cursor { page: cursor.page + 1, slot: 0 };
            if seen >= slots_max {
                return (seen, Some(cursor));
            }
        }
        (seen, None)
    }

    /// True if enough slots are free for a page to be emptied, or one is being emptied.
    pub(super) fn has_slack(&self, slack: Slack) -> bool {
        let is_worth_it = || self.free_bytes > (2 * PAGE_BYTES) as u64 + self.slot_bytes / FREE_DIVISOR;
        self.evacuation.is_some()
            || ((slack == Slack::Any || is_worth_it()) && self.slackest(slack).is_some())
    }

    /// Records to be moved to other slots of their class: at most `items_max`, of at most
    /// `bytes_max` or a single one, and no more than there are free slots. The caller moves all of
    /// them. None if there was nothing to move; only to be called while there is slack.
    pub(super) fn evacuees(&mut self, slack: Slack, items_max: usize, bytes_max: usize) -> Vec<Handle> {
        let Some(evacuation) = self.evacuation.or_else(|| self.begin_evacuation(slack)) else {
            return Vec::new();
        };
        let Evacuation { page: number, mut slot } = evacuation;
        let page = &self.pages[number as usize];
        let size = usize::from(page.slot_bytes);
        let slots = self.classes[usize::from(page.class)].free as usize;
        if slots == 0 {
            self.give_up_evacuation(number);
            return Vec::new();
        }
        let count_max = items_max.min((bytes_max / size).max(1)).min(slots);
        let mut found = Vec::with_capacity(count_max);
        while slot < page.used && found.len() < count_max {
            let start = usize::from(slot) * size;
            if record::is_occupied(&page.slot(start)) {
                found.push(handle(number, start));
            }
            slot += 1;
        }
        self.evacuation = Some(Evacuation { page: number, slot });
        found
    }

    /// Keeps a page that was being emptied, because other pages have filled up meanwhile.
    fn give_up_evacuation(&mut self, number: u32) {
        self.evacuation = None;
        let page = &self.pages[number as usize];
        self.classes[usize::from(page.class)].free += u32::from(page.slots() - page.live);
        if page.live < page.slots() {
            self.open(number);
        }
    }

    /// Allocates a slot for `evacuee`; the caller copies the bytes before it frees the old slot.
    pub(super) fn slot_for(&mut self, evacuee: Handle) -> Handle {
        self.take(self.pages[page_of(evacuee) as usize].class)
    }

    fn begin_evacuation(&mut self, slack: Slack) -> Option<Evacuation> {
        let class = self.slackest(slack)?;
        let of_class = &mut self.classes[class];
        let first = of_class.look as usize;
        of_class.look = of_class.look.wrapping_add(LOOKS as u32);
        let open = &of_class.open;
        let looked_at = (0..open.len().min(LOOKS)).map(|look| open[(first + look) % open.len()]);
        let number = looked_at.min_by_key(|&number| self.pages[number as usize].live)?;
        let page = &self.pages[number as usize];
        of_class.free -= u32::from(page.slots() - page.live);
        self.unlist(number);
        let evacuation = Evacuation { page: number, slot: 0 };
        self.evacuation = Some(evacuation);
        Some(evacuation)
    }

    /// The class with the most pages' worth of free slots, if that is enough.
    fn slackest(&self, slack: Slack) -> Option<usize> {
        let pages =
            |class: usize| self.classes[class].free as usize / (PAGE_BYTES / class_bytes(class as Class));
        let class = (0..CLASSES).max_by_key(|&class| pages(class))?;
        let enough = match slack {
            Slack::Plenty => 2,
            Slack::Any => 1,
        };
        (pages(class) >= enough).then_some(class)
    }

    fn open_page(&mut self, class: Class) {
        let block = self.emptied.pop().unwrap_or_else(|| self.supply.block(PAGE_BYTES));
        let page = Page::new(class, block);
        self.classes[usize::from(class)].free += u32::from(page.slots());
        self.free_bytes += page.all_slots_bytes();
        self.slot_bytes += page.all_slots_bytes();
        let number = match self.vacant.pop() {
            Some(number) => {
                self.pages[number as usize] = page;
                number
            }
            None => {
                assert!(self.pages.len() < PAGES_MAX, "a shard's small items take less than 32 GiB");
                self.pages.push(page);
                self.pages.len() as u32 - 1
            }
        };
        self.open(number);
    }

    /// Releases a page without records.
    fn close_page(&mut self, number: u32) {
        if self.evacuation.is_some_and(|evacuation| evacuation.page == number) {
            self.evacuation = None;
        } else {
            let page = &self.pages[number as usize];
            self.classes[usize::from(page.class)].free -= u32::from(page.slots());
            self.unlist(number);
        }
        let page = &mut self.pages[number as usize];
        let bytes = page.all_slots_bytes();
        self.emptied.extend(page.block.take());
        page.used = 0;
        self.free_bytes -= bytes;
        self.slot_bytes -= bytes;
        self.vacant.push(number);
    }

    /// At most `count_max` of the unused blocks, to be dropped after the lock is released. One is
    /// kept, so that a class whose size fluctuates does not allocate repeatedly.
    pub(super) fn take_emptied(&mut self, count_max: usize) -> Vec<Block> {
        let count = self.emptied.len().saturating_sub(1).min(count_max);
        self.emptied.split_off(self.emptied.len() - count)
    }

    fn open(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        let open = &mut self.classes[usize::from(page.class)].open;
        page.open_at = open.len() as u32;
        open.push(number);
    }

    /// Removes a page from its class's list.
    fn unlist(&mut self, number: u32) {
        let page = &self.pages[number as usize];
        let (class, at) = (usize::from(page.class), page.open_at as usize);
        let open = &mut self.classes[class].open;
        open.swap_remove(at);
        if let Some(&moved) = open.get(at) {
            self.pages[moved as usize].open_at = at as u32;
        }
    }
}

#[cfg(test)]
impl Pages {
    /// Checks the sums of free bytes and slots against the pages.
    pub(super) fn check(&self) {
        let all = self.pages.iter().filter(|page| page.block.is_some());
        let free = |page: &Page| u64::from(page.slots() - page.live) * u64::from(page.slot_bytes);
        assert_eq!(self.slot_bytes, all.clone().map(Page::all_slots_bytes).sum::<u64>());
        assert_eq!(self.free_bytes, all.clone().map(free).sum::<u64>());
        for (class, of_class) in self.classes.iter().enumerate() {
            let open = of_class.open.iter().map(|&number| &self.pages[number as usize]);
            assert_eq!(of_class.free, open.map(|page| u32::from(page.slots() - page.live)).sum::<u32>());
            for (at, &number) in of_class.open.iter().enumerate() {
                let page = &self.pages[number as usize];
                assert_eq!((usize::from(page.class), page.open_at as usize), (class, at));
            }
        }
    }

    pub(super) fn all_slot_bytes(&self) -> u64 {
        self.slot_bytes
    }
}

impl Page {
    fn new(class: Class, block: Block) -> Self {
        let slot_bytes = class_bytes(class) as u16;
        Self { block: Some(block), slot_bytes, class, live: 0, used: 0, free: NO_SLOT, open_at: 0 }
    }

    fn slots(&self) -> u16 {
        (PAGE_BYTES / usize::from(self.slot_bytes)) as u16
    }

    fn all_slots_bytes(&self) -> u64 {
        u64::from(self.slots()) * u64::from(self.slot_bytes)
    }

    /// The slot at an offset.
    #[inline(always)]
    fn slot(&self, offset: usize) -> Slot<'_> {
        let block = self.block.as_ref().expect("a page with records has a block");
        Slot::new(block, offset, usize::from(self.slot_bytes))
    }

    #[inline]
    fn block_mut(&mut self) -> &mut Block {
        self.block.as_mut().expect("a page with records has a block")
    }

    /// Takes a free slot, of which there must be one.
    fn take(&mut self) -> u16 {
        self.live += 1;
        if self.free == NO_SLOT {
            self.used += 1;
            return self.used - 1;
        }
        let slot = self.free;
        let start = usize::from(slot) * usize::from(self.slot_bytes);
        let next = &self.block_mut()[start..start + 2];
        self.free = u16::from_le_bytes([next[0], next[1]]);
        slot
    }

    /// Frees the slot at an offset and links it to the slot freed before.
    fn free(&mut self, offset: usize) {
        let (size, next) = (usize::from(self.slot_bytes), self.free);
        let slot = &mut self.block_mut()[offset..offset + size];
        edit::set_free(slot);
        slot[..2].copy_from_slice(&next.to_le_bytes());
        self.free = (offset / size) as u16;
        self.live -= 1;
    }
}

#[inline]
fn handle(page: u32, offset: usize) -> Handle {
    (page << OFFSET_BITS) | (offset / 8) as u32
}

#[inline]
fn page_of(at: Handle) -> u32 {
    at >> OFFSET_BITS
}

#[inline]
fn offset_of(at: Handle) -> usize {
    (at & ((1 << OFFSET_BITS) - 1)) as usize * 8
}
