//! Separation of written from read data by cache line.

use std::ops::Deref;

/// A value on its own pair of cache lines, which is what processors fetch, so that writing it does
/// not invalidate other data in other cores.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
