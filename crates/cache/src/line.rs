//! The lines of a processor's cache: what threads write is kept apart from what they read.

use std::ops::Deref;

/// A value on a pair of lines of its own, as processors fetch them, so that writing it takes
/// nothing else from other cores.
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
