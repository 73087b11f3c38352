//! Arguments of Redis requests.

use std::borrow::Cow;

/// The arguments of a request, the command's name first, borrowing from the buffer they were parsed
/// from. Every request has a name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) spans: &'a [Span],
}

/// The position of an argument in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl<'a> Args<'a> {
    /// The number of arguments, the command's name included.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a request has at least a name")]
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// The argument at `index`, none after the last one. The command's name is at 0.
    #[must_use]
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        let Span { start, len } = *self.spans.get(index)?;
        self.bytes.get(start as usize..start as usize + len as usize)
    }

    /// Returns a copy of the request whose arguments are those that `change` returns for each, by
    /// its index. The copy takes the sum of their lengths, which is below 4 GiB, and 8 bytes each.
    pub fn changed(self, mut change: impl FnMut(usize, &'a [u8]) -> Cow<'a, [u8]>) -> OwnedRequest {
        let bytes: usize = self.from(0).map(<[u8]>::len).sum();
        let (mut bytes, mut spans) = (Vec::with_capacity(bytes), Vec::with_capacity(self.len()));
        for (index, argument) in self.from(0).enumerate() {
            let argument = change(index, argument);
            spans.push(Span { start: bytes.len() as u32, len: argument.len() as u32 });
            bytes.extend_from_slice(&argument);
        }
        OwnedRequest { bytes, spans }
    }

    /// Iterates over the arguments from `index` on.
    #[must_use]
    pub fn from(self, index: usize) -> Iter<'a> {
        Iter { args: self, next: index }
    }
}

/// A copy of a request.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedRequest {
    /// The arguments of the request.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }
}

/// An iterator over the arguments of a request, in order.
#[derive(Clone, Copy, Debug)]
pub struct Iter<'a> {
    args: Args<'a>,
    next: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let argument = self.args.get(self.next)?;
        self.next += 1;
        Some(argument)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.args.len().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_> {}
