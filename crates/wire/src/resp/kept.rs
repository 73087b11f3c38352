//! Requests that are kept to be executed later, as a transaction does.

use super::args::{Args, Span};

/// Requests in the order of their arrival, copied from the buffers they were parsed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptRequests {
    /// The bytes of all arguments, without anything between them.
    bytes: Vec<u8>,
    /// The arguments of all requests.
    spans: Vec<Span>,
    /// The number of arguments of this request and all before it, for each.
    ends: Vec<u32>,
}

/// The capacities of the three buffers of [`KeptRequests`], elements.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    spans: usize,
    ends: usize,
}

impl Room {
    /// The memory of buffers with these capacities, bytes.
    fn memory(self) -> usize {
        self.bytes + self.spans * size_of::<Span>() + self.ends * size_of::<u32>()
    }
}

/// The new capacity of a buffer that has to hold `needed` elements. If it has to grow, its capacity
/// doubles, but to at most `most` unless more elements are needed.
fn grown(capacity: usize, needed: usize, most: usize) -> usize {
    if needed <= capacity { capacity } else { needed.max((2 * capacity).min(most)) }
}

impl KeptRequests {
    /// The memory of the buffers once a copy of this request is added, bytes; none if
    /// [`bytes`](Self::bytes) would be more than `bytes_max`, which is below 4 GiB.
    #[must_use]
    pub fn capacity_with(&self, args: Args<'_>, bytes_max: usize) -> Option<usize> {
        self.room_with(args, bytes_max).map(Room::memory)
    }

    /// Adds a copy of a request, unless that would make [`bytes`](Self::bytes) more than
    /// `bytes_max`. Returns true if it was added. `bytes_max` is below 4 GiB.
    #[must_use]
    pub fn push(&mut self, args: Args<'_>, bytes_max: usize) -> bool {
        let Some(room) = self.room_with(args, bytes_max) else { return false };
        self.bytes.reserve_exact(room.bytes - self.bytes.len());
        self.spans.reserve_exact(room.spans - self.spans.len());
        self.ends.reserve_exact(room.ends - self.ends.len());
        for arg in args.from(0) {
            // Both are below 4 GiB, as their sum is.
            self.spans.push(Span { start: self.bytes.len() as u32, len: arg.len() as u32 });
            self.bytes.extend_from_slice(arg);
        }
        self.ends.push(self.spans.len() as u32);
        true
    }

    /// The capacities needed to add a copy of this request; none if the requests would then take
    /// more than `bytes_max`.
    fn room_with(&self, args: Args<'_>, bytes_max: usize) -> Option<Room> {
        let bytes_max = bytes_max.min(u32::MAX as usize);
        let bytes = self.bytes.len() + args.from(0).map(<[u8]>::len).sum::<usize>();
        let (spans, ends) = (self.spans.len() + args.len(), self.ends.len() + 1);
        if (Room { bytes, spans, ends }).memory() > bytes_max {
            return None;
        }
        Some(Room {
            bytes: grown(self.bytes.capacity(), bytes, bytes_max),
            spans: grown(self.spans.capacity(), spans, bytes_max / size_of::<Span>()),
            ends: grown(self.ends.capacity(), ends, bytes_max / size_of::<u32>()),
        })
    }

    /// The memory of the buffers, including their unused capacity, bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let (bytes, spans) = (self.bytes.capacity(), self.spans.capacity());
        Room { bytes, spans, ends: self.ends.capacity() }.memory()
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes that the requests take, in use and without what buffers hold in reserve.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.spans[..]) + size_of_val(&self.ends[..])
    }

    /// The requests, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Args<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let spans = &self.spans[std::mem::replace(&mut start, end as usize)..end as usize];
            Args { bytes: &self.bytes, spans }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event, Limits, Parser, client};
    use super::*;

    const LIMITS: Limits = Limits { argument_bytes_max: 100, request_bytes_max: 1000 };

    fn push(kept: &mut KeptRequests, words: &[&[u8]], bytes_max: usize) -> bool {
        let mut input = Vec::new();
        client::request(&mut input, words);
        let mut parser = Parser::new(LIMITS);
        let Event::Request(args) = parser.parse(&input).event else { panic!("a whole request") };
        kept.push(args, bytes_max)
    }

    #[test]
    fn kept_requests_are_returned_as_they_came() {
        let mut kept = KeptRequests::default();
        assert!(kept.is_empty());
        let requests: [&[&[u8]]; 3] = [&[b"SET", b"k", b"a\r\n\0b"], &[b"PING"], &[b"GET", b""]];
        for words in requests {
            assert!(push(&mut kept, words, 1000));
        }
        let returned: Vec<Vec<&[u8]>> = kept.iter().map(|args| args.from(0).collect()).collect();
        assert_eq!((returned, kept.len()), (requests.map(<[&[u8]]>::to_vec).to_vec(), 3));
    }

    #[test]
    fn memory_for_a_copied_request_is_predicted_exactly_before_it_is_copied() {
        let mut kept = KeptRequests::default();
        assert_eq!(kept.capacity(), 0);
        for length in [0, 1, 40, 300, 5, 5, 700, 1, 2000, 1, 1, 1] {
            let value = vec![b'v'; length];
            let mut input = Vec::new();
            client::request(&mut input, &[b"SET", b"k", &value]);
            let mut parser = Parser::new(Limits { argument_bytes_max: 4000, request_bytes_max: 5000 });
            let Event::Request(args) = parser.parse(&input).event else { panic!("a whole request") };
            let expected = kept.capacity_with(args, 1 << 20).expect("within the bound");
            assert!(kept.push(args, 1 << 20));
            assert!(kept.capacity() == expected && kept.capacity() >= kept.bytes(), "{length} bytes");
        }
        let all = kept.bytes();
        while push(&mut kept, &[b"PING"], 2 * all) {}
        assert!((2 * all - 100..=2 * all).contains(&kept.bytes()), "{} of {}", kept.bytes(), 2 * all);
        assert!(kept.capacity() < 4 * all, "{} of {}", kept.capacity(), 2 * all);
    }

    #[test]
    fn request_beyond_the_bound_is_not_kept() {
        let mut kept = KeptRequests::default();
        assert!(push(&mut kept, &[b"PING"], 1000));
        let bytes = kept.bytes();
        assert!(!push(&mut kept, &[b"PING"], 2 * bytes - 1));
        assert_eq!((kept.len(), kept.bytes()), (1, bytes));
        assert!(push(&mut kept, &[b"PING"], 2 * bytes));
        assert_eq!(kept.bytes(), 2 * bytes);
    }
}
