//! The answers of a client's turn.
//!
//! Answers are bytes that the conversation appends. Large values are not copied among them but sent
//! from the memory of their items ([`Pinned`]): copying one costs more than sending it in a part of
//! its own. They are pinned for a turn only. What the system does not take then is copied as the
//! client's pending output, so that a slow reader keeps no memory of the cache.

use std::io::IoSlice;
use std::ops::{Deref, DerefMut};

use sherwood_cache::{Item, Pinned};

use super::lent::Empty;
use super::options::ListenerOptions;
use super::sockets::Outgoing;
use super::work::Work;

/// Size from which a value is sent from its item's memory, bytes. Measured: copying a smaller one
/// into the output takes no longer than to pin it and to send it as a part.
const PINNED_BYTES_MIN: usize = 12 << 10;
/// Number of values pinned at a time; further ones are copied. Below half of the 1,024 parts that a
/// system call accepts.
const PINNED_MAX: usize = 64;
/// Bytes of pinned values that are sent at once, as a multiple of the bound of other output.
/// Chosen: a turn that sends them takes about as long as one that stores a value of the largest
/// size.
const PINNED_RATIO: usize = 16;
/// Room for a line before a value and the line end behind it.
const LINE_BYTES: usize = sherwood_wire::memcached::reply::VALUE_LINE_BYTES_MAX;

/// Bytes to be sent, with values that lie elsewhere. Derefs to the bytes without these values,
/// which are to be shortened by [`reset`](Self::reset) only.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    values: Vec<Placed>,
    /// Bytes of all `values`.
    pinned: usize,
    /// Cost, so far, of the scheduling turn that produces these answers. Sending or clearing the
    /// answers does not change it.
    pub(super) work: Work,
}

/// A value to be sent before the byte of the output at an offset, which does not count values.
#[derive(Debug)]
struct Placed {
    at: usize,
    value: Pinned,
}

/// A length of the output, to which it can be [reset](Output::reset).
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    bytes: usize,
    values: usize,
}

/// Inserts answers into `out`, each at an offset into the contents of `out` before the call, in
/// ascending order. Takes time in proportion to the bytes after the first offset.
pub(super) fn insert<T>(
    out: &mut Vec<u8>,
    answers: impl Iterator<Item = (usize, T)>,
    mut append: impl FnMut(T, &mut Vec<u8>),
) {
    let mut answers = answers.peekable();
    let Some(&(first, _)) = answers.peek() else { return };
    let behind = out.split_off(first);
    let mut copied = 0;
    for (at, answer) in answers {
        out.extend_from_slice(&behind[copied..at - first]);
        copied = at - first;
        append(answer, out);
    }
    out.extend_from_slice(&behind[copied..]);
}

impl Output {
    /// Returns the number of bytes to be sent, pinned values included.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.pinned
    }

    /// Returns true if the output has to be sent before another command is executed, because of its
    /// size or because the scheduling turn has done enough work. Pinned values take no memory
    /// unless the client does not read: several of them are sent at once, no more than can be
    /// copied within the bound of a connection's output.
    pub(super) fn is_full(&self, options: &ListenerOptions) -> bool {
        let pinned_max = (PINNED_RATIO * options.output_bytes_max).min(options.item_size_max as usize);
        self.bytes.len() >= options.output_bytes_max || self.pinned >= pinned_max || self.work.ends_turn()
    }

    /// Returns the bytes that were appended since the mark was taken, pinned values included.
    pub(super) fn appended(&self, mark: Mark) -> usize {
        let pinned = self.values.iter().skip(mark.values).map(|placed| placed.value.len()).sum::<usize>();
        self.bytes.len().saturating_sub(mark.bytes) + pinned
    }

    /// Returns true if there is nothing to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.values.is_empty()
    }

    /// Appends a value of `item` that the protocol announces by a line, which `line` appends, and
    /// ends by CR LF. Pins it if it is the item's whole value and so large that this pays.
    pub(super) fn value(&mut self, item: &Item<'_>, value: &[u8], line: impl FnOnce(&mut Vec<u8>)) {
        self.bare_value(item, value, line);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends a value like [`value`](Self::value), but without a line end after it; `head` appends
    /// the bytes before it.
    #[inline]
    pub(super) fn bare_value(&mut self, item: &Item<'_>, value: &[u8], head: impl FnOnce(&mut Vec<u8>)) {
        if let Some(pinned) = self.pin(item, value) {
            head(&mut self.bytes);
            self.pinned += pinned.len();
            self.values.push(Placed { at: self.bytes.len(), value: pinned });
        } else {
            self.bytes.reserve(LINE_BYTES + value.len());
            head(&mut self.bytes);
            self.bytes.extend_from_slice(value);
        }
    }

    #[inline]
    fn pin(&self, item: &Item<'_>, value: &[u8]) -> Option<Pinned> {
        if value.len() < PINNED_BYTES_MIN
            || value.len() != item.value.len()
            || self.values.len() == PINNED_MAX
        {
            return None;
        }
        item.pin()
    }

    /// Returns the present length.
    pub(super) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), values: self.values.len() }
    }

    /// Removes everything that was appended since the mark was taken.
    pub(super) fn reset(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        let removed = self.values.drain(mark.values.min(self.values.len())..);
        self.pinned -= removed.map(|placed| placed.value.len()).sum::<usize>();
    }

    /// Returns the parts to be sent in order, none of them empty.
    pub(super) fn parts(&self) -> Vec<IoSlice<'_>> {
        let mut parts = Vec::with_capacity(2 * self.values.len() + 1);
        let mut from = 0;
        for Placed { at, value } in &self.values {
            parts.extend([&self.bytes[from..*at], value]);
            from = *at;
        }
        parts.push(&self.bytes[from..]);
        parts.into_iter().filter(|part| !part.is_empty()).map(IoSlice::new).collect()
    }

    /// Returns all bytes as one operation of a round.
    pub(super) fn outgoing(&self) -> Outgoing<'_> {
        if self.has_values() { Outgoing::Parts(self.parts()) } else { Outgoing::One(&self.bytes) }
    }

    /// Returns true if values are pinned.
    pub(super) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Takes the answers out like [`into_pending`](Self::into_pending), but keeps the count of
    /// work.
    pub(super) fn take_pending(&mut self, sent: usize) -> (Vec<u8>, usize) {
        let work = self.work;
        let answers = std::mem::take(self);
        self.work = work;
        answers.into_pending(sent)
    }

    /// Removes the answers after they were sent, but keeps the count of work.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.values.clear();
        self.pinned = 0;
    }

    /// Returns bytes of which the part behind the returned offset is still to be sent when `sent`
    /// bytes have been sent. Values are copied, and no longer pinned.
    pub(super) fn into_pending(self, sent: usize) -> (Vec<u8>, usize) {
        if self.values.is_empty() {
            return (self.bytes, sent);
        }
        let mut parts = self.parts();
        let mut rest = &mut parts[..];
        IoSlice::advance_slices(&mut rest, sent);
        let mut pending = Vec::with_capacity(self.len() - sent);
        rest.iter().for_each(|part| pending.extend_from_slice(part));
        (pending, 0)
    }
}

