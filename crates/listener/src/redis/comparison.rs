//! The condition of `SET` and `DELEX` that a value equals one that the client gives.

use sherwood_wire::resp::Args;

/// A comparison with the present value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison<'a> {
    /// `IFEQ`: the key exists and has this value.
    Equal(&'a [u8]),
    /// `IFNE`: the key has another value, or does not exist.
    Different(&'a [u8]),
}

impl<'a> Comparison<'a> {
    /// Parses the option whose name is argument `index`; none if it is no comparison or lacks its
    /// value.
    pub(super) fn parse(args: Args<'a>, index: usize) -> Option<Self> {
        let value = args.get(index + 1)?;
        match args.get(index)?.to_ascii_lowercase().as_slice() {
            b"ifeq" => Some(Self::Equal(value)),
            b"ifne" => Some(Self::Different(value)),
            _ => None,
        }
    }

    /// Returns true if the comparison holds for `present`, the value of a key, which is none if the
    /// key does not exist.
    pub(super) fn holds(self, present: Option<&[u8]>) -> bool {
        match self {
            Self::Equal(value) => present == Some(value),
            Self::Different(value) => present != Some(value),
        }
    }
}
