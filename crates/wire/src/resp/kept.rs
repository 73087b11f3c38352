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

impl KeptRequests {
    /// Adds a copy of a request, unless that would make [`bytes`](Self::bytes) more than
    /// `bytes_max`. Returns true if it was added. `bytes_max` is below 4 GiB.
    #[must_use]
    pub fn push(&mut self, args: Args<'_>, bytes_max: usize) -> bool {
        let added: usize = args.from(0).map(|arg| arg.len() + size_of::<Span>()).sum();
        if self.bytes() + added + size_of::<u32>() > bytes_max.min(u32::MAX as usize) {
            return false;
        }
        for arg in args.from(0) {
            // Both are below 4 GiB, as their sum is.
            self.spans.push(Span { start: self.bytes.len() as u32, len: arg.len() as u32 });
            self.bytes.extend_from_slice(arg);
        }
        self.ends.push(self.spans.len() as u32);
        true
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
