//! The lines of a processor's cache: what threads write is kept apart from what they read, and what will be read soon is
//! asked for early.
//!
//! Most of what an access costs is waiting for lines, so the order in which they are asked for matters more than the number
//! of instructions.

use std::ops::Deref;

/// A value on a pair of lines of its own, as processors fetch them, so that writing it takes nothing else from other cores.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> Deref for Line<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Asks for the line of `value`: it is read, and nothing depends on what it is, so that the processor goes on meanwhile.
#[inline]
pub(crate) fn touch<T: Copy>(value: &T) {
    std::hint::black_box(*value);
}