impl Deref for Output {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Output {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Empty for Output {
    fn empty(&mut self) {
        self.clear();
        self.work = Work::default();
    }

    fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use sherwood_cache::{Access, Cache, NewItem, Options, Partition};
    use sherwood_model::{BackendId, Instant, PartitionId, SeededState, TenantId};

    use super::*;

    const SMALL: usize = PINNED_BYTES_MIN - 1;
    const LARGE: usize = PINNED_BYTES_MIN;

    /// Appends the value of an item of `bytes` bytes; returns true if it was pinned.
    fn append(output: &mut Output, bytes: usize) -> bool {
        let partition = Partition::new(TenantId(0), BackendId(0), 32 << 20);
        let cache = Cache::new(Options::default(), &[partition], SeededState::new(1)).expect("valid options");
        let access = Access::at(Instant::from_secs(1));
        let value: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        cache.set(PartitionId(0), b"k", NewItem::bytes(&value), &access).expect("it fits");
        let before = output.values.len();
        let append = |item: Item<'_>| output.value(&item, &value, |out| out.push(b'>'));
        cache.get(PartitionId(0), b"k", &access, append).expect("it was stored");
        output.values.len() > before
    }

    fn text(output: &Output) -> Vec<u8> {
        output.parts().iter().flat_map(|part| part.to_vec()).collect()
    }

    /// A value of `bytes` bytes as it is appended.
    fn appended(bytes: usize) -> Vec<u8> {
        let value = (0..bytes).map(|at| at as u8);
        [b'>'].into_iter().chain(value).chain(*b"\r\n").collect()
    }

    #[test]
    fn large_value_is_sent_between_the_bytes_around_it_and_a_small_one_is_copied() {
        let make = || {
            let mut output = Output::default();
            assert!(append(&mut output, LARGE));
            output.extend_from_slice(b"one");
            assert!(append(&mut output, LARGE) && append(&mut output, LARGE));
            assert!(!append(&mut output, SMALL));
            output
        };
        let large = appended(LARGE);
        let expected = [&large[..], b"one", &large, &large, &appended(SMALL)].concat();
        let output = make();
        assert!(text(&output) == expected && output.len() == expected.len());
        assert_eq!(output.parts().len(), 7);
        for sent in [0, 1, LARGE, LARGE + 1, LARGE + 2, 2 * LARGE + 3, expected.len() - 1] {
            let (pending, from) = make().into_pending(sent);
            assert!(pending[from..] == expected[sent..], "{sent} bytes were sent");
        }
    }

    #[test]
    fn output_that_is_reset_keeps_what_was_appended_before_the_mark() {
        let mut output = Output::default();
        append(&mut output, LARGE);
        output.extend_from_slice(b"kept");
        let (mark, kept) = (output.mark(), text(&output));
        append(&mut output, LARGE);
        output.extend_from_slice(b"removed");
        output.reset(mark);
        assert!(text(&output) == kept && output.len() == kept.len());
        output.empty();
        assert!(output.is_empty());
    }

    #[test]
    fn values_beyond_the_limit_are_copied() {
        let mut output = Output::default();
        let pinned = (0..=PINNED_MAX).filter(|_| append(&mut output, LARGE)).count();
        assert_eq!((pinned, output.len()), (PINNED_MAX, (PINNED_MAX + 1) * appended(LARGE).len()));
        assert!(output.parts().len() <= 1024);
    }
}
